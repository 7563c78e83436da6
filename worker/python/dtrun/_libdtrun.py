"""libdtrun.so.0 by ctypes: its functions and structures, and how values of Python become theirs and back."""

from __future__ import annotations

import ctypes
import math
import operator
import os
import pathlib
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from ._values import Change, Code, Error, KeyChange, TimedOut

Bytes = Union[str, bytes, bytearray, memoryview]


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


def _failure(code: int) -> Error:
    """The exception for this thread's last call, which has failed with this code."""
    text = _library.dtrun_error_text().decode(errors="replace")
    return (TimedOut if code == Code.TIMED_OUT else Error)(Code(code), text)


def _check(code: int) -> None:
    if code != 0:
        raise _failure(code)


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
