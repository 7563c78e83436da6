"""Types of elements, reductions and formats: their words, and the numbers that <dtrun_collectives.h> has for them.

The one place where Python has them; tests/collectives/codec/test_formats_table.cpp and
tests/collectives/core/test_operations.cpp hold it against the library.
"""

from __future__ import annotations

from typing import Dict, Tuple

#: Positions are the values of dtrun_dtype.
DTYPES = ("f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64")
#: The values that follow: types that are only moved, with their bytes. Ranks which have different ones are told.
MOVED = {"bool": 1, "i16": 2, "u16": 2, "u32": 4, "u64": 8, "e4m3": 1, "e5m2": 1}
#: Positions are the values of dtrun_reduce.
REDUCTIONS = ("sum", "product", "min", "max", "average", "adasum")
#: Positions are the values of dtrun_format.
FORMATS = ("none", "fp16", "bf16", "fp8-e4m3", "fp8-e5m2", "int8", "fp8-e4m3-unscaled", "fp8-e5m2-unscaled")

#: By what others call a type: the buffer protocol's format with its size ("l" is of two), the array interface's
#: typestr, and torch's name. NumPy's buffers have no bfloat16.
_KNOWN_AS = {
    "f32": ("f4", "<f4", "float32"), "f64": ("d8", "<f8", "float64"), "f16": ("e2", "<f2", "float16"),
    "bf16": ("bfloat16",), "i8": ("b1", "|i1", "int8"), "u8": ("B1", "|u1", "uint8"),
    "i32": ("i4", "l4", "<i4", "int32"), "i64": ("l8", "q8", "<i8", "int64"), "bool": ("?1", "|b1", "bool"),
    "i16": ("h2", "<i2", "int16"), "u16": ("H2", "<u2", "uint16"), "u32": ("I4", "L4", "<u4", "uint32"),
    "u64": ("L8", "Q8", "<u8", "uint64"), "e4m3": ("float8_e4m3fn",), "e5m2": ("float8_e5m2",),
}
_NUMBERED = (*DTYPES, *MOVED)
DTYPE_OF: Dict[str, int] = {name: _NUMBERED.index(dtype) for dtype, names in _KNOWN_AS.items() for name in names}
#: By dtype.
BYTES: Tuple[int, ...] = (*(int(name.lstrip("bfiu")) // 8 for name in DTYPES), *MOVED.values())
#: A type of that many bytes, for what is only moved.
MOVED_AS = {1: DTYPES.index("u8"), 2: DTYPES.index("f16"), 4: DTYPES.index("i32"), 8: DTYPES.index("i64")}

#: By every name that compression= takes.
FORMAT_OF: Dict[str, int] = {name: number for number, name in enumerate(FORMATS)}
for _short, _name in (("fp8", "fp8-e4m3"), ("e4m3", "fp8-e4m3"), ("e5m2", "fp8-e5m2")):
    FORMAT_OF[_short] = FORMAT_OF[_name]

_BLOCK = 256  # values that share a scale of 4 bytes


def sent_bytes(format: int, count: int) -> int:
    """What `count` values of float32 are when they travel."""
    name = FORMATS[format]
    if name == "none":
        return 4 * count
    if name in ("fp16", "bf16"):
        return 2 * count
    return count if name.endswith("-unscaled") else count + 4 * -(-count // _BLOCK)
