"""What ranks begin with alike: parameters, the state of an optimizer, objects."""

from __future__ import annotations

import io
import pickle
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

import torch

from ._optimizer_state import Taken, load_others, put_state, state_of, take_tensors
from .basics import ProcessSet, global_process_set
from .differentiable import allgather
from .operations import broadcast_, broadcast_async_, root_index, synchronize

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
    for name, p in named:
        if not torch.is_tensor(p):
            raise ValueError(f"params has {'' if name is None else name + ', '}a {type(p).__name__} and no tensor: "
                             "broadcast_object() sends such things")
    handles = [broadcast_async_(p, root_rank, name, process_set) for name, p in named]
    for handle in handles:
        synchronize(handle)


def pickler_of() -> type:
    """The class of what pickles objects for other ranks."""
    return getattr(_pickler, "CloudPickler", pickle.Pickler)


def _bytes_of(thing: Any) -> torch.Tensor:
    file = io.BytesIO()
    _pickler.dump(thing, file)
    return torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)


def broadcast_object(obj: Any = None, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The root's object, on all ranks; by pickle. :param name: None: ranks call this in the same order"""
    name = name if name is not None else "broadcast_object"
    is_root = process_set.rank() == root_index(root_rank, process_set)
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


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None,
                              process_set: ProcessSet = global_process_set) -> None:
    """Gives all ranks the root's optimizer state: learning rates, momenta and so on.

    Ranks other than the root need not have any yet, as after a restart from a checkpoint that the root has read. The
    dictionaries and tensors of an optimizer stay, so that schedulers which were made before go on with them.

    :param model: tells which parameters are those of sparse embeddings
    :raises ValueError: the root's optimizer has other groups of parameters
    """
    if not optimizer.state:  # Horovod's users rely on gradients that are there from the first step on
        sparse = {module.weight for module in (model.modules() if model is not None else ())
                  if getattr(module, "sparse", False) and hasattr(module, "weight")}
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            if p.requires_grad and p.grad is None and p not in sparse and not isinstance(
                    optimizer, torch.optim.SparseAdam):  # a dense one would make sums with sparse ones dense
                p.grad = torch.zeros_like(p)
    is_root = process_set.rank() == root_index(root_rank, process_set)
    taken: Taken = {}
    outline = take_tensors(state_of(optimizer), taken) if is_root else None
    outline = broadcast_object(outline, root_rank, "optimizer_state", process_set)
    tensors = [tensor for tensor, _ in taken.values()]
    others = {} if is_root else put_state(optimizer, outline, lambda room, _: tensors.append(room))
    broadcast_parameters([(f"optimizer_state.{i}", tensor) for i, tensor in enumerate(tensors)], root_rank,
                         process_set)
    load_others(optimizer, others)
