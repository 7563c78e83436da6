"""What an optimizer knows, sent to and put into other ones without replacing the dictionaries and tensors there.

A scheduler that was made for an optimizer before this was wrapped holds its dictionaries; load_state_dict() replaces
them, and casts what an optimizer keeps in 32 bits for parameters of 16.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any, Callable, Dict, Iterator, List

import torch


class Place:
    """Stands for a tensor that is sent by itself."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype, self.device = tuple(tensor.shape), tensor.dtype, tensor.device.type


def take_tensors(value: Any, taken: List[torch.Tensor]) -> Any:
    """A copy of nested containers with a Place for each tensor."""
    if torch.is_tensor(value):
        taken.append(value)
        return Place(value)
    if isinstance(value, dict):
        return {key: take_tensors(item, taken) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(take_tensors(item, taken) for item in value)
    return value


#: Gives what stands for a tensor, and what is there now, the tensor that is to be there.
Room = Callable[[Any, Any], torch.Tensor]


def room_for(like: Any, existing: Any) -> torch.Tensor:
    """What is there, if the other one's values fit into it, else a new tensor.

    :param like: a tensor, or a Place
    """
    if torch.is_tensor(existing) and (tuple(existing.shape), existing.dtype) == (tuple(like.shape), like.dtype):
        return existing
    return torch.empty(tuple(like.shape), dtype=like.dtype, device=like.device)


def copied_into(like: torch.Tensor, existing: Any) -> torch.Tensor:
    room = room_for(like, existing)
    with torch.no_grad():
        room.copy_(like)
    return room


def put(value: Any, existing: Any, room: Room) -> Any:
    """Puts nested containers into others as far as these are there. :return: what is to be there now"""
    if torch.is_tensor(value) or isinstance(value, Place):
        return room(value, existing)
    if isinstance(value, dict):
        into = existing if isinstance(existing, dict) else {}
        made = {key: put(item, into.get(key), room) for key, item in value.items()}
        into.clear()
        into.update(made)
        return into
    if type(value) in (list, tuple):
        fits = type(existing) is type(value) and len(existing) == len(value)
        items = [put(item, there, room) for item, there in zip(value, existing if fits else [None] * len(value))]
        if fits and isinstance(existing, list):
            existing[:] = items
            return existing
        return type(value)(items)
    return copy.deepcopy(value)


def _parameters(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def state_of(optimizer: torch.optim.Optimizer) -> Dict[str, Any]:
    """The state itself, by the numbers of parameters; options of groups; and what else state_dict() has."""
    numbers = {p: number for number, p in enumerate(_parameters(optimizer))}
    return {
        "sizes": [len(group["params"]) for group in optimizer.param_groups],
        "state": {numbers.get(key, key) if torch.is_tensor(key) else key: value
                  for key, value in optimizer.state.items()},
        "options": [{name: value for name, value in group.items() if name != "params"}
                    for group in optimizer.param_groups],
        "others": {key: value for key, value in optimizer.state_dict().items()
                   if key not in ("state", "param_groups")},
    }


def put_state(optimizer: torch.optim.Optimizer, given: Dict[str, Any], room: Room) -> Dict[str, Any]:
    """Puts what state_of() has given into an optimizer: options, states, tensors where they are missing.

    :return: what only the optimizer's own load_state_dict() can put there, for load_others()
    :raises ValueError: it has other groups of parameters
    """
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if sizes != given["sizes"]:
        raise ValueError(f"the optimizer has groups of {sizes} parameters, and the state is of one with groups of "
                         f"{given['sizes']}: make the same optimizer on all ranks")
    parameters = _parameters(optimizer)
    made = {}
    for key, value in given["state"].items():
        key = parameters[key] if isinstance(key, int) and 0 <= key < len(parameters) else key
        made[key] = put(value, optimizer.state.get(key), room)
    optimizer.state.clear()
    optimizer.state.update(made)
    for group, options in zip(optimizer.param_groups, given["options"]):
        for name, value in options.items():
            group[name] = put(value, group.get(name), room)
    return put(given["others"], None, room)


@contextlib.contextmanager
def keeping_dictionaries(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """load_state_dict() in this block leaves an optimizer the dictionaries that it has, with what they have then."""
    groups, state = optimizer.param_groups, optimizer.state
    each = list(groups)
    yield
    for group, loaded in zip(each, list(optimizer.param_groups)):
        if group is not loaded:
            group.clear()
            group.update(loaded)
    if optimizer.state is not state:
        state.clear()
        state.update(optimizer.state)
    optimizer.param_groups[:] = each  # which an optimizer inside of this one may have, too
    groups[:] = each
    optimizer.param_groups, optimizer.state = groups, state


def load_others(optimizer: torch.optim.Optimizer, others: Dict[str, Any]) -> None:
    if not others:
        return
    state = dict(optimizer.state)
    with keeping_dictionaries(optimizer):
        optimizer.load_state_dict({**optimizer.state_dict(), **others})
    optimizer.state.update(state)  # the same values, in tensors of their own types
