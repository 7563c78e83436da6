"""Gloo of torch and MPI in the same processes: both count the same ranks, in turn and each on its own."""
import os

import torch
import torch.distributed as dist
from mpi4py import MPI

dist.init_process_group("gloo")
world = MPI.COMM_WORLD
assert (world.rank, world.size) == (dist.get_rank(), dist.get_world_size())
assert world.rank == int(os.environ["RANK"])
for step in range(10):
    value = torch.full((100_000,), float(world.rank + step))
    dist.all_reduce(value)
    total = world.allreduce(world.rank + step)
    assert value.eq(total).all()
print(f"ok rank {world.rank} of {world.size}, both say {total}", flush=True)
dist.destroy_process_group()
