"""Operations that wait for their result, through which gradients flow."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

import torch

from . import operations as o
from .basics import ProcessSet, global_process_set
from .compression import Compression, wire_format
from .operations import Average, Sum, synchronize


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Optional[str], op: int, scales: Tuple[float, float], process_set: ProcessSet,
                format: int, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        ctx.how = (op, scales, process_set, format)
        handle = o._allreduce(tensors, None, name, op, *scales, process_set, format)
        return tuple(synchronize(handle))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Any, ...]:
        op, scales, process_set, format = ctx.how
        reduced = _Allreduce.apply(None, op, scales, process_set, format, *gradients)
        return (None, None, None, None, None, *reduced)


def _reduce(tensors: Sequence[torch.Tensor], name: Optional[str], compression: Any, op: int,
            scales: Tuple[float, float], process_set: ProcessSet) -> List[torch.Tensor]:
    o.check_tensors(*tensors)
    formats = {wire_format(compression, tensor, op in (Average, Sum)) for tensor in tensors}
    if formats != {0} and len(formats) == 1:
        return list(_Allreduce.apply(name, op, scales, process_set, formats.pop(), *tensors))
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = _Allreduce.apply(name, op, scales, process_set, 0, *[tensor for tensor, _ in compressed])
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, compressed)]


def allreduce(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
              compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Reduces a tensor over all ranks into a new one; see allreduce_async(). Its gradient is reduced likewise."""
    return _reduce([tensor], name, compression, o.operation_of(average, op), (prescale_factor, postscale_factor),
                   process_set)[0]


def grouped_allreduce(tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
                      compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """allreduce() of several tensors as one operation."""
    return _reduce(tensors, name, compression, o.operation_of(average, op), (prescale_factor, postscale_factor),
                   process_set)


def _own_rows(gradient: torch.Tensor, rows: int, process_set: ProcessSet) -> torch.Tensor:
    """Of the reduced gradient of a gathered tensor, the rows that came from this rank."""
    counts = synchronize(o.allgather_async(torch.tensor([rows]), process_set=process_set))
    reduced = allreduce(gradient, op=Average, process_set=process_set)
    first = int(counts[:process_set.rank()].sum())
    return reduced.narrow(0, first, rows)


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Optional[str], process_set: ProcessSet,
                *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        ctx.process_set = process_set
        gathered = synchronize(o._allgather(tensors, name, process_set))
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        return tuple(gathered)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Any, ...]:
        own = [_own_rows(gradient, rows, ctx.process_set) for gradient, rows in zip(gradients, ctx.rows)]
        return (None, None, *own)


def allgather(tensor: torch.Tensor, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """All ranks' tensors one behind the other; their first dimensions may differ."""
    return _Allgather.apply(name, process_set, tensor)[0]


def grouped_allgather(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """allgather() of several tensors as one operation."""
    return list(_Allgather.apply(name, process_set, *tensors))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: Optional[str],
                process_set: ProcessSet) -> torch.Tensor:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return synchronize(o.broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Tuple[Any, ...]:
        reduced = allreduce(gradient, op=Average, process_set=ctx.process_set)
        ranks = ctx.process_set.ranks or []
        if ranks[ctx.process_set.rank()] != ctx.root_rank:
            reduced = reduced * 0
        return reduced, None, None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The root's tensor, in a new one. :param root_rank: among all ranks, also in a process set"""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Any, name: Optional[str],
                process_set: ProcessSet) -> Tuple[torch.Tensor, torch.Tensor]:
        if splits is None:
            size = process_set.coordinator().size
            if tensor.shape[0] % size:
                raise ValueError(f"{tensor.shape[0]} rows cannot be split evenly over {size} ranks: give splits")
            splits = [tensor.shape[0] // size] * size
        output, received = synchronize(o.alltoall_async(tensor, splits, name, process_set))
        ctx.process_set, ctx.received = process_set, received
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, unused: Any) -> Tuple[Any, ...]:
        return _Alltoall.apply(gradient, ctx.received, None, ctx.process_set)[0], None, None, None


def alltoall(tensor: torch.Tensor, splits: Union[None, torch.Tensor, Sequence[int]] = None,
             name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Sends parts of the rows to all ranks, and returns what has come; with splits also how many rows from whom.

    :param splits: rows for each rank, 32-bit integers; None: the same number for each
    """
    o.check_tensors(tensor)
    output, received = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Optional[str], op: int, scales: Tuple[float, float], process_set: ProcessSet,
                *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        ctx.op, ctx.scales, ctx.process_set = op, scales, process_set
        return tuple(synchronize(o._reducescatter(tensors, name, op, *scales, process_set)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Any, ...]:
        prescale, postscale = ctx.scales
        if ctx.op == Sum:
            # Each row counts once for each rank that has added to it.
            prescale *= ctx.process_set.size()
        scaled = [gradient * (prescale * postscale) for gradient in gradients]
        return (None, None, None, None, *grouped_allgather(scaled, None, ctx.process_set))


def reducescatter(tensor: torch.Tensor, name: Optional[str] = None, compression: Any = Compression.none,
                  op: int = Average, process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> torch.Tensor:
    """This rank's part of the rows of the reduced tensor; the first ranks get one more if they do not divide."""
    return grouped_reducescatter([tensor], name, compression, op, process_set, prescale_factor,
                                 postscale_factor)[0]


def grouped_reducescatter(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                          compression: Any = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> List[torch.Tensor]:
    """reducescatter() of several tensors as one operation."""
    o.check_tensors(*tensors)
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = _Reducescatter.apply(name, op, (prescale_factor, postscale_factor), process_set,
                                   *[tensor for tensor, _ in compressed])
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, compressed)]
