"""A backend of torch.distributed for tensors in host memory (torch 2 or newer).

    import dtrun.torch.backend                     # registers it
    torch.distributed.init_process_group("dtrun")

Its ranks are those that dtrun has started, or some of them. Collective operations of a group are done one after the
other, in a thread; messages between two ranks with the same tag arrive in the order in which they are sent.
"""

from __future__ import annotations

import functools
import uuid
from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

from .. import Code, Error, TimedOut
from ..collectives import Communicator
from . import _tensors as t
from ._coordinator import BROADCAST, dtype_of
from .basics import _stall_times, shared_worker

if not hasattr(dist, "ProcessGroup") or int(torch.__version__.split(".", maxsplit=1)[0]) < 2:
    raise ImportError("the backend \"dtrun\" of torch.distributed needs torch 2 or newer, not "
                      f"{torch.__version__}: use dtrun.torch, or dtrun.torch.hooks over gloo")

from . import _functional  # noqa: E402
from ._messages import Members, Messages, Receive  # noqa: E402
from ._reductions import reduction_of  # noqa: E402
from ._short_forms import limit_of, listed, lists_of, options_of  # noqa: E402
from ._sparse import add_sparse, check_sparse  # noqa: E402
from ._untraced import untraced  # noqa: E402
from ._work import (CallLimit, Flat, InvalidCall, Message, OperationWork, apart, check_alike,  # noqa: E402
                    check_parts, check_rank, check_whole, joined, one_of, split_by, timed_out)
from ._wrappers import understands_parts  # noqa: E402

Tensors = Sequence[torch.Tensor]

_MEETING_SECONDS = 300


def _nothing() -> None:
    pass


def _seconds(timeout: timedelta) -> float:
    """Of a group's time limit."""
    return max(1, timeout.total_seconds())


@untraced
@understands_parts("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor_coalesced",
                   "broadcast", "allgather", "allgather_into_tensor_coalesced", "allgather_coalesced", "gather",
                   "scatter", "alltoall_base", "alltoall", "all_gather_single_coalesced",
                   "reduce_scatter_single_coalesced", "all_to_all_single")
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
        self._collectives = 0
        seconds = None if timeout is None else _seconds(timeout)
        # Ranks come as late as their operations may be, and as a communicator lets them by itself.
        meeting, self._limit = max(_MEETING_SECONDS, seconds or 0), seconds
        is_everybody = ranks == list(range(worker.world_size))
        comm = Communicator(worker, timeout=meeting, operation_timeout=seconds, ranks=None if is_everybody else ranks,
                            name="" if is_everybody else name, stall_after=_stall_times()[0])
        self._comm = t.TensorCommunicator(comm)
        self._thread = t.InOrder("dtrun-collectives")
        backend = "auto" if comm.backend == "none" else comm.backend
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
    name = getBackendName

    # torch asks a group for its backends, one for each type of device, and these for what they can do. This is both.

    @property
    def _device_types(self) -> List[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> ProcessGroupDtrun:
        if torch.device(device).type != "cpu":
            raise RuntimeError(f"No backend type associated with device type {device}")
        return self

    supports_splitting = supports_coalescing = supports_time_estimate = False

    def supports_tensor_alloc(self, _: torch.device) -> bool:
        return False

    def _get_sequence_number_for_group(self) -> int:
        """How many collectives this rank has asked for. Ranks with another number are at another place."""
        return self._collectives

    def _set_sequence_number_for_group(self) -> None:
        """torch's word that counting begins, which it does by itself."""

    # ---- its time limit ----

    def set_timeout(self, timeout: timedelta) -> None:
        """The time that one operation may take from now on, also one that is under way; a second or more."""
        self._limit = _seconds(timeout)
        self._comm.comm.set_operation_timeout(self._limit)

    setTimeout = _set_default_timeout = set_timeout  # noqa: N815

    @property
    def options(self) -> Any:
        """torch's, which say what the time limit is."""
        limit = timedelta(seconds=self._limit) if self._limit is not None else timedelta(days=365)
        return c10d.Backend.Options(self.getBackendName(), limit)

    def shutdown(self) -> None:
        """Waits for what is under way, and ends the communicators. Who still waits for a message gets none."""
        self._thread.close()
        self._messages.close()
        self._comm.comm.close()

    def abort(self) -> None:
        """Ends what is under way, on all ranks, and the communicators."""
        self._comm.comm.give_up("the group was aborted")
        self.shutdown()

    def _start(self, name: str, given: Tensors, job: Callable[[], None], opts: Any, flat: Sequence[Flat] = (),
               results: Any = None) -> OperationWork:
        """
        :param name, given: for a profile
        :param opts: torch's options of the operation
        :param flat: tensors that get results
        :param results: of the future
        """
        limit = limit_of(opts)
        self._collectives += 1
        made = results if results is not None else [tensor.given for tensor in flat]
        ended = self._profiled(name, given)

        def run() -> Any:
            try:
                self._do(name, job, limit)
                for tensor in flat:
                    tensor.put_back()
            finally:
                ended()
            return made
        return OperationWork(self._thread.start(run), made)

    def _do(self, name: str, job: Callable[[], None], limit: Optional[float]) -> None:
        """:param limit: seconds for this operation; None: those of the group, which are as many for all ranks

        :raises TimedOut: they have passed
        """
        comm, own = self._comm.comm, None
        has_more = limit is not None and self._limit is not None and limit > self._limit
        if has_more:
            comm.set_operation_timeout(limit)
        elif limit is not None and limit != self._limit and comm.backend != "mpi":  # which cannot be ended
            own = CallLimit(limit, lambda: comm.abort(timed_out(name, limit)))
        failed = None
        try:
            job()
        except Error as error:
            failed = error
        finally:
            if has_more:
                comm.set_operation_timeout(self._limit)
            has_passed = own is not None and own.end()
        if has_passed:
            raise TimedOut(Code.TIMED_OUT, timed_out(name, limit or 0)) from failed
        if failed is not None and failed.code == Code.TIMED_OUT:
            raise TimedOut(Code.TIMED_OUT,
                           f"{timed_out(name, (limit if has_more else self._limit) or 0)}: {failed}") from failed
        if failed is not None:
            raise failed

    def _profiled(self, name: str, given: Tensors) -> Callable[[], None]:
        """Begins the operation in torch's profile, if there is one. :return: ends it, in whichever thread"""
        if not torch.autograd._profiler_enabled():
            return _nothing
        span = torch.autograd._record_function_with_args_enter(f"{self.getBackendName()}:{name}", *given)
        return lambda: torch.autograd._record_function_with_args_exit(span)

    # ---- reductions ----

    def allreduce(self, tensors: Any, *short: Any, **named: Any) -> OperationWork:
        """Several tensors of one rank are reduced like those of several, and become alike."""
        tensors, opts = listed(tensors), options_of(c10d.AllreduceOptions, *short, **named)
        check_alike("all_reduce", tensors)
        if tensors[0].layout == torch.sparse_coo:
            check_sparse("all_reduce", tensors, opts)
            return self._start("all_reduce", tensors, lambda: add_sparse(self._comm, tensors), opts, results=tensors)
        first, *others = [Flat(tensor) for tensor in tensors]
        reduction, = reduction_of(opts, [first])
        if others:
            reduction.check_local()

        def job() -> None:
            for other in others:
                reduction.take(first.flat, other.flat)
            reduction.allreduce(self._comm, [first.flat])
            for other in others:
                other.put(first.flat)
        return self._start("all_reduce", tensors, job, opts, [first], tensors)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> OperationWork:
        """Each tensor for itself."""
        opts = options_of(c10d.AllreduceCoalescedOptions, opts)
        if not tensors:
            raise InvalidCall("all_reduce: requires non-empty tensor list")
        flat = apart([Flat(tensor) for tensor in tensors])
        by_type = dict(zip((tensor.given.dtype for tensor in flat), reduction_of(opts, flat)))

        def job() -> None:
            for dtype, reduction in by_type.items():
                reduction.allreduce(self._comm, [f.flat for f in flat if f.given.dtype == dtype])
        return self._start("all_reduce", tensors, job, opts, flat)

    def reduce(self, tensors: Any, *short: Any, **named: Any) -> OperationWork:
        tensors, opts = listed(tensors), options_of(c10d.ReduceOptions, *short, **named)
        root = check_rank("reduce", opts.rootRank, self._size)
        flat = Flat(one_of("reduce", tensors, "tensor list"))
        self._check_root_tensor("reduce", opts, tensors)
        reduction, = reduction_of(opts, [flat])
        return self._start("reduce", tensors, lambda: reduction.reduce(self._comm, flat.flat, root), opts,
                           [flat] if root == self._rank else [], list(tensors))

    @staticmethod
    def _check_root_tensor(operation: str, opts: Any, tensors: Tensors) -> None:
        if not 0 <= opts.rootTensor < len(tensors):
            raise InvalidCall(f"{operation}: invalid root tensor {opts.rootTensor} of {len(tensors)}")

    def _reduce_scatter_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> OperationWork:
        return self.reduce_scatter_tensor_coalesced([output], [source], opts)

    def reduce_scatter(self, outputs: Any, sources: Any, *short: Any, **named: Any) -> OperationWork:
        opts = options_of(c10d.ReduceScatterOptions, *short, **named)
        into = Flat(one_of("reduce_scatter", listed(outputs), "output tensor list"))
        parts = one_of("reduce_scatter", lists_of(sources), "input list")
        reduction, = reduction_of(opts, [into])
        check_parts("reduce_scatter", parts, into.given, self._size, "input")
        given = joined(parts)
        return self._start("reduce_scatter", parts,
                           lambda: reduction.reduce_scatter(self._comm, given, into.flat), opts, [into])

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, sources: Tensors,
                                        opts: Any = None) -> OperationWork:
        opts = options_of(c10d.ReduceScatterOptions, opts)
        pairs = self._pairs("reduce_scatter", outputs, sources)
        reductions = reduction_of(opts, [into for into, _ in pairs])
        for into, given in pairs:
            check_whole("reduce_scatter", given, into, self._size)

        def job() -> None:
            for (into, given), reduction in zip(pairs, reductions):
                reduction.reduce_scatter(self._comm, given.flat, into.flat)
        return self._start("reduce_scatter", sources, job, opts, [into for into, _ in pairs])

    # ---- copies ----

    @staticmethod
    def _pairs(operation: str, outputs: Tensors, sources: Tensors) -> List[Tuple[Flat, Flat]]:
        if len(outputs) != len(sources):
            raise InvalidCall(f"{operation}: requires input/output tensor lists to have the same length: there are "
                              f"{len(outputs)} outputs for {len(sources)} inputs")
        pairs = [(Flat(output), Flat(source)) for output, source in zip(outputs, sources)]
        for _, source in pairs:
            dtype_of(source.flat, BROADCAST)
        return pairs

    def broadcast(self, tensors: Any, *short: Any, **named: Any) -> OperationWork:
        """All tensors of all ranks become like one of the root's."""
        tensors, opts = listed(tensors), options_of(c10d.BroadcastOptions, *short, **named)
        root = check_rank("broadcast", opts.rootRank, self._size)
        self._check_root_tensor("broadcast", opts, tensors)
        check_alike("broadcast", tensors)
        flat = [Flat(tensor) for tensor in tensors]
        chosen = flat[opts.rootTensor]
        dtype_of(chosen.flat, BROADCAST)

        def job() -> None:
            self._comm.broadcast(chosen.flat, root)
            for other in flat:
                if other is not chosen:
                    other.put(chosen.flat)
        return self._start("broadcast", tensors, job, opts, [chosen], list(tensors))

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
        return self._start("all_gather", sources, job, options_of(c10d.AllgatherOptions, opts),
                           [into for into, _ in pairs])

    def _gathered(self, operation: str, outputs: Tensors, sources: Tensors) -> Tuple[torch.Tensor, Flat, List[Flat]]:
        """What this rank gives, a tensor for that of all ranks, and where its parts belong.

        :param outputs: for each rank as many as there are sources
        """
        check_parts(operation, outputs, sources[0], self._size * len(sources), "output")
        parts = [Flat(output) for output in outputs]
        given = joined(sources)
        dtype_of(given, BROADCAST)
        return given, Flat(given.new_empty((self._size, given.numel()))), parts  # whatever torch's default device is

    @staticmethod
    def _spread(everything: Flat, parts: Sequence[Flat]) -> None:
        for into, part in zip(parts, everything.flat.view(len(parts), -1)):
            into.put(part)

    def allgather(self, outputs: Any, sources: Any, *short: Any, **named: Any) -> OperationWork:
        """:param outputs: for each source a list, which gets all sources of all ranks"""
        outputs, sources = lists_of(outputs), listed(sources)
        check_alike("all_gather", sources, "input tensor list")
        if len(outputs) != len(sources):
            raise InvalidCall("all_gather: requires input/output tensor lists to have the same length: there are "
                              f"{len(outputs)} lists of outputs for {len(sources)} inputs")
        made = [self._gathered("all_gather", output, sources) for output in outputs]
        given, everything, _ = made[0]

        def job() -> None:
            self._comm.allgather(given, everything.flat)
            for _, _, parts in made:
                self._spread(everything, parts)
        return self._start("all_gather", sources, job, options_of(c10d.AllgatherOptions, *short, **named),
                           results=outputs if len(outputs) > 1 else outputs[0])

    def allgather_coalesced(self, outputs: Sequence[List[torch.Tensor]], sources: Tensors,
                            opts: Any = None) -> OperationWork:
        """:param outputs: for each rank a tensor of each of `sources`"""
        if len(outputs) != self._size:
            raise InvalidCall(f"all_gather: output lists should be equal to world size {self._size}, and are "
                              f"{len(outputs)}")
        if any(len(output) != len(sources) for output in outputs):
            raise InvalidCall(f"all_gather: a list of outputs has not {len(sources)} tensors, as there are inputs")
        made = [self._gathered("all_gather", output, [source]) for output, source in zip(zip(*outputs), sources)]

        def job() -> None:
            for given, everything, parts in made:
                self._comm.allgather(given, everything.flat)
                self._spread(everything, parts)
        return self._start("all_gather", sources, job, options_of(c10d.AllgatherOptions, opts), results=outputs)

    def gather(self, outputs: Any, sources: Any, *short: Any, **named: Any) -> OperationWork:
        opts, sources = options_of(c10d.GatherOptions, *short, **named), listed(sources)
        root = check_rank("gather", opts.rootRank, self._size)
        one_of("gather", sources, "input tensor list")
        if self._rank != root:
            if outputs:
                raise InvalidCall(f"gather: requires empty output on non-root ranks, as rank {self._rank} is")
            given = Flat(sources[0]).flat
            dtype_of(given, BROADCAST)
            return self._start("gather", sources, lambda: self._comm.gather(given, None, root), opts, results=outputs)
        into = one_of("gather", lists_of(outputs), "output list")
        given, everything, parts = self._gathered("gather", into, sources)

        def job() -> None:
            self._comm.gather(given, everything.flat, root)
            self._spread(everything, parts)
        return self._start("gather", sources, job, opts, results=into)

    def scatter(self, outputs: Any, sources: Any, *short: Any, **named: Any) -> OperationWork:
        opts, outputs = options_of(c10d.ScatterOptions, *short, **named), listed(outputs)
        root = check_rank("scatter", opts.rootRank, self._size)
        into = Flat(one_of("scatter", outputs, "output tensor list"))
        dtype_of(into.flat, BROADCAST)
        given = None
        if self._rank == root:
            parts = one_of("scatter", lists_of(sources), "input list")
            check_parts("scatter", parts, into.given, self._size, "input")
            given = joined(parts)
        elif sources:
            raise InvalidCall(f"scatter: requires empty input on non-root ranks, as rank {self._rank} is")
        return self._start("scatter", outputs, lambda: self._comm.scatter(given, into.flat, root), opts, [into])

    def alltoall_base(self, output: torch.Tensor, source: torch.Tensor, output_splits: List[int],
                      input_splits: List[int], *short: Any, **named: Any) -> OperationWork:
        opts = options_of(c10d.AllToAllOptions, *short, **named)
        (into, given), = self._pairs("all_to_all", [output], [source])
        if not output_splits and not input_splits:
            check_whole("all_to_all", into, given, 1)
            split_by("all_to_all", given, (), self._size)
            return self._start("all_to_all", [source], lambda: self._comm.alltoall(given.flat, into.flat), opts, [into])
        return self._exchange(split_by("all_to_all", given, input_splits, self._size),
                              split_by("all_to_all", into, output_splits, self._size), opts, [into])

    def alltoall(self, outputs: Tensors, sources: Tensors, *short: Any, **named: Any) -> OperationWork:
        pairs = self._pairs("all_to_all", outputs, sources)
        if len(pairs) != self._size:
            raise InvalidCall(f"all_to_all: the lists have {len(pairs)} tensors for {self._size} ranks")
        return self._exchange([given.flat for _, given in pairs], [into.flat for into, _ in pairs],
                              options_of(c10d.AllToAllOptions, *short, **named), [into for into, _ in pairs])

    def _exchange(self, sources: Tensors, targets: Tensors, opts: Any, flat: Sequence[Flat]) -> OperationWork:
        """:param sources: one for each rank; :param targets: likewise"""
        if any(tensor.dtype != sources[0].dtype for tensor in (*sources, *targets)):
            raise InvalidCall("all_to_all: invalid tensor type: the tensors have different types")
        own_out, own_into = sources[self._rank].numel(), targets[self._rank].numel()
        if own_out != own_into:
            raise InvalidCall(f"all_to_all: invalid tensor size: rank {self._rank} gives {own_out} elements to itself, "
                              f"and takes {own_into}")
        return self._start("all_to_all", sources, lambda: self._comm.exchange(sources, targets), opts, flat)

    def barrier(self, *short: Any, **named: Any) -> OperationWork:
        return self._start("barrier", (), self._comm.barrier, options_of(c10d.BarrierOptions, *short, **named))

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
        return self._receive(tensors, Flat(one_of("recv", tensors, "tensor list")), None, tag)

    def _receive(self, tensors: Tensors, into: Flat, source: Optional[int], tag: int) -> OperationWork:
        value = list(tensors)
        wish = Receive(into, source, tag, value)
        ended = self._profiled("recv" if source is not None else "recvAnySource", tensors)
        started, give_up = self._messages.receive(wish)
        started.future.add_done_callback(lambda _: ended())
        whom = "anybody" if source is None else f"rank {source}"
        return OperationWork(started, value, Message(f"recv from {whom}", self._limit, give_up, lambda: wish.source))

    def _message(self, operation: str, tensors: Tensors, peer: int) -> Flat:
        flat = Flat(one_of(operation, tensors, "tensor list"))
        if check_rank(operation, peer, self._size, "rank") == self._rank:
            raise InvalidCall(f"{operation}: invalid rank: rank {peer} is this one")
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


def _let_set_timeout(theirs: Callable[..., None]) -> Callable[..., None]:
    """torch's function that sets the time limit of a group, which does so for its own gloo and nccl alone."""
    @functools.wraps(theirs)
    def set_pg_timeout(timeout: timedelta, group: Any = None) -> None:
        chosen = group if group is not None else dist.group.WORLD
        if isinstance(chosen, ProcessGroupDtrun):
            chosen.set_timeout(timeout)
        else:
            theirs(timeout, group)
    return set_pg_timeout


def register() -> None:
    """Makes the name "dtrun" known to torch.distributed, as importing this module does."""
    if "DTRUN" in dist.Backend.__dict__:
        return
    dist.Backend.register_backend("dtrun", _create, devices=["cpu"])
    _functional.register()
    if hasattr(distributed_c10d, "_set_pg_timeout"):
        distributed_c10d._set_pg_timeout = _let_set_timeout(distributed_c10d._set_pg_timeout)


register()
