"""Counts steps under hvd.elastic.run until a file is there, and says where each process is in each world.

Arguments: the file. A step adds up what every rank has; all of them leave in the same step.
"""
import os
import sys
import time

import horovod.torch as hvd
import torch

hvd.init()
state = hvd.elastic.TorchState(step=0)
started = os.environ["DTRUN_RANK"]


@hvd.elastic.run
def train(state):
    # A word for each: of the world's size, the rank and the process, the step it goes on with, the time.
    print(f"world{hvd.size()} rank{hvd.rank()}@{os.environ['DTRUN_HOST']}:{os.getpid()}"
          f" step {state.step} at {time.time():.3f}", flush=True)
    while True:
        over = 1.0 if os.path.exists(sys.argv[1]) else 0.0
        total = hvd.allreduce(torch.tensor([1.0, over]), op=hvd.Sum, name="step")
        assert total[0] == hvd.size(), f"{total[0]} of {hvd.size()} ranks in this step"
        state.step += 1
        if total[1] > 0:
            return
        time.sleep(0.02)
        state.commit()


train(state)
print(f"ended after step {state.step} started as {started}", flush=True)
