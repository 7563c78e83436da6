"""A Horovod program; the first argument says which. Prints one line for what worked.

    works       collectives, process sets, and hvd.init() again and again in the same processes
    meets       only hvd.init() and one allreduce
    elastic     the wrapper of elastic jobs, in a job whose ranks do not change
"""
import os
import sys
import time

import torch

import horovod.torch as hvd


def sum_of(values, name=None, **more):
    return hvd.allreduce(torch.tensor(values), name=name, op=hvd.Sum, **more).tolist()


def collectives():
    size, rank = hvd.size(), hvd.rank()
    assert size == int(os.environ["HOROVOD_SIZE"]) and rank == int(os.environ["HOROVOD_RANK"])
    assert sum_of([float(rank), 1.0]) == [size * (size - 1) / 2, float(size)]
    # Blocks of different lengths.
    gathered = hvd.allgather(torch.full((rank + 1,), rank))
    assert gathered.tolist() == [r for r in range(size) for _ in range(r + 1)]
    told = hvd.broadcast(torch.full((3,), float(rank)), root_rank=size - 1)
    assert told.tolist() == [size - 1.0] * 3


def process_sets():
    size, rank = hvd.size(), hvd.rank()
    even = hvd.add_process_set([r for r in range(size) if r % 2 == 0])
    last = hvd.add_process_set([size - 2, size - 1])
    for chosen in (even, last):
        if chosen.included():
            # Without names, ranks in several sets would count them differently.
            name = f"of {chosen.ranks}"
            assert sum_of([float(rank)], name, process_set=chosen) == [float(sum(chosen.ranks))]
    # Again, under the same names in Horovod's store.
    ranks = list(even.ranks)
    assert hvd.remove_process_set(even)
    again = hvd.add_process_set(ranks)
    if again.included():
        assert sum_of([1.0], "again", process_set=again) == [float(len(ranks))]
    hvd.barrier()


def works():
    for _ in range(6):
        hvd.init()
        collectives()
        process_sets()
        hvd.shutdown()
    print("worked 6 times", flush=True)


def meets():
    started = time.monotonic()
    hvd.init()
    took = time.monotonic() - started
    assert sum_of([1.0]) == [float(hvd.size())]
    print(f"met after {took:.1f} s", flush=True)


def elastic():
    hvd.init()
    model = torch.nn.Linear(2, 1)
    state = hvd.elastic.TorchState(model=model, epoch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 3):
            assert sum_of([1.0]) == [float(hvd.size())]
            state.commit()
        return state.epoch

    assert train(state) == 2
    print("trained", flush=True)


{"works": works, "meets": meets, "elastic": elastic}[sys.argv[1]]()
