"""Where the elements of an array are, how many, and of which type: in memory of the host and of a GPU."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional, Sequence

from . import Code, Error
from ._words import BYTES, DTYPE_OF


def _invalid(text: str) -> Error:
    return Error(Code.INVALID, text)


class _Array:
    """Where an array's elements are, how many, of which type."""

    __slots__ = ("address", "count", "dtype", "is_bool", "keep", "stream")

    def __init__(self, array: Any, writable: bool) -> None:
        bfloat16 = False
        try:
            view = memoryview(array)
        except ValueError:  # NumPy has no format for it
            bfloat16 = getattr(getattr(array, "dtype", None), "name", "") == "bfloat16"
            if not bfloat16:
                raise
            view = memoryview(array.view("uint16"))
        if not view.c_contiguous:
            raise _invalid("the elements of the array do not lie one behind the other; copy it")
        if writable and view.readonly:
            raise _invalid("the array is read-only")
        itemsize = view.itemsize
        dtype = DTYPE_OF.get("bfloat16" if bfloat16 else f"{view.format.lstrip('@=<')}{itemsize}")
        if dtype is None:
            raise _invalid(f"no collectives for elements of format {view.format!r}")
        self.dtype = dtype
        self.is_bool = view.format == "?"
        self.count = view.nbytes // itemsize
        self.stream: Optional[int] = None
        self.keep = view
        self.address = self._address(view) if self.count else None

    @staticmethod
    def _address(view: memoryview) -> int:
        if not view.readonly:
            return ctypes.addressof(ctypes.c_char.from_buffer(view))
        buffer = _PyBuffer()
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
        address = buffer.buf
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
        return address  # `keep` holds the memory


class _DeviceArray(_Array):
    """The same in memory of a GPU."""

    __slots__ = ()

    def __init__(self, array: Any, writable: bool) -> None:
        about = getattr(array, "__cuda_array_interface__", None)
        if about is None:
            raise _invalid("the communicator is for arrays in memory of a GPU, with __cuda_array_interface__")
        code = about["typestr"]
        itemsize, expected = int(code[2:]), []
        step = itemsize
        for length in reversed(about["shape"]):
            expected.insert(0, step)
            step *= length
        if about.get("strides") not in (None, tuple(expected)):
            raise _invalid("the elements of the array do not lie one behind the other; copy it")
        address, readonly = about["data"]
        if writable and readonly:
            raise _invalid("the array is read-only")
        bfloat16 = code == "<V2" and "bfloat16" in str(getattr(array, "dtype", ""))
        dtype = DTYPE_OF.get("bfloat16" if bfloat16 else code)
        if dtype is None:
            raise _invalid(f"no collectives for elements of type {code!r}")
        self.dtype = dtype
        self.is_bool = code == "|b1"
        self.count = step // itemsize
        self.keep = array
        self.stream = _stream_of(array, about)
        self.address = address if self.count else None


def _stream_of(array: Any, about: dict) -> Optional[int]:
    """In which stream of the GPU the array is worked on, or None: torch's current one, or the interface's."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch.cuda.current_stream(array.device).cuda_stream
    return about.get("stream")


def _check_streams(*arrays: _Array) -> None:
    if any((array.stream or 0) != (arrays[0].stream or 0) for array in arrays):
        raise _invalid("the arrays are worked on in different streams: let one wait for the others, and say which "
                       "by the communicator's `stream`")


def _check_apart(arrays: Sequence[_Array], what: str) -> None:
    """:raises Error: two of them overlap, as a tensor that is there twice does"""
    places = sorted((array.address, array.address + array.count * BYTES[array.dtype], index)
                    for index, array in enumerate(arrays) if array.count)
    for (_, end, one), (begin, _, other) in zip(places, places[1:]):
        if begin < end:
            raise _invalid(f"{what} {one} and {other} overlap, as a tensor that is there twice does: give each once")


def _handle_of(stream: Any) -> Optional[int]:
    """A stream's handle: of a number, of torch's Stream, of CuPy's."""
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    return stream if stream is None else int(stream)


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    ]
