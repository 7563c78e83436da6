"""A rank of `bench/soak.py`: prints lines, sets keys that it erases later, and lives on when hosts and ranks are lost.

Arguments: LINES and KEYS a second, of all ranks while they work, and the file whose being there ends them.
"""
import os
import sys
import time

import dtrun

LINES, KEYS, END = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
TICK_S = 0.1
KEPT = 100  # keys of a rank that are there at once


def work(job, worker):
    """Rank 0 decides when all end: they leave together, in the same step."""
    began, step, printed, kept = time.monotonic(), 0, 0, 0
    while True:
        job.check(step)
        step += 1
        share = (time.monotonic() - began) / worker.world_size
        while printed < LINES * share:
            printed += 1
            sys.stdout.write(f"line {printed} of rank {worker.rank} in generation {worker.generation}\n")
        sys.stdout.flush()
        while kept < KEYS * share:
            kept += 1
            worker.set(f"{worker.generation}/{worker.rank}/{kept}", b"x" * 64)
            if kept > KEPT:
                worker.delete(f"{worker.generation}/{worker.rank}/{kept - KEPT}")
        if step % 50 == 0:
            if worker.rank == 0:
                worker.set(f"{worker.generation}/end/{step}", b"1" if os.path.exists(END) else b"0")
                worker.delete(f"{worker.generation}/end/{step - 100}")
            worker.barrier("step")
            if worker.get(f"{worker.generation}/end/{step}") == b"1":
                return
        time.sleep(TICK_S)


with dtrun.Worker(elastic=True) as the_worker:
    the_job = the_worker.elastic()
    while the_job.next():
        with the_job:
            work(the_job, the_worker)
