"""dtrun's embedded client: who am I among the ranks of a job, and what do the others say.

    import dtrun

    with dtrun.Worker() as worker:
        addresses = worker.fence("addresses", my_address)
        worker.set(f"result/{worker.rank}", "42")
        worker.barrier("done", timeout=60)

Over the library libdtrun.so.0 by ctypes; docs/CLIENT.md and <dtrun.h> say more about each function.

Keys and values are bytes; a str is taken as UTF-8, and what comes back is always bytes. Timeouts are in
seconds; None and infinity wait for ever, 0 and less not at all. Any number of threads may use one Worker:
functions that wait let others run, and Ctrl-C and other signal handlers work while they do. What a handler
raises comes out of an operation that changes something only when that is answered, or has had no answer for
two seconds; an item that pop() had been given by then is what the Worker's next pop() of that queue returns.
After os.fork() the child may use the store and read its place, nothing else.

The library is looked for in LIBDTRUN_PATH, then where it was installed with this package, then where
the system's loader finds it.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Deque, Iterator, List, Optional, Tuple, Type

from ._libdtrun import (Bytes, _Change, _change, _check, _Event, _integer, _library, _List, _ms, _options, _take_list,
                        _UNKNOWN, _view)
from ._store import Claim, Lock, Prefix, _Store
from ._values import Change, ChangeReason, Changed, Code, Error, Event, EventKind, KeyChange, TimedOut, Transacted

if TYPE_CHECKING:
    from dtrun.aio import Store

__all__ = ["Change", "ChangeReason", "Changed", "Claim", "Code", "Elastic", "Error", "Event", "EventKind", "KeyChange",
           "Lock", "Prefix", "TimedOut", "Transacted", "Worker", "version"]


def version() -> str:
    """Of the library, such as "0.1.0"."""
    return _library.dtrun_version().decode()


def _failure_of(error: Optional[BaseException]) -> Optional[str]:
    """What has made a program fail that ends by this exception; None: it has not failed, as with sys.exit(0)."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return None
    return f"{type(error).__name__}: {error}"


class Worker(_Store):
    """One process's membership of a job.

    Use it in a `with` statement, or call close(): a member of a `dtrun serve` daemon that ends without
    counts as lost.
    """

    def __init__(self, timeout: Optional[float] = None, elastic: bool = False,
                 call_timeout: Optional[float] = None) -> None:
        """Finds the launcher and takes this process's place among the ranks.

        :param timeout: for getting a place; None: what the launcher grants
        :param elastic: in an elastic job (dtrun --min-np) this process can go on when hosts come, go and are
            lost, and is not ended for that; see elastic()
        :param call_timeout: of operations that have no timeout of their own, such as set(); None: they end when
            they are answered, or the connection is gone for good
        :raises Error: INVALID (names the variable), TIMED_OUT, REFUSED, CLOSED
        """
        super().__init__()
        # Are closed before it, in the order in which all ranks made them.
        self._users: List["weakref.ref[Any]"] = []
        self._held: List[Any] = []  # users that were closed, and are still inside of the library
        self._ending: Optional[Tuple[ctypes.c_void_p, Optional[str]]] = None  # closed, but for those
        self._aio: Optional["Store"] = None
        self._events: Deque[Event] = collections.deque()  # that aio has taken, and nobody else
        worker = ctypes.c_void_p()
        options = _options(timeout, elastic, call_timeout)
        _check(_library.dtrun_init(ctypes.byref(options), ctypes.byref(worker)))
        self._worker = worker

    def close(self, failure: Optional[str] = None) -> None:
        """Ends the membership; may be called again. Calls of other threads end with CLOSED.

        :param failure: why this rank has failed; None: all went well
        """
        self._close_users(failure)
        self._give_back()
        worker, self._worker = self._worker, None
        if worker is not None:
            self._ending = (worker, failure)
            self._finalize()

    def _finalize(self) -> None:
        """Ends the membership, as soon as nobody needs it any more."""
        if self._ending is None or self._held:
            return
        (worker, failure), self._ending = self._ending, None
        _library.dtrun_finalize(worker, None if failure is None else failure.encode(errors="replace"))

    def _hold(self, user: Any) -> None:
        """A signal handler closes this user in the middle of an operation, which goes on when that returns."""
        self._drop_user(user)
        self._held.append(user)

    def _let_go(self, user: Any) -> None:
        self._held.remove(user)
        self._finalize()

    def _add_user(self, user: Any) -> None:
        """What is closed before this worker, unless nobody has it any more by then."""
        self._users.append(weakref.ref(user, self._users.remove))

    def _drop_user(self, user: Any) -> None:
        self._users[:] = [reference for reference in list(self._users) if reference() not in (user, None)]

    def _close_users(self, failure: Optional[str] = None) -> None:
        for user in filter(None, [reference() for reference in self._users]):
            if failure is not None:
                user.give_up(failure)
            user.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close(_failure_of(error))

    # ---- place ----

    def _fact(self, name: str) -> Optional[int]:
        value = getattr(_library, "dtrun_" + name)(self._get())
        return None if value == _UNKNOWN else value

    @property
    def launcher(self) -> str:
        """"dtrun", "dtrun serve", "slurm", "openmpi", "pmi", "torchrun" or "none"."""
        return _library.dtrun_launcher(self._get()).decode()

    @property
    def job(self) -> str:
        """Id of the job, by its launcher; "" when it has none."""
        return _library.dtrun_job(self._get()).decode(errors="replace")

    @property
    def host_name(self) -> str:
        """What the user calls this host, else what it calls itself."""
        return _library.dtrun_host_name(self._get()).decode(errors="replace")

    @property
    def generation(self) -> int:
        """Number of the membership, from 1; 0 when the launcher has none."""
        return _library.dtrun_generation(self._get())

    @property
    def rank(self) -> int:
        """Among all ranks."""
        return _library.dtrun_rank(self._get())

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return _library.dtrun_world_size(self._get())

    @property
    def size(self) -> int:
        """world_size, as MPI and Horovod call it."""
        return self.world_size

    @property
    def local_rank(self) -> Optional[int]:
        """Among those of this host; None, as for the rest: the launcher does not say."""
        return self._fact("local_rank")

    @property
    def local_size(self) -> Optional[int]:
        """Ranks on this host."""
        return self._fact("local_size")

    @property
    def cross_rank(self) -> Optional[int]:
        """Of this host, among hosts that have this local rank."""
        return self._fact("cross_rank")

    @property
    def cross_size(self) -> Optional[int]:
        """Number of those hosts."""
        return self._fact("cross_size")

    @property
    def node_rank(self) -> Optional[int]:
        """Of this host, among all."""
        return self._fact("node_rank")

    @property
    def node_count(self) -> Optional[int]:
        """Hosts that have ranks."""
        return self._fact("node_count")

    # ---- asyncio ----

    @property
    def aio(self) -> "Store":
        """The functions above, as futures for asyncio, and events: see dtrun.aio."""
        if self._aio is None or not self._aio._is_usable():
            from dtrun.aio import Store
            self._aio = Store(self)
        return self._aio

    # ---- all ranks together ----

    def barrier(self, name: Bytes, timeout: Optional[float] = None) -> None:
        """Returns once every rank has called it; ends in the same way for all.

        :raises Error: TimedOut, CANCELLED (another rank gave up), STALE, FORKED, NO_LAUNCHER
        """
        _check(_library.dtrun_barrier(self._get(), _view(name), _ms(timeout)))

    def fence(self, name: Bytes, value: Bytes, timeout: Optional[float] = None) -> List[bytes]:
        """As barrier(), and returns the bytes of all, by rank; together at most 12 MiB."""
        values = _List()
        _check(_library.dtrun_fence(self._get(), _view(name), _view(value), _ms(timeout),
                                    ctypes.byref(values)))
        return _take_list(values)

    def progress(self, step: int) -> None:
        """Tells whoever watches the job how far this rank is."""
        _check(_library.dtrun_progress(self._get(), _integer("step", step, 0, (1 << 64) - 1)))

    # ---- events ----

    def next_event(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The oldest event that nobody has taken; None when the time has passed."""
        return self._events.popleft() if self._events else self._next_event(timeout)

    def _next_event(self, timeout: Optional[float]) -> Optional[Event]:
        event = _Event()
        try:
            _check(_library.dtrun_next_event(self._get(), _ms(timeout), ctypes.byref(event)))
        except TimedOut:
            return None
        why = ctypes.string_at(event.why).decode(errors="replace")
        _library.dtrun_free(event.why)
        return Event(event.kind, event.generation, event.grace_ms / 1000, why)

    def event_fd(self) -> int:
        """A descriptor that is readable when next_event(0) may have one; not to be read or closed."""
        fd = ctypes.c_int()
        _check(_library.dtrun_event_fd(self._get(), ctypes.byref(fd)))
        return fd.value

    # ---- generations ----

    def rejoin(self, timeout: Optional[float] = None) -> None:
        """Leaves this generation and takes a place in the next.

        :raises Error: TimedOut; REFUSED (this job, or this worker, is not elastic); CLOSED (the job ends, or
            goes on without this process)
        """
        _check(_library.dtrun_rejoin(self._get(), _ms(timeout)))

    @property
    def can_rejoin(self) -> bool:
        """Whether rejoin() is not refused here."""
        return bool(_library.dtrun_can_rejoin(self._get()))

    def change(self) -> Optional[Change]:
        """The change that is coming, if one is: a look into memory, for every step of a program."""
        if not _library.dtrun_change_pending(self._get(), None):  # of every step but one
            return None
        change = _Change()
        pending = _library.dtrun_change_pending(self._get(), ctypes.byref(change))
        return _change(change) if pending else None

    def wait_for_change(self, timeout: Optional[float] = None) -> Optional[Change]:
        """Waits for a change; None when the time has passed."""
        change = _Change()
        try:
            _check(_library.dtrun_wait_for_change(self._get(), _ms(timeout), ctypes.byref(change)))
        except TimedOut:
            return None
        return _change(change)

    @property
    def token(self) -> int:
        """Grows with every generation: for the names of what is written outside of the job, so that a process
        that was frozen, and thaws when others have gone on without it, destroys nothing."""
        return _library.dtrun_token(self._get())

    def elastic(self) -> "Elastic":
        """A loop over the generations of the job, for a worker that was made with elastic=True."""
        return Elastic(self)

    # ---- sections ----

    @contextlib.contextmanager
    def section(self, name: Bytes, limit: float) -> Iterator[None]:
        """A part of the program that is not to take longer than `limit` seconds: if it does, dtrun says so."""
        _check(_library.dtrun_section(self._get(), _view(name), _ms(limit)))
        try:
            yield
        finally:
            _check(_library.dtrun_section_end(self._get(), _view(name)))

    def beat(self) -> None:
        """All sections that this rank is in have their whole time again."""
        _check(_library.dtrun_beat(self._get()))

    # ---- what a rank waits for ----

    def stall(self, what: Bytes, waited: float) -> None:
        """This rank has waited `waited` seconds for something that may never come: it is shown to who looks at the
        job, until stall_end()."""
        _check(_library.dtrun_stall(self._get(), _view(what), _ms(waited)))

    def stall_end(self, what: Bytes) -> None:
        """It does not wait for that any more."""
        _check(_library.dtrun_stall_end(self._get(), _view(what)))


class Elastic:
    """The generations of an elastic job, one after the other, in one process.

        with dtrun.Worker(elastic=True) as worker:
            job = worker.elastic()
            while job.next():
                with job:                    # what a change breaks off ends here
                    train(job)               # makes its communicator, calls job.check(step) before each step

    Each turn of the loop is a generation: the worker has a new place, and the store is empty. When the block ends
    without a change, the program has finished, and next() is False.
    """

    #: What calls of this module raise when others have gone, or have left the generation.
    _BROKEN_OFF = (Code.STALE, Code.CANCELLED, Code.PEER_LOST)

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._goes_on = True
        self._first = True

    def next(self, timeout: Optional[float] = None) -> bool:
        """Takes this process's place in the next generation, which is the present one at first.

        :raises Error: as Worker.rejoin()
        """
        if self._goes_on and not self._first:
            self.worker.rejoin(timeout)
        self._first = False
        return self._goes_on

    def check(self, step: int) -> None:
        """Tells how far this rank is, and ends the block if all ranks leave the generation before this step.

        :raises Changed: which the `with` block takes
        """
        self.worker.progress(step)
        change = self.worker.change()
        if change and step >= change.stop_step:
            raise Changed(change)

    def __enter__(self) -> "Elastic":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> bool:
        broken_off = isinstance(error, Error) and error.code in self._BROKEN_OFF
        self._goes_on = isinstance(error, Changed) or broken_off
        if self._goes_on:
            self.worker._close_users()
        return self._goes_on


# Public names are of `dtrun` in tracebacks and pickles, whichever file of the package has them.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
