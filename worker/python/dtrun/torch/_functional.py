"""Functional collectives that torch's C++ starts by methods of a group which it does not look for in Python.

They write into a tensor that is there, as compiled programs do. Of others it takes Python's methods.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

#: They live as long as the program.
_libraries = []


def _group(given: Any) -> Any:
    """:param given: a group, as torch has it in C++ or in Python, or its name"""
    if isinstance(given, str):
        return distributed_c10d._resolve_process_group(given)
    return given if isinstance(given, dist.ProcessGroup) else dist.ProcessGroup.unbox(given)


def _in_background(options: Any) -> Any:
    if hasattr(options, "asyncOp"):
        options.asyncOp = True
    return options


def _all_gather(source: torch.Tensor, group_size: int, group_name: Any, *, out: torch.Tensor) -> torch.Tensor:
    options = _in_background(c10d.AllgatherOptions())
    with torch._C._AutoDispatchBelowAutograd():
        c10d._register_work(out, _group(group_name)._allgather_base(out, source, options))
    return out


def _reduce_scatter(source: torch.Tensor, reduce_op: str, group_size: int, group_name: Any, *,
                    out: torch.Tensor) -> torch.Tensor:
    options = _in_background(c10d.ReduceScatterOptions())
    options.reduceOp = getattr(dist.ReduceOp, reduce_op.upper())
    with torch._C._AutoDispatchBelowAutograd():
        c10d._register_work(out, _group(group_name)._reduce_scatter_base(out, source, options))
    return out


def register() -> None:
    """Has torch use these for tensors in host memory. They do for a group of any backend what torch's C++ does."""
    library = torch.library.Library("_c10d_functional", "IMPL")
    for name, function in (("all_gather_into_tensor_out", _all_gather), ("reduce_scatter_tensor_out", _reduce_scatter)):
        if hasattr(torch.ops._c10d_functional, name):  # not in all versions of torch
            library.impl(name, function, "CPU")
    _libraries.append(library)
