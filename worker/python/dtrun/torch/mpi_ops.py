"""Operations and places under the name by which Horovod's programs know them: horovod.torch.mpi_ops."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from . import basics as _basics  # noqa: F401  # which programs ask for what there is
from ._coordinator import HorovodInternalError
from .basics import (ProcessSet, add_process_set, ccl_built, cross_rank, cross_size, cuda_built, ddl_built,
                     global_process_set, gloo_built, gloo_enabled, init, is_homogeneous, is_initialized, local_rank,
                     local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank, remove_process_set,
                     rocm_built, shutdown, size, start_timeline, stop_timeline)
from .compression import Compression
from .differentiable import (allgather, allreduce, alltoall, broadcast, grouped_allgather, grouped_allreduce,
                             grouped_reducescatter, reducescatter)
from .operations import (Adasum, Average, Max, Min, Product, Sum, allgather_async, allreduce_, allreduce_async,
                         allreduce_async_, alltoall_async, barrier, broadcast_, broadcast_async, broadcast_async_,
                         grouped_allgather_async, grouped_allreduce_, grouped_allreduce_async,
                         grouped_allreduce_async_, grouped_reducescatter_async, join, operation_of, poll,
                         reducescatter_async, sparse_allreduce_async, synchronize)

__all__ = ["HorovodInternalError", "ProcessSet", "add_process_set", "ccl_built", "cross_rank", "cross_size",
           "cuda_built", "ddl_built", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_homogeneous",
           "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
           "nccl_built", "rank", "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline",
           "stop_timeline", "Compression", "allgather", "allreduce", "alltoall", "broadcast", "grouped_allgather",
           "grouped_allreduce", "grouped_reducescatter", "reducescatter", "Adasum", "Average", "Max", "Min",
           "Product", "Sum", "allgather_async", "allreduce_", "allreduce_async", "allreduce_async_",
           "alltoall_async", "barrier", "broadcast_", "broadcast_async", "broadcast_async_",
           "grouped_allgather_async", "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_",
           "grouped_reducescatter_async", "join", "poll", "reducescatter_async", "sparse_allreduce_async",
           "synchronize", "handle_average_backwards_compatibility", "HorovodAllgather", "HorovodAllreduce",
           "HorovodAlltoall", "HorovodBroadcast", "HorovodGroupedAllgather", "HorovodGroupedAllreduce",
           "HorovodGroupedReducescatter", "HorovodReducescatter"]


def handle_average_backwards_compatibility(op: Optional[int], average: Optional[bool]) -> int:
    """The reduction that is meant by two parameters."""
    return operation_of(average, op)


# ---- what Horovod's functions call, which some programs call themselves; gradients flow through all of them ----

class HorovodAllreduce:
    @staticmethod
    def apply(tensor: torch.Tensor, average: Optional[bool], name: Optional[str], op: Optional[int],
              prescale_factor: float, postscale_factor: float, process_set: ProcessSet) -> torch.Tensor:
        return allreduce(tensor, average, name, op=op, prescale_factor=prescale_factor,
                         postscale_factor=postscale_factor, process_set=process_set)


class HorovodGroupedAllreduce:
    @staticmethod
    def apply(average: Optional[bool], name: Optional[str], op: Optional[int], prescale_factor: float,
              postscale_factor: float, process_set: ProcessSet, *tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        return grouped_allreduce(tensors, average, name, op=op, prescale_factor=prescale_factor,
                                 postscale_factor=postscale_factor, process_set=process_set)


class HorovodAllgather:
    @staticmethod
    def apply(tensor: torch.Tensor, name: Optional[str], process_set: ProcessSet) -> torch.Tensor:
        return allgather(tensor, name, process_set)


class HorovodGroupedAllgather:
    @staticmethod
    def apply(name: Optional[str], process_set: ProcessSet, *tensors: torch.Tensor) -> List[torch.Tensor]:
        return grouped_allgather(tensors, name, process_set)


class HorovodBroadcast:
    @staticmethod
    def apply(tensor: torch.Tensor, root_rank: int, name: Optional[str], process_set: ProcessSet) -> torch.Tensor:
        return broadcast(tensor, root_rank, name, process_set)


class HorovodAlltoall:
    @staticmethod
    def apply(tensor: torch.Tensor, splits: Optional[torch.Tensor], name: Optional[str],
              process_set: ProcessSet) -> Any:
        return alltoall(tensor, splits, name, process_set)


class HorovodReducescatter:
    @staticmethod
    def apply(tensor: torch.Tensor, name: Optional[str], op: int, process_set: ProcessSet, prescale_factor: float,
              postscale_factor: float) -> torch.Tensor:
        return reducescatter(tensor, name=name, op=op, process_set=process_set, prescale_factor=prescale_factor,
                             postscale_factor=postscale_factor)


class HorovodGroupedReducescatter:
    @staticmethod
    def apply(name: Optional[str], op: int, process_set: ProcessSet, prescale_factor: float,
              postscale_factor: float, *tensors: torch.Tensor) -> List[torch.Tensor]:
        return grouped_reducescatter(tensors, name=name, op=op, process_set=process_set,
                                     prescale_factor=prescale_factor, postscale_factor=postscale_factor)
