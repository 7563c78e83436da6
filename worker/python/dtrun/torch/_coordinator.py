"""<dtrun_coordinator.h> for tensors: named operations that each rank asks for in its own order."""

from __future__ import annotations

import collections
import ctypes
import math
import weakref
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Set

import torch

from .. import Code, Error
from .._collectives_library import _free_library, _library
from .._threads_inside import ThreadsInside
from .._words import DTYPE_OF, DTYPES, MOVED_AS
from ..collectives import Communicator

ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCE_SCATTER, BARRIER, JOIN = range(7)

#: How often a wait looks for signals such as Ctrl-C, in milliseconds.
_LOOK_MS = 100

_DTYPES = {getattr(torch, name): dtype for name, dtype in DTYPE_OF.items() if hasattr(torch, name)}


class HorovodInternalError(RuntimeError):
    """An operation has failed: ranks disagree about it, or one is gone. The text says which."""


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("fused_bytes", ctypes.c_size_t),
        ("delay_us", ctypes.c_int64),
        ("stall_warning_ms", ctypes.c_int64),
        ("stall_shutdown_ms", ctypes.c_int64),
        ("ranks", ctypes.POINTER(ctypes.c_uint32)),
    ]


class Settings(NamedTuple):
    """How ranks agree."""

    fused_bytes: int
    delay: float  # seconds to wait for more before others are told
    stall_warning: float  # seconds until an operation is told that some rank has not asked for; below 0: never
    stall_shutdown: float  # seconds until all operations fail then; 0: never


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("input", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("error", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("dimensions", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Task(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("operation", ctypes.c_int),
        ("reduce", ctypes.c_int),
        ("root", ctypes.c_uint32),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("format", ctypes.c_int),
        ("stochastic", ctypes.c_int),
        ("tensors", ctypes.POINTER(_Tensor)),
        ("number", ctypes.c_size_t),
        ("splits", ctypes.POINTER(ctypes.c_int64)),
    ]


def _declare() -> None:
    pointer, handle = ctypes.c_void_p, ctypes.c_uint64
    signatures = {
        "coordinator_create": ([pointer, ctypes.POINTER(_Options), ctypes.POINTER(pointer)], ctypes.c_int),
        "coordinator_free": ([pointer], None),
        "coordinator_submit": ([pointer, ctypes.POINTER(_Task), ctypes.POINTER(handle)], ctypes.c_int),
        "coordinator_poll": ([pointer, handle], ctypes.c_int),
        "coordinator_wait": ([pointer, handle, ctypes.c_int64, ctypes.POINTER(ctypes.c_int),
                              ctypes.POINTER(pointer)], ctypes.c_int),
        "coordinator_error_text": ([], ctypes.c_char_p),
        "outcome_data": ([pointer, ctypes.c_size_t], pointer),
        "outcome_rows": ([pointer, ctypes.c_size_t, ctypes.c_uint32], ctypes.c_int64),
        "outcome_last_joined": ([pointer], ctypes.c_uint32),
        "outcome_free": ([pointer], None),
    }
    for name in ("coordinator_wait", "coordinator_free"):  # which wait: other threads run meanwhile
        setattr(_library, "dtrun_" + name, getattr(_free_library, "dtrun_" + name))
    for name, (arguments, result) in signatures.items():
        function = getattr(_library, "dtrun_" + name)
        function.argtypes, function.restype = arguments, result


_declare()


def _ms(seconds: float) -> int:
    """0 stays 0, and nothing else becomes it."""
    return math.ceil(seconds * 1000) if seconds > 0 else math.floor(seconds * 1000)


def _text() -> str:
    return _library.dtrun_coordinator_error_text().decode(errors="replace")


def dtype_of(tensor: torch.Tensor, operation: int) -> int:
    """The element type by which the library knows a tensor's. :raises ValueError: it cannot reduce that type"""
    number = _DTYPES.get(tensor.dtype)
    is_reduction = operation in (ALLREDUCE, REDUCE_SCATTER)
    if number is not None and (not is_reduction or number < len(DTYPES) or tensor.dtype == torch.bool):
        return number
    if is_reduction:
        raise ValueError(f"dtrun.torch cannot reduce tensors of type {tensor.dtype}: convert them first")
    number = MOVED_AS.get(tensor.element_size())  # it has no arithmetic here, and is moved all the same
    if number is None:
        raise ValueError(f"dtrun.torch cannot send tensors of type {tensor.dtype}: use torch.view_as_real()")
    return number


class Task:
    """An operation that can be submitted many times, with other memory each time.

    :param tensors: models of the tensors: their shapes and types
    :param splits: of all-to-all: rows for each rank
    """

    __slots__ = ("task", "tensors", "_keep")

    def __init__(self, name: str, operation: int, tensors: Sequence[torch.Tensor] = (), reduce: int = 0,
                 root: int = 0, prescale: float = 1.0, postscale: float = 1.0, format: int = 0,
                 stochastic: bool = False, splits: Optional[Sequence[int]] = None) -> None:
        self.tensors = (_Tensor * len(tensors))()
        keep: List[Any] = [name.encode()]
        for place, tensor in zip(self.tensors, tensors):
            shape = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
            keep.append(shape)
            place.dtype, place.dimensions = dtype_of(tensor, operation), tensor.dim()
            place.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        rows = None if splits is None else (ctypes.c_int64 * len(splits))(*splits)
        self._keep = keep
        # The library takes 0 for a factor that was not given, and -0.0 for none.
        prescale, postscale = prescale or -0.0, postscale or -0.0
        self.task = _Task(ctypes.sizeof(_Task), keep[0], operation, reduce, root, prescale, postscale, format,
                          int(stochastic), self.tensors, len(tensors), rows)

    def point(self, index: int, source: torch.Tensor, target: Optional[torch.Tensor]) -> None:
        """Says where a tensor's elements are, and where the result goes; both are contiguous."""
        place = self.tensors[index]
        place.input = source.data_ptr()
        place.out = None if target is None else target.data_ptr()


class Outcome:
    """What an operation has made. Tensors that are made of it keep it alive."""

    def __init__(self, pointer: ctypes.c_void_p) -> None:
        self._pointer = pointer
        # At the end of the process tensors may still be there: the memory ends with it.
        weakref.finalize(self, _library.dtrun_outcome_free, pointer).atexit = False

    def rows(self, index: int, size: int) -> List[int]:
        """How many rows each rank has sent."""
        return [_library.dtrun_outcome_rows(self._pointer, index, rank) for rank in range(size)]

    def last_joined(self) -> int:
        return _library.dtrun_outcome_last_joined(self._pointer)

    def tensor(self, index: int, size: int, model: torch.Tensor) -> torch.Tensor:
        """All ranks' rows, one behind the other, in the library's own memory."""
        shape = [sum(self.rows(index, size)), *model.shape[1:]]
        elements = 1
        for length in shape:
            elements *= length
        if elements == 0:
            return torch.empty(shape, dtype=model.dtype)
        address = _library.dtrun_outcome_data(self._pointer, index)
        memory = (ctypes.c_char * (elements * model.element_size())).from_address(address)
        memory.outcome = self  # type: ignore[attr-defined]  # an array of ctypes has a dictionary
        return torch.frombuffer(memory, dtype=model.dtype, count=elements).view(shape)


class _Record:
    """What the library is told of an operation, and tells of it."""

    __slots__ = ("handle", "done", "outcome", "codes", "keep")

    def __init__(self, keep: Any) -> None:
        self.handle = ctypes.c_uint64()  # 0: it is not started
        self.done = ctypes.c_int()
        self.outcome = ctypes.c_void_p()
        self.codes: Deque[int] = collections.deque(maxlen=1)
        self.keep = keep  # owns the memory


class Pending:
    """An operation that was submitted. When it is dropped, nobody waits for the operation."""

    __slots__ = ("_coordinator", "record", "is_consumed")

    def __init__(self, coordinator: Coordinator, keep: Any) -> None:
        self.is_consumed = False
        self._coordinator, self.record = coordinator, _Record(keep)
        coordinator._kept.add(self.record)

    def __del__(self) -> None:
        if not self.is_consumed:
            self._coordinator.abandon(self.record)


class Coordinator:
    """One rank's part of a group of ranks that agree about operations."""

    def __init__(self, communicator: Communicator, settings: Settings, ranks: Sequence[int]) -> None:
        """
        :param communicator: is used up: nothing else may use it
        :param ranks: what messages call its ranks
        """
        self.rank, self.size = communicator.rank, communicator.size
        self.backend = communicator.backend
        comm, worker = communicator._get(), communicator._worker
        options = _Options(ctypes.sizeof(_Options), settings.fused_bytes, round(settings.delay * 1e6),
                           _ms(settings.stall_warning), _ms(settings.stall_shutdown),
                           (ctypes.c_uint32 * len(ranks))(*ranks))
        made = ctypes.c_void_p()
        communicator._comm = None  # the library has it, also if this fails
        worker._drop_user(communicator)
        code = _library.dtrun_coordinator_create(comm, ctypes.byref(options), ctypes.byref(made))
        if code != 0:
            raise Error(Code(code), _text())
        worker._add_user(self)
        self._worker = worker
        self._pointer: Optional[ctypes.c_void_p] = made
        self._counts: Dict[str, int] = {}
        self._inside = ThreadsInside()
        self._kept: Set[_Record] = set()  # what is under way
        self._abandoned: List[_Record] = []

    def close(self) -> None:
        """Ends it; what is pending fails. May be called again."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self._worker._drop_user(self)
            self._inside.wait_for_others()  # which look at the pointer ten times a second
            _library.dtrun_coordinator_free(pointer)
            self._kept.clear()

    def give_up(self, why: str) -> None:
        """For the worker, when its program has failed: close() ends what is pending anyway."""

    def name(self, operation: str, given: Optional[str]) -> str:
        """The name of an operation: ranks give those without one numbers in the order of their calls."""
        if given is not None:
            return f"{operation}.{given}"
        count = self._counts[operation] = self._counts.get(operation, 0) + 1
        return f"{operation}.noname.{count}"

    def count_anew(self) -> None:
        """Begins with the numbers of name() again, on all ranks at the same point of the program."""
        self._counts.clear()

    def submit(self, task: Task, keep: Any) -> Pending:
        """Starts an operation. :param keep: owns the memory that the task points to"""
        if self._abandoned:
            self._forget_abandoned()
        # It is there before the operation: if a signal handler raises, memory stays as long as it is written to.
        pending = Pending(self, keep)
        with self._inside:
            if self._pointer is None:
                raise HorovodInternalError("dtrun.torch was shut down: call init() first")
            code = _library.dtrun_coordinator_submit(self._pointer, task.task, pending.record.handle)
            if code != 0:
                raise (ValueError if code == Code.INVALID else HorovodInternalError)(_text())
        return pending

    def poll(self, pending: Pending) -> bool:
        return bool(pending.record.done.value) or self._is_over(pending.record)

    def _is_over(self, record: _Record) -> bool:
        with self._inside:
            return self._pointer is None or bool(_library.dtrun_coordinator_poll(self._pointer, record.handle))

    def wait(self, pending: Pending) -> Outcome:
        """Waits for an operation. When a signal handler raises meanwhile, it can be waited for again.

        :raises HorovodInternalError: what has become of it
        """
        self._wait(pending.record, pending.record.outcome)
        pending.is_consumed = True
        return Outcome(pending.record.outcome)

    def finish(self, pending: Pending) -> None:
        """wait() for an operation of whose outcome nothing is needed."""
        self._wait(pending.record, None)
        pending.is_consumed = True

    def _wait(self, record: _Record, outcome: Optional[ctypes.c_void_p]) -> None:
        with self._inside:
            while not record.done.value:
                if self._pointer is None:
                    raise HorovodInternalError("dtrun.torch was shut down while the operation was pending")
                # A signal handler may raise as soon as the library has returned, but not within this call: what
                # has become of the operation is kept for who waits again.
                record.codes.extend(map(_library.dtrun_coordinator_wait, (self._pointer,), (record.handle,),
                                        (_LOOK_MS,), (record.done,), (outcome,)))
        self._kept.discard(record)
        if record.codes[-1] != 0:
            raise HorovodInternalError(_text())

    def abandon(self, record: _Record) -> None:
        """Nobody will wait for it. Its memory stays until it is over."""
        if record.handle.value == 0 or self._pointer is None:  # it was never started, or has been ended
            self._kept.discard(record)
        elif record in self._kept:
            self._abandoned.append(record)

    def _forget_abandoned(self) -> None:
        abandoned, self._abandoned = self._abandoned, []
        for record in abandoned:
            if not record.done.value and not self._is_over(record):
                self._abandoned.append(record)
                continue
            try:
                self._wait(record, record.outcome)
                Outcome(record.outcome)
            except HorovodInternalError:
                pass  # who has dropped the operation does not want to know
