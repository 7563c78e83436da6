"""Communication hooks for torch's DistributedDataParallel: gradients travel in 16 or 8 bits.

    from dtrun.torch import hooks

    model = DistributedDataParallel(model)              # over any backend, "gloo" say
    state = hooks.register(model, "int8")

Everything that the hook sends goes through a communicator of dtrun; torch's process group is what the model was
made with, and remains what its other operations use.
"""

import time
import weakref
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

from .._words import FORMAT_OF, sent_bytes
from ..collectives import Communicator
from . import _tensors as t
from ._step_marks import mark_step
from .basics import shared_worker


class Stats(NamedTuple):
    """What a hook has done since it was made, or since clear_stats()."""

    steps: int
    calls: int  #: one for each bucket
    gradient_bytes: int  #: of the gradients
    sent_bytes: int  #: of the same in their formats, between hosts and where that is faster
    seconds: float  #: during which it was reducing

    @property
    def ratio(self) -> float:
        """How many times fewer bytes are sent, where the library compresses: between hosts, unless they
        are few, and where that is faster."""
        return self.gradient_bytes / self.sent_bytes if self.sent_bytes else 1.0


class HookState:
    """What compress_hook() keeps between steps. All ranks make it, in the same order.

    :param format: "none", "fp16", "bf16", "int8", "e4m3" or "e5m2"
    :param error_feedback: what rounding has cost a gradient is added to it in the next step
    :param stochastic: round at random, unbiased
    :param start_step: steps before that one, counted from 0, are sent in full
    :param min_numel: gradients with fewer values, and those of vectors, are always sent in full
    :param named_parameters: of the model, for state_dict()
    """

    def __init__(self, format: str = "int8", error_feedback: bool = True, stochastic: bool = False,
                 start_step: int = 2, min_numel: int = 4096,
                 named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]] = None) -> None:
        if format not in FORMAT_OF:
            raise ValueError(f"format is one of {', '.join(FORMAT_OF)}, not {format!r}")
        self.format = format
        self.error_feedback, self.stochastic = error_feedback, stochastic
        self.start_step, self.min_numel = start_step, min_numel
        self.step = 0
        self._names = {p: name for name, p in named_parameters or ()}
        self._errors: Dict[torch.Tensor, torch.Tensor] = {}
        self._comm = Communicator(shared_worker())
        if dist.is_initialized() and dist.get_world_size() != self._comm.size:
            raise ValueError(f"torch has {dist.get_world_size()} ranks and dtrun {self._comm.size}: start both "
                             "with one dtrun command")
        self._thread = t.InOrder("dtrun-ddp-hook")
        weakref.finalize(self, self._thread.close, 0)  # where nobody calls close()
        self.clear_stats()

    # ---- what users ask for ----

    def stats(self) -> Stats:
        return Stats(self.step - self._first_step, self._calls, self._gradient_bytes, self._sent_bytes,
                     self._seconds)

    def clear_stats(self) -> None:
        self._first_step = self.step
        self._calls = self._gradient_bytes = self._sent_bytes = 0
        self._seconds = 0.0

    def state_dict(self) -> Dict[str, Any]:
        """For a checkpoint of this rank: each rank has rounding errors of its own."""
        unnamed = [p for p in self._errors if p not in self._names]
        if unnamed:
            raise ValueError("parameters have no names: make the state with hooks.register(model), or with "
                             "named_parameters=model.named_parameters()")
        return {"step": self.step, "format": self.format,
                "errors": {self._names[p]: error.clone() for p, error in self._errors.items()}}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """:raises ValueError: it has a parameter that the model has not, or that has another size there"""
        parameters = {name: p for p, name in self._names.items()}
        missing = sorted(set(state["errors"]) - set(parameters))
        if missing:
            raise ValueError(f"the checkpoint has errors of {', '.join(missing)}, which the model does not have")
        for name, error in state["errors"].items():
            if error.numel() != parameters[name].numel():
                raise ValueError(f"the checkpoint has {error.numel()} errors of {name}, which has "
                                 f"{parameters[name].numel()} values: it is of another model")
        self.step = self._first_step = state["step"]
        self._errors = {}
        for name, error in state["errors"].items():
            self._errors[parameters[name]] = error.detach().to("cpu", torch.float32).reshape(-1).clone()

    def close(self) -> None:
        """Waits for what is under way, and ends the communicator."""
        self._thread.close()
        self._comm.close()

    # ---- what the hook asks for ----

    def _is_compressed(self, gradient: torch.Tensor) -> bool:
        return (self.step >= self.start_step and FORMAT_OF[self.format] != 0 and gradient.dim() > 1
                and gradient.numel() >= self.min_numel and gradient.dtype == torch.float32)

    def _error_of(self, parameter: torch.Tensor) -> torch.Tensor:
        error = self._errors.get(parameter)
        if error is None:
            error = self._errors[parameter] = torch.zeros(parameter.numel(), dtype=torch.float32)
        return error

    def _reduce(self, buffer: torch.Tensor, full: List[torch.Tensor], compressed: List[torch.Tensor],
                errors: Optional[List[torch.Tensor]]) -> torch.Tensor:
        begin = time.monotonic()
        if compressed:
            t.reduce_many(self._comm, compressed, t.AVERAGE, FORMAT_OF[self.format], self.stochastic, errors)
        t.reduce_many(self._comm, full, t.AVERAGE)
        self._seconds += time.monotonic() - begin
        return buffer

    def _count(self, full: List[torch.Tensor], compressed: List[torch.Tensor]) -> None:
        format = FORMAT_OF[self.format]
        in_full = sum(tensor.numel() * tensor.element_size() for tensor in full)
        self._calls += 1
        self._gradient_bytes += in_full + sum(4 * tensor.numel() for tensor in compressed)
        self._sent_bytes += in_full + sum(sent_bytes(format, tensor.numel()) for tensor in compressed)


# torch looks at these annotations, which therefore must not be strings.
def compress_hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For DistributedDataParallel.register_comm_hook(). A dtrun.Error's text is in what backward() raises."""
    buffer = bucket.buffer()
    if buffer.device.type != "cpu":
        raise ValueError("dtrun.torch.hooks are for models in host memory; with GPUs use torch's own hooks over "
                         "NCCL")
    full: List[torch.Tensor] = []
    compressed: List[torch.Tensor] = []
    errors: List[torch.Tensor] = []
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
        if not state._is_compressed(gradient):
            full.append(gradient)
            continue
        compressed.append(gradient)
        if state.error_feedback:
            errors.append(state._error_of(parameter))
    if not compressed:
        full = [buffer]  # which has all of them one behind the other
    state._count(full, compressed)
    if bucket.is_last():
        state.step += 1
        mark_step(state)
    return state._thread.submit(lambda: state._reduce(buffer, full, compressed, errors or None))


def register(model: torch.nn.parallel.DistributedDataParallel, format: str = "int8", **options: Any) -> HookState:
    """Makes a state for a model and registers the hook. :param options: see HookState

    :raises ValueError: the model's process group is not one of all ranks
    """
    ranks, all_ranks = model.process_group.size(), shared_worker().world_size
    if ranks != all_ranks:
        raise ValueError(f"the model's process group has {ranks} ranks and dtrun {all_ranks}: hooks are for models "
                         "of all ranks")
    state = HookState(format, named_parameters=model.module.named_parameters(), **options)
    model.register_comm_hook(state, compress_hook)
    return state


def none_hook(model: torch.nn.parallel.DistributedDataParallel) -> HookState:
    """Gradients travel in full, through dtrun."""
    return register(model, "none")


def fp16_hook(model: torch.nn.parallel.DistributedDataParallel, **options: Any) -> HookState:
    return register(model, "fp16", **options)


def bf16_hook(model: torch.nn.parallel.DistributedDataParallel, **options: Any) -> HookState:
    return register(model, "bf16", **options)


def int8_hook(model: torch.nn.parallel.DistributedDataParallel, **options: Any) -> HookState:
    return register(model, "int8", **options)


def e4m3_hook(model: torch.nn.parallel.DistributedDataParallel, **options: Any) -> HookState:
    return register(model, "e4m3", **options)
