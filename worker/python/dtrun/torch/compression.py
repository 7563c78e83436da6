"""What travels instead of gradients of 32 bits."""

from __future__ import annotations

import os
from typing import Any, Optional, Tuple

import torch

from .._words import FORMAT_OF
from ._step_marks import note


class Compressor:
    """What compression= takes: a class, or an object, with these two functions. Write your own like Horovod's."""

    #: The format in which the library itself sends f32, so that nothing is converted in Python. 0: none
    wire_format = 0

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """The tensor that travels, and what decompress() needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class NoneCompressor(Compressor):
    """Nothing is compressed."""


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
    if not tensor.dtype.is_floating_point:
        return tensor, None
    return tensor.type(dtype), tensor.dtype


class _CastCompressor(Compressor):
    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Optional[torch.dtype]) -> torch.Tensor:
        return tensor if ctx is None else tensor.type(ctx)


class FP16Compressor(_CastCompressor):
    """Values travel as 16-bit floats; sums of f32 are made in 32 bits."""

    wire_format = FORMAT_OF["fp16"]

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
        return _cast(tensor, torch.float16)


class BF16Compressor(_CastCompressor):
    """The same with the upper half of a 32-bit float: less precise, never infinite."""

    wire_format = FORMAT_OF["bf16"]

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
        return _cast(tensor, torch.bfloat16)


class Int8Compressor(Compressor):
    """Values travel as 8-bit integers, 256 of them with a common scale; other types than f32 in full."""

    wire_format = FORMAT_OF["int8"]


class FP8Compressor(Compressor):
    """Values travel as 8-bit floats (E4M3), 256 of them with a common scale; other types than f32 in full."""

    wire_format = FORMAT_OF["fp8"]


class Compression:
    """The compressors there are, for compression=."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor
    fp8 = FP8Compressor


_OWN = (FP16Compressor, BF16Compressor, Int8Compressor, FP8Compressor)


def compression_for(asked: Any) -> Any:
    """What an optimizer compresses with: what its program asks for, else what DTRUN_TORCH_COMPRESSION says."""
    name = os.environ.get("DTRUN_TORCH_COMPRESSION", "")
    if asked is not Compression.none or name in ("", "none"):
        return asked
    wanted = FORMAT_OF.get(name)
    for own in _OWN:
        if own.wire_format == wanted:
            note(f"compression {name}")
            return own
    raise ValueError(f"DTRUN_TORCH_COMPRESSION={name}: fp16, bf16, int8, fp8 or none")


def wire_format(compressor: Any, tensor: torch.Tensor, op_is_sum: bool) -> int:
    """The format in which the library sends this tensor itself; 0: the compressor's own functions are called."""
    if compressor not in _OWN or not op_is_sum or tensor.dtype != torch.float32:
        return 0
    return compressor.wire_format
