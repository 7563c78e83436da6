"""Reductions of the backend of torch.distributed: the library's, and for what it has no arithmetic torch's own."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist

from .._words import DTYPES
from . import _tensors as t
from ._coordinator import _DTYPES
from ._work import Flat, InvalidCall

Op = dist.ReduceOp
#: By their names, which torch's own objects do not always have.
_NAMES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
_NUMBERS = {"SUM": t.SUM, "AVG": t.AVERAGE, "PRODUCT": t.PRODUCT, "MIN": t.MIN, "MAX": t.MAX}
#: A bool is a byte that is 0 or 1, of which sums would be something else: any True is, all True are.
_BOOL_NUMBERS = {"SUM": t.MAX, "PRODUCT": t.MIN, "MIN": t.MIN, "MAX": t.MAX, "BAND": t.MIN, "BOR": t.MAX}
_FUNCTIONS: Dict[str, Callable[..., torch.Tensor]] = {
    "SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum, "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}


class Reduction:
    """How tensors of one type are reduced: by the library, or by one rank for each part, with torch."""

    def __init__(self, name: str, given: torch.dtype) -> None:
        """:raises InvalidCall: such tensors are not reduced so"""
        self._number: Optional[int] = None
        self._is_complex = given.is_complex
        self._name = name
        if given == torch.bool:
            self._number = _BOOL_NUMBERS.get(name)
        elif given.is_complex:
            self._number = _NUMBERS[name] if name in ("SUM", "AVG") else None
        elif _DTYPES.get(given, len(DTYPES)) < len(DTYPES):
            self._number = _NUMBERS.get(name)
        if self._number is None:
            self._check(name, given)

    @staticmethod
    def _check(name: str, given: torch.dtype) -> None:
        if name in _FUNCTIONS:
            nothing = torch.empty(0, dtype=given)
            try:
                _FUNCTIONS[name](nothing, nothing)
                return
            except (RuntimeError, TypeError):  # torch has no such function for this type
                pass
        raise InvalidCall(f"unsupported reduction operation: the backend \"dtrun\" does not reduce {given} with {name}")

    def check_local(self) -> None:
        """:raises InvalidCall: not for several tensors of one rank"""
        if self._name not in _FUNCTIONS:
            raise InvalidCall(f"unsupported reduction operation {self._name} for several tensors of one rank")

    def take(self, into: torch.Tensor, other: torch.Tensor) -> None:
        """Reduces two tensors of this rank, into the first one."""
        total = _FUNCTIONS[self._name](self._elements(into), self._elements(other))
        into.copy_(torch.view_as_real(total) if self._is_complex else total)

    def allreduce(self, comm: t.TensorCommunicator, tensors: Sequence[torch.Tensor]) -> None:
        if self._number is not None:
            t.reduce_many(comm.comm, tensors, self._number)
            return
        for tensor in tensors:
            if tensor.numel() == 0:
                continue
            elements = tensor.view(-1, 2) if self._is_complex else tensor.view(-1)
            length = -(-elements.shape[0] // comm.size)  # of each rank's part
            whole = elements.new_zeros((comm.size, length, *elements.shape[1:]))
            flat = whole.view(-1, *elements.shape[1:])
            flat[:elements.shape[0]] = elements
            part = whole[comm.rank].clone()
            self.reduce_scatter(comm, whole, part)
            comm.allgather(part, whole)
            elements.copy_(flat[:elements.shape[0]])

    def reduce(self, comm: t.TensorCommunicator, tensor: torch.Tensor, root: int) -> None:
        """In place at the root."""
        if self._number is not None:
            comm.reduce(tensor, self._number, root)
            return
        reduced = tensor.clone()
        self.allreduce(comm, [reduced])
        if comm.rank == root:
            tensor.copy_(reduced)

    def reduce_scatter(self, comm: t.TensorCommunicator, source: torch.Tensor, target: torch.Tensor) -> None:
        if self._number is not None:
            comm.reduce_scatter(source, target, self._number)
            return
        parts = torch.empty((comm.size, *target.shape), dtype=target.dtype)
        comm.alltoall(source, parts)
        if target.numel() == 0:
            return
        target.copy_(parts[0])
        for part in parts[1:]:
            self.take(target, part)

    def _elements(self, part: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(part) if self._is_complex else part


def name_of(given: Any) -> str:
    """Of one of torch's operations."""
    return next((name for name in _NAMES if given == getattr(Op, name)), str(given))


def reduction_of(opts: Any, tensors: Sequence[Flat]) -> List[Reduction]:
    """For each tensor.

    :raises InvalidCall: tensors of that type are not reduced so
    """
    name = name_of(opts.reduceOp)
    made = {dtype: Reduction(name, dtype) for dtype in {tensor.given.dtype for tensor in tensors}}
    return [made[tensor.given.dtype] for tensor in tensors]
