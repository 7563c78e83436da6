"""Code that torch.compile is to leave alone.

torch's C++ calls a process group amid a compiled program, as DistributedDataParallel does when it arranges its buckets.
torch.compile sees these calls as functions of that program, and what it cannot compile of them would be an error.
"""

from __future__ import annotations

import types
from typing import Any

import torch

_eval_frame = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def _leave_alone(function: types.FunctionType) -> None:
    if not hasattr(_eval_frame, "set_code_exec_strategy"):  # of a torch that is older than 2.7
        return
    skip = _eval_frame._FrameAction.SKIP
    # Of the function, and of all that it calls.
    _eval_frame.set_code_exec_strategy(function.__code__, _eval_frame._FrameExecStrategy(skip, skip))


def untraced(made: Any) -> Any:
    """Decorates a function, or a class with all functions that it defines."""
    for value in [made] if isinstance(made, types.FunctionType) else vars(made).values():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(function, types.FunctionType):
            _leave_alone(function)
    return made
