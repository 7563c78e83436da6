"""What ranks begin with alike: parameters, the state of an optimizer, objects."""

from __future__ import annotations

import io
import pickle
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

import torch

from .basics import ProcessSet, global_process_set
from .differentiable import allgather
from .operations import broadcast_, broadcast_async_, synchronize

try:
    import cloudpickle as _pickler  # which takes functions and classes of __main__, too
except ImportError:
    _pickler = pickle

Named = Tuple[Optional[str], torch.Tensor]


def broadcast_parameters(params: Union[Dict[str, torch.Tensor], Iterable[Any]], root_rank: int,
                         process_set: ProcessSet = global_process_set) -> None:
    """Gives all ranks the root's values, in place.

    :param params: model.state_dict(), model.named_parameters() or model.parameters()
    """
    if isinstance(params, dict):
        named: List[Named] = sorted(params.items())
    elif isinstance(params, (str, bytes)) or not isinstance(params, Iterable):
        raise ValueError(f"params is a dictionary or a list of parameters, not {type(params).__name__}")
    else:
        named = [p if isinstance(p, tuple) else (None, p) for p in params]
    handles = [broadcast_async_(p, root_rank, name, process_set) for name, p in named if torch.is_tensor(p)]
    for handle in handles:
        synchronize(handle)


def _bytes_of(thing: Any) -> torch.Tensor:
    file = io.BytesIO()
    _pickler.dump(thing, file)
    return torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)


def broadcast_object(obj: Any = None, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The root's object, on all ranks; by pickle. :param name: None: ranks call this in the same order"""
    name = name if name is not None else "broadcast_object"
    is_root = process_set.rank() == (process_set.ranks or []).index(root_rank)
    data = _bytes_of(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    length = torch.tensor([data.numel()])
    broadcast_(length, root_rank, f"{name}.length", process_set)
    if not is_root:
        data = torch.empty(int(length), dtype=torch.uint8)
    broadcast_(data, root_rank, f"{name}.data", process_set)
    return obj if is_root else pickle.loads(data.numpy().tobytes())


def allgather_object(obj: Any, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> List[Any]:
    """All ranks' objects, by rank; by pickle. :param name: None: ranks call this in the same order"""
    name = name if name is not None else "allgather_object"
    data = _bytes_of(obj)
    lengths = allgather(torch.tensor([data.numel()]), f"{name}.length", process_set).tolist()
    everything = allgather(data, f"{name}.data", process_set).numpy().tobytes()
    objects, at = [], 0
    for length in lengths:
        objects.append(pickle.loads(everything[at:at + length]))
        at += length
    return objects


class _Place:
    """Stands in an optimizer's state for a tensor that is sent by itself."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype


def _take_tensors(value: Any, taken: List[torch.Tensor]) -> Any:
    """A copy of nested containers with a _Place for each tensor."""
    if torch.is_tensor(value):
        taken.append(value)
        return _Place(value)
    if isinstance(value, dict):
        return {key: _take_tensors(item, taken) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_take_tensors(item, taken) for item in value)
    return value


def _put_tensors(value: Any, made: List[torch.Tensor]) -> Any:
    """The inverse: a copy with a new tensor for each _Place."""
    if isinstance(value, _Place):
        made.append(torch.empty(value.shape, dtype=value.dtype))
        return made[-1]
    if isinstance(value, dict):
        return {key: _put_tensors(item, made) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_put_tensors(item, made) for item in value)
    return value


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None,
                              process_set: ProcessSet = global_process_set) -> None:
    """Gives all ranks the root's optimizer state: learning rates, momenta and so on.

    Ranks other than the root need not have any yet, as after a restart from a checkpoint that the root has read.

    :param model: is not needed
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state: it has no fixed structure")
    if not optimizer.state:  # Horovod's users rely on gradients that are there from the first step on
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            if p.requires_grad and p.grad is None:
                p.grad = torch.zeros_like(p)
    is_root = process_set.rank() == (process_set.ranks or []).index(root_rank)
    tensors: List[torch.Tensor] = []
    outline = _take_tensors(optimizer.state_dict(), tensors) if is_root else None
    outline = broadcast_object(outline, root_rank, "optimizer_state", process_set)
    if not is_root:
        state = _put_tensors(outline, tensors)
    broadcast_parameters([(f"optimizer_state.{i}", tensor) for i, tensor in enumerate(tensors)], root_rank,
                         process_set)
    if not is_root:
        optimizer.load_state_dict(state)
