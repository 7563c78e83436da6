"""Horovod's interface for PyTorch, on top of dtrun: a drop-in for horovod.torch.

    import dtrun.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

docs/TORCH.md is for users; there are also hooks for torch's DistributedDataParallel (dtrun.torch.hooks) and a
backend of torch.distributed (dtrun.torch.backend). Nothing is compiled: it stands on dtrun.collectives.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401  (before our modules: they would say less)
except ModuleNotFoundError as _error:
    if _error.name != "torch":
        raise
    raise ModuleNotFoundError("dtrun.torch needs PyTorch, which this Python does not have: pip install torch",
                              name="torch") from None

from . import elastic, mpi_ops
from ._coordinator import HorovodInternalError
from .basics import (ProcessSet, add_process_set, ccl_built, cross_rank, cross_size, cuda_built, ddl_built,
                     get_process_set_ids_and_ranks, global_process_set, gloo_built, gloo_enabled, init,
                     is_homogeneous, is_initialized, local_rank, local_size, mpi_built, mpi_enabled,
                     mpi_threads_supported, nccl_built, rank, remove_process_set, rocm_built, shutdown, size,
                     start_timeline, stop_timeline, worker)
from .compression import Compression, Compressor
from .differentiable import (allgather, allreduce, alltoall, broadcast, grouped_allgather, grouped_allreduce,
                             grouped_reducescatter, reducescatter)
from .elastic import HostsUpdatedInterrupt
from .functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .operations import (Adasum, Average, Max, Min, Product, Sum, allgather_async, allreduce_, allreduce_async,
                         allreduce_async_, alltoall_async, barrier, broadcast_, broadcast_async, broadcast_async_,
                         grouped_allgather_async, grouped_allreduce_, grouped_allreduce_async,
                         grouped_allreduce_async_, grouped_reducescatter_async, join, poll, reducescatter_async,
                         sparse_allreduce_async, synchronize)
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm

__all__ = [name for name in dir() if not name.startswith("_") and name != "annotations"]
