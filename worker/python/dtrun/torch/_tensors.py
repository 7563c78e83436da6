"""Calls of a dtrun.collectives.Communicator on tensors in host memory, by their address: nothing is copied."""

from __future__ import annotations

import ctypes
import queue
import threading
from typing import Any, Callable, Optional, Sequence, Tuple

import torch

from .._collectives_library import _check, _Compression, _library
from ..collectives import Communicator
from ._coordinator import ALLREDUCE, BROADCAST, dtype_of

SUM, PRODUCT, MIN, MAX, AVERAGE = range(5)


def reduce_many(comm: Communicator, tensors: Sequence[torch.Tensor], reduce: int, format: int = 0,
                stochastic: bool = False, errors: Optional[Sequence[Optional[torch.Tensor]]] = None) -> None:
    """Allreduce of contiguous tensors of one type, in place, as one.

    :param errors: for error feedback, one for each tensor
    """
    number = len(tensors)
    if number == 0:
        return
    arrays = (ctypes.c_void_p * number)(*[tensor.data_ptr() for tensor in tensors])
    counts = (ctypes.c_size_t * number)(*[tensor.numel() for tensor in tensors])
    how = _Compression(ctypes.sizeof(_Compression), format, int(stochastic), None) if format else None
    feedback = None
    if errors is not None:
        feedback = (ctypes.c_void_p * number)(*[None if e is None else e.data_ptr() for e in errors])
    _check(_library.dtrun_allreduce_many(comm._get(), arrays, counts, number, dtype_of(tensors[0], ALLREDUCE),
                                         reduce, how, feedback))


class TensorCommunicator:
    """A communicator's operations on contiguous tensors."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size

    def _do(self, name: str, *arguments: Any) -> None:
        _check(getattr(_library, "dtrun_" + name)(self.comm._get(), *arguments))

    def reduce(self, tensor: torch.Tensor, reduce: int, root: int) -> None:
        out = tensor.data_ptr() if self.rank == root else None
        self._do("reduce_to", tensor.data_ptr(), out, tensor.numel(), dtype_of(tensor, ALLREDUCE), reduce,
                 root)

    def reduce_scatter(self, source: torch.Tensor, target: torch.Tensor, reduce: int) -> None:
        self._do("reduce_scatter", source.data_ptr(), target.data_ptr(), target.numel(),
                 dtype_of(source, ALLREDUCE), reduce)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        self._do("broadcast", tensor.data_ptr(), tensor.numel(), dtype_of(tensor, BROADCAST), root)

    def allgather(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self._do("allgather", source.data_ptr(), target.data_ptr(), source.numel(),
                 dtype_of(source, BROADCAST))

    def gather(self, source: torch.Tensor, target: Optional[torch.Tensor], root: int) -> None:
        out = None if target is None else target.data_ptr()
        self._do("gather", source.data_ptr(), out, source.numel(), dtype_of(source, BROADCAST), root)

    def scatter(self, source: Optional[torch.Tensor], target: torch.Tensor, root: int) -> None:
        given = None if source is None else source.data_ptr()
        self._do("scatter", given, target.data_ptr(), target.numel(), dtype_of(target, BROADCAST), root)

    def alltoall(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self._do("alltoall", source.data_ptr(), target.data_ptr(), source.numel() // self.size,
                 dtype_of(source, BROADCAST))

    def exchange(self, sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
        """sources[i] goes to rank i, targets[i] comes from it. Both ends know the sizes; none sends nothing."""
        for step in range(self.size):
            to, source = (self.rank + step) % self.size, (self.rank - step) % self.size
            out, into = sources[to], targets[source]
            if step == 0:
                into.copy_(out)
            elif out.numel() and into.numel():
                self._do("sendrecv", out.data_ptr(), out.numel(), to, into.data_ptr(), into.numel(), source,
                         dtype_of(out, BROADCAST))
            elif out.numel():
                self.send(out, to)
            elif into.numel():
                self.recv(into, source)

    def send(self, tensor: torch.Tensor, to: int) -> None:
        self._do("send", tensor.data_ptr(), tensor.numel(), dtype_of(tensor, BROADCAST), to)

    def recv(self, tensor: torch.Tensor, source: int) -> None:
        self._do("recv", tensor.data_ptr(), tensor.numel(), dtype_of(tensor, BROADCAST), source)

    def barrier(self) -> None:
        self._do("comm_barrier")


def _value(done: torch.futures.Future) -> Any:
    value, error = done.value()
    if error is not None:
        raise error
    return value


class InOrder:
    """A thread that does what it is given in that order, and completes torch's futures."""

    def __init__(self, name: str) -> None:
        self._jobs: "queue.SimpleQueue[Optional[Tuple[torch.futures.Future, Callable[[], Any]]]]" = (
            queue.SimpleQueue())
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Any]) -> torch.futures.Future:
        """:return: gets what `job` returns, or fails with the text of the exception that it raises"""
        future: torch.futures.Future = torch.futures.Future()
        # What then() raises is an error for torch's own code, too; set_exception() is one for Python's alone.
        result = future.then(_value)
        self._jobs.put((future, job))
        return result

    def close(self) -> None:
        """Waits for what was given."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            try:
                result = (job[1](), None)
            except Exception as error:  # whoever waits for the future gets it
                result = (None, error)
            job[0].set_result(result)
            del job, result
