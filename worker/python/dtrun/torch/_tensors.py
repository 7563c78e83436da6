"""Calls of a dtrun.collectives.Communicator on tensors in host memory, by their address: nothing is copied."""

from __future__ import annotations

import atexit
import ctypes
import queue
import threading
import weakref
from typing import Any, Callable, Optional, Sequence

import torch

from .. import Code, Error
from .._collectives_library import _Compression, _library
from ..collectives import Communicator, _end_operations
from ._coordinator import ALLREDUCE, BROADCAST, dtype_of
from ._untraced import untraced

#: How long the end of the program waits for a thread whose operation was ended.
_END_SECONDS = 5

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
    comm._do(_library.dtrun_allreduce_many, arrays, counts, number, dtype_of(tensors[0], ALLREDUCE), reduce, how,
             feedback)


class TensorCommunicator:
    """A communicator's operations on contiguous tensors."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size

    def _do(self, name: str, *arguments: Any) -> None:
        self.comm._do(getattr(_library, "dtrun_" + name), *arguments)

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
                into.view(-1).copy_(out.view(-1))
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


@untraced
def _value(done: torch.futures.Future) -> Any:
    value, error = done.value()
    if error is not None:
        raise error
    return value


class Started:
    """Something that a thread has been given to do, and what has become of it."""

    def __init__(self, job: Callable[[], Any], thread: Optional[threading.Thread]) -> None:
        """:param thread: which does it, and cannot wait for it; None: whichever"""
        self._job: Optional[Callable[[], Any]] = job
        self._thread = thread
        self._is_over = False
        self._over = threading.Event()
        self._future: torch.futures.Future = torch.futures.Future()
        #: Gets what the job returns, or fails with the text of the exception that it raises.
        # What then() raises is an error for torch's own code, too; set_exception() is one for Python's alone.
        self.future = self._future.then(_value)
        self.value: Any = None
        self.error: Optional[BaseException] = None

    def run(self) -> None:
        """Does it. What waits for the future goes on in this thread before this returns."""
        assert self._job is not None
        try:
            self.value = self._job()
        except Exception as error:  # whoever waits gets it
            self.error = error
        self._end()

    def fail(self, error: BaseException) -> None:
        """It is not done, for that reason."""
        self.error = error
        self._end()

    def _end(self) -> None:
        self._job = None  # and with it the tensors that it has held
        self._is_over = True  # for functions that wait for the future, which run now
        self._future.set_result((self.value, self.error))
        self._over.set()

    @property
    def is_over(self) -> bool:
        return self._is_over

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until it is over, in which signal handlers run. :return: False: the time has passed before

        :raises RuntimeError: it cannot be done before the function has ended that now waits for it
        """
        if threading.current_thread() is self._thread:
            if not self.is_over:
                raise RuntimeError("a function that was given to then() waits for an operation that comes after it: "
                                   "return its future instead")
            return True
        return self._over.wait(timeout)


class InOrder:
    """A thread that does what it is given in that order, and completes torch's futures.

    What it is given by functions that wait for those futures, which run in this thread, is done at once: behind
    the operation that they have waited for and before all that others have given, thus in the same order on all
    ranks.
    """

    def __init__(self, name: str) -> None:
        self._jobs: "queue.SimpleQueue[Optional[Started]]" = queue.SimpleQueue()
        self._is_closed = False
        self._closing = threading.Lock()  # so that nothing comes behind the end of the queue
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        end_with_program(self)

    def start(self, job: Callable[[], Any]) -> Started:
        """Has it done; if this was closed, it fails."""
        started = Started(job, self._thread)
        with self._closing:
            is_closed, is_own = self._is_closed, threading.current_thread() is self._thread
            if not is_closed and not is_own:
                self._jobs.put(started)
        if is_closed:
            started.fail(Error(Code.CLOSED, "the communicator is closed: destroy_process_group() or close() was "
                               "called before"))
        elif is_own:
            started.run()
        return started

    def submit(self, job: Callable[[], Any]) -> torch.futures.Future:
        """:return: gets what `job` returns, or fails with the text of the exception that it raises"""
        return self.start(job).future

    def close(self, timeout: Optional[float] = None) -> None:
        """Waits for what was given. May be called again. :param timeout: seconds; None: none"""
        with self._closing:
            if not self._is_closed:
                self._jobs.put(None)
            self._is_closed = True
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            started = self._jobs.get()
            if started is None:
                return
            started.run()
            del started


_threads: "weakref.WeakSet[Any]" = weakref.WeakSet()


def end_with_program(owner: Any) -> None:
    """:param owner: of threads, with a close(timeout)"""
    _threads.add(owner)


def _end_threads() -> None:
    """At the end of the program: no thread is to be in torch or in the library when the interpreter goes."""
    _end_operations()
    for thread in list(_threads):
        thread.close(_END_SECONDS)


atexit.register(_end_threads)
