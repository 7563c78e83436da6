"""libdtrun_collectives.so.0 by ctypes: its functions and structures, and what becomes of its errors."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Tuple

from . import Code, Error, TimedOut


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("backend", ctypes.c_char_p),
        ("timeout_ms", ctypes.c_int64),
        ("operation_timeout_ms", ctypes.c_int64),
        ("interfaces", ctypes.c_char_p),
        ("device_memory", ctypes.c_int),
        ("device_plus_one", ctypes.c_int),
        ("unlock", ctypes.c_void_p),
        ("lock", ctypes.c_void_p),
        ("interrupted", ctypes.c_void_p),
        ("ranks", ctypes.POINTER(ctypes.c_uint32)),
        ("rank_count", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("stall_ms", ctypes.c_int64),
    ]


class _Compression(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("stochastic", ctypes.c_int),
        ("error", ctypes.c_void_p),
        ("policy", ctypes.c_int),
    ]


def _load() -> Tuple[ctypes.PyDLL, ctypes.CDLL]:
    installed = pathlib.Path(__file__).resolve().parents[3] / "libdtrun_collectives.so.0"
    path = os.environ.get("LIBDTRUN_COLLECTIVES_PATH") or (
        str(installed) if installed.exists() else "libdtrun_collectives.so.0")
    # The library gives up the interpreter's lock during an operation, and takes it now and then to let signal handlers
    # run. Calls that are no operations go without the lock.
    library, free = ctypes.PyDLL(path), ctypes.CDLL(path)
    for name in ("comm_create", "allreduce_start", "allgather_start", "broadcast_start", "reduce_scatter_start",
                 "request_wait", "comm_abort", "comm_free"):
        setattr(library, "dtrun_" + name, getattr(free, "dtrun_" + name))
    comm, data, size, number = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    rank, how = ctypes.c_uint32, ctypes.POINTER(_Compression)
    out = ctypes.POINTER(ctypes.c_void_p)
    sizes, arrays = ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_void_p)
    signatures = {
        "comm_create": [ctypes.c_void_p, ctypes.POINTER(_Options), out],
        "comm_split": [comm, ctypes.c_int32, ctypes.c_int32, out],
        "comm_split_by_host": [comm, out],
        "comm_barrier": [comm],
        "comm_set_operation_timeout": [comm, ctypes.c_int64],
        "comm_set_stream": [comm, ctypes.c_void_p],
        "allreduce": [comm, data, data, size, number, number, how],
        "allreduce_start": [comm, data, data, size, number, number, how, out],
        "allreduce_many": [comm, arrays, sizes, size, number, number, how, arrays],
        "reduce_to": [comm, data, data, size, number, number, rank],
        "reduce_scatter": [comm, data, data, size, number, number],
        "reduce_scatter_compressed": [comm, data, data, size, number, number, how],
        "allgather_compressed": [comm, data, data, size, number, how],
        "reduce_scatter_start": [comm, data, data, size, number, number, out],
        "broadcast": [comm, data, size, number, rank],
        "broadcast_start": [comm, data, size, number, rank, out],
        "allgather": [comm, data, data, size, number],
        "allgather_start": [comm, data, data, size, number, out],
        "allgatherv": [comm, data, data, sizes, number],
        "gather": [comm, data, data, size, number, rank],
        "scatter": [comm, data, data, size, number, rank],
        "alltoall": [comm, data, data, size, number],
        "send": [comm, data, size, number, rank],
        "recv": [comm, data, size, number, rank],
        "sendrecv": [comm, data, size, rank, data, size, rank, number],
        "request_wait": [ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int)],
    }
    for name, arguments in signatures.items():
        function = getattr(library, "dtrun_" + name)
        function.argtypes = arguments
        function.restype = ctypes.c_int
    for name in ("backend", "why", "facts"):
        function = getattr(library, "dtrun_comm_" + name)
        function.argtypes = [comm]
        function.restype = ctypes.c_char_p
    for name in ("rank", "size"):
        function = getattr(library, "dtrun_comm_" + name)
        function.argtypes = [comm]
        function.restype = ctypes.c_uint32
    library.dtrun_comm_abort.argtypes = [comm, ctypes.c_char_p]
    library.dtrun_comm_abort.restype = None
    library.dtrun_comm_free.argtypes = [comm]
    library.dtrun_comm_free.restype = None
    library.dtrun_comm_error_text.restype = ctypes.c_char_p
    return library, free


#: The one keeps the interpreter's lock unless the library itself gives it up; the other does not keep it.
_library, _free_library = _load()


def _check(code: int) -> None:
    if code == 0:
        return
    text = _library.dtrun_comm_error_text().decode(errors="replace")
    raise (TimedOut if code == Code.TIMED_OUT else Error)(Code(code), text)
