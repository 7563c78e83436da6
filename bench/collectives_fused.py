"""A rank of ./dev bench collectives: many small arrays, one by one and as one. collectives_fused.py BACKEND"""
import json
import statistics
import sys
import time

import numpy

import dtrun
from dtrun.collectives import Communicator

ARRAYS, FLOATS, ROUNDS = 1000, 1024, 15


def main():
    with dtrun.Worker() as worker, Communicator(worker, sys.argv[1]) as comm:
        arrays = [numpy.ones(FLOATS, numpy.float32) for _ in range(ARRAYS)]
        times = {"one_by_one_ms": [], "fused_ms": []}
        for _ in range(ROUNDS):
            comm.barrier()
            begin = time.perf_counter()
            for array in arrays:
                comm.allreduce(array, op="average")
            middle = time.perf_counter()
            comm.allreduce_many(arrays, op="average")
            times["one_by_one_ms"].append((middle - begin) * 1000)
            times["fused_ms"].append((time.perf_counter() - middle) * 1000)
        assert all((array == 1).all() for array in arrays)
        if comm.rank == 0:
            print(json.dumps({name: statistics.median(values[2:]) for name, values in times.items()}))


main()
