"""A rank of ./dev bench collectives: many small arrays, one by one, as one, and one that is as long. collectives_fused.py BACKEND"""
import json
import statistics
import sys
import time

import numpy

import dtrun
from dtrun.collectives import Communicator

ARRAYS, FLOATS, ROUNDS = 1000, 1024, 25


def main():
    with dtrun.Worker() as worker, Communicator(worker, sys.argv[1]) as comm:
        arrays = [numpy.ones(FLOATS, numpy.float32) for _ in range(ARRAYS)]
        bucket = comm.bucket(arrays)
        whole = numpy.ones(ARRAYS * FLOATS, numpy.float32)

        def one_by_one():
            for array in arrays:
                comm.allreduce(array, op="average")

        ways = {"one_by_one_ms": one_by_one, "fused_ms": lambda: bucket.allreduce(op="average"),
                "whole_ms": lambda: comm.allreduce(whole, op="average")}
        times = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                comm.barrier()
                begin = time.perf_counter()
                way()
                times[name].append((time.perf_counter() - begin) * 1000)
        assert all((array == 1).all() for array in arrays) and (whole == 1).all()
        if comm.rank == 0:
            print(json.dumps({name: statistics.median(values[2:]) for name, values in times.items()}))


main()
