"""Tells `dtrun bench` when steps end, in programs that do not call Worker.progress() themselves."""

from __future__ import annotations

import os
import time
import weakref
from typing import Any, List, Optional

import torch
from torch.nn.modules import module as hooks_of_all


class _Marks:
    def __init__(self) -> None:
        path = os.environ.get("DTRUN_STEPS_FILE")
        self.file: Optional[int] = None
        if path:
            try:
                self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            except OSError:  # of a program that has ended, whose environment this one has
                pass
        self.steps = 0
        self.who: Any = None
        self.batch: Optional[_Batch] = None


class _Batch:
    """Counts the samples that a step gives to the network: the first dimension of its first argument."""

    #: Steps that are looked at; the largest counts, since the last one of an epoch may be smaller.
    STEPS = 3

    def __init__(self) -> None:
        self.depth = self.samples = self.largest = self.steps = 0
        self.handles: List[Any] = [hooks_of_all.register_module_forward_pre_hook(self._begins),
                                   hooks_of_all.register_module_forward_hook(self._ends)]

    def _begins(self, module: torch.nn.Module, arguments: Any) -> None:
        # Modules within the network get what it makes of the samples.
        if self.depth == 0 and module.training and arguments and isinstance(arguments[0], torch.Tensor):
            self.samples += arguments[0].shape[0] if arguments[0].dim() > 0 else 0
        self.depth += 1

    def _ends(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        self.depth -= 1

    def step(self) -> bool:
        """A step is over: whether no further one has to be looked at."""
        self.largest = max(self.largest, self.samples)
        self.depth = self.samples = 0
        self.steps += 1
        if self.steps < self.STEPS:
            return False
        for handle in self.handles:
            handle.remove()
        if self.largest > 0:
            note(f"samples {self.largest}")
        return True


_marks = _Marks()


def note(line: str) -> None:
    """Tells who measures steps something else, if anybody does."""
    if _marks.file is not None:
        os.write(_marks.file, f"{line}\n".encode())


def mark_step(who: object) -> None:
    """One more step is over, of the optimizer or the hook whose was the first: others step along with it."""
    if _marks.file is None:
        return
    if _marks.who is None or _marks.who() is None:
        _marks.who = weakref.ref(who)
    if _marks.who() is who:
        _marks.steps += 1
        note(f"torch {_marks.steps} {time.monotonic_ns()}")
        if _marks.steps == 1:
            _marks.batch = _Batch()
        elif _marks.batch is not None and _marks.batch.step():
            _marks.batch = None
