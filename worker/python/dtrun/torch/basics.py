"""Who am I among the ranks: init(), ranks and sizes, process sets."""

from __future__ import annotations

import atexit
import collections
import math
import os
import re
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from .. import Worker, _failure_of
from ..collectives import Communicator, _end_operations
from ._coordinator import Coordinator, Settings
from ._step_marks import note

_MIB = 1 << 20


class _Place(NamedTuple):
    """Where this rank is among the ranks of its host, and among hosts."""

    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    is_homogeneous: bool


class ProcessSet:
    """Some of the ranks, which do operations among themselves.

        evens = hvd.add_process_set([0, 2])
        hvd.allreduce(tensor, process_set=evens)       # on ranks 0 and 2 alone
    """

    def __init__(self, ranks: Union[Sequence[int], Any] = ()) -> None:
        self.ranks: Optional[List[int]] = sorted(ranks)
        self.process_set_id: Optional[int] = None
        self._coordinator: Optional[Coordinator] = None

    def size(self) -> Optional[int]:
        """Number of its ranks; None before it is added."""
        return None if self.process_set_id is None or self.ranks is None else len(self.ranks)

    def rank(self) -> Optional[int]:
        """This process's place in it; None: it is not in it."""
        return self.ranks.index(_job.rank) if self.included() and self.ranks is not None else None

    def included(self) -> Optional[bool]:
        """Whether this process is in it; None before it is added."""
        if self.process_set_id is None or self.ranks is None:
            return None
        return _job.rank in self.ranks

    def coordinator(self) -> Coordinator:
        if self._coordinator is not None:
            return self._coordinator
        if _job.coordinator is None:
            raise ValueError("dtrun.torch is not initialized: call init() first")
        if self.process_set_id is None:
            raise ValueError("the process set is not known: call add_process_set() on all ranks first")
        raise ValueError(f"rank {_job.rank} is not in the process set of ranks {self.ranks}")

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


global_process_set = ProcessSet()


class _Job:
    """What init() has made."""

    def __init__(self) -> None:
        self.worker: Optional[Worker] = None
        self.coordinator: Optional[Coordinator] = None
        self.settings = Settings(64 * _MIB, 0, 60, 0)
        self.splitter: Optional[Communicator] = None  # of which process sets are made
        self.place: Optional[_Place] = None
        self.rank = 0
        self.size = 1
        self.inits = 0
        self.next_set = 1
        self.sets: Dict[int, ProcessSet] = {}
        self.process = os.getpid()


_job = _Job()


def _number(name: str, default: float) -> float:
    """Of a variable of Horovod. :raises ValueError: names it"""
    text = os.environ.get(name)
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} is not a number: {text!r}")
    return number


def _is_on(name: str) -> bool:
    """Of a switch of Horovod, which reads the whole number at its begin: a word is 0, which is off."""
    number = re.match(r"\s*[+-]?\d+", os.environ.get(name, ""), re.ASCII)
    return number is not None and int(number[0]) > 0


def shared_worker() -> Worker:
    """The process's membership of the job, which everything in this package shares; it ends with the process."""
    if _job.worker is None or _job.process != os.getpid():
        _job.worker = Worker(elastic=os.environ.get("HOROVOD_ELASTIC") == "1")
        _job.process = os.getpid()
        atexit.register(_at_exit)
    return _job.worker


def _communicator() -> Communicator:
    return Communicator(shared_worker())


def _stall_times() -> Tuple[float, float]:
    """Seconds until a stalled operation is told, and until it is given up, as Horovod's variables say.

    :raises ValueError: names the variable
    """
    if _is_on("HOROVOD_STALL_CHECK_DISABLE"):
        return -1, 0
    warning = _number("HOROVOD_STALL_CHECK_TIME_SECONDS", 60)
    shutdown = _number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0)
    if warning <= 0:
        raise ValueError(f"HOROVOD_STALL_CHECK_TIME_SECONDS has to be more than 0, not {warning:g}: "
                         "HOROVOD_STALL_CHECK_DISABLE=1 ends the warnings")
    if 0 < shutdown < warning:
        if _job.rank == 0:
            print(f"dtrun: HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={shutdown:g} has no effect: it is less than "
                  f"HOROVOD_STALL_CHECK_TIME_SECONDS, which is {warning:g}", file=sys.stderr, flush=True)
        shutdown = 0
    return warning, shutdown


def _settings() -> Settings:
    return Settings(round(_number("HOROVOD_FUSION_THRESHOLD", 64 * _MIB)) or 1,
                    _number("HOROVOD_CYCLE_TIME", 0) / 1000, *_stall_times())


def _find_place(worker: Worker) -> _Place:
    if worker.world_size == 1:
        return _Place(0, 1, 0, 1, True)
    hosts = [host.decode() for host in worker.fence(f"dtrun.torch/hosts/{_job.inits}", worker.host_name)]
    counts = collections.Counter(hosts)
    locals_before = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]
    local = locals_before[worker.rank]
    peers = [rank for rank, number in enumerate(locals_before) if number == local]
    return _Place(local, counts[hosts[worker.rank]], peers.index(worker.rank), len(peers),
                  len(set(counts.values())) == 1)


def init(comm: Optional[Sequence[int]] = None,
         process_sets: Union[None, str, Sequence[ProcessSet]] = None) -> None:
    """Takes this process's place among the ranks; all of them call it. Called again, it does nothing.

    :param comm: None, or all ranks: they are those that dtrun, or another launcher, has started
    :param process_sets: are added, as add_process_set() does; or "dynamic", which is always so
    """
    if comm is not None and (not isinstance(comm, Sequence) or list(comm) != list(range(len(comm)))):
        raise ValueError(f"init(comm={comm!r}) is not there: use init() and add_process_set(ranks)")
    if _job.coordinator is not None:
        return
    member = shared_worker()
    if comm is not None and len(comm) != member.world_size:
        raise ValueError(f"init(comm={comm!r}) is not all {member.world_size} ranks that were started: use init() "
                         "and add_process_set(ranks)")
    _job.inits += 1
    _job.rank, _job.size = member.rank, member.world_size
    _job.place = _find_place(member)
    _job.settings = _settings()
    global_process_set.ranks = list(range(_job.size))
    _job.coordinator = Coordinator(_communicator(), _job.settings, global_process_set.ranks)
    note(f"backend {_job.coordinator.backend}")
    global_process_set.process_set_id = 0
    global_process_set._coordinator = _job.coordinator
    _job.sets, _job.next_set = {0: global_process_set}, 1
    if process_sets is not None and not isinstance(process_sets, str):
        for process_set in process_sets:
            add_process_set(process_set)


def shutdown() -> None:
    """Ends what init() has begun; operations that are pending fail. init() can be called again."""
    if _job.process != os.getpid():
        return
    for process_set in _job.sets.values():
        _forget(process_set)
    _job.sets = {}
    if _job.splitter is not None:
        _job.splitter.close()
    _job.coordinator = _job.splitter = None


def _at_exit() -> None:
    if _job.process != os.getpid():
        return
    _end_operations()  # of other threads, for which closing would wait
    shutdown()
    worker, _job.worker = _job.worker, None
    if worker is not None:
        worker.close(_failure_of(getattr(sys, "last_value", None)))


def _forget(process_set: ProcessSet) -> None:
    if process_set._coordinator is not None:
        process_set._coordinator.close()
    process_set._coordinator = process_set.process_set_id = None


def is_initialized() -> bool:
    return _job.coordinator is not None


def _initialized() -> _Place:
    if _job.coordinator is None or _job.place is None:
        raise ValueError("dtrun.torch is not initialized: call init() first")
    return _job.place


def rank() -> int:
    """Of this process among all."""
    _initialized()
    return _job.rank


def size() -> int:
    """Number of processes."""
    _initialized()
    return _job.size


def local_rank() -> int:
    """Of this process among those of its host."""
    return _initialized().local_rank


def local_size() -> int:
    """Number of processes on this host."""
    return _initialized().local_size


def cross_rank() -> int:
    """Of this host among those that have this local rank."""
    return _initialized().cross_rank


def cross_size() -> int:
    """Number of hosts that have this local rank."""
    return _initialized().cross_size


def is_homogeneous() -> bool:
    """Whether all hosts have the same number of processes."""
    return _initialized().is_homogeneous


def worker() -> Worker:
    """The dtrun.Worker behind it, for its store and its events."""
    _initialized()
    assert _job.worker is not None
    return _job.worker


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """There is none. :raises NotImplementedError: always"""
    raise NotImplementedError(f"dtrun.torch writes no timeline to {file_path}: use torch.profiler")


def stop_timeline() -> None:
    """There is none. :raises NotImplementedError: always"""
    raise NotImplementedError("dtrun.torch writes no timeline: use torch.profiler")


# ---- process sets ----

def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Makes a process set; all ranks of the job call it, in the same order.

    :raises ValueError: there is one of these ranks; there is no such rank
    """
    _initialized()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    ranks = process_set.ranks or []
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} has been added before")
    if len(set(ranks)) != len(ranks) or any(not 0 <= rank < _job.size for rank in ranks):
        raise ValueError(f"a process set of {_job.size} ranks is some of 0 to {_job.size - 1}, not {ranks}")
    if any(known.ranks == ranks for number, known in _job.sets.items() if number != 0):
        raise ValueError(f"there is a process set of ranks {ranks} already")
    if _job.splitter is None:
        _job.splitter = _communicator()
    part = _job.splitter.split(1 if _job.rank in ranks else -1, _job.rank)
    process_set._coordinator = None if part is None else Coordinator(part, _job.settings, ranks)
    process_set.process_set_id = _job.next_set
    _job.sets[_job.next_set] = process_set
    _job.next_set += 1
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends a process set, on all ranks; False: it is the one of all ranks, or not known."""
    number = process_set.process_set_id
    if number is None or number == 0 or _job.sets.get(number) is not process_set:
        return False
    if process_set._coordinator is not None:
        from .operations import barrier  # which needs this module
        barrier(process_set)
    del _job.sets[number]
    _forget(process_set)
    return True


def get_process_set_ids_and_ranks() -> Dict[int, List[int]]:
    """Ranks of each process set, by its number."""
    return {number: list(process_set.ranks or []) for number, process_set in _job.sets.items()}


# ---- what Horovod was built with ----

def mpi_threads_supported() -> bool:
    """Whether MPI is what ranks talk through, and could be called by several threads."""
    return mpi_enabled()


def mpi_enabled() -> bool:
    """Whether ranks talk through MPI now."""
    return _job.coordinator is not None and _job.coordinator.backend == "mpi"


def mpi_built() -> bool:
    return mpi_enabled()


def gloo_enabled() -> bool:
    """Whether ranks talk without MPI, as they do in Horovod over Gloo."""
    return not mpi_enabled()


def gloo_built() -> bool:
    return True


def nccl_built() -> int:
    """Tensors of GPUs are not reduced by this module: 0."""
    return 0


def ddl_built() -> bool:
    return False


def ccl_built() -> bool:
    return False


def cuda_built() -> bool:
    return False


def rocm_built() -> bool:
    return False
