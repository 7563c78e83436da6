"""Keys and values: the store of a Worker, what is a worker's own in it, and the view of it under a prefix."""

from __future__ import annotations

import collections
import ctypes
import os
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Deque, Dict, Iterable, Iterator, List, Optional, Tuple, Type

from ._libdtrun import (Bytes, _Action, _action, _Bytes, _bytes, _check, _Condition, _condition, _integer, _key_change,
                        _KeyChanges, _library, _List, _ms, _take, _take_list, _view, _views)
from ._values import Code, Error, KeyChange, Transacted

if TYPE_CHECKING:
    from . import Worker


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
