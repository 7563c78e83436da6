"""Collective operations of a job's ranks on NumPy arrays and on arrays of a GPU, over one of several libraries.

    import dtrun, numpy
    from dtrun.collectives import Communicator

    with dtrun.Worker() as worker, Communicator(worker) as comm:
        gradients = numpy.ones(1000, numpy.float32)
        comm.allreduce(gradients, op="average")                     # in place
        comm.allreduce(gradients, op="average", compression="int8")
        total = comm.allreduce(gradients, op="sum", out=numpy.empty_like(gradients))

Over the library libdtrun_collectives.so.0 by ctypes; docs/COLLECTIVES.md and <dtrun_collectives.h> say
more about each function. Every rank calls the same operations in the same order. Whatever has the buffer
protocol is an array (NumPy's, torch's through .numpy(), array.array), as long as its elements lie one
behind the other; an ml_dtypes.bfloat16 array is one too. Other threads run while a call waits.

A communicator with device_memory=True takes what has __cuda_array_interface__ instead: torch's tensors on a
GPU, CuPy's arrays. Operations come after what was given before to the stream that is torch's current one, that the
array's interface names, or that `stream` names; when they return, or a future has its result, they are over on
the GPU.

The library is the one that was installed with this package, else the loader's (LIBDTRUN_COLLECTIVES_PATH
names another).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import weakref
from threading import get_ident
from types import TracebackType
from typing import Any, List, Optional, Sequence, Set, Tuple, Type

from . import Code, Error, Worker, _failure_of
from ._arrays import _Array, _check_apart, _check_streams, _DeviceArray, _handle_of, _invalid
from ._collectives_library import _check, _Compression, _library, _Options
from ._future import Future
from ._threads_inside import ThreadsInside
from ._words import FORMAT_OF, REDUCTIONS

__all__ = ["Bucket", "Communicator", "Future"]

#: How long the end of the program waits for threads whose operations were ended.
_GIVE_UP_SECONDS = 5
_communicators: "weakref.WeakSet[Communicator]" = weakref.WeakSet()


def _reduction(op: str, *arrays: _Array) -> int:
    if op not in REDUCTIONS:
        raise _invalid(f"op is one of {', '.join(REDUCTIONS)}, not {op!r}")
    if op not in ("min", "max", "product") and any(array.is_bool for array in arrays):
        raise _invalid(f"op for bools is min, max or product, not {op!r}")
    return REDUCTIONS.index(op)


def _compression(name: Optional[str], stochastic: bool, error: Optional[_Array], count: int,
                 always: bool) -> Optional[_Compression]:
    if name is None or name == "none":
        return None
    if name not in FORMAT_OF:
        raise _invalid(f"compression is one of {', '.join(FORMAT_OF)}, not {name!r}")
    if error is not None and (error.dtype != 0 or error.count != count):
        raise _invalid(f"error has to be {count} float32, like the array")
    return _Compression(ctypes.sizeof(_Compression), FORMAT_OF[name], int(stochastic),
                        error.address if error else None, int(always))


def _limit_ms(seconds: Optional[float]) -> int:
    """The C interface takes 0 for no limit, which a time that is used up must not become."""
    return 0 if seconds is None else max(1, round(min(seconds, 1e9) * 1000))


def _stall_ms(seconds: Optional[float]) -> int:
    if seconds is None:
        return 0
    return max(1, round(seconds * 1000)) if seconds > 0 else -1


class Bucket:
    """Many arrays of one type that are reduced together, time and again, as one as long as all of them."""

    def __init__(self, comm: "Communicator", arrays: Sequence[Any], errors: Optional[Sequence[Any]] = None) -> None:
        """:param errors: float32, each as long as its array, zeros at first: for error feedback"""
        given = [comm._array(array, writable=True) for array in arrays]
        if any(array.dtype != given[0].dtype for array in given):
            raise _invalid("the arrays have elements of different types")
        _check_streams(*given)
        _check_apart(given, "arrays")
        kept = [comm._array(error, writable=True) for error in errors or ()]
        if kept and [(e.count, e.dtype) for e in kept] != [(a.count, 0) for a in given]:
            raise _invalid("errors have to be float32, each as long as its array")
        number = len(given)
        self._kind = next((array for array in given if array.is_bool), given[0] if given else None)
        self._comm, self._keep, self._sample = comm, (given, kept), next(iter(arrays), None)
        self._pointers = (ctypes.c_void_p * number)(*[array.address for array in given])
        self._counts = (ctypes.c_size_t * number)(*[array.count for array in given])
        self._feedback = (ctypes.c_void_p * number)(*[error.address for error in kept]) if kept else None

    def allreduce(self, op: str = "sum", compression: Optional[str] = None, stochastic: bool = False,
                  always: bool = False) -> None:
        """In place; compression is as in Communicator.allreduce()."""
        if self._kind is None:
            return
        if self._comm._kind is _DeviceArray:
            self._comm._array(self._sample, writable=True)  # in the stream in which it is worked on now
        how = _compression(compression, stochastic, None, 0, always)
        self._comm._do(_library.dtrun_allreduce_many, self._pointers, self._counts, len(self._counts),
                       self._kind.dtype, _reduction(op, self._kind), how,
                       self._feedback if how is not None else None)


class Communicator:
    """A group of ranks that communicate. Use it in a `with` statement inside the worker's, or call close().

    :raises Error: everywhere PEER_LOST (names the rank), CANCELLED, TimedOut, INVALID, INTERNAL, FORKED; when it
        is made also NOT_FOUND and REFUSED
    """

    def __init__(self, worker: Worker, backend: str = "auto", timeout: float = 300,
                 operation_timeout: Optional[float] = None, interfaces: str = "",
                 device_memory: bool = False, device: Optional[int] = None,
                 ranks: Optional[Sequence[int]] = None, name: str = "", stall_after: Optional[float] = None) -> None:
        """All ranks of the worker call it, in the same order if they make several; or `ranks` alone, in any order.

        :param backend: "auto", or a backend's name, as docs/COLLECTIVES.md lists them
        :param timeout: seconds until all have come
        :param operation_timeout: seconds that one operation may take; None: as long as it likes
        :param interfaces: network interfaces or an address, separated by commas; "": the launcher's
        :param device_memory: arrays are in memory of the current GPU, as they are with "nccl"
        :param device: the number of another GPU than docs/COLLECTIVES.md says
        :param ranks: of the job, with this one, in the order that they have in the communicator; None: all ranks
        :param name: what `ranks` call it, which no other communicator of the job has ever
        :param stall_after: seconds until ranks that do not come to an operation are told; 0 or less: never; None: as
            HOROVOD_STALL_CHECK_TIME_SECONDS says, else 60
        """
        if device is not None and device < 0:
            raise _invalid(f"device is the number of a GPU, from 0 on, not {device}")
        if ranks is not None and any(not 0 <= rank < worker.world_size for rank in ranks):
            raise _invalid(f"ranks are some of 0 to {worker.world_size - 1}, not {list(ranks)}")
        on_device = device_memory or backend == "nccl"
        options = _Options(ctypes.sizeof(_Options), backend.encode(), max(1, round(timeout * 1000)),
                           _limit_ms(operation_timeout), interfaces.encode() or None,
                           int(on_device), 0 if device is None else device + 1,
                           *(ctypes.cast(getattr(ctypes.pythonapi, function), ctypes.c_void_p)
                             for function in ("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals")),
                           (ctypes.c_uint32 * len(ranks))(*ranks) if ranks is not None else None,
                           0 if ranks is None else len(ranks), name.encode(), _stall_ms(stall_after))
        comm = ctypes.c_void_p()
        _check(_library.dtrun_comm_create(worker._get(), ctypes.byref(options), ctypes.byref(comm)))
        self._take(comm, worker, _DeviceArray if on_device else _Array, None)

    def _take(self, comm: ctypes.c_void_p, worker: Worker, kind: Type[_Array], stream: Optional[int]) -> None:
        self._comm: Optional[ctypes.c_void_p] = comm
        self._worker = worker  # outlives us
        self._kind, self._stream = kind, stream
        self._inside = ThreadsInside()
        self._awaiting = ThreadsInside()  # those in a future's result(), between two looks of which handlers run
        self._started: Set[int] = set()  # futures of operations that go on, by id()
        self._kept: List[Tuple[ctypes.c_void_p, Any]] = []  # requests that nobody waits for, and their memory
        self._closed_inside: List[ctypes.c_void_p] = []  # at most one, which is freed when nobody is inside of it
        self._process = os.getpid()
        worker._add_user(self)
        _communicators.add(self)

    def _part(self, comm: ctypes.c_void_p) -> "Communicator":
        made = type(self).__new__(type(self))
        made._take(comm, self._worker, self._kind, self._stream)
        return made

    def close(self) -> None:
        """Waits for what was started, also by other threads; may be called again.

        In a signal handler that has interrupted an operation of the communicator, or of the worker's others, or the
        result() of a future of them, that ends with CANCELLED, and on the others with PEER_LOST.
        """
        comm = self._comm
        if comm is None:
            return
        if self._process == os.getpid() and self._inside.has_this():
            self._worker._hold(self)
            self._inside.is_awaited = True
            self._closed_inside.append(comm)
            if self.backend != "mpi":  # which cannot be interrupted, so that no handler runs inside of it
                _library.dtrun_comm_abort(comm, b"it was closed in the middle of an operation")
            self._comm = None
            return
        if self._process == os.getpid() and self._awaiting.has_this() and self.backend != "mpi":
            # What this thread waits for may wait for ranks that never come.
            _library.dtrun_comm_abort(comm, b"it was closed while it was waited for")
        self._comm = None
        self._worker._drop_user(self)
        if self._process == os.getpid():  # a forked child does not have the other threads
            self._inside.wait_for_others()
        self._free(comm)

    def _free(self, comm: ctypes.c_void_p) -> None:
        _library.dtrun_comm_free(comm)
        for request, _ in self._kept:
            _library.dtrun_request_wait(request, -1, None)
        self._kept.clear()

    def _left(self) -> None:
        """This thread has left the library, which somebody waits for."""
        self._inside.tell()
        if not self._closed_inside or self._inside.has_this():
            return
        try:
            comm = self._closed_inside.pop()
        except IndexError:  # another thread has it
            return
        self._inside.wait_for_others()
        self._free(comm)
        self._worker._let_go(self)

    def _keep_until_done(self, request: ctypes.c_void_p, memory: Any) -> None:
        """For a future that nobody has any more, and that cannot wait where it is."""
        self._kept.append((request, memory))

    def give_up(self, why: str) -> None:
        """Ends what is under way, if something is: the program has failed, and nobody here will wait for it."""
        if self._comm is not None and self.backend != "mpi":  # which would end before it has said why
            self._end(why, also_started=True)

    def _end(self, why: str, also_started: bool) -> None:
        """:param also_started: also what goes on without a thread of this program"""
        if self._comm is None or self._process != os.getpid():
            return
        if self._inside.has_others() or (also_started and self._started):
            _library.dtrun_comm_abort(self._comm, why.encode())
            self._inside.wait_for_others(_GIVE_UP_SECONDS)

    def __del__(self) -> None:
        if getattr(self, "_comm", None) is not None:
            self.close()

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        failure = _failure_of(error)
        if failure is not None:
            self.give_up(failure)  # others need not wait for this rank, nor it for them
        self.close()

    def _do(self, function: Any, *arguments: Any) -> None:
        """Calls a function of the library for this communicator. :raises Error:"""
        inside, own = self._inside, get_ident()
        inside.threads.append(own)  # as `with inside` does, which takes longer than a small operation
        try:
            code = function(self._get(), *arguments)
        finally:
            inside.threads.remove(own)
            if inside.is_awaited:
                self._left()
        if code != 0:
            _check(code)

    def _get(self) -> ctypes.c_void_p:
        if self._comm is None:
            raise Error(Code.CLOSED, "the communicator is closed")
        self._worker._get()  # raises once that is closed, too
        return self._comm

    @property
    def stream(self) -> Optional[int]:
        """The stream of the GPU in which arrays are worked on, as an address; None: as the arrays say."""
        return self._stream

    @stream.setter
    def stream(self, stream: Any) -> None:
        """:param stream: an address (0: the default stream), torch's Stream, CuPy's Stream, or None"""
        self._stream = _handle_of(stream)

    def _array(self, array: Any, writable: bool) -> _Array:
        """What the library needs to know of an array, after it was told in which stream this is worked on."""
        made = self._kind(array, writable)
        if self._kind is _DeviceArray:
            if self._stream is not None:
                made.stream = self._stream
            _check(_library.dtrun_comm_set_stream(self._get(), made.stream or None))
        return made

    def split(self, colour: int, key: int = 0) -> Optional["Communicator"]:
        """Ranks of the same colour, ordered by key; None with a negative colour."""
        if not all(-2**31 <= number < 2**31 for number in (colour, key)):
            raise _invalid(f"colour and key have 32 bits; {colour} and {key} have not")
        comm = ctypes.c_void_p()
        self._do(_library.dtrun_comm_split, colour, key, ctypes.byref(comm))
        return self._part(comm) if comm.value is not None else None

    def split_by_host(self) -> "Communicator":
        comm = ctypes.c_void_p()
        self._do(_library.dtrun_comm_split_by_host, ctypes.byref(comm))
        return self._part(comm)

    def abort(self, why: str) -> None:
        """Ends what other threads and ranks have under way; from any thread."""
        _library.dtrun_comm_abort(self._get(), why.encode())

    def set_operation_timeout(self, seconds: Optional[float]) -> None:
        """How long an operation may take from now on, also one that is under way; None: as long as it likes.

        :param seconds: 0 or less, a time that is used up, ends an operation at the next look, within two seconds
        """
        _check(_library.dtrun_comm_set_operation_timeout(self._get(), _limit_ms(seconds)))

    @property
    def rank(self) -> int:
        return _library.dtrun_comm_rank(self._get())

    @property
    def size(self) -> int:
        return _library.dtrun_comm_size(self._get())

    @property
    def backend(self) -> str:
        return _library.dtrun_comm_backend(self._get()).decode()

    @property
    def why(self) -> str:
        """Why this backend."""
        return _library.dtrun_comm_why(self._get()).decode(errors="replace")

    @property
    def facts(self) -> str:
        """"name: value" lines of the backend and its network."""
        return _library.dtrun_comm_facts(self._get()).decode(errors="replace")

    def _two(self, array: Any, out: Any) -> Tuple[_Array, _Array, Any]:
        given = self._array(array, writable=out is None)
        if out is None:
            return given, given, array
        taken = self._array(out, writable=True)
        if taken.dtype != given.dtype:
            raise _invalid("array and out have elements of different types")
        _check_streams(given, taken)
        return given, taken, out

    def _same(self, array: Any, out: Any) -> Tuple[_Array, _Array, Any]:
        given, taken, value = self._two(array, out)
        if taken.count != given.count:
            raise _invalid(f"array has {given.count} elements, out {taken.count}")
        return given, taken, value

    def _parts(self, whole: _Array, part: _Array, names: str) -> None:
        if whole.count != part.count * self.size or whole.dtype != part.dtype:
            raise _invalid(f"{names} have {whole.count} and {part.count} elements: with {self.size} ranks "
                           f"the one has to be {self.size} times the other, of the same type")

    def allreduce(self, array: Any, op: str = "sum", out: Any = None, compression: Optional[str] = None,
                  stochastic: bool = False, error: Any = None, always: bool = False) -> Any:
        """Of all ranks' arrays, the same bits on every one; in place unless `out` is given.

        :param compression: for sum or average of float32, float16 and bfloat16 (on a GPU float32 alone): "fp16",
            "bf16", "fp8-e4m3", "fp8-e5m2", "int8". What stays on a host, small arrays, and what is faster so, as the first
            calls try, travel in full
        :param stochastic: round at random, unbiased
        :param error: float32, as long as the array, zeros at first: for error feedback
        :param always: compress also on one host and however little it is, to study a format
        """
        given, taken, value = self._same(array, out)
        kept = None if error is None else self._array(error, writable=True)
        how = _compression(compression, stochastic, kept, given.count, always)
        self._do(_library.dtrun_allreduce, given.address, taken.address, given.count, given.dtype,
                 _reduction(op, given), how)
        return value

    def start_allreduce(self, array: Any, op: str = "sum", out: Any = None, compression: Optional[str] = None,
                        stochastic: bool = False, error: Any = None, always: bool = False) -> Future:
        """As allreduce(), which goes on while the caller computes."""
        given, taken, value = self._same(array, out)
        kept = None if error is None else self._array(error, writable=True)
        how = _compression(compression, stochastic, kept, given.count, always)
        future = Future(self, (given, taken, kept), value)
        return future.begin(_library.dtrun_allreduce_start, given.address, taken.address, given.count, given.dtype,
                            _reduction(op, given), how)

    def allreduce_many(self, arrays: Sequence[Any], op: str = "sum", compression: Optional[str] = None,
                       stochastic: bool = False, errors: Optional[Sequence[Any]] = None,
                       always: bool = False) -> None:
        """Many arrays of one type, in place, as fast as one that is as long as all of them."""
        self.bucket(arrays, errors).allreduce(op, compression, stochastic, always)

    def bucket(self, arrays: Sequence[Any], errors: Optional[Sequence[Any]] = None) -> "Bucket":
        """Arrays that are reduced together again and again, as gradients are: looked at once."""
        return Bucket(self, arrays, errors)

    def reduce(self, array: Any, op: str = "sum", root: int = 0, out: Any = None) -> Any:
        """To the root, in place there unless `out` is given."""
        if self.rank != root:
            given = self._array(array, writable=False)
            self._do(_library.dtrun_reduce_to, given.address, None, given.count, given.dtype,
                     _reduction(op, given), root)
            return None
        given, taken, value = self._same(array, out)
        self._do(_library.dtrun_reduce_to, given.address, taken.address, given.count, given.dtype,
                 _reduction(op, given), root)
        return value

    def reduce_scatter(self, array: Any, out: Any, op: str = "sum", compression: Optional[str] = None,
                       stochastic: bool = False, error: Any = None, always: bool = False) -> Any:
        """Each rank gets its part of the reduced array, which is `size` times as long as `out`.

        Compression is as in allreduce(); `error` is as long as the array.
        """
        given, taken, value = self._two(array, out)
        self._parts(given, taken, "array and out")
        kept = None if error is None else self._array(error, writable=True)
        how = _compression(compression, stochastic, kept, given.count, always)
        if how is None:
            self._do(_library.dtrun_reduce_scatter, given.address, taken.address, taken.count, given.dtype,
                     _reduction(op, given))
        else:
            self._do(_library.dtrun_reduce_scatter_compressed, given.address, taken.address, taken.count,
                     given.dtype, _reduction(op, given), how)
        return value

    def start_reduce_scatter(self, array: Any, out: Any, op: str = "sum") -> Future:
        given, taken, value = self._two(array, out)
        self._parts(given, taken, "array and out")
        future = Future(self, (given, taken), value)
        return future.begin(_library.dtrun_reduce_scatter_start, given.address, taken.address, taken.count,
                            given.dtype, _reduction(op, given))

    def broadcast(self, array: Any, root: int = 0) -> Any:
        given = self._array(array, writable=True)
        self._do(_library.dtrun_broadcast, given.address, given.count, given.dtype, root)
        return array

    def start_broadcast(self, array: Any, root: int = 0) -> Future:
        given = self._array(array, writable=True)
        future = Future(self, given, array)
        return future.begin(_library.dtrun_broadcast_start, given.address, given.count, given.dtype, root)

    def allgather(self, array: Any, out: Any, compression: Optional[str] = None, stochastic: bool = False,
                  error: Any = None, always: bool = False) -> Any:
        """All ranks' arrays, one behind the other, in `out`, which is `size` times as long.

        Compression is as in allreduce(); all ranks get the same bits, also of their own part.
        """
        given, taken, value = self._two(array, out)
        self._parts(taken, given, "out and array")
        kept = None if error is None else self._array(error, writable=True)
        how = _compression(compression, stochastic, kept, given.count, always)
        if how is None:
            self._do(_library.dtrun_allgather, given.address, taken.address, given.count, given.dtype)
        else:
            self._do(_library.dtrun_allgather_compressed, given.address, taken.address, given.count, given.dtype,
                     how)
        return value

    def start_allgather(self, array: Any, out: Any) -> Future:
        given, taken, value = self._two(array, out)
        self._parts(taken, given, "out and array")
        future = Future(self, (given, taken), value)
        return future.begin(_library.dtrun_allgather_start, given.address, taken.address, given.count, given.dtype)

    def allgatherv(self, array: Any, out: Any, counts: Sequence[int]) -> Any:
        """The same for arrays of different lengths. :param counts: of each rank"""
        given, taken, value = self._two(array, out)
        if len(counts) != self.size or counts[self.rank] != given.count or sum(counts) != taken.count:
            raise _invalid("counts has to be the length of each rank's array, and out as long as all of them")
        lengths = (ctypes.c_size_t * len(counts))(*counts)
        self._do(_library.dtrun_allgatherv, given.address, taken.address, lengths, given.dtype)
        return value

    def gather(self, array: Any, out: Any = None, root: int = 0) -> Any:
        """All ranks' arrays in the root's `out`."""
        given = self._array(array, writable=False)
        address = None
        if self.rank == root:
            taken = self._array(out, writable=True)
            self._parts(taken, given, "out and array")
            address = taken.address
        self._do(_library.dtrun_gather, given.address, address, given.count, given.dtype, root)
        return out

    def scatter(self, out: Any, array: Any = None, root: int = 0) -> Any:
        """Each rank's part of the root's `array` in `out`."""
        taken = self._array(out, writable=True)
        address = None
        if self.rank == root:
            given = self._array(array, writable=False)
            self._parts(given, taken, "array and out")
            address = given.address
        self._do(_library.dtrun_scatter, address, taken.address, taken.count, taken.dtype, root)
        return out

    def alltoall(self, array: Any, out: Any) -> Any:
        """Part i of the array goes to rank i, part i of `out` comes from it."""
        given, taken, value = self._same(array, out)
        if given.count % self.size:
            raise _invalid(f"{given.count} elements are not one part for each of {self.size} ranks")
        self._do(_library.dtrun_alltoall, given.address, taken.address, given.count // self.size, given.dtype)
        return value

    def send(self, array: Any, to: int) -> None:
        given = self._array(array, writable=False)
        self._do(_library.dtrun_send, given.address, given.count, given.dtype, to)

    def recv(self, array: Any, source: int) -> Any:
        taken = self._array(array, writable=True)
        self._do(_library.dtrun_recv, taken.address, taken.count, taken.dtype, source)
        return array

    def sendrecv(self, array: Any, to: int, out: Any, source: int) -> Any:
        """Both at once."""
        given, taken, value = self._two(array, out)
        self._do(_library.dtrun_sendrecv, given.address, given.count, to, taken.address, taken.count, source,
                 given.dtype)
        return value

    def barrier(self) -> None:
        self._do(_library.dtrun_comm_barrier)


def _end_operations() -> None:
    """At the end of the program: a thread that came out of the library later would find no interpreter."""
    failure = _failure_of(getattr(sys, "last_value", None))
    for comm in list(_communicators):
        comm._end(failure or "the program ends", also_started=failure is not None)


atexit.register(_end_operations)
