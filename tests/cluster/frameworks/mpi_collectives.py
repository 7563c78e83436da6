"""A program for mpi4py: numpy arrays, Python objects and communicators of its own. Prints "ok NAME"."""
import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size


def arrays():
    total = numpy.empty(1000)
    world.Allreduce(numpy.full(1000, float(rank)), total)
    assert (total == size * (size - 1) / 2).all()
    blocks = numpy.empty((size, 3), dtype="i")
    world.Allgather(numpy.full(3, rank, dtype="i"), blocks)
    assert (blocks == numpy.arange(size)[:, None]).all()
    sent, got = numpy.arange(size, dtype="i") + 100 * rank, numpy.empty(size, dtype="i")
    world.Alltoall(sent, got)
    assert (got == rank + 100 * numpy.arange(size)).all()


def objects():
    told = world.bcast({"text": "x" * 100_000} if rank == size - 1 else None, root=size - 1)
    assert told["text"] == "x" * 100_000
    assert world.gather(str(rank)) == ([str(r) for r in range(size)] if rank == 0 else None)
    assert world.allreduce({rank}, op=lambda a, b: a | b) == set(range(size))


def communicators():
    half = world.Split(color=rank % 2, key=rank)
    assert half.allgather(rank) == list(range(rank % 2, size, 2))
    host = world.Split_type(MPI.COMM_TYPE_SHARED)
    assert len(set(host.allgather(MPI.Get_processor_name()))) == 1


for check in (arrays, objects, communicators):
    check()
    world.Barrier()
    print(f"ok {check.__name__}", flush=True)
