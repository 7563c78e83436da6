"""The short forms of torch's process groups: a tensor instead of a list of one; a root, a reduction or a time limit
instead of options, as in group.broadcast(tensor, 0)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, Optional, Sequence

import torch


def listed(tensors: Any) -> Sequence[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def lists_of(tensors: Any) -> Sequence[Sequence[torch.Tensor]]:
    """Lists of tensors, one for each tensor on the other side; in the short form there is one."""
    return [tensors] if len(tensors) > 0 and isinstance(tensors[0], torch.Tensor) else tensors


def options_of(kind: Callable[[], Any], *given: Any, **named: Any) -> Any:
    """Options of that kind.

    :param given, named: such options, or what is in their place, by its type: a root, a reduction, a time limit
    """
    made = kind()
    for value in (*given, *named.values()):
        if hasattr(value, "timeout"):
            made = value
        elif isinstance(value, timedelta):
            made.timeout = value
        elif isinstance(value, int):
            made.rootRank = value
        elif value is not None:
            made.reduceOp = value
    return made


def limit_of(options: Any) -> Optional[float]:
    """Seconds that this operation may take; None: what its group says."""
    seconds = options.timeout.total_seconds()
    return seconds if seconds > 0 else None
