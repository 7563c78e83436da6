"""An operation that goes on while the program does something else."""

from __future__ import annotations

import collections
import ctypes
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Deque, Optional

from . import Code, Error, TimedOut
from ._collectives_library import _check, _library

if TYPE_CHECKING:
    from .collectives import Communicator

_WAIT_MS = 100


class Future:
    """An operation that goes on; its arrays stay untouched until result() has returned."""

    def __init__(self, comm: Communicator, keep: Any, value: Any) -> None:
        """:param keep: owns the memory of the operation that begin() starts"""
        self._request = ctypes.c_void_p()  # NULL: it is not started
        self._done = ctypes.c_int()  # 1: the library has freed the request
        self._codes: Deque[int] = collections.deque(maxlen=1)
        self._lock = threading.RLock()  # of one that waits
        self._waits = False
        self._error: Optional[Error] = None
        self._comm, self._keep, self._value = comm, keep, value

    def begin(self, function: Any, *arguments: Any) -> "Future":
        """For the communicator: starts the operation."""
        # This object has the memory before the operation starts: if a signal handler raises, the memory stays as
        # long as it is written to.
        self._comm._started.add(id(self))
        self._comm._do(function, *arguments, self._request)
        return self

    def result(self, timeout: Optional[float] = None) -> Any:
        """The array it was for, once it is done.

        :raises TimedOut: it goes on; Error: also INVALID in a signal handler that has interrupted an operation of
            the communicator, or this very wait, which cannot end before the handler has; and those of the operation
        """
        awaiting, own = self._comm._awaiting.threads, threading.get_ident()
        awaiting.append(own)
        try:
            return self._result(timeout)
        finally:
            awaiting.remove(own)

    def _result(self, timeout: Optional[float]) -> Any:
        seconds = -1 if timeout is None else max(0, timeout)
        until = monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            raise TimedOut(Code.TIMED_OUT, "the operation goes on")
        if self._waits:
            self._lock.release()
            raise Error(Code.INVALID, "this thread waits for it already: a signal handler cannot, too")
        self._waits = True
        try:
            while not self._done.value:
                # Signal handlers run between two waits.
                left = _WAIT_MS if timeout is None else min(_WAIT_MS, max(0, round((until - monotonic()) * 1000)))
                self._wait(left)
                if not self._done.value and self._codes[-1] == Code.INVALID:  # it comes after what we are in
                    _check(self._codes[-1])
                if not self._done.value and timeout is not None and monotonic() >= until:
                    raise TimedOut(Code.TIMED_OUT, "the operation goes on")
            self._end()
            if self._error is not None:
                raise self._error
            return self._value
        finally:
            self._waits = False
            self._lock.release()

    def _wait(self, ms: int) -> None:
        # A signal handler may raise as soon as the library has returned, but not within this call: what has become
        # of the operation is kept for who asks again.
        self._codes.extend(map(_library.dtrun_request_wait, (self._request,), (ms,), (self._done,)))

    def _end(self) -> None:
        self._comm._started.discard(id(self))
        self._keep = None
        if self._error is None and self._codes[-1] != 0:
            try:
                _check(self._codes[-1])
            except Error as error:
                self._error = error

    def __del__(self) -> None:
        self._comm._started.discard(id(self))
        if self._request and not self._done.value:
            _library.dtrun_request_wait(self._request, -1, self._done)
            if not self._done.value:  # a destructor in the middle of an operation: the memory is needed until later
                self._comm._keep_until_done(self._request, self._keep)
