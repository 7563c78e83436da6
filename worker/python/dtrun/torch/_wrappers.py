"""Tensors of classes that are made of other tensors, as FSDP's extensions and quantized weights are.

torch's own backends get them by its dispatcher, where their class has each operation done with what they are made of.
Methods of a group in Python get them as they are.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Iterator, List

import torch

from ._work import InvalidCall, finished

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _is_plain(given: Any) -> bool:
    """Whether an argument has no tensor of another class, which nearly none has."""
    if isinstance(given, (list, tuple)):
        return all(map(_is_plain, given))
    return type(given) in _PLAIN or not isinstance(given, torch.Tensor)


def _finished(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        return [_finished(each) for each in given]
    return finished(given)


def _tensors(given: Any) -> Iterator[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, (list, tuple)):
        for each in given:
            yield from _tensors(each)


def _parts(tensor: torch.Tensor) -> List[str]:
    """The names of the tensors that it is made of; none: it is not of such a class."""
    if type(tensor) in _PLAIN or not hasattr(tensor, "__tensor_flatten__"):
        return []
    for module in ("torch.distributed.tensor", "torch.distributed._tensor"):  # the second one before torch 2.5
        spread = getattr(sys.modules.get(module), "DTensor", None)
        if spread is not None and isinstance(tensor, spread):
            raise InvalidCall("a DTensor is spread already: give its to_local(), or use its own operations")
    if tensor.layout != torch.strided:  # as of nested tensors, where some parts say how long others are
        raise InvalidCall("unsupported layout: the backend \"dtrun\" is for dense tensors, not for "
                          f"{type(tensor).__name__} of {tensor.layout}: give its parts one by one")
    return list(tensor.__tensor_flatten__()[0])


def _part(given: Any, name: str, is_sum: bool) -> Any:
    if isinstance(given, (list, tuple)):
        return [_part(each, name, is_sum) for each in given]
    if not isinstance(given, torch.Tensor):
        return given
    tensor = given.detach()
    if name not in _parts(tensor):
        raise InvalidCall(f"tensors of an operation have to be of one class: {type(tensor).__name__} has no {name!r}, "
                          "as another one has")
    part = getattr(tensor, name)
    if is_sum and (part.dtype, part.shape) != (given.dtype, given.shape):
        raise InvalidCall(f"{name!r} of {type(tensor).__name__} has another type or shape than the whole, as scales of "
                          "quantized values have, so it has no sum: give the plain tensor for which it stands")
    return part


def for_each_part(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a collective operation of a group: it is done with each of the tensors that its own are made of."""
    is_sum = "reduce" in method.__name__

    @functools.wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        if all(map(_is_plain, given)) and all(map(_is_plain, named.values())):
            return method(self, *given, **named)
        given, named = _finished(given), {key: _finished(value) for key, value in named.items()}
        names = [name for tensor in _tensors([given, list(named.values())]) for name in _parts(tensor)]
        if not names:
            return method(self, *given, **named)
        # All of them are looked at before the first operation starts, which could not be taken back.
        calls = [([_part(argument, name, is_sum) for argument in given],
                  {key: _part(value, name, is_sum) for key, value in named.items()}) for name in dict.fromkeys(names)]
        return [call(self, *parts, **others) for parts, others in calls][-1]  # it fails if one before it has failed
    return call


def understands_parts(*operations: str) -> Callable[[type], type]:
    """Decorates a class of groups that has these operations."""
    def with_parts(made: type) -> type:
        for name in operations:
            setattr(made, name, for_each_part(getattr(made, name)))
        return made
    return with_parts
