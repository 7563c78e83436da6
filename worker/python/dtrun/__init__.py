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
import enum
import math
import operator
import os
import pathlib
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Type, Union

if TYPE_CHECKING:
    from dtrun.aio import Store

__all__ = ["Change", "ChangeReason", "Changed", "Claim", "Code", "Elastic", "Error", "Event", "EventKind", "KeyChange",
           "Lock", "Prefix", "TimedOut", "Transacted", "Worker", "version"]

Bytes = Union[str, bytes, bytearray, memoryview]


class Code(enum.IntEnum):
    """Why a call has failed; values are those of dtrun_code in <dtrun.h>."""

    NOT_FOUND = 1
    TIMED_OUT = 2
    STALE = 3
    CANCELLED = 4
    REFUSED = 5
    WRONG_TYPE = 6
    CLOSED = 7
    INVALID = 8
    NO_LAUNCHER = 9
    FORKED = 10
    INTERNAL = 11
    PEER_LOST = 12


class Error(Exception):
    """What every function here raises."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code  #: what a program can react to


class TimedOut(Error, TimeoutError):
    """The timeout of the call has passed."""


class EventKind(enum.IntEnum):
    MEMBERSHIP = 1  #: a new generation is coming
    SHUTDOWN = 2  #: the job is being ended


class Event(NamedTuple):
    """Something that a rank may want to know."""

    kind: int  #: an EventKind; ignore others
    generation: int  #: that is coming, or that ends
    grace: float  #: seconds until the process is killed; 0: not known
    why: str


class ChangeReason(enum.IntEnum):
    JOINED = 1  #: more slots are there
    LEFT = 2  #: slots are to be given up
    LOST = 3  #: a rank or a host is lost: nobody can finish this generation
    RESTARTED = 4  #: all ranks are being ended, to start again


class Change(NamedTuple):
    """What is known of the end of this generation."""

    generation: int  #: of this process
    next: int  #: that is coming
    stop_step: int  #: leave before this step, as all others do; 0: none is agreed, leave now
    deadline: float  #: until which ranks may go on, as time.time() counts; 0: not known
    reason: int  #: a ChangeReason; 0: not known


class KeyChange(NamedTuple):
    """A change of a key under a prefix."""

    revision: int
    key: bytes
    value: Optional[bytes]  #: None: it was deleted, or is a queue
    is_queue: bool

    @property
    def is_deleted(self) -> bool:
        return self.value is None and not self.is_queue


class Transacted(NamedTuple):
    """How a transaction ended."""

    done: bool
    failed: Optional[int]  #: index of the first condition that does not hold


class Changed(Exception):
    """Raised by Elastic.check(): this generation ends here."""

    def __init__(self, change: Change) -> None:
        super().__init__(f"generation {change.next} is coming")
        self.change = change


class _View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class _Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _List(ctypes.Structure):
    _fields_ = [("items", ctypes.POINTER(_Bytes)), ("count", ctypes.c_size_t)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("generation", ctypes.c_uint64),
        ("grace_ms", ctypes.c_uint32),
        ("why", ctypes.c_void_p),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("timeout_ms", ctypes.c_int64),
        ("unlock", ctypes.c_void_p),
        ("lock", ctypes.c_void_p),
        ("interrupted", ctypes.c_void_p),
        ("elastic", ctypes.c_int),
        ("call_timeout_ms", ctypes.c_int64),
    ]


class _Change(ctypes.Structure):
    _fields_ = [
        ("generation", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("stop_step", ctypes.c_uint64),
        ("deadline_ms", ctypes.c_int64),
        ("reason", ctypes.c_int),
    ]


class _Condition(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("key", _View), ("value", _View), ("revision", ctypes.c_uint64)]


class _Action(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("key", _View), ("value", _View)]


class _KeyChange(ctypes.Structure):
    _fields_ = [("revision", ctypes.c_uint64), ("kind", ctypes.c_int), ("key", _Bytes), ("value", _Bytes)]


class _KeyChanges(ctypes.Structure):
    _fields_ = [("items", ctypes.POINTER(_KeyChange)), ("count", ctypes.c_size_t), ("complete", ctypes.c_int)]


def _load() -> ctypes.PyDLL:
    # PyDLL keeps the interpreter's lock and raises what a signal handler has raised. The library gives
    # the lock up while it waits, by the functions that _options() hands to it.
    installed = pathlib.Path(__file__).resolve().parents[3] / "libdtrun.so.0"
    path = os.environ.get("LIBDTRUN_PATH") or (str(installed) if installed.exists() else "libdtrun.so.0")
    library = ctypes.PyDLL(path)
    worker, view, ms = ctypes.c_void_p, _View, ctypes.c_int64
    views, size = ctypes.POINTER(_View), ctypes.c_size_t
    out, out_list = ctypes.POINTER(_Bytes), ctypes.POINTER(_List)
    out_int, out_i64 = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int64)
    out_u64 = ctypes.POINTER(ctypes.c_uint64)
    signatures = {
        "init": [ctypes.POINTER(_Options), ctypes.POINTER(ctypes.c_void_p)],
        "set": [worker, view, view],
        "get": [worker, view, ms, out],
        "wait": [worker, views, size, ms],
        "add": [worker, view, ctypes.c_int64, out_i64],
        "compare_set": [worker, view, views, view, out_int, out],
        "append": [worker, view, view, out_u64],
        "exists": [worker, views, size, out_int],
        "delete": [worker, view, out_int],
        "multi_get": [worker, views, size, ms, out_list],
        "multi_set": [worker, views, views, size],
        "list_keys": [worker, view, view, ctypes.c_uint32, out_list, out_int],
        "push": [worker, view, view, out_u64],
        "pop": [worker, view, ms, out],
        "length": [worker, view, out_u64],
        "watch": [worker, view, out_u64, ms, out],
        "count": [worker, out_u64],
        "prefix": [worker, view, ctypes.POINTER(ctypes.c_void_p)],
        "put": [worker, view, view, ctypes.c_int, ctypes.c_int64],
        "lock": [worker, view, view, ms, out_u64],
        "unlock": [worker, view, ctypes.c_uint64, out_int],
        "claim": [worker, view, ms, out, out_u64],
        "acknowledge": [worker, view, ctypes.c_uint64, out_int],
        "give_back": [worker, view, ctypes.c_uint64, out_int],
        "erase_prefix": [worker, view, out_u64],
        "watch_prefix": [worker, view, out_u64, ctypes.c_uint32, ms, ctypes.POINTER(_KeyChanges)],
        "transact": [worker, ctypes.POINTER(_Condition), size, ctypes.POINTER(_Action), size, out_int, out_u64],
        "barrier": [worker, view, ms],
        "fence": [worker, view, view, ms, out_list],
        "progress": [worker, ctypes.c_uint64],
        "next_event": [worker, ms, ctypes.POINTER(_Event)],
        "event_fd": [worker, out_int],
        "rejoin": [worker, ms],
        "wait_for_change": [worker, ms, ctypes.POINTER(_Change)],
        "section": [worker, view, ctypes.c_int64],
        "section_end": [worker, view],
        "beat": [worker],
        "stall": [worker, view, ctypes.c_int64],
        "stall_end": [worker, view],
    }
    for name, arguments in signatures.items():
        function = getattr(library, "dtrun_" + name)
        function.argtypes = arguments
        function.restype = ctypes.c_int
    for name in ("launcher", "job", "host_name"):
        function = getattr(library, "dtrun_" + name)
        function.argtypes = [worker]
        function.restype = ctypes.c_char_p
    for name in ("rank", "world_size", "local_rank", "local_size", "cross_rank", "cross_size",
                 "node_rank", "node_count"):
        function = getattr(library, "dtrun_" + name)
        function.argtypes = [worker]
        function.restype = ctypes.c_uint32
    for name in ("generation", "token"):
        function = getattr(library, "dtrun_" + name)
        function.argtypes = [worker]
        function.restype = ctypes.c_uint64
    library.dtrun_can_rejoin.argtypes = [worker]
    library.dtrun_can_rejoin.restype = ctypes.c_int
    library.dtrun_change_pending.argtypes = [worker, ctypes.POINTER(_Change)]
    library.dtrun_change_pending.restype = ctypes.c_int
    library.dtrun_finalize.argtypes = [worker, ctypes.c_char_p]
    library.dtrun_finalize.restype = None
    library.dtrun_free.argtypes = [ctypes.c_void_p]
    library.dtrun_free.restype = None
    library.dtrun_error_text.restype = ctypes.c_char_p
    library.dtrun_version.restype = ctypes.c_char_p
    return library


_library = _load()
_UNKNOWN = 0xFFFFFFFF


def _check(code: int) -> None:
    if code == 0:
        return
    text = _library.dtrun_error_text().decode(errors="replace")
    raise (TimedOut if code == Code.TIMED_OUT else Error)(Code(code), text)


def _bytes(value: Bytes) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    try:
        view = memoryview(value)
    except TypeError:
        view = None
    if view is None or view.ndim == 0:  # NumPy's numbers are views of no dimension
        raise TypeError(f"str or bytes are wanted, not {type(value).__name__}; str() or pickle.dumps() make some")
    return view.tobytes()


def _view(value: Bytes) -> _View:
    data = _bytes(value)
    return _View(data, len(data))


def _views(values: Iterable[Bytes]) -> Tuple[ctypes.Array, int]:
    views = [_view(value) for value in values]
    return (_View * len(views))(*views), len(views)


def _integer(name: str, value: int, least: int, most: int) -> int:
    value = operator.index(value)
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}, not from {least} to {most}")
    return value


def _ms(timeout: Optional[float]) -> int:
    if timeout is None or timeout == math.inf:
        return -1
    if math.isnan(timeout):
        raise ValueError("the timeout is not a number")
    # A time that is not over is not 0; and what no number holds is for ever.
    return max(1, round(min(timeout, 1e9) * 1000)) if timeout > 0 else 0


def _take(value: _Bytes) -> Optional[bytes]:
    if value.data is None:
        return None
    taken = ctypes.string_at(value.data, value.size)
    _library.dtrun_free(value.data)
    return taken


def _take_list(values: _List) -> List[bytes]:
    taken = [ctypes.string_at(values.items[i].data, values.items[i].size) for i in range(values.count)]
    _library.dtrun_free(values.items)
    return taken


def _change(change: _Change) -> Change:
    return Change(change.generation, change.next, change.stop_step, change.deadline_ms / 1000, change.reason)


def _key_change(change: _KeyChange) -> KeyChange:
    is_set, is_queue = change.kind == 0, change.kind == 2
    value = ctypes.string_at(change.value.data, change.value.size) if is_set else None
    return KeyChange(change.revision, ctypes.string_at(change.key.data, change.key.size), value, is_queue)


_CONDITIONS = {"missing": 0, "exists": 1, "value": 2, "revision": 3}
_ACTIONS = {"set": 0, "delete": 1, "push": 2, "add": 3}


def _kind(name: str, kinds: Dict[str, int]) -> int:
    if name not in kinds:
        raise ValueError(f"{name!r} is none of {', '.join(kinds)}")
    return kinds[name]


def _condition(kind: str, key: Bytes, operand: Any = b"") -> _Condition:
    number = _kind(kind, _CONDITIONS)
    if kind == "revision":
        return _Condition(number, _view(key), _view(b""), _integer("revision", operand, 0, (1 << 64) - 1))
    return _Condition(number, _view(key), _view(operand), 0)


def _action(kind: str, key: Bytes, value: Any = b"") -> _Action:
    number = _kind(kind, _ACTIONS)
    if kind == "add":
        value = str(_integer("add", value, -(1 << 63), (1 << 63) - 1))
    return _Action(number, _view(key), _view(value))


def _options(timeout: Optional[float], elastic: bool, call_timeout: Optional[float]) -> _Options:
    def pointer(name: str) -> Optional[int]:
        return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value

    return _Options(ctypes.sizeof(_Options), _ms(timeout), pointer("PyEval_SaveThread"),
                    pointer("PyEval_RestoreThread"), pointer("PyErr_CheckSignals"), int(elastic),
                    _ms(call_timeout) or 1)  # 0 would be no limit, as less is


def version() -> str:
    """Of the library, such as "0.1.0"."""
    return _library.dtrun_version().decode()


def _failure_of(error: Optional[BaseException]) -> Optional[str]:
    """What has made a program fail that ends by this exception; None: it has not failed, as with sys.exit(0)."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return None
    return f"{type(error).__name__}: {error}"


class _Store:
    """What a Worker, and a Prefix of one, do with keys and values."""

    def __init__(self) -> None:
        self._worker: Optional[ctypes.c_void_p] = None
        # By queue: items of calls of pop() that a signal handler's exception has ended. And whose they are: of
        # which process and generation, for a forked child has its parent's items, and each generation a store.
        self._left: Dict[bytes, "collections.deque[bytes]"] = {}
        self._left_of = (0, 0)

    def _get(self) -> ctypes.c_void_p:
        if self._worker is None:
            raise Error(Code.CLOSED, "the worker is closed")
        return self._worker

    def _generation(self) -> int:
        return _library.dtrun_generation(self._get())

    def _take_left(self, key: bytes) -> Optional[bytes]:
        if not self._left:
            return None
        if self._left_of != (os.getpid(), self._generation()):
            self._left = {}
            return None
        try:
            return self._left[key].popleft()
        except (KeyError, IndexError):
            return None

    def _leave(self, key: bytes, item: bytes) -> None:
        """Nobody has had that item of a queue."""
        owner = (os.getpid(), self._generation())
        if self._left_of != owner:
            self._left, self._left_of = {}, owner
        self._left.setdefault(key, collections.deque()).append(item)

    def _give_back(self) -> None:
        """Puts items that nobody has taken at the end of their queues, if the connection is there."""
        if self._worker is None or not self._left or self._left_of != (os.getpid(), self._generation()):
            return
        for key, items in self._left.items():
            while items:
                try:
                    self.get(key, 0)  # which ends soon if nobody answers
                except Error as error:
                    if error.code not in (Code.NOT_FOUND, Code.WRONG_TYPE):
                        return
                try:
                    self.push(key, items[0])
                except Error:
                    return
                items.popleft()

    def set(self, key: Bytes, value: Bytes) -> None:
        """Sets a value of at most 15.75 MiB; a key has at most 64 KiB."""
        _check(_library.dtrun_set(self._get(), _view(key), _view(value)))

    def get(self, key: Bytes, timeout: Optional[float] = None) -> bytes:
        """The value, once it exists. :raises Error: TimedOut, NOT_FOUND (timeout 0)"""
        value = _Bytes()
        _check(_library.dtrun_get(self._get(), _view(key), _ms(timeout), ctypes.byref(value)))
        return _take(value) or b""

    def find(self, key: Bytes) -> Optional[bytes]:
        """The value if it exists now, else None."""
        try:
            return self.get(key, 0)
        except Error as error:
            if error.code == Code.NOT_FOUND:
                return None
            raise

    def wait(self, keys: Iterable[Bytes], timeout: Optional[float] = None) -> None:
        """Returns once all keys exist. :raises TimedOut:"""
        views, count = _views(keys)
        _check(_library.dtrun_wait(self._get(), views, count, _ms(timeout)))

    def add(self, key: Bytes, delta: int) -> int:
        """Adds to a decimal number and returns the sum; a missing key counts as 0."""
        total = ctypes.c_int64()
        delta = _integer("delta", delta, -(1 << 63), (1 << 63) - 1)
        _check(_library.dtrun_add(self._get(), _view(key), delta, ctypes.byref(total)))
        return total.value

    def compare_set(self, key: Bytes, expected: Optional[Bytes],
                    desired: Bytes) -> Tuple[bool, Optional[bytes]]:
        """Sets the value if it is the expected one (None: missing).

        :return: whether it was set, and the value after the call (None: missing)
        """
        was_set, now = ctypes.c_int(), _Bytes()
        old = None if expected is None else ctypes.pointer(_view(expected))
        _check(_library.dtrun_compare_set(self._get(), _view(key), old, _view(desired),
                                          ctypes.byref(was_set), ctypes.byref(now)))
        return bool(was_set.value), _take(now)

    def append(self, key: Bytes, value: Bytes) -> int:
        """Appends to a value and returns its size now; a missing one counts as empty."""
        size = ctypes.c_uint64()
        _check(_library.dtrun_append(self._get(), _view(key), _view(value), ctypes.byref(size)))
        return size.value

    def exists(self, *keys: Bytes) -> bool:
        """Whether all these keys exist."""
        views, count = _views(keys)
        exist = ctypes.c_int()
        _check(_library.dtrun_exists(self._get(), views, count, ctypes.byref(exist)))
        return bool(exist.value)

    def all_exist(self, keys: Iterable[Bytes]) -> bool:
        """Whether all keys exist."""
        return self.exists(*keys)

    def delete(self, key: Bytes) -> bool:
        """Deletes a value or a queue; returns whether it existed."""
        existed = ctypes.c_int()
        _check(_library.dtrun_delete(self._get(), _view(key), ctypes.byref(existed)))
        return bool(existed.value)

    erase = delete  #: its former name

    def erase_prefix(self, prefix: Bytes) -> int:
        """Deletes all keys and queues that begin with `prefix`; returns how many."""
        count = ctypes.c_uint64()
        _check(_library.dtrun_erase_prefix(self._get(), _view(prefix), ctypes.byref(count)))
        return count.value

    def multi_get(self, keys: Iterable[Bytes], timeout: Optional[float] = None) -> List[bytes]:
        """All values in the order of the keys, once all exist."""
        views, count = _views(keys)
        values = _List()
        _check(_library.dtrun_multi_get(self._get(), views, count, _ms(timeout), ctypes.byref(values)))
        return _take_list(values)

    def multi_set(self, values: Dict[Bytes, Bytes]) -> None:
        """Sets all at once."""
        keys, count = _views(values.keys())
        _check(_library.dtrun_multi_set(self._get(), keys, _views(values.values())[0], count))

    def list_keys(self, prefix: Bytes = b"", after: Bytes = b"",
                  limit: int = 1000) -> Tuple[List[bytes], bool]:
        """Keys in order that begin with `prefix` and come behind `after`, and whether there are more."""
        keys, more = _List(), ctypes.c_int()
        limit = _integer("limit", limit, 1, (1 << 32) - 1)
        _check(_library.dtrun_list_keys(self._get(), _view(prefix), _view(after), limit,
                                        ctypes.byref(keys), ctypes.byref(more)))
        return _take_list(keys), bool(more.value)

    def push(self, key: Bytes, value: Bytes) -> int:
        """Puts a value at the end of a queue; returns its length now."""
        length = ctypes.c_uint64()
        _check(_library.dtrun_push(self._get(), _view(key), _view(value), ctypes.byref(length)))
        return length.value

    def pop(self, key: Bytes, timeout: Optional[float] = None) -> bytes:
        """Takes the oldest value of a queue, once there is one; as get()."""
        name = _bytes(key)
        left = self._take_left(name)
        if left is not None:
            return left
        value, item = _Bytes(), None
        try:
            _check(_library.dtrun_pop(self._get(), _view(name), _ms(timeout), ctypes.byref(value)))
            item = ctypes.string_at(value.data, value.size)
            _library.dtrun_free(value.data)
            return item
        except BaseException:
            # A signal handler has raised something, and the item has come nevertheless.
            if item is None and value.data is not None:
                item = ctypes.string_at(value.data, value.size)
                _library.dtrun_free(value.data)
            if item is not None:
                self._leave(name, item)
            raise

    def length(self, key: Bytes) -> int:
        """Length of a queue."""
        length = ctypes.c_uint64()
        _check(_library.dtrun_length(self._get(), _view(key), ctypes.byref(length)))
        return length.value

    def watch(self, key: Bytes, revision: int,
              timeout: Optional[float] = None) -> Tuple[int, Optional[bytes]]:
        """Returns revision and value (None: missing) once the revision is another one."""
        now, value = ctypes.c_uint64(_integer("revision", revision, 0, (1 << 64) - 1)), _Bytes()
        _check(_library.dtrun_watch(self._get(), _view(key), ctypes.byref(now), _ms(timeout),
                                    ctypes.byref(value)))
        return now.value, _take(value)

    def count(self) -> int:
        """Number of keys and queues."""
        count = ctypes.c_uint64()
        _check(_library.dtrun_count(self._get(), ctypes.byref(count)))
        return count.value

    # ---- owners; <dtrun.h> says when what is a worker's own is gone ----

    def put(self, key: Bytes, value: Bytes, ephemeral: bool = False, ttl: Optional[float] = None) -> None:
        """Sets a value that does not stay: as long as this worker, or for `ttl` seconds."""
        life = 0 if ttl is None else max(_ms(ttl), 1)  # 0 would be for ever
        _check(_library.dtrun_put(self._get(), _view(key), _view(value), int(ephemeral), life))

    def lock(self, name: Bytes, value: Bytes = b"", timeout: Optional[float] = None) -> "Lock":
        """Makes an ephemeral key once it is missing; who has waited longest gets it.

            with worker.lock("leader", value=address) as token:   # an election: the key tells who leads
                worker.transact(if_=[("revision", "leader", token)], then=[("set", "state", new)])

        :raises Error: TimedOut
        """
        token = ctypes.c_uint64()
        try:
            _check(_library.dtrun_lock(self._get(), _view(name), _view(value), _ms(timeout), ctypes.byref(token)))
            lock = Lock(token.value)
            lock._store, lock._name = self, _bytes(name)
            return lock
        except BaseException:
            if token.value != 0:  # a signal handler has raised something, and it is ours nevertheless
                _library.dtrun_unlock(self._get(), _view(name), token, None)
            raise

    elect = lock

    def claim(self, key: Bytes, timeout: Optional[float] = None) -> "Claim":
        """As pop(), but the item comes back unless it is acknowledged; for a `with` block, at whose end it is.

        :raises Error: TimedOut, NOT_FOUND (timeout 0)
        """
        value, item = _Bytes(), ctypes.c_uint64()
        try:
            _check(_library.dtrun_claim(self._get(), _view(key), _ms(timeout), ctypes.byref(value),
                                        ctypes.byref(item)))
            return Claim(self, _bytes(key), _take(value) or b"", item.value)
        except BaseException:
            if item.value != 0:  # a signal handler has raised something: others are to have it
                _library.dtrun_give_back(self._get(), _view(key), item, None)
            raise

    # ---- several keys ----

    def transact(self, if_: Iterable[Tuple[Any, ...]] = (), then: Iterable[Tuple[Any, ...]] = ()) -> "Transacted":
        """Does all actions at one moment if all conditions hold; else nothing.

        :param if_: ("missing", key), ("exists", key), ("value", key, bytes), ("revision", key, number); a lock's
            token is the revision of its key
        :param then: ("set", key, value), ("delete", key), ("push", key, value), ("add", key, number); each key once
        """
        conditions = [_condition(*condition) for condition in if_]
        actions = [_action(*action) for action in then]
        done, failed = ctypes.c_int(), ctypes.c_uint64()
        _check(_library.dtrun_transact(self._get(), (_Condition * len(conditions))(*conditions), len(conditions),
                                       (_Action * len(actions))(*actions), len(actions), ctypes.byref(done),
                                       ctypes.byref(failed)))
        return Transacted(bool(done.value), None if done.value else failed.value)

    def key_changes(self, prefix: Bytes, revision: int = 0, timeout: Optional[float] = None,
                    limit: int = 0) -> Tuple[int, bool, List["KeyChange"]]:
        """Waits for changes under a prefix behind a revision.

        :return: the revision for the next call; whether these are all keys there are, and what was known before
            is to be forgotten; and the changes, in order
        :raises TimedOut:
        """
        known, changes = ctypes.c_uint64(_integer("revision", revision, 0, (1 << 64) - 1)), _KeyChanges()
        _check(_library.dtrun_watch_prefix(self._get(), _view(prefix), ctypes.byref(known), limit, _ms(timeout),
                                           ctypes.byref(changes)))
        taken = [_key_change(changes.items[i]) for i in range(changes.count)]
        _library.dtrun_free(changes.items)
        return known.value, bool(changes.complete), taken

    def watch_prefix(self, prefix: Bytes, timeout: Optional[float] = None) -> Iterator["KeyChange"]:
        """All keys under a prefix, and then every change of them, in order, for ever. After the daemon was away for
        long, what has changed meanwhile comes as one change of each key.

        :param timeout: for each change
        :raises TimedOut: and the next call goes on where it was
        """
        return _PrefixWatch(self, prefix, timeout)

    def prefix(self, prefix: Bytes) -> "Prefix":
        """The same store, of which only the keys under a prefix are seen, without it."""
        return Prefix(self, prefix)


class _PrefixWatch(Iterator["KeyChange"]):
    """Of watch_prefix(); a generator would have ended with its first exception."""

    def __init__(self, store: _Store, prefix: Bytes, timeout: Optional[float]) -> None:
        self._store, self._prefix, self._timeout = store, prefix, timeout
        self._revision = 0
        self._known: Dict[bytes, int] = {}  # of changes that were given
        self._next: Deque[KeyChange] = collections.deque()

    def __next__(self) -> "KeyChange":
        while not self._next:
            self._ask()
        change = self._next.popleft()
        if change.is_deleted:
            self._known.pop(change.key, None)
        else:
            self._known[change.key] = change.revision
        return change

    def _ask(self) -> None:
        revision, is_complete, changes = self._store.key_changes(self._prefix, self._revision, self._timeout)
        if is_complete:
            there = {change.key for change in changes}
            gone = [KeyChange(revision, key, None, False) for key in self._known if key not in there]
            changes = gone + [change for change in changes if self._known.get(change.key) != change.revision]
        self._revision, self._next = revision, collections.deque(changes)  # at once: signals may raise something


class Prefix(_Store):
    """A Worker's store under a prefix: see Worker.prefix(). Ends with its worker, or by close()."""

    def __init__(self, parent: _Store, prefix: Bytes) -> None:
        super().__init__()
        handle = ctypes.c_void_p()
        _check(_library.dtrun_prefix(parent._get(), _view(prefix), ctypes.byref(handle)))
        self._worker = handle
        self._finalize = weakref.finalize(self, _library.dtrun_finalize, handle, None)
        self._finalize.atexit = False  # Worker.close() ends it, too
        self._owner: "Worker" = parent._owner if isinstance(parent, Prefix) else parent  # type: ignore[assignment]
        self._owner._add_user(self)

    def give_up(self, failure: str) -> None:
        """Nothing of it has to be given up."""

    def close(self) -> None:
        """May be called again."""
        if self._worker is None:
            return
        self._give_back()
        self._worker = None
        self._owner._drop_user(self)
        self._finalize()

    def __enter__(self) -> "Prefix":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


class Lock(int):
    """A lock that is held; the number is its token, which grows with every holder."""

    _store: _Store
    _name: bytes

    def release(self) -> bool:
        """Returns False if it was lost before."""
        was_held = ctypes.c_int()
        _check(_library.dtrun_unlock(self._store._get(), _view(self._name), self, ctypes.byref(was_held)))
        return bool(was_held.value)

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if not self.release() and error is None:
            raise Error(Code.CANCELLED, f"lock {self._name!r}: it was lost before it was released")


class Claim:
    """An item of a queue that is this worker's to do."""

    def __init__(self, store: _Store, key: bytes, value: bytes, item: int) -> None:
        self._store, self._key = store, key
        self.value = value
        self.item = item  #: its number

    def acknowledge(self) -> bool:
        """It is done. Returns False if it was not this worker's any more: somebody else does it again."""
        done = ctypes.c_int()
        _check(_library.dtrun_acknowledge(self._store._get(), _view(self._key), self.item, ctypes.byref(done)))
        return bool(done.value)

    def give_back(self) -> bool:
        """It is for others; returns as above."""
        done = ctypes.c_int()
        _check(_library.dtrun_give_back(self._store._get(), _view(self._key), self.item, ctypes.byref(done)))
        return bool(done.value)

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if error is not None:
            self.give_back()
        elif not self.acknowledge():
            raise Error(Code.CANCELLED, f"claim({self._key!r}): the item was not this worker's any more")


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
