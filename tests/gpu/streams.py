#!/usr/bin/env python3
"""Whether collectives on a GPU wait for torch's current stream, and leave the rest of the GPU's work alone.

    dtrun -np N python3 streams.py [--rounds 200] [--json FILE]

First, in each round a side stream is busy for a while, then fills an array, and a collective is called at once:
a result that is older than the fill is stale, and a failure. Second, ten buckets are computed one after the other,
each followed by start_allreduce(): the time of all together against that of the computation and the collectives
alone. With as many GPUs as ranks the whole may take 1.15 times the longer of the two; ranks that share a GPU are
only watched.

Ends with 77 where there is no torch or no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List

import dtrun
from dtrun.collectives import Communicator

SPIN_CYCLES = 2_000_000  # about a millisecond
BUCKETS = 10
BUCKET_FLOATS = 6 << 20
REPEATS = 7
OVERLAP_MAX = 1.15


def stale_rounds(torch: Any, comm: Communicator, rounds: int, explicit: bool) -> int:
    """How many of the rounds have read what an array had before the fill."""
    stale = 0
    side = torch.cuda.Stream()
    values = torch.zeros(1 << 20, device="cuda")
    result = torch.empty_like(values)
    comm.stream = side if explicit else None
    for number in range(1, rounds + 1):
        expected = float(number * comm.size)
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN_CYCLES)
            values.fill_(number)
            if not explicit:
                comm.allreduce(values, out=result)
        if explicit:
            comm.allreduce(values, out=result)
        # In yet another stream: the result is there once the call has returned.
        if not bool((result == expected).all()):
            stale += 1
    comm.stream = None
    return stale


def median_ms(torch: Any, body: Callable[[], None]) -> float:
    times: List[float] = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        body()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e3)
    return sorted(times)[len(times) // 2]


def overlap(torch: Any, comm: Communicator) -> Dict[str, float]:
    """Milliseconds of computation, of collectives, and of both: each bucket is reduced as soon as it is there."""
    buckets = [torch.zeros(BUCKET_FLOATS, device="cuda") for _ in range(BUCKETS)]
    matrix = torch.randn(4096, 4096, device="cuda")

    def compute(bucket: Any) -> None:
        for _ in range(4):
            torch.mm(matrix, matrix)
        bucket.fill_(1)

    def both() -> None:
        started = []
        for bucket in buckets:
            compute(bucket)
            started.append(comm.start_allreduce(bucket))
        for future in started:
            future.result()

    def communicate() -> None:
        for future in [comm.start_allreduce(bucket) for bucket in buckets]:
            future.result()

    both()  # the first time, libraries are loaded
    comm.barrier()
    alone = median_ms(torch, lambda: [compute(bucket) for bucket in buckets] and None)
    comm.barrier()
    wire = median_ms(torch, communicate)
    comm.barrier()
    total = median_ms(torch, both)
    return {"compute_ms": alone, "communicate_ms": wire, "both_ms": total,
            "of_longer": total / max(alone, wire)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"SKIPPED: no torch: {error}")
        return 77
    if not torch.cuda.is_available():
        print("SKIPPED: torch has no GPU here")
        return 77
    with dtrun.Worker() as worker:
        gpus = torch.cuda.device_count()
        gpu = worker.rank % gpus
        if worker.world_size > gpus:  # NCCL takes ranks with different names for two hosts
            os.environ["NCCL_HOSTID"] = f"streams-{worker.rank}"
        torch.cuda.set_device(gpu)
        with Communicator(worker, device_memory=True, device=gpu) as comm:
            found: Dict[str, Any] = {
                "ranks": comm.size, "gpus": gpus, "gpu": torch.cuda.get_device_name(gpu),
                "rounds": arguments.rounds,
                "stale_by_itself": stale_rounds(torch, comm, arguments.rounds, explicit=False),
                "stale_when_told": stale_rounds(torch, comm, arguments.rounds, explicit=True)}
            found.update(overlap(torch, comm))
            own_gpus = 1 < comm.size <= gpus
            comm.barrier()
            if comm.rank == 0:
                print(json.dumps(found))
                if arguments.json:
                    with open(arguments.json, "w", encoding="utf-8") as file:
                        json.dump(found, file)
    stale = found["stale_by_itself"] + found["stale_when_told"]
    return 1 if stale or (own_gpus and found["of_longer"] > OVERLAP_MAX) else 0


if __name__ == "__main__":
    sys.exit(main())
