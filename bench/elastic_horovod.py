"""A rank of `./dev bench elastic` under hvd.elastic.run: steps of 20 ms until DIRECTORY/end is there.

Arguments: DIRECTORY [SECONDS]; it sleeps for SECONDS at first, as if it imported much. A step adds up what every rank
has. Rank 0 also writes each step to DIRECTORY/checkpoint, for a job all of whose processes are lost.
"""
import os
import sys
import time

import horovod.torch as hvd
import torch

from elastic_log import Log, load, save

directory = sys.argv[1]
time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
log = Log(directory)
hvd.init()
state = hvd.elastic.TorchState(step=load(f"{directory}/checkpoint"))


@hvd.elastic.run
def train(state):
    world = hvd.broadcast(torch.tensor([time.monotonic_ns()]), root_rank=0, name="world")
    log.enter(int(world[0]), hvd.rank(), hvd.size(), state.step)
    while True:
        over = 1.0 if os.path.exists(f"{directory}/end") else 0.0
        total = hvd.allreduce(torch.tensor([1.0, over]), op=hvd.Sum, name="step")
        assert total[0] == hvd.size(), f"{total[0]} of {hvd.size()} ranks in this step"
        state.step += 1
        if hvd.rank() == 0:
            save(f"{directory}/checkpoint", state.step)
        log.done(state.step)
        if total[1] > 0:
            return
        time.sleep(0.02)
        state.commit()


train(state)
