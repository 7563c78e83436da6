"""Sums of sparse tensors, as DistributedDataParallel needs them for embeddings with sparse gradients."""

from __future__ import annotations

import zlib
from typing import Any, Sequence

import torch

from . import _tensors as t
from ._reductions import name_of
from ._work import Flat, InvalidCall


def check_sparse(operation: str, tensors: Sequence[torch.Tensor], opts: Any) -> None:
    """:raises InvalidCall: these are not added up"""
    if tensors[0].device.type != "cpu":
        raise InvalidCall(f"{operation}: unsupported device type {tensors[0].device}")
    if name_of(opts.reduceOp) != "SUM":
        raise InvalidCall(f"{operation}: unsupported reduction operation {name_of(opts.reduceOp)}: sparse tensors are "
                          "added up, and nothing else")


def add_sparse(comm: t.TensorCommunicator, tensors: Sequence[torch.Tensor]) -> None:
    """All tensors become the sum of those of all ranks, which may have elements at different places.

    :param tensors: with coordinates, of one shape
    :raises InvalidCall: on all ranks, if some have another shape
    """
    own = tensors[0].detach()
    for tensor in tensors[1:]:
        own = own + tensor.detach()
    own = own.coalesce()
    shape = (own.sparse_dim(), tuple(own.shape))
    facts = torch.empty((comm.size, 2), dtype=torch.int64)
    comm.allgather(torch.tensor([own._nnz(), zlib.crc32(repr(shape).encode())]), facts.view(-1))
    numbers = facts[:, 0]
    if (facts[:, 1] != facts[0, 1]).any():  # all ranks find the same
        raise InvalidCall(f"all_reduce: invalid tensor size: ranks have sparse tensors of different shapes, this one "
                          f"{list(own.shape)} with {own.sparse_dim()} sparse dimensions")
    most = int(numbers.max())
    places = torch.zeros((most, own.sparse_dim()), dtype=torch.int64)
    values = torch.zeros((most, *own.shape[own.sparse_dim():]), dtype=own.dtype)
    places[:own._nnz()] = own.indices().T
    values[:own._nnz()] = own.values()
    # On all ranks in the same order. One tensor of all is added up at once, as torch does also where it has no "+", as for Half.
    places, values = (torch.cat([of_rank[:number] for number, of_rank in zip(numbers.tolist(), _gathered(comm, part))])
                      for part in (places, values))
    total = torch.sparse_coo_tensor(places.T, values, own.shape).coalesce()
    with torch.no_grad():  # what detach() gives of a sparse tensor would become another one
        for tensor in tensors:
            tensor.copy_(total)


def _gathered(comm: t.TensorCommunicator, part: torch.Tensor) -> torch.Tensor:
    everybodys = Flat(torch.empty((comm.size, *part.shape), dtype=part.dtype))
    if part.numel() > 0:
        comm.allgather(Flat(part).flat, everybodys.flat)
    return everybodys.given
