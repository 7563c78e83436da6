"""A rank in Python with arrays of a GPU, of whom it knows what torch and CuPy tell: __cuda_array_interface__."""

import ctypes
import os

import numpy

import dtrun
from dtrun.collectives import Communicator

RUNTIME = ctypes.CDLL(os.environ["DTRUN_CUDART_LIBRARY"])
RUNTIME.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
RUNTIME.cudaStreamCreateWithFlags.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint]
RUNTIME.cudaMemcpyAsync.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                    ctypes.c_void_p]
RUNTIME.fakeCloseGate.argtypes = [ctypes.c_void_p]
RUNTIME.cudaMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class OnGpu:
    def __init__(self, values, dtype=None, **interface):
        values = numpy.ascontiguousarray(values, dtype)
        self.dtype = values.dtype
        self.nbytes = values.nbytes
        self._pointer = ctypes.c_void_p()
        assert RUNTIME.cudaMalloc(ctypes.byref(self._pointer), self.nbytes) == 0
        self.set(values)
        self.__cuda_array_interface__ = {
            "shape": values.shape, "typestr": values.dtype.str, "data": (self._pointer.value, False),
            "version": 3, "strides": None} | interface

    def set(self, values):
        assert RUNTIME.cudaMemcpy(self._pointer, values.ctypes.data, self.nbytes, 4) == 0

    def get(self):
        values = numpy.empty(self.__cuda_array_interface__["shape"], self.dtype)
        assert RUNTIME.cudaMemcpy(values.ctypes.data, self._pointer, self.nbytes, 4) == 0
        return values


def refused(body, why):
    try:
        body()
    except dtrun.Error as error:
        assert error.code == dtrun.Code.INVALID and why in str(error), error
    else:
        raise AssertionError("not refused")


def behind_gate(comm, stream, named_by):
    """The sum of ones that come into the array late, in the stream, over the zeros that are there."""
    zeros, ones = OnGpu(numpy.zeros(1000, "float32")), OnGpu(numpy.ones(1000, "float32"))
    RUNTIME.fakeCloseGate(stream)
    RUNTIME.cudaMemcpyAsync(zeros._pointer, ones._pointer, zeros.nbytes, 4, stream)
    if named_by == "array":
        zeros.__cuda_array_interface__["stream"] = stream.value
    else:
        comm.stream = stream.value
    future = comm.start_allreduce(zeros)
    assert comm.stream == (None if named_by == "array" else stream.value)
    comm.stream = None
    try:
        future.result(timeout=0.05)
        raise AssertionError("it did not wait for the stream")
    except dtrun.TimedOut:
        pass
    RUNTIME.fakeOpenGate()
    assert (future.result().get() == comm.size).all()


def streams(comm):
    stream, other = ctypes.c_void_p(), ctypes.c_void_p()
    for made in (stream, other):
        assert RUNTIME.cudaStreamCreateWithFlags(ctypes.byref(made), 1) == 0
    behind_gate(comm, stream, "array")
    behind_gate(comm, stream, "communicator")
    one, two = (OnGpu([1.0], stream=made.value) for made in (stream, other))
    refused(lambda: comm.allreduce(one, out=two), "different streams")
    comm.stream = stream.value
    comm.allreduce(one, out=two)
    comm.stream = None


def main():
    with dtrun.Worker() as worker, Communicator(worker, device_memory=True) as comm:
        assert comm.backend == "nccl"
        rank, size = comm.rank, comm.size
        for dtype in ("float32", "float64", "float16", "int8", "uint8", "int32", "int64"):
            array = OnGpu(numpy.full((3, 5), rank + 1), dtype)
            assert comm.allreduce(array) is array
            assert (array.get() == size * (size + 1) // 2).all(), dtype
        values = numpy.sin(numpy.arange(5000, dtype=numpy.float32) + rank)
        exact = sum(numpy.sin(numpy.arange(5000, dtype=numpy.float32) + r) for r in range(size))
        left = OnGpu(numpy.zeros_like(values))
        sums = comm.allreduce(OnGpu(values), compression="int8", error=left, out=OnGpu(values)).get()
        assert numpy.linalg.norm(sums - exact) < 3e-2 * numpy.linalg.norm(exact)
        assert left.get().any()
        future = comm.start_allgather(OnGpu([rank]), OnGpu(numpy.zeros(size, "int64")))
        assert future.result().get().tolist() == list(range(size))
        many = [OnGpu(numpy.full(i, 1), "float32") for i in (1, 7, 100)]
        comm.allreduce_many(many, op="average")
        assert all((each.get() == 1).all() for each in many)
        with comm.split_by_host() as host:
            assert host.broadcast(OnGpu([rank], "int32"), root=size - 1).get()[0] == size - 1
        square = OnGpu(numpy.ones((4, 4)), strides=(8, 32))
        refused(lambda: comm.allreduce(square), "one behind the other")
        refused(lambda: comm.allreduce(numpy.ones(3)), "__cuda_array_interface__")
        refused(lambda: comm.allreduce(OnGpu(numpy.ones(3), "complex64")), "<c8")
        constant = OnGpu([1.0])
        constant.__cuda_array_interface__["data"] = (constant.__cuda_array_interface__["data"][0], True)
        refused(lambda: comm.broadcast(constant), "read-only")
        refused(lambda: Communicator(worker, "gloo", device_memory=True), "memory of the host")
        streams(comm)
        with Communicator(worker, device_memory=True, device=7 - rank) as chosen:
            assert f"GPU: {7 - rank} " in chosen.facts, chosen.facts
        refused(lambda: Communicator(worker, device_memory=True, device=-1), "from 0 on")
        comm.barrier()
    print("ok")


main()
