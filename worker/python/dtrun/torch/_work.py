"""What operations of the backend of torch.distributed return, and what is checked before they start."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from ._tensors import Started
from ._untraced import untraced

#: torch's own exception for a backend that fails.
BackendError = getattr(dist, "DistBackendError", RuntimeError)


class InvalidCall(ValueError, RuntimeError):
    """An operation that is refused before it starts: a ValueError, and what torch's own backends raise for it, whose
    words programs may look for."""


def timed_out(what: str, seconds: float) -> str:
    """As torch's own backends begin it."""
    return f"{what}: Timed out waiting {1000 * seconds:g}ms"


class CallLimit:
    """A time limit of one call that is shorter than its group's. When it passes the group is ended, whichever step of the
    operation it is in, or between two of them."""

    def __init__(self, seconds: float, end: Callable[[], None]) -> None:
        """:param end: of the group: it fails what is under way, and all that comes"""
        self._end = end
        self._changing = threading.Lock()
        self._is_over = self._has_passed = False
        self._timer = threading.Timer(seconds, self.expire)
        self._timer.daemon = True
        self._timer.start()

    def expire(self) -> None:
        """The time has passed."""
        with self._changing:
            if self._is_over or self._has_passed:
                return
            self._has_passed = True
            self._end()

    def end(self) -> bool:
        """The call is over. :return: its time had passed before"""
        self._timer.cancel()
        with self._changing:
            self._is_over = True
            return self._has_passed


class Message(NamedTuple):
    """What a message is beyond other operations."""

    what: str  # for who waits for it
    limit: Optional[float]  # seconds that it may take; None: any
    give_up: Callable[[str], None]  # ends it, for that reason
    source: Callable[[], int]  # the rank that has sent it


#: Whether torch's C++, which starts functional collectives and those of DDP's reducer, keeps only its own part of a
#: work that it gets: wait() then becomes that of torch's class, which never returns. 2.13 keeps the whole, 2.6 does not.
_MUST_HOLD = tuple(int(number) for number in torch.__version__.split(".")[:2]) < (2, 13)
#: Works that C++ may still ask for their outcome, and nobody in Python has: by their ids, the oldest first.
_held: Dict[int, OperationWork] = {}
#: Who has given up a work without asking must not make it stay for ever.
_HELD_MAX = 1000


@untraced
class OperationWork(Work):
    """An operation that goes on. torch's own Work over a future does not tell that it has failed."""

    _askings = 0  # how often C++ will ask for the outcome, once nobody in Python has the work

    def __init__(self, started: Started, tensors: Sequence[Any], message: Optional[Message] = None) -> None:
        """:param tensors: for result()"""
        super().__init__()
        self._started, self._tensors, self._message = started, tensors, message
        if _MUST_HOLD and message is None:  # functional collectives have no messages
            self._askings = max(1, len(tensors))  # functional collectives ask for each

    def __del__(self) -> None:
        if self._askings > 0:
            self._tensors = ()  # C++ asks for the outcome alone
            _held[id(self)] = self
            if len(_held) > _HELD_MAX:
                _held.pop(next(iter(_held)), None)

    def _asked(self, times: int) -> None:
        self._askings = self._askings - times if id(self) in _held else 0
        if self._askings <= 0:
            _held.pop(id(self), None)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Returns once it is done. :param timeout: 0: none

        :raises DistBackendError: it has failed, or goes on when the time has passed
        """
        seconds = timeout.total_seconds()
        limit = self._message.limit if self._message is not None and seconds <= 0 else None
        if not self._started.wait(seconds if seconds > 0 else limit):
            if limit is not None and self._message is not None:
                self._message.give_up(timed_out(self._message.what, limit))
                return self.wait()
            raise BackendError(timed_out("wait", seconds) + ", and the operation goes on: another rank has not come "
                               "to it, or it needs a longer timeout")
        self._asked(1)
        if self._started.error is not None:
            raise BackendError(str(self._started.error)) from self._started.error
        return True

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Any:
        self._asked(self._askings)
        return self._started.future

    def is_completed(self) -> bool:
        return self._started.is_over

    def is_success(self) -> bool:
        return self._started.is_over and self._started.error is None

    def exception(self) -> Optional[BaseException]:
        return self._started.error

    def result(self) -> List[torch.Tensor]:
        """:raises DistBackendError: as wait()"""
        self.wait()
        return list(self._tensors)

    def source_rank(self) -> int:
        return -1 if self._message is None else self._message.source()

    _source_rank = source_rank


def finished(tensor: Any) -> Any:
    """:return: a plain tensor for the result of a functional collective, once it is there; anything else as it is"""
    functional = sys.modules.get("torch.distributed._functional_collectives")
    if functional is not None and isinstance(tensor, functional.AsyncCollectiveTensor):
        return tensor.trigger_wait()
    return tensor


class Flat:
    """A tensor's elements one behind the other: the tensor itself if they are, else a copy. Of a complex number they
    are its two parts."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu":
            raise InvalidCall("unsupported device type: the backend \"dtrun\" is for tensors in host memory, not on "
                              f"{tensor.device}. It gets those of all devices, also as \"cpu:dtrun,cuda:nccl\": make a "
                              "group for the others with new_group(backend=\"nccl\")")
        if tensor.layout != torch.strided:
            raise InvalidCall("unsupported layout: the backend \"dtrun\" is for dense tensors, and in a sum for sparse "
                              f"ones with coordinates, not for {tensor.layout}")
        tensor = self.given = finished(tensor)
        flat = tensor.detach().resolve_conj().resolve_neg().contiguous()
        if flat.numel() > 0 and flat.data_ptr() == 0:  # of a class that keeps its elements in other tensors
            if hasattr(flat, "__tensor_flatten__"):
                raise InvalidCall(f"a {type(flat).__name__} is made of other tensors: give these one by one")
            plain = torch.empty(flat.shape, dtype=flat.dtype, device="cpu")
            plain.copy_(flat)  # which its class does
            flat = plain
        self.flat = torch.view_as_real(flat) if flat.is_complex() else flat

    def put(self, elements: torch.Tensor) -> None:
        """Gives the tensor other elements, as many as `flat` has."""
        if elements.numel() == 0:  # torch sees no complex numbers in an odd row of nothing
            return
        elements = elements.view(self.flat.shape)
        self.given.detach().copy_(torch.view_as_complex(elements) if self.given.is_complex() else elements)

    def put_back(self) -> None:
        if self.flat.data_ptr() != self.given.data_ptr():
            self.put(self.flat)


def apart(tensors: List[Flat]) -> List[Flat]:
    """Tensors that are there twice get copies, which will be alike."""
    known = set()
    for tensor in tensors:
        if tensor.flat.data_ptr() in known:
            tensor.flat = tensor.flat.clone()
        known.add(tensor.flat.data_ptr())
    return tensors


def one_of(operation: str, given: Sequence[Any], what: str) -> Any:
    """Of a list that torch has for more. :raises InvalidCall: it has not one element"""
    if len(given) != 1:
        raise InvalidCall(f"{operation}: requires a single-element {what}, and this one has {len(given)}")
    return given[0]


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elements of tensors that need not have the same shape."""
    return torch.cat([Flat(part).flat.reshape(-1) for part in parts])


def check_alike(operation: str, tensors: Sequence[torch.Tensor], what: str = "tensor list") -> None:
    """:raises InvalidCall: there is none, or they differ in layout, type or shape"""
    if not tensors:
        raise InvalidCall(f"{operation}: requires non-empty {what}")
    first = tensors[0]
    for place, tensor in enumerate(tensors):
        for name, own, others in (("layout", tensor.layout, first.layout), ("type", tensor.dtype, first.dtype),
                                  ("size", list(tensor.shape), list(first.shape))):
            if own != others:
                raise InvalidCall(f"{operation}: invalid tensor {name} at index {place}: {own}, and the first one has "
                                  f"{others}")


def check_whole(operation: str, whole: Flat, part: Flat, ranks: int) -> None:
    """:raises InvalidCall: the one tensor has not room for one part of each rank, of the same type"""
    if whole.given.dtype != part.given.dtype:
        raise InvalidCall(f"{operation}: invalid tensor type: the tensors have different types, {whole.given.dtype} and "
                          f"{part.given.dtype}")
    if whole.given.numel() != ranks * part.given.numel():
        raise InvalidCall(f"{operation}: invalid tensor size: {ranks} ranks' parts of {part.given.numel()} elements are "
                          f"{ranks * part.given.numel()} elements, and the other tensor has {whole.given.numel()}")


def check_parts(operation: str, parts: Sequence[torch.Tensor], one: torch.Tensor, number: int, what: str) -> None:
    """:param number: of parts that there have to be; :param what: "input" or "output", which they are

    :raises InvalidCall: there are others, or one differs from `one` in length or type
    """
    if len(parts) != number:
        raise InvalidCall(f"{operation}: invalid {what} tensor list. Incorrect {what} list size {len(parts)}. "
                          f"{what.capitalize()} list size should be {number}")
    for place, part in enumerate(parts):
        if part.dtype != one.dtype:
            raise InvalidCall(f"{operation}: invalid tensor type at index {place}: {part.dtype}, and the other one is "
                              f"of {one.dtype}: they have to be the same")
        if part.numel() != one.numel():
            raise InvalidCall(f"{operation}: invalid tensor size; invalid size of {what} tensor at index {place}: "
                              f"{part.numel()} elements, and the other one has {one.numel()}: they have to be the "
                              "same")


def split_by(operation: str, tensor: Flat, splits: Sequence[int], ranks: int) -> List[torch.Tensor]:
    """Rows of a tensor for each rank. :param splits: how many; none: the same for each

    :raises InvalidCall: they are not all rows
    """
    rows = tensor.given.shape[0] if tensor.given.dim() > 0 else 0
    if not splits:
        if tensor.given.dim() == 0 or rows % ranks != 0:
            raise InvalidCall(f"{operation}: {rows} rows cannot be split evenly over {ranks} ranks: give splits")
        splits = [rows // ranks] * ranks
    if len(splits) != ranks or sum(splits) != rows or any(number < 0 for number in splits):
        raise InvalidCall(f"{operation}: splits {list(splits)} are not {rows} rows for {ranks} ranks")
    return list(tensor.flat.split(list(splits)))


def check_rank(operation: str, rank: int, ranks: int, what: str = "root rank") -> int:
    """:raises InvalidCall: there is no such rank"""
    if not 0 <= rank < ranks:
        raise InvalidCall(f"{operation}: invalid {what} {rank}: there are {ranks} ranks, from 0 on")
    return rank
