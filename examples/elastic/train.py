"""Trains on whatever ranks are there, and loses no step when ranks and hosts are lost:

    dtrun --min-np 2 -np 4 -H s1,s2,s3,s4 python3 train.py [STEPS [SECONDS_PER_STEP]]

The model is one line of numbers. Each step adds the mean of all ranks' gradients; these depend on the step alone, so
at the end it can be seen whether each step was done exactly once.
"""

import os
import sys
import time
from array import array

import dtrun
from dtrun.collectives import Communicator

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
WEIGHTS = 1000


class State:
    """What a process has learnt up to its last whole step. A new process has nothing, at step 0."""

    def __init__(self) -> None:
        self.step = 0
        self.weights = array("d", bytes(8 * WEIGHTS))

    def take_newest(self, worker: dtrun.Worker, comm: Communicator) -> None:
        """Some may have done a step in which others were interrupted: all go on from the newest state."""
        steps = [int(step) for step in worker.fence("step", str(self.step))]
        newest = steps.index(max(steps))
        comm.broadcast(self.weights, root=newest)
        self.step = steps[newest]


def gradients_of(step: int) -> array:
    return array("d", [1.0 / (step + 1)]) * WEIGHTS


def train(job: dtrun.Elastic, state: State) -> None:
    worker = job.worker
    with Communicator(worker) as comm:
        state.take_newest(worker, comm)
        # The time is for whoever measures how long a change has taken.
        print(f"generation {worker.generation}: rank {worker.rank} of {worker.world_size} on {worker.host_name}, "
              f"process {os.getpid()}, goes on at step {state.step}, {time.time():.3f}", flush=True)
        while state.step < STEPS:
            job.check(state.step)
            gradients = gradients_of(state.step)
            time.sleep(SECONDS)  # stands for the work
            comm.allreduce(gradients, op="average")
            state.weights = array("d", map(sum, zip(state.weights, gradients)))
            state.step += 1


def main() -> None:
    state = State()
    with dtrun.Worker(elastic=True) as worker:
        job = worker.elastic()
        while job.next():
            with job:
                train(job, state)
        expected = sum(1.0 / (step + 1) for step in range(STEPS))
        wrong = max(abs(weight - expected) for weight in state.weights)
        print(f"rank {worker.rank}: {state.step} steps, each once" if wrong < 1e-9 else
              f"rank {worker.rank}: {state.step} steps, and the weights are wrong by {wrong}", flush=True)


main()
