"""What operations of the backend of torch.distributed return, and what is checked before they start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from ._tensors import Started

#: torch's own exception for a backend that fails.
BackendError = getattr(dist, "DistBackendError", RuntimeError)


class Message(NamedTuple):
    """What a message is beyond other operations."""

    what: str  # for who waits for it
    limit: Optional[float]  # seconds that it may take; None: any
    give_up: Callable[[str], None]  # ends it, for that reason
    source: Callable[[], int]  # the rank that has sent it


class OperationWork(Work):
    """An operation that goes on. torch's own Work over a future does not tell that it has failed."""

    def __init__(self, started: Started, tensors: Sequence[Any], message: Optional[Message] = None) -> None:
        """:param tensors: for result()"""
        super().__init__()
        self._started, self._tensors, self._message = started, tensors, message

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Returns once it is done. :param timeout: 0: none

        :raises DistBackendError: it has failed, or goes on when the time has passed
        """
        seconds = timeout.total_seconds()
        limit = self._message.limit if self._message is not None and seconds <= 0 else None
        if not self._started.wait(seconds if seconds > 0 else limit):
            if limit is not None and self._message is not None:
                self._message.give_up(f"{self._message.what} took longer than {limit:g} s")
                return self.wait()
            raise BackendError(f"the operation goes on after {seconds:g} s: another rank has not come to it, or "
                               "it needs a longer timeout")
        if self._started.error is not None:
            raise BackendError(str(self._started.error)) from self._started.error
        return True

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Any:
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


class Flat:
    """A tensor's elements one behind the other: the tensor itself if they are, else a copy. Of a complex number they
    are its two parts."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu":
            raise ValueError(f"the backend \"dtrun\" is for tensors in host memory, not on {tensor.device}. It "
                             "gets those of all devices, also as \"cpu:dtrun,cuda:nccl\": make a group for the "
                             "others with new_group(backend=\"nccl\")")
        if tensor.layout != torch.strided:
            raise ValueError(f"the backend \"dtrun\" is for dense tensors, not for layout {tensor.layout}")
        self.given = tensor
        flat = tensor.detach().resolve_conj().resolve_neg().contiguous()
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


def flat_of(tensors: Sequence[torch.Tensor]) -> Flat:
    """Of an operation for one tensor, which torch gives in a list."""
    if len(tensors) != 1:
        raise ValueError(f"the backend \"dtrun\" takes one tensor here, not {len(tensors)}")
    return Flat(tensors[0])


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elements of tensors that need not have the same shape."""
    return torch.cat([Flat(part).flat.reshape(-1) for part in parts])


def check_whole(operation: str, whole: Flat, part: Flat, ranks: int) -> None:
    """:raises ValueError: the one tensor has not room for one part of each rank, of the same type"""
    if whole.given.dtype != part.given.dtype:
        raise ValueError(f"{operation}: the tensors have different types, {whole.given.dtype} and "
                         f"{part.given.dtype}")
    if whole.given.numel() != ranks * part.given.numel():
        raise ValueError(f"{operation}: {ranks} ranks' parts of {part.given.numel()} elements are "
                         f"{ranks * part.given.numel()} elements, and the other tensor has {whole.given.numel()}")


def check_parts(operation: str, parts: Sequence[torch.Tensor], one: Flat, ranks: int) -> None:
    """:raises ValueError: the list has not one tensor for each rank, as long as `one` and of its type"""
    if len(parts) != ranks:
        raise ValueError(f"{operation}: the list has {len(parts)} tensors for {ranks} ranks")
    for rank, part in enumerate(parts):
        if (part.numel(), part.dtype) != (one.given.numel(), one.given.dtype):
            raise ValueError(f"{operation}: the tensor for rank {rank} has {part.numel()} elements of "
                             f"{part.dtype}, and the other one {one.given.numel()} of {one.given.dtype}: they have "
                             "to be the same")


def split_by(operation: str, tensor: Flat, splits: Sequence[int], ranks: int) -> List[torch.Tensor]:
    """Rows of a tensor for each rank. :param splits: how many; none: the same for each

    :raises ValueError: they are not all rows
    """
    rows = tensor.given.shape[0] if tensor.given.dim() > 0 else 0
    if not splits:
        if tensor.given.dim() == 0 or rows % ranks != 0:
            raise ValueError(f"{operation}: {rows} rows cannot be split evenly over {ranks} ranks: give splits")
        splits = [rows // ranks] * ranks
    if len(splits) != ranks or sum(splits) != rows or any(number < 0 for number in splits):
        raise ValueError(f"{operation}: splits {list(splits)} are not {rows} rows for {ranks} ranks")
    return list(tensor.flat.split(list(splits)))


def check_rank(operation: str, rank: int, ranks: int) -> int:
    """:raises ValueError: there is no such rank"""
    if not 0 <= rank < ranks:
        raise ValueError(f"{operation}: there is no rank {rank} among {ranks}")
    return rank
