"""The store and the events of a worker for asyncio, without a thread for each wait.

    async with asyncio.timeout(60):
        address, size = await asyncio.gather(worker.aio.get("address"), worker.aio.get("size"))
    async for event in worker.aio.events():
        ...

`worker.aio` has the functions of the store that Worker has, under the same names. Each asks at once and returns a
future with the result, so that any number may be under way (find() and pop() are coroutines: they ask when they are
awaited, as lock() and claim() do); what one iteration of the loop asks goes together.
Changes are done once, and in the order in which they were asked for. When a task that waits is cancelled, so is its
request: it may have been done, and an item that a cancelled pop() had been given is what the worker's next pop() of
that queue returns.

Of one event loop at a time; other threads may use the worker's other functions meanwhile. Events that come while
something is awaited here are those of events(), and of the worker's next_event() behind them.
"""

from __future__ import annotations

import asyncio
import ctypes
import enum
import os
import time
from typing import Any, AsyncIterator, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from . import Bytes, Code, Error, Event, KeyChange, Transacted, Worker
from ._libdtrun import (_Action, _action, _Bytes, _bytes, _Condition, _condition, _failure, _integer, _key_change,
                        _KeyChanges, _library, _List, _ms, _take, _take_list, _View, _view, _views)

__all__ = ["Store"]

_ANSWER_TIME = 2.0  # for what is cancelled when the worker is closed


class _Op(enum.IntEnum):
    SET = 1
    GET = 2
    WAIT = 3
    ADD = 4
    COMPARE_SET = 5
    APPEND = 6
    EXISTS = 7
    DELETE = 8
    MULTI_GET = 9
    MULTI_SET = 10
    LIST_KEYS = 11
    PUSH = 12
    POP = 13
    LENGTH = 14
    WATCH = 15
    COUNT = 16
    PUT = 20
    LOCK = 21
    UNLOCK = 22
    CLAIM = 23
    ACKNOWLEDGE = 24
    GIVE_BACK = 25
    ERASE_PREFIX = 26
    WATCH_PREFIX = 27
    TRANSACT = 28


class _Request(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("operation", ctypes.c_int),
        ("more", ctypes.c_int),
        ("keys", ctypes.POINTER(_View)),
        ("key_count", ctypes.c_size_t),
        ("values", ctypes.POINTER(_View)),
        ("value_count", ctypes.c_size_t),
        ("expected", ctypes.POINTER(_View)),
        ("after", _View),
        ("delta", ctypes.c_int64),
        ("number", ctypes.c_uint64),
        ("limit", ctypes.c_uint32),
        ("flags", ctypes.c_int),
        ("ttl_ms", ctypes.c_int64),
        ("conditions", ctypes.POINTER(_Condition)),
        ("condition_count", ctypes.c_size_t),
        ("actions", ctypes.POINTER(_Action)),
        ("action_count", ctypes.c_size_t),
        ("timeout_ms", ctypes.c_int64),
        ("argument", ctypes.c_void_p),
    ]


class _Completion(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("id", ctypes.c_uint64),
        ("argument", ctypes.c_void_p),
        ("operation", ctypes.c_int),
        ("code", ctypes.c_int),
        ("yes", ctypes.c_int),
        ("number", ctypes.c_int64),
        ("value", _Bytes),
        ("items", _List),
        ("changes", _KeyChanges),
    ]


class _Answer:
    """A completion's results, which belong to Python."""

    def __init__(self, completion: _Completion) -> None:
        self.yes = bool(completion.yes)
        self.number: int = completion.number
        self.value = _take(completion.value)
        self.items = _take_list(completion.items) if completion.items.items else []
        changes = completion.changes
        self.changes = [_key_change(changes.items[i]) for i in range(changes.count)]
        self.is_complete = bool(changes.complete)
        _library.dtrun_free(changes.items)


_Take = Callable[[_Answer], Any]


def _nothing(_: _Answer) -> None:
    return None


def _value(answer: _Answer) -> Optional[bytes]:
    return answer.value


def _number(answer: _Answer) -> int:
    return answer.number


def _yes(answer: _Answer) -> bool:
    return answer.yes


_library.dtrun_submit.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Request), ctypes.POINTER(ctypes.c_uint64)]
_library.dtrun_complete.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(_Completion)]
_library.dtrun_cancel.argtypes = [ctypes.c_void_p, ctypes.c_uint64]


class _Pending:
    """A request that has not ended."""

    def __init__(self, future: "asyncio.Future[Any]", operation: _Op, take: _Take, undo: Optional[_Take]) -> None:
        self.future: Optional["asyncio.Future[Any]"] = future  # None: its loop has been closed
        self.operation, self.take, self.undo = operation, take, undo


class Store:
    """Worker.aio: see the module."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._pid = os.getpid()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._fd = os.dup(worker.event_fd())  # the loop looks at it until it hears that the worker is closed
        self._pending: Dict[int, _Pending] = {}
        self._listeners: List["asyncio.Future[None]"] = []  # that wait for events
        self._is_polled = False  # the loop looks at the descriptor
        self._is_unsent = False  # this iteration of the loop has asked for something
        self._closed: Optional[Error] = None
        worker._add_user(self)

    # ---- as Worker's ----

    def set(self, key: Bytes, value: Bytes) -> "asyncio.Future[None]":
        return self._ask(_Op.SET, _nothing, [key], [value])

    def get(self, key: Bytes, timeout: Optional[float] = None) -> "asyncio.Future[bytes]":
        return self._ask(_Op.GET, _value, [key], timeout=timeout)

    async def find(self, key: Bytes) -> Optional[bytes]:
        try:
            return await self.get(key, 0)
        except Error as error:
            if error.code == Code.NOT_FOUND:
                return None
            raise

    def wait(self, keys: Iterable[Bytes], timeout: Optional[float] = None) -> "asyncio.Future[None]":
        return self._ask(_Op.WAIT, _nothing, list(keys), timeout=timeout)

    def add(self, key: Bytes, delta: int) -> "asyncio.Future[int]":
        return self._ask(_Op.ADD, _number, [key], delta=_integer("delta", delta, -(1 << 63), (1 << 63) - 1))

    def compare_set(self, key: Bytes, expected: Optional[Bytes],
                    desired: Bytes) -> "asyncio.Future[Tuple[bool, Optional[bytes]]]":
        return self._ask(_Op.COMPARE_SET, lambda answer: (answer.yes, answer.value), [key], [desired],
                         expected=expected)

    def append(self, key: Bytes, value: Bytes) -> "asyncio.Future[int]":
        return self._ask(_Op.APPEND, _number, [key], [value])

    def all_exist(self, keys: Iterable[Bytes]) -> "asyncio.Future[bool]":
        return self._ask(_Op.EXISTS, _yes, list(keys))

    def delete(self, key: Bytes) -> "asyncio.Future[bool]":
        return self._ask(_Op.DELETE, _yes, [key])

    def multi_get(self, keys: Iterable[Bytes], timeout: Optional[float] = None) -> "asyncio.Future[List[bytes]]":
        return self._ask(_Op.MULTI_GET, lambda answer: answer.items, list(keys), timeout=timeout)

    def multi_set(self, values: Dict[Bytes, Bytes]) -> "asyncio.Future[None]":
        return self._ask(_Op.MULTI_SET, _nothing, list(values.keys()), list(values.values()))

    def list_keys(self, prefix: Bytes = b"", after: Bytes = b"",
                  limit: int = 1000) -> "asyncio.Future[Tuple[List[bytes], bool]]":
        return self._ask(_Op.LIST_KEYS, lambda answer: (answer.items, answer.yes), [prefix], after=after,
                         number=_integer("limit", limit, 1, (1 << 32) - 1))

    def push(self, key: Bytes, value: Bytes) -> "asyncio.Future[int]":
        return self._ask(_Op.PUSH, _number, [key], [value])

    async def pop(self, key: Bytes, timeout: Optional[float] = None) -> bytes:
        name = _bytes(key)
        left = self._worker._take_left(name)
        if left is not None:
            return left
        return await self._unless_cancelled(_Op.POP, _value, [name], timeout=timeout,
                                            undo=lambda answer: self._worker._leave(name, answer.value or b""))

    def length(self, key: Bytes) -> "asyncio.Future[int]":
        return self._ask(_Op.LENGTH, _number, [key])

    def watch(self, key: Bytes, revision: int,
              timeout: Optional[float] = None) -> "asyncio.Future[Tuple[int, Optional[bytes]]]":
        return self._ask(_Op.WATCH, lambda answer: (answer.number, answer.value), [key],
                         number=_integer("revision", revision, 0, (1 << 64) - 1), timeout=timeout)

    def count(self) -> "asyncio.Future[int]":
        return self._ask(_Op.COUNT, _number)

    def put(self, key: Bytes, value: Bytes, ephemeral: bool = False,
            ttl: Optional[float] = None) -> "asyncio.Future[None]":
        life = 0 if ttl is None else max(_ms(ttl), 1)
        return self._ask(_Op.PUT, _nothing, [key], [value], flags=int(ephemeral), ttl_ms=life)

    async def lock(self, name: Bytes, value: Bytes = b"", timeout: Optional[float] = None) -> int:
        """The token, for unlock(): what is locked by a task that is cancelled is unlocked."""
        return await self._unless_cancelled(_Op.LOCK, _number, [name], [value], timeout=timeout,
                                            undo=lambda answer: self.unlock(name, answer.number))

    elect = lock

    def unlock(self, name: Bytes, token: int) -> "asyncio.Future[bool]":
        """False: it was lost before."""
        return self._ask(_Op.UNLOCK, _yes, [name], number=token)

    async def claim(self, key: Bytes, timeout: Optional[float] = None) -> Tuple[bytes, int]:
        """The value, and the item's number for acknowledge() and give_back()."""
        return await self._unless_cancelled(_Op.CLAIM, lambda answer: (answer.value, answer.number), [key],
                                            timeout=timeout, undo=lambda answer: self.give_back(key, answer.number))

    def acknowledge(self, key: Bytes, item: int) -> "asyncio.Future[bool]":
        return self._ask(_Op.ACKNOWLEDGE, _yes, [key], number=item)

    def give_back(self, key: Bytes, item: int) -> "asyncio.Future[bool]":
        return self._ask(_Op.GIVE_BACK, _yes, [key], number=item)

    def erase_prefix(self, prefix: Bytes) -> "asyncio.Future[int]":
        return self._ask(_Op.ERASE_PREFIX, _number, [prefix])

    def key_changes(self, prefix: Bytes, revision: int = 0, timeout: Optional[float] = None,
                    limit: int = 0) -> "asyncio.Future[Tuple[int, bool, List[KeyChange]]]":
        return self._ask(_Op.WATCH_PREFIX, lambda answer: (answer.number, answer.is_complete, answer.changes), [prefix],
                         number=_integer("revision", revision, 0, (1 << 64) - 1), timeout=timeout, limit=limit)

    def transact(self, if_: Iterable[Tuple[Any, ...]] = (),
                 then: Iterable[Tuple[Any, ...]] = ()) -> "asyncio.Future[Transacted]":
        return self._ask(_Op.TRANSACT,
                         lambda answer: Transacted(answer.yes, None if answer.yes else answer.number),
                         conditions=[_condition(*condition) for condition in if_],
                         actions=[_action(*action) for action in then])

    async def events(self) -> AsyncIterator[Event]:
        """Events, as they come. :raises Error: CLOSED"""
        while True:
            while self._worker._events:
                yield self._worker._events.popleft()
            listener = self._begin().create_future()
            self._listeners.append(listener)
            self._poll()
            self._ready()
            try:
                await listener
            finally:
                if listener in self._listeners:
                    self._listeners.remove(listener)
                self._poll()

    # ---- what is behind them ----

    def _is_usable(self) -> bool:
        return self._closed is None and self._pid == os.getpid()

    def close(self) -> None:
        """Of Worker.close(): nothing that is awaited here comes any more."""
        is_open, loop = self._is_usable(), self._loop
        self._closed = self._closed or Error(Code.CLOSED, "the worker is closed")
        if is_open:
            self._keep_items()
        self._worker._drop_user(self)
        if loop is None or loop.is_closed():
            self._close_descriptor()
            return
        try:
            is_ours = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_ours = False
        if is_ours or not loop.is_running():
            self._end_all()
        else:
            loop.call_soon_threadsafe(self._end_all)

    def _keep_items(self) -> None:
        """Leaves what calls of pop() are given in this moment to the worker, which puts it back."""
        pops = {identity for identity, pending in self._pending.items() if pending.operation == _Op.POP}
        for identity in pops:
            _library.dtrun_cancel(self._worker._get(), identity)
        until = time.monotonic() + _ANSWER_TIME
        while pops & self._pending.keys():
            completion = _Completion(ctypes.sizeof(_Completion))
            left = _ms(max(until - time.monotonic(), 0))
            if _library.dtrun_complete(self._worker._get(), left, ctypes.byref(completion)) != 0:
                return
            answer, pending = _Answer(completion), self._pending.get(completion.id)
            pops.discard(completion.id)
            if pending is not None and pending.operation == _Op.POP and completion.code == 0:
                assert pending.undo is not None
                pending.undo(answer)

    def give_up(self, failure: str) -> None:
        """Of a worker that has failed: close() follows."""

    def _begin(self) -> asyncio.AbstractEventLoop:
        """The loop that runs, which is ours from now on."""
        if self._closed is not None:
            raise self._closed
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None and not self._loop.is_closed() and (self._pending or self._listeners):
                raise RuntimeError("worker.aio is in use by another event loop")
            self._loop, self._is_polled, self._is_unsent = loop, False, False
            self._listeners.clear()
            self._pending = {identity: pending for identity, pending in self._pending.items() if pending.undo}
            for identity, pending in self._pending.items():  # what they are given is to be given back
                pending.future = None
                _library.dtrun_cancel(self._worker._get(), identity)
        return loop

    def _ask(self, operation: _Op, take: _Take, keys: Sequence[Bytes] = (), values: Sequence[Bytes] = (),
             expected: Optional[Bytes] = None, after: Bytes = b"", delta: int = 0, number: int = 0,
             timeout: Optional[float] = 0, limit: int = 0, flags: int = 0, ttl_ms: int = 0,
             conditions: Sequence[_Condition] = (), actions: Sequence[_Action] = (),
             undo: Optional[_Take] = None) -> "asyncio.Future[Any]":
        loop = self._begin()
        key_views, key_count = _views(keys)
        value_views, value_count = _views(values)
        old = None if expected is None else ctypes.pointer(_view(expected))
        request = _Request(ctypes.sizeof(_Request), operation, 1, key_views, key_count, value_views, value_count, old,
                           _view(after), delta, number, limit, flags, ttl_ms,
                           (_Condition * len(conditions))(*conditions), len(conditions),
                           (_Action * len(actions))(*actions), len(actions), _ms(timeout), None)
        identity = ctypes.c_uint64()
        code = _library.dtrun_submit(self._worker._get(), ctypes.byref(request), ctypes.byref(identity))
        if code != 0:
            raise _failure(code)
        future = loop.create_future()
        self._pending[identity.value] = _Pending(future, operation, take, undo)
        future.add_done_callback(lambda done: self._cancel(identity.value) if done.cancelled() else None)
        self._poll()
        if not self._is_unsent:
            self._is_unsent = True
            loop.call_soon(self._ready)  # sends all of this iteration
        return future

    async def _unless_cancelled(self, operation: _Op, take: _Take, keys: Sequence[Bytes], *rest: Any, undo: _Take,
                                **options: Any) -> Any:
        """What is got by a task that is cancelled in the same moment is given up, too."""
        answers: List[_Answer] = []

        def take_and_keep(answer: _Answer) -> Any:
            answers.append(answer)
            return take(answer)

        future = self._ask(operation, take_and_keep, keys, *rest, undo=undo, **options)
        try:
            return await future
        except asyncio.CancelledError:
            if answers:
                undo(answers[0])
            raise

    def _cancel(self, identity: int) -> None:
        if identity in self._pending and self._closed is None:
            _library.dtrun_cancel(self._worker._get(), identity)

    def _ready(self) -> None:
        """Sends what there is to send, and takes what has come."""
        self._is_unsent = False
        if self._closed is not None:
            return
        code = 0
        while code == 0:
            completion = _Completion(ctypes.sizeof(_Completion))
            try:
                code = _library.dtrun_complete(self._worker._get(), 0, ctypes.byref(completion))
            finally:  # a signal handler may have raised something, and a completion has come nevertheless
                if completion.id != 0:
                    self._finish(completion)
        if code not in (Code.TIMED_OUT, Code.CANCELLED):
            failure = _failure(code)
            self._take_events()  # the last ones
            self._closed = failure
            self._end_all()
            return
        self._take_events()
        self._poll()

    def _finish(self, completion: _Completion) -> None:
        failure = _failure(completion.code) if completion.code != 0 else None
        answer = _Answer(completion)
        pending = self._pending.pop(completion.id, None)
        if pending is None:
            return
        if pending.future is not None and not pending.future.done():
            if failure is None:
                pending.future.set_result(pending.take(answer))
            else:
                pending.future.set_exception(failure)
        elif pending.undo is not None and failure is None:
            pending.undo(answer)

    def _take_events(self) -> None:
        """Those that nobody takes would keep the descriptor readable, and the loop busy."""
        try:
            event = self._worker._next_event(0)
            while event is not None:
                self._worker._events.append(event)
                event = self._worker._next_event(0)
        except Error as error:
            if error.code not in (Code.FORKED, Code.CANCELLED, Code.CLOSED):
                raise
        if self._worker._events:
            for listener in self._listeners:
                if not listener.done():
                    listener.set_result(None)
            self._listeners.clear()

    def _poll(self) -> None:
        """Has the loop look at the descriptor while there is something to wait for."""
        assert self._loop is not None
        wanted = self._closed is None and bool(self._pending or self._listeners)
        if wanted and not self._is_polled:
            self._loop.add_reader(self._fd, self._ready)
        elif self._is_polled and not wanted:
            self._loop.remove_reader(self._fd)
        self._is_polled = wanted

    def _end_all(self) -> None:
        pending, self._pending = self._pending, {}
        listeners, self._listeners = self._listeners, []
        for future in [request.future for request in pending.values()] + listeners:
            if future is not None and not future.done():
                future.set_exception(self._closed)
                future.exception()  # nobody has to look
        self._poll()
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)
