"""What an optimizer knows, sent to and put into other ones without replacing the dictionaries and tensors there.

A scheduler that was made for an optimizer before this was wrapped holds its dictionaries; load_state_dict() replaces
them, and casts what an optimizer keeps in 32 bits for parameters of 16.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import torch


class Place:
    """Stands for a tensor that is sent by itself."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype, self.device = tuple(tensor.shape), tensor.dtype, tensor.device.type
        self.stride = torch.empty_like(tensor).stride()  # of one that has no gaps

    def new_tensor(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


Taken = Dict[int, Tuple[torch.Tensor, Place]]


def take_tensors(value: Any, taken: Taken) -> Any:
    """A copy of nested containers with a Place for each tensor; the same for one that is there twice."""
    if torch.is_tensor(value):
        return taken.setdefault(id(value), (value, Place(value)))[1]
    if isinstance(value, dict):
        return {key: take_tensors(item, taken) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(take_tensors(item, taken) for item in value)
    return value


#: Has the values of the second, a tensor or a Place, put into the first, now or later.
Fill = Callable[[torch.Tensor, Any], None]


def copy_into(room: torch.Tensor, like: torch.Tensor) -> None:
    with torch.no_grad():
        room.copy_(like)


class Rooms:
    """Finds a tensor for each one of another optimizer: what is there, if its values fit into it, or a new one.

    What was one tensor there is one here; and what was several is several, even if it was one here.
    """

    def __init__(self, fill: Fill) -> None:
        self._fill = fill
        self._found: Dict[int, Tuple[Any, torch.Tensor]] = {}  # by what is to be put there
        self._used: Set[int] = set()
        self.parameter: Optional[torch.Tensor] = None  # to which the tensors belong

    def __call__(self, like: Any, existing: Any) -> torch.Tensor:
        if id(like) not in self._found:
            room = existing if self._fits(like, existing) else self._new(like)
            self._used.add(_memory(room))
            self._found[id(like)] = like, room
            self._fill(room, like)
        return self._found[id(like)][1]

    def _fits(self, like: Any, existing: Any) -> bool:
        if not torch.is_tensor(existing) or _memory(existing) in self._used:
            return False
        if (tuple(existing.shape), existing.dtype) != (tuple(like.shape), like.dtype):
            return False
        return not self._is_of_parameter(like) or existing.stride() == torch.empty_like(self.parameter).stride()

    def _is_of_parameter(self, like: Any) -> bool:
        return self.parameter is not None and tuple(like.shape) == tuple(self.parameter.shape)

    def _new(self, like: Any) -> torch.Tensor:
        """In the layout of its parameter: fused optimizers go by the order in memory."""
        if self._is_of_parameter(like):
            return torch.empty_like(self.parameter, dtype=like.dtype, device=like.device, requires_grad=False)
        return like.new_tensor() if isinstance(like, Place) else torch.empty_like(like)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.data_ptr() or id(tensor)


def put(value: Any, existing: Any, room: Rooms) -> Any:
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


def put_state(optimizer: torch.optim.Optimizer, given: Dict[str, Any], fill: Fill) -> Dict[str, Any]:
    """Puts what state_of() has given into an optimizer: options, states, tensors where they are missing.

    :return: what only the optimizer's own load_state_dict() can put there, for load_others()
    :raises ValueError: it has other groups of parameters
    """
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if sizes != given["sizes"]:
        raise ValueError(f"the optimizer has groups of {sizes} parameters, and the state is of one with groups of "
                         f"{given['sizes']}: make the same optimizer on all ranks")
    parameters, room = _parameters(optimizer), Rooms(fill)
    made = {}
    for key, value in given["state"].items():
        key = parameters[key] if isinstance(key, int) and 0 <= key < len(parameters) else key
        room.parameter = key if torch.is_tensor(key) else None
        made[key] = put(value, optimizer.state.get(key), room)
    room.parameter = None
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
