"""Tensors of classes that are made of other tensors, as FSDP's extensions and quantized weights are.

torch's own backends get them by its dispatcher, where their class has each operation done with what they are made of.
Methods of a group in Python get them as they are.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, List

import torch

from ._work import InvalidCall

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _first(given: Any) -> Any:
    """A tensor of lists of them, or what is in its place."""
    while isinstance(given, (list, tuple)) and given:
        given = given[0]
    return given


def _parts(tensor: Any) -> List[str]:
    """The names of the tensors that it is made of; none: it is not of such a class."""
    if type(tensor) in _PLAIN or not hasattr(tensor, "__tensor_flatten__"):
        return []
    whole = sys.modules.get("torch.distributed.tensor")
    if whole is not None and isinstance(tensor, whole.DTensor):
        raise InvalidCall("a DTensor is spread already: give its to_local(), or use its own operations")
    tensor = tensor.detach()  # a result that is not there yet becomes a plain tensor
    return list(tensor.__tensor_flatten__()[0]) if hasattr(tensor, "__tensor_flatten__") else []


def _part(given: Any, name: str) -> Any:
    if isinstance(given, (list, tuple)):
        return [_part(each, name) for each in given]
    if not isinstance(given, torch.Tensor):
        return given
    tensor = given.detach()
    if name not in _parts(tensor):
        raise InvalidCall(f"tensors of an operation have to be of one class: {type(tensor).__name__} has no {name!r}, "
                          "as another one has")
    return getattr(tensor, name)


def for_each_part(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a collective operation of a group: it is done with each of the tensors that its own are made of."""
    @functools.wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        names = [name for argument in given[:2] for name in _parts(_first(argument))]
        if not names:
            return method(self, *given, **named)
        work = None
        for name in dict.fromkeys(names):
            work = call(self, *(_part(argument, name) for argument in given), **named)
        return work  # the last one, which fails if one before it has failed
    return call


def understands_parts(*operations: str) -> Callable[[type], type]:
    """Decorates a class of groups that has these operations."""
    def with_parts(made: type) -> type:
        for name in operations:
            setattr(made, name, for_each_part(getattr(made, name)))
        return made
    return with_parts
