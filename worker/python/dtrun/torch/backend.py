"""A backend of torch.distributed for tensors in host memory (torch 2 or newer).

    import dtrun.torch.backend                     # registers it
    torch.distributed.init_process_group("dtrun")

Its ranks are those that dtrun has started, or some of them. Collective operations of a group are done one after the
other, in a thread; messages between two ranks with the same tag arrive in the order in which they are sent.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from ..collectives import Communicator
from . import _tensors as t
from ._coordinator import BROADCAST, dtype_of
from .basics import _stall_times, shared_worker

if not hasattr(dist, "ProcessGroup") or int(torch.__version__.split(".", maxsplit=1)[0]) < 2:
    raise ImportError("the backend \"dtrun\" of torch.distributed needs torch 2 or newer, not "
                      f"{torch.__version__}: use dtrun.torch, or dtrun.torch.hooks over gloo")

from ._messages import Members, Messages, Receive  # noqa: E402
from ._reductions import reduction_of  # noqa: E402
from ._stall import StallWatch  # noqa: E402
from ._work import (Flat, Message, OperationWork, check_parts, check_rank, check_whole, flat_of, joined,  # noqa: E402
                    split_by)

Tensors = Sequence[torch.Tensor]

_MEETING_SECONDS = 300


def _nothing() -> None:
    pass


class ProcessGroupDtrun(dist.ProcessGroup):
    """Ranks of the job, as a process group."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Optional[timedelta] = None) -> None:
        """
        :param store: of this group alone, by which its ranks meet
        :param timeout: of one operation, a second or more; None: none
        """
        super().__init__(rank, size)
        worker = shared_worker()
        name, ranks = _meet(store, rank, size)
        self._rank, self._size = rank, size
        self._name = self._description = "undefined"
        seconds = None if timeout is None else max(1, timeout.total_seconds())
        # Ranks come as late as their operations may be, and as a communicator lets them by itself.
        meeting, self._limit = max(_MEETING_SECONDS, seconds or 0), seconds
        is_everybody = ranks == list(range(worker.world_size))
        comm = Communicator(worker, timeout=meeting, operation_timeout=seconds, ranks=None if is_everybody else ranks,
                            name="" if is_everybody else name)
        self._comm = t.TensorCommunicator(comm)
        self._thread = t.InOrder("dtrun-collectives")
        backend = "auto" if comm.backend == "none" else comm.backend
        self._stalls = StallWatch(worker, name, ranks, rank, _stall_times()[0])
        self._messages = Messages(Members(worker, name, ranks, rank, backend, meeting))

    # ---- who it is ----

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        return "dtrun"

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    # torch's C++ and its Python have different names for the same.

    def getGroupName(self) -> str:  # noqa: N802
        """By which functional collectives find it."""
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self._description = description

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name = pg_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def shutdown(self) -> None:
        """Waits for what is under way, and ends the communicators. Who still waits for a message gets none."""
        self._thread.close()
        self._messages.close()
        self._stalls.close()
        self._comm.comm.close()

    def _start(self, name: str, given: Tensors, job: Callable[[], None], flat: Sequence[Flat] = (),
               results: Any = None) -> OperationWork:
        """
        :param name, given: for a profile
        :param flat: tensors that get results
        :param results: of the future
        """
        made = results if results is not None else [tensor.given for tensor in flat]
        ended = self._profiled(name, given)

        def run() -> Any:
            self._stalls.begin(name)
            try:
                job()
                for tensor in flat:
                    tensor.put_back()
            finally:
                self._stalls.end()
                ended()
            return made
        return OperationWork(self._thread.start(run), made)

    def _profiled(self, name: str, given: Tensors) -> Callable[[], None]:
        """Begins the operation in torch's profile, if there is one. :return: ends it, in whichever thread"""
        if not torch.autograd._profiler_enabled():
            return _nothing
        span = torch.autograd._record_function_with_args_enter(f"{self.getBackendName()}:{name}", *given)
        return lambda: torch.autograd._record_function_with_args_exit(span)

    # ---- reductions ----

    def allreduce(self, tensors: Tensors, opts: Any = None) -> OperationWork:
        flat = [Flat(tensor) for tensor in tensors]
        by_type = dict(zip((tensor.given.dtype for tensor in flat), reduction_of(opts, flat)))

        def job() -> None:
            for dtype, reduction in by_type.items():
                reduction.allreduce(self._comm, [f.flat for f in flat if f.given.dtype == dtype])
        return self._start("all_reduce", tensors, job, flat)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Tensors, opts: Any) -> OperationWork:
        flat, root = flat_of(tensors), check_rank("reduce", opts.rootRank, self._size)
        reduction, = reduction_of(opts, [flat])
        return self._start("reduce", tensors, lambda: reduction.reduce(self._comm, flat.flat, root),
                           [flat] if root == self._rank else [], list(tensors))

    def _reduce_scatter_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> OperationWork:
        return self.reduce_scatter_tensor_coalesced([output], [source], opts)

    def reduce_scatter(self, outputs: Tensors, sources: Sequence[Tensors], opts: Any = None) -> OperationWork:
        into = flat_of(outputs)
        reduction, = reduction_of(opts, [into])
        check_parts("reduce_scatter", sources[0], into, self._size)
        given = joined(sources[0])
        return self._start("reduce_scatter", sources[0],
                           lambda: reduction.reduce_scatter(self._comm, given, into.flat), [into])

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, sources: Tensors,
                                        opts: Any = None) -> OperationWork:
        pairs = self._pairs("reduce_scatter", outputs, sources)
        reductions = reduction_of(opts, [into for into, _ in pairs])
        for into, given in pairs:
            check_whole("reduce_scatter", given, into, self._size)

        def job() -> None:
            for (into, given), reduction in zip(pairs, reductions):
                reduction.reduce_scatter(self._comm, given.flat, into.flat)
        return self._start("reduce_scatter", sources, job, [into for into, _ in pairs])

    # ---- copies ----

    @staticmethod
    def _pairs(operation: str, outputs: Tensors, sources: Tensors) -> List[Tuple[Flat, Flat]]:
        if len(outputs) != len(sources):
            raise ValueError(f"{operation}: there are {len(outputs)} outputs for {len(sources)} inputs")
        pairs = [(Flat(output), Flat(source)) for output, source in zip(outputs, sources)]
        for _, source in pairs:
            dtype_of(source.flat, BROADCAST)
        return pairs

    def broadcast(self, tensors: Tensors, opts: Any) -> OperationWork:
        flat, root = flat_of(tensors), check_rank("broadcast", opts.rootRank, self._size)
        dtype_of(flat.flat, BROADCAST)
        return self._start("broadcast", tensors, lambda: self._comm.broadcast(flat.flat, root), [flat])

    def _allgather_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> OperationWork:
        return self.allgather_into_tensor_coalesced([output], [source], opts)

    def allgather_into_tensor_coalesced(self, outputs: Tensors, sources: Tensors,
                                        opts: Any = None) -> OperationWork:
        pairs = self._pairs("all_gather", outputs, sources)
        for into, given in pairs:
            check_whole("all_gather", into, given, self._size)

        def job() -> None:
            for into, given in pairs:
                self._comm.allgather(given.flat, into.flat)
        return self._start("all_gather", sources, job, [into for into, _ in pairs])

    def _gathered(self, operation: str, outputs: Sequence[Tensors], given: Flat) -> Tuple[Flat, List[Flat]]:
        """A tensor for the parts of all ranks, and where these belong."""
        check_parts(operation, outputs[0], given, self._size)
        parts = [Flat(output) for output in outputs[0]]
        return Flat(torch.empty((self._size, given.flat.numel()), dtype=given.flat.dtype)), parts

    @staticmethod
    def _spread(everything: Flat, parts: Sequence[Flat]) -> None:
        for into, part in zip(parts, everything.flat):
            into.put(part)

    def allgather(self, outputs: Sequence[List[torch.Tensor]], sources: Tensors,
                  opts: Any = None) -> OperationWork:
        given = flat_of(sources)
        dtype_of(given.flat, BROADCAST)
        everything, parts = self._gathered("all_gather", outputs, given)

        def job() -> None:
            self._comm.allgather(given.flat, everything.flat)
            self._spread(everything, parts)
        return self._start("all_gather", sources, job, results=outputs)

    def allgather_coalesced(self, outputs: Sequence[List[torch.Tensor]], sources: Tensors,
                            opts: Any = None) -> OperationWork:
        """:param outputs: for each rank a tensor of each of `sources`"""
        if any(len(output) != len(sources) for output in outputs):
            raise ValueError(f"all_gather: a list of outputs has not {len(sources)} tensors, as there are inputs")
        given = [Flat(source) for source in sources]
        for source in given:
            dtype_of(source.flat, BROADCAST)
        made = [self._gathered("all_gather", [output], source) for output, source in zip(zip(*outputs), given)]

        def job() -> None:
            for source, (everything, parts) in zip(given, made):
                self._comm.allgather(source.flat, everything.flat)
                self._spread(everything, parts)
        return self._start("all_gather", sources, job, results=outputs)

    def gather(self, outputs: Sequence[List[torch.Tensor]], sources: Tensors, opts: Any) -> OperationWork:
        given, root = flat_of(sources), check_rank("gather", opts.rootRank, self._size)
        dtype_of(given.flat, BROADCAST)
        if self._rank != root:
            return self._start("gather", sources, lambda: self._comm.gather(given.flat, None, root), results=outputs)
        everything, parts = self._gathered("gather", outputs, given)

        def job() -> None:
            self._comm.gather(given.flat, everything.flat, root)
            self._spread(everything, parts)
        return self._start("gather", sources, job, results=outputs)

    def scatter(self, outputs: Tensors, sources: Sequence[Tensors], opts: Any) -> OperationWork:
        into, root = flat_of(outputs), check_rank("scatter", opts.rootRank, self._size)
        dtype_of(into.flat, BROADCAST)
        given = None
        if self._rank == root:
            check_parts("scatter", sources[0], into, self._size)
            given = joined(sources[0])
        return self._start("scatter", outputs, lambda: self._comm.scatter(given, into.flat, root), [into])

    def alltoall_base(self, output: torch.Tensor, source: torch.Tensor, output_splits: List[int],
                      input_splits: List[int], opts: Any = None) -> OperationWork:
        (into, given), = self._pairs("all_to_all", [output], [source])
        if not output_splits and not input_splits:
            check_whole("all_to_all", into, given, 1)
            split_by("all_to_all", given, (), self._size)
            return self._start("all_to_all", [source], lambda: self._comm.alltoall(given.flat, into.flat), [into])
        return self._exchange(split_by("all_to_all", given, input_splits, self._size),
                              split_by("all_to_all", into, output_splits, self._size), [into])

    def alltoall(self, outputs: Tensors, sources: Tensors, opts: Any = None) -> OperationWork:
        pairs = self._pairs("all_to_all", outputs, sources)
        if len(pairs) != self._size:
            raise ValueError(f"all_to_all: the lists have {len(pairs)} tensors for {self._size} ranks")
        return self._exchange([given.flat for _, given in pairs], [into.flat for into, _ in pairs],
                              [into for into, _ in pairs])

    def _exchange(self, sources: Tensors, targets: Tensors, flat: Sequence[Flat]) -> OperationWork:
        """:param sources: one for each rank; :param targets: likewise"""
        if any(tensor.dtype != sources[0].dtype for tensor in (*sources, *targets)):
            raise ValueError("all_to_all: the tensors have different types")
        own_out, own_into = sources[self._rank].numel(), targets[self._rank].numel()
        if own_out != own_into:
            raise ValueError(f"all_to_all: rank {self._rank} gives {own_out} elements to itself, and takes "
                             f"{own_into}")
        return self._start("all_to_all", sources, lambda: self._comm.exchange(sources, targets), flat)

    def barrier(self, opts: Any = None) -> OperationWork:
        return self._start("barrier", (), self._comm.barrier)

    # Names since torch 2.13.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    # ---- messages ----

    def send(self, tensors: Tensors, to: int, tag: int = 0) -> OperationWork:
        given = self._message("send", tensors, to)
        value = list(tensors)
        ended = self._profiled("send", tensors)
        started, give_up = self._messages.send(given, to, tag, value)
        started.future.add_done_callback(lambda _: ended())
        return OperationWork(started, value, Message(f"send to rank {to}", self._limit, give_up, lambda: -1))

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> OperationWork:
        return self._receive(tensors, self._message("recv", tensors, source), source, tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> OperationWork:
        return self._receive(tensors, flat_of(tensors), None, tag)

    def _receive(self, tensors: Tensors, into: Flat, source: Optional[int], tag: int) -> OperationWork:
        value = list(tensors)
        wish = Receive(into, source, tag, value)
        ended = self._profiled("recv" if source is not None else "recvAnySource", tensors)
        started, give_up = self._messages.receive(wish)
        started.future.add_done_callback(lambda _: ended())
        whom = "anybody" if source is None else f"rank {source}"
        return OperationWork(started, value, Message(f"recv from {whom}", self._limit, give_up, lambda: wish.source))

    def _message(self, operation: str, tensors: Tensors, peer: int) -> Flat:
        flat = flat_of(tensors)
        if check_rank(operation, peer, self._size) == self._rank:
            raise ValueError(f"{operation}: rank {peer} is this one")
        return flat


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> ProcessGroupDtrun:
    return ProcessGroupDtrun(store, rank, size, timeout)


def _meet(store: Any, rank: int, size: int) -> Tuple[str, List[int]]:
    """A name of the group that no other one has, and the ranks of the job that are in it.

    :param store: torch's, of this group alone
    """
    name = f"dtrun.torch/{uuid.uuid4().hex}" if rank == 0 else ""
    store.set(f"dtrun/{rank}", f"{shared_worker().rank} {name}")
    keys = [f"dtrun/{other}" for other in range(size)]
    store.wait(keys)
    told = [text.decode().split(" ") for text in
            (store.multi_get(keys) if store.has_extended_api() else [store.get(key) for key in keys])]
    return told[0][1], [int(number) for number, _ in told]


def register() -> None:
    """Makes the name "dtrun" known to torch.distributed, as importing this module does."""
    if "DTRUN" not in dist.Backend.__dict__:
        dist.Backend.register_backend("dtrun", _create, devices=["cpu"])


register()
