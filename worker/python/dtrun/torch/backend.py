"""A backend of torch.distributed for tensors in host memory (torch 2 or newer).

    import dtrun.torch.backend                     # registers it
    torch.distributed.init_process_group("dtrun")

Its ranks are those that dtrun has started. Operations of a group are done one after the other, in a thread;
messages between two ranks arrive in the order in which they are sent, whatever their tags are.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist

from ..collectives import Communicator
from . import _tensors as t
from .basics import shared_worker

if not hasattr(dist, "ProcessGroup") or int(torch.__version__.split(".", maxsplit=1)[0]) < 2:
    raise ImportError("the backend \"dtrun\" of torch.distributed needs torch 2 or newer, not "
                      f"{torch.__version__}: use dtrun.torch, or dtrun.torch.hooks over gloo")

from torch._C._distributed_c10d import _create_work_from_future  # noqa: E402

Tensors = Sequence[torch.Tensor]

_REDUCTIONS = {dist.ReduceOp.SUM: t.SUM, dist.ReduceOp.AVG: t.AVERAGE, dist.ReduceOp.PRODUCT: t.PRODUCT,
               dist.ReduceOp.MIN: t.MIN, dist.ReduceOp.MAX: t.MAX}


def _reduction(opts: Any) -> int:
    for op, number in _REDUCTIONS.items():
        if opts.reduceOp == op:
            return number
    raise ValueError(f"the backend \"dtrun\" reduces with SUM, AVG, PRODUCT, MIN and MAX, not {opts.reduceOp}")


class _Flat:
    """A tensor's elements one behind the other: the tensor itself if they are, else a copy."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu":
            raise ValueError(f"the backend \"dtrun\" is for tensors in host memory, not on {tensor.device}")
        self.given = tensor
        self.flat = tensor.detach().contiguous()

    def put_back(self) -> None:
        if self.flat.data_ptr() != self.given.data_ptr():
            self.given.detach().copy_(self.flat)


class ProcessGroupDtrun(dist.ProcessGroup):
    """All ranks of the job, as a process group."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        worker = shared_worker()
        if (worker.rank, worker.world_size) != (rank, size):
            raise ValueError(f"the backend \"dtrun\" is for groups of all {worker.world_size} ranks that dtrun "
                             f"has started, in their order, not for rank {rank} of {size}: make smaller groups "
                             "with new_group(ranks, backend=\"gloo\")")
        self._rank, self._size = rank, size
        comm = Communicator(worker)
        self._comm = t.TensorCommunicator(comm)
        self._thread = t.InOrder("dtrun-collectives")
        # Messages to higher and to lower ranks have communicators of their own, so that two ranks that both
        # receive first, or both send first, do not wait for each other.
        self._messages = [(t.TensorCommunicator(comm.split(0, rank)), t.InOrder(f"dtrun-messages-{way}"))
                          for way in ("up", "down")] if size > 1 else []

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        return "dtrun"

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    @property
    def pg_name(self) -> str:
        return "dtrun"

    def shutdown(self) -> None:
        """Waits for what is under way, and ends the communicators."""
        self._thread.close()
        for messages, thread in self._messages:
            thread.close()
            messages.comm.close()
        self._comm.comm.close()

    def _start(self, job: Callable[[], None], flat: Sequence[_Flat] = (), results: Any = None,
               thread: Optional[t.InOrder] = None) -> Any:
        """:param flat: tensors whose results are put back; :param results: of the future"""
        def run() -> Any:
            job()
            for tensor in flat:
                tensor.put_back()
            return results if results is not None else [tensor.given for tensor in flat]
        return _create_work_from_future((thread or self._thread).submit(run))

    # ---- reductions ----

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        op = t.SUM if opts is None else _reduction(opts)
        flat = [_Flat(tensor) for tensor in tensors]
        dtypes = list(dict.fromkeys(tensor.flat.dtype for tensor in flat))

        def job() -> None:
            for dtype in dtypes:
                t.reduce_many(self._comm.comm, [f.flat for f in flat if f.flat.dtype == dtype], op)
        return self._start(job, flat)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        flat, op, root = _Flat(tensors[0]), _reduction(opts), opts.rootRank
        return self._start(lambda: self._comm.reduce(flat.flat, op, root), [flat] if root == self._rank else [],
                           list(tensors))

    def _reduce_scatter_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any) -> Any:
        into, given, op = _Flat(output), _Flat(source), _reduction(opts)
        return self._start(lambda: self._comm.reduce_scatter(given.flat, into.flat, op), [into])

    def reduce_scatter(self, outputs: Tensors, sources: Sequence[Tensors], opts: Any) -> Any:
        into, op = _Flat(outputs[0]), _reduction(opts)
        if any(part.numel() != into.flat.numel() for part in sources[0]):
            raise ValueError("reduce_scatter of the backend \"dtrun\" needs parts of the same size")
        given = torch.cat([part.detach().reshape(-1) for part in sources[0]])
        return self._start(lambda: self._comm.reduce_scatter(given, into.flat, op), [into])

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, sources: Tensors, opts: Any) -> Any:
        pairs, op = [(_Flat(o), _Flat(s)) for o, s in zip(outputs, sources)], _reduction(opts)

        def job() -> None:
            for into, given in pairs:
                self._comm.reduce_scatter(given.flat, into.flat, op)
        return self._start(job, [into for into, _ in pairs])

    # ---- copies ----

    def broadcast(self, tensors: Tensors, opts: Any) -> Any:
        flat, root = _Flat(tensors[0]), opts.rootRank
        return self._start(lambda: self._comm.broadcast(flat.flat, root), [flat])

    def _allgather_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> Any:
        into, given = _Flat(output), _Flat(source)
        return self._start(lambda: self._comm.allgather(given.flat, into.flat), [into])

    def allgather_into_tensor_coalesced(self, outputs: Tensors, sources: Tensors, opts: Any = None) -> Any:
        pairs = [(_Flat(o), _Flat(s)) for o, s in zip(outputs, sources)]

        def job() -> None:
            for into, given in pairs:
                self._comm.allgather(given.flat, into.flat)
        return self._start(job, [into for into, _ in pairs])

    def allgather(self, outputs: Sequence[List[torch.Tensor]], sources: Tensors, opts: Any = None) -> Any:
        given = _Flat(sources[0])

        def job() -> None:
            everything = torch.empty((self._size, given.flat.numel()), dtype=given.flat.dtype)
            self._comm.allgather(given.flat, everything)
            for output, part in zip(outputs[0], everything):
                output.detach().copy_(part.view(output.shape))
        return self._start(job, results=outputs)

    def gather(self, outputs: Sequence[List[torch.Tensor]], sources: Tensors, opts: Any) -> Any:
        given, root = _Flat(sources[0]), opts.rootRank

        def job() -> None:
            everything = None
            if self._rank == root:
                everything = torch.empty((self._size, given.flat.numel()), dtype=given.flat.dtype)
            self._comm.gather(given.flat, everything, root)
            if everything is not None:
                for output, part in zip(outputs[0], everything):
                    output.detach().copy_(part.view(output.shape))
        return self._start(job, results=outputs)

    def scatter(self, outputs: Tensors, sources: Sequence[Tensors], opts: Any) -> Any:
        into, root = _Flat(outputs[0]), opts.rootRank
        given = torch.cat([part.detach().reshape(-1) for part in sources[0]]) if self._rank == root else None
        return self._start(lambda: self._comm.scatter(given, into.flat, root), [into])

    def alltoall_base(self, output: torch.Tensor, source: torch.Tensor, output_splits: List[int],
                      input_splits: List[int], opts: Any = None) -> Any:
        into, given = _Flat(output), _Flat(source)
        if not output_splits and not input_splits:
            return self._start(lambda: self._comm.alltoall(given.flat, into.flat), [into])
        sources = list(given.flat.split(input_splits or [given.flat.shape[0] // self._size] * self._size))
        targets = list(into.flat.split(output_splits or [into.flat.shape[0] // self._size] * self._size))
        return self._start(lambda: self._comm.exchange(sources, targets), [into])

    def alltoall(self, outputs: Tensors, sources: Tensors, opts: Any = None) -> Any:
        into, given = [_Flat(tensor) for tensor in outputs], [_Flat(tensor) for tensor in sources]
        return self._start(lambda: self._comm.exchange([g.flat for g in given], [i.flat for i in into]), into)

    def barrier(self, opts: Any = None) -> Any:
        return self._start(self._comm.barrier)

    # Names since torch 2.13.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    # ---- messages ----

    def _way(self, source: int, to: int) -> Any:
        return self._messages[0 if source < to else 1]

    def send(self, tensors: Tensors, to: int, tag: int = 0) -> Any:
        given = _Flat(tensors[0])
        comm, thread = self._way(self._rank, to)
        return self._start(lambda: comm.send(given.flat, to), results=list(tensors), thread=thread)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> Any:
        into = _Flat(tensors[0])
        comm, thread = self._way(source, self._rank)
        return self._start(lambda: comm.recv(into.flat, source), [into], thread=thread)


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> ProcessGroupDtrun:
    return ProcessGroupDtrun(rank, size)


def register() -> None:
    """Makes the name "dtrun" known to torch.distributed, as importing this module does."""
    if "DTRUN" not in dist.Backend.__dict__:
        dist.Backend.register_backend("dtrun", _create, devices=["cpu"])


register()
