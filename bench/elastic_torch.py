"""A rank of `./dev bench elastic` as torchrun has them: steps of 20 ms until DIRECTORY/end is there.

Arguments: DIRECTORY [SECONDS]; it sleeps for SECONDS at first, as if it imported much. Rank 0 writes each step to
DIRECTORY/checkpoint, from which all go on when they are started again.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

from elastic_log import Log, load, save

directory = sys.argv[1]
time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
log = Log(directory)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
start = torch.tensor([time.monotonic_ns(), load(f"{directory}/checkpoint")])
dist.broadcast(start, src=0)
step = int(start[1])
log.enter(int(start[0]), rank, size, step)
while True:
    total = torch.tensor([1.0, float(os.path.exists(f"{directory}/end"))])
    dist.all_reduce(total)
    assert total[0] == size, f"{total[0]} of {size} ranks in this step"
    step += 1
    if rank == 0:
        save(f"{directory}/checkpoint", step)
    log.done(step)
    if total[1] > 0:
        break
    time.sleep(0.02)
