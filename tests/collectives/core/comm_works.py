"""A rank in Python: every function of dtrun.collectives on NumPy arrays. comm_works.py BACKEND"""

import os
import re
import signal
import sys
import threading
import time

import numpy

import dtrun
from dtrun.collectives import Communicator


def refused(body):
    try:
        body()
    except dtrun.Error as error:
        assert error.code == dtrun.Code.INVALID, error
    else:
        raise AssertionError("not refused")


def overlaps(comm):
    """Arrays that overlap are refused, and those that lie as an operation in place needs them are not."""
    rank, size = comm.rank, comm.size
    room = numpy.zeros(3 * size + 2, numpy.float32)
    whole, own = room[:3 * size], room[3 * rank:3 * rank + 3]
    many = room[:4]
    refused(lambda: comm.allreduce(room[1:], out=room[:-1]))
    refused(lambda: comm.start_allreduce(room[1:], out=room[:-1]))
    refused(lambda: comm.allreduce(room, compression="int8", error=room))
    refused(lambda: comm.reduce_scatter(whole, room[3 * rank + 1:3 * rank + 4]))
    refused(lambda: comm.start_reduce_scatter(whole, room[3 * rank + 1:3 * rank + 4]))
    refused(lambda: comm.allgather(room[3 * rank + 1:3 * rank + 4], whole))
    refused(lambda: comm.start_allgather(room[3 * rank + 1:3 * rank + 4], whole))
    refused(lambda: comm.allgatherv(room[3 * rank + 1:3 * rank + 4], whole, [3] * size))
    refused(lambda: comm.alltoall(room[:size], room[size - 1:2 * size - 1]))
    refused(lambda: comm.allreduce_many([many, numpy.ones(2, numpy.float32), many]))
    refused(lambda: comm.bucket([many, room[3:5]]))
    refused(lambda: comm.allreduce_many([many], compression="int8", errors=[many]))
    if rank == 0:
        refused(lambda: comm.gather(room[1:4], whole))
        refused(lambda: comm.scatter(room[1:4], whole))
        refused(lambda: comm.reduce(room[1:4], out=room[2:5]))
    comm.allreduce(room, out=room)
    comm.allgather(own, whole)
    comm.reduce_scatter(whole, own)
    comm.gather(own, whole if rank == 0 else None)
    comm.scatter(own, whole if rank == 0 else None)
    comm.allreduce_many([room[:2], room[2:2], room[2:5]])


def averages(comm):
    """An average of numbers that fit is one that fits, however many add it up, and in full as compressed."""
    for dtype, largest in (("uint8", 200), ("int8", -100), ("int32", 2**30), ("float16", 30000)):
        for count in (4, 100_000):
            full = numpy.full(count, largest, dtype)
            comm.allreduce(full, op="average")
            many = [numpy.full(count, largest, dtype), numpy.full(3, largest, dtype)]
            comm.allreduce_many(many, op="average")
            part = comm.reduce_scatter(numpy.full(count * comm.size, largest, dtype), numpy.empty(count, dtype),
                                       op="average")
            whole = comm.reduce(numpy.full(count, largest, dtype), op="average", root=comm.size - 1)
            for result in (full, *many, part) + ((whole,) if comm.rank == comm.size - 1 else ()):
                assert (result == largest).all(), (dtype, count, result[:3])
    squeezed = comm.allreduce(numpy.full(5000, 30000, numpy.float16), op="average", compression="bf16", always=True)
    assert (abs(squeezed - 30000) < 200).all(), squeezed[:3]


def main():
    with dtrun.Worker() as worker, Communicator(worker, sys.argv[1]) as comm:
        rank, size = comm.rank, comm.size
        total = size * (size + 1) // 2
        for dtype in ("float32", "float64", "float16", "int8", "uint8", "int32", "int64"):
            array = numpy.full((3, 5), rank + 1, dtype)
            assert comm.allreduce(array) is array
            assert (array == total).all(), (dtype, array)
            out = numpy.empty_like(array)
            comm.allreduce(numpy.full((3, 5), rank, dtype), op="max", out=out)
            assert (out == size - 1).all()
        averages(comm)
        values = numpy.sin(numpy.arange(5000, dtype=numpy.float32) + rank)
        exact = sum(numpy.sin(numpy.arange(5000, dtype=numpy.float32) + r) for r in range(size))
        for name, bound in (("fp16", 1e-3), ("bf16", 1e-2), ("fp8-e4m3", 0.1), ("int8", 3e-2)):
            error = numpy.zeros_like(values)
            sums = comm.allreduce(values, compression=name, stochastic=True, error=error, always=True,
                                  out=numpy.empty_like(values))
            assert numpy.linalg.norm(sums - exact) < bound * numpy.linalg.norm(exact), name
            assert size == 1 or error.any()
            spread = comm.allgather(values, numpy.empty(5000 * size, numpy.float32), compression=name, always=True)
            near = numpy.linalg.norm(spread[rank * 5000:(rank + 1) * 5000] - values)
            assert near < bound * numpy.linalg.norm(values), name
            mine = comm.reduce_scatter(spread, numpy.empty_like(values), compression=name, always=True)
            assert numpy.linalg.norm(mine - size * values) < 3 * bound * numpy.linalg.norm(size * values), name
        # By itself, compression is for what leaves a host: here all is exact.
        sums = comm.allreduce(values, compression="int8", out=numpy.empty_like(values))
        assert numpy.array_equal(sums, comm.allreduce(values, out=numpy.empty_like(values)))
        future = comm.start_allreduce(numpy.ones(10), op="average")
        answers = []
        readers = [threading.Thread(target=lambda: answers.append(future.result(timeout=60).tolist()))
                   for _ in range(3)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert answers == [[1.0] * 10] * 3
        mine, all_of_them = numpy.full(3, rank, numpy.int32), numpy.empty(3 * size, numpy.int32)
        futures = [comm.start_allgather(mine, all_of_them),
                   comm.start_reduce_scatter(all_of_them, numpy.empty(3, numpy.int32)),
                   comm.start_broadcast(mine, root=size - 1)]
        gathered, summed, sent = [each.result() for each in futures]
        assert gathered is all_of_them and gathered.tolist() == [r for r in range(size) for _ in range(3)]
        assert summed.tolist() == [size * rank] * 3 and sent.tolist() == [size - 1] * 3
        arrays = [numpy.full(i, 1.0, numpy.float32) for i in range(20)]
        comm.allreduce_many(arrays, compression="int8", errors=[numpy.zeros_like(a) for a in arrays])
        assert all(numpy.allclose(a, size, rtol=0.02) for a in arrays)

        own = numpy.array([rank, -rank], numpy.int64)
        everybodys = comm.allgather(own, numpy.empty((size, 2), numpy.int64))
        assert everybodys.tolist() == [[r, -r] for r in range(size)]
        counts = [r % 3 for r in range(size)]
        parts = comm.allgatherv(numpy.full(counts[rank], rank, numpy.uint8),
                                numpy.empty(sum(counts), numpy.uint8), counts)
        assert parts.tolist() == [r for r in range(size) for _ in range(counts[r])]
        gathered = comm.gather(own, numpy.empty((size, 2), numpy.int64) if rank == 0 else None)
        assert rank != 0 or gathered.tolist() == everybodys.tolist()
        back = comm.scatter(numpy.empty(2, numpy.int64), gathered)
        assert back.tolist() == own.tolist()
        part = comm.reduce_scatter(numpy.arange(2 * size, dtype=numpy.float64), numpy.empty(2))
        assert part.tolist() == [2 * rank * size, (2 * rank + 1) * size]
        summed = comm.reduce(own.copy(), root=size - 1)
        assert rank != size - 1 or summed[0] == size * (size - 1) // 2
        word = comm.broadcast(numpy.array([rank], "int32"), root=size - 1)
        assert word[0] == size - 1
        swapped = comm.alltoall(numpy.full(size, rank), numpy.empty(size, numpy.int64))
        assert swapped.tolist() == list(range(size))
        if size > 1 and rank < 2:
            if rank == 0:
                comm.send(b"hello", 1)
            else:
                assert bytes(comm.recv(bytearray(5), 0)) == b"hello"
            other = comm.sendrecv(numpy.array([rank]), 1 - rank, numpy.empty(1, numpy.int64), 1 - rank)
            assert other[0] == 1 - rank
        half = comm.split(rank % 2)
        assert half.size == (size + 1 - rank % 2) // 2
        half.close()
        with comm.split_by_host() as host:
            host.barrier()
        refused(lambda: comm.allreduce(numpy.ones((4, 4))[:, 1]))
        refused(lambda: comm.allreduce(numpy.ones(3), op="median"))
        refused(lambda: comm.allreduce(numpy.ones(3), compression="int8"))
        refused(lambda: comm.allgather(numpy.ones(3), numpy.empty(2)))
        refused(lambda: comm.allreduce(numpy.array(["a"])))
        refused(lambda: comm.broadcast(b"constant"))
        refused(lambda: comm.alltoall(numpy.ones(size), None))
        refused(lambda: comm.split(2**31))
        refused(lambda: Communicator(worker, ranks=[size], name="there is no such rank"))
        refused(lambda: Communicator(worker, ranks=[rank]))
        refused(lambda: comm.allreduce(numpy.ones(3, numpy.int16)))
        overlaps(comm)
        flags = numpy.array([rank == 0, True])
        refused(lambda: comm.allreduce(flags))
        assert comm.allreduce(flags, op="min").tolist() == [size == 1, True]
        comm.barrier()
        assert comm.backend == sys.argv[1] and "transport:" in comm.facts
        worker.barrier("used")
        before, _ = worker.list_keys(f"dtrun/comm/{worker.job}/")
        worker.barrier("counted")
        others = [other for other in reversed(range(size)) if other % 2 == rank % 2]
        for turn in range(3):
            with Communicator(worker, sys.argv[1]) as brief:
                brief.barrier()
            with Communicator(worker, sys.argv[1], ranks=others, name=f"{turn} of {rank % 2}") as brief:
                assert others[brief.rank] == rank
                halves = brief.allgather(numpy.array([rank], numpy.int16), numpy.empty(len(others), numpy.int16))
                assert halves.tolist() == others
        worker.barrier("closed")
        after, _ = worker.list_keys(f"dtrun/comm/{worker.job}/")
        assert after == before, (before, after)
        if size > 1:
            tells_who_is_late(worker)
        open_still = Communicator(worker, sys.argv[1])
    open_still.close()  # was closed with its worker
    if sys.argv[1] == "dtrun" and size > 1:
        interrupted(rank, behind=False)
        interrupted(rank, behind=True)
        closed_by_a_handler(rank, closes_worker=False)
        closed_by_a_handler(rank, closes_worker=True)
        closed_while_awaited(rank, closes_worker=False)
        closed_while_awaited(rank, closes_worker=True)
    print("ok")


def tells_who_is_late(worker):
    """The last rank comes as soon as the first one has been told that it does not."""
    rank, late = worker.rank, worker.world_size - 1
    with Communicator(worker, sys.argv[1], stall_after=1) as comm:
        if rank == late:
            worker.get("rank 0 was told")
        elif rank == 0:
            reads, writes = os.pipe()
            kept = os.dup(2)
            os.dup2(writes, 2)
            os.close(writes)

            def read_line():
                with open(reads, encoding="utf-8") as lines:
                    for line in lines:
                        if re.search(rf"^dtrun: barrier, operation 1 of {late + 1} ranks: ranks? 0.* waited for \d+ s; "
                                     rf".*rank {late} on \S+ ha(s|ve) not come$", line):
                            worker.set("rank 0 was told", line)
                            return

            reader = threading.Thread(target=read_line)
            reader.start()
        comm.barrier()
        if rank == 0:
            reader.join()
            os.dup2(kept, 2)
            os.close(kept)


class Alarm(Exception):
    """What the handler of a signal raises."""


def raise_alarm(_number, _frame):
    raise Alarm


def alarm_once_in(threads):
    """Has SIGALRM sent once this thread is among those that wait in the library."""
    own = threading.get_ident()

    def send():
        while own not in threads.threads:
            time.sleep(0.01)
        time.sleep(0.2)  # it has said that it is there, and has a call to make until it waits
        os.kill(os.getpid(), signal.SIGALRM)

    threading.Thread(target=send, daemon=True).start()


def interrupted(rank, behind):
    """A signal handler runs while an operation waits, also behind one that was started, and may end it."""
    with dtrun.Worker() as worker, Communicator(worker, "dtrun") as comm:
        if rank == 0:
            started = comm.start_allreduce(numpy.ones(3)) if behind else None
            signal.signal(signal.SIGALRM, raise_alarm)
            alarm_once_in(comm._inside)
            try:
                comm.barrier()
            except Alarm:  # others come only then
                worker.set(f"the alarm has come {behind}", "")
            else:
                raise AssertionError("not interrupted")
            if started is not None:
                try:
                    started.result()
                except dtrun.Error as error:
                    assert error.code == dtrun.Code.CANCELLED, error
        else:
            worker.get(f"the alarm has come {behind}")
            try:
                if behind:
                    comm.start_allreduce(numpy.ones(3)).result()
                comm.barrier()  # to which rank 0 had come
                comm.barrier()
            except dtrun.Error as error:
                assert error.code == dtrun.Code.PEER_LOST and "interrupted" in str(error), error
            else:
                raise AssertionError("rank 0 was not missed")


def closed_by_a_handler(rank, closes_worker):
    """A signal handler closes what its own thread is inside of, and waits for nothing of it."""
    with dtrun.Worker() as teller, dtrun.Worker() as worker:
        comm = Communicator(worker, "dtrun")

        def handler(_number, _frame):
            refused(comm.barrier)
            later = comm.start_allreduce(numpy.ones(3))
            refused(later.result)
            del later  # its memory stays until it is over
            (worker if closes_worker else comm).close()

        told = f"interrupted {closes_worker}"
        try:
            if rank == 0:
                signal.signal(signal.SIGALRM, handler)
                alarm_once_in(comm._inside)
            else:
                teller.get(told)
                comm.barrier()  # to which rank 0 had come
            comm.barrier()
        except dtrun.Error as error:
            assert error.code == (dtrun.Code.PEER_LOST if rank != 0 else dtrun.Code.CANCELLED), error
        else:
            raise AssertionError("not interrupted")
        if rank == 0:
            teller.set(told, "yes")
            try:
                comm.barrier()
            except dtrun.Error as error:
                assert error.code == dtrun.Code.CLOSED, error
        comm.close()


def closed_while_awaited(rank, closes_worker):
    """A signal handler closes the communicator of the future that its thread waits for, which others never start."""
    with dtrun.Worker() as teller, dtrun.Worker() as worker:
        comm = Communicator(worker, "dtrun")
        told = f"closed while awaited {closes_worker}"

        def handler(_number, _frame):
            (worker if closes_worker else comm).close()
            teller.set(told, "yes")

        if rank == 0:
            signal.signal(signal.SIGALRM, handler)
            alarm_once_in(comm._awaiting)
            try:
                comm.start_allreduce(numpy.ones(3)).result()
            except dtrun.Error as error:
                assert error.code == dtrun.Code.CANCELLED, error
            else:
                raise AssertionError("not interrupted")
        else:
            teller.get(told)
        comm.close()


main()
