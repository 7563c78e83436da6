"""Trains for a few epochs under hvd.elastic.run, while hosts change and ranks end at set times.

What Horovod's own test of elastic jobs checks can be checked with it. Rank 0 writes a line for each epoch to a file: the
epoch, the rank that its process was started with, its rank, the world's size, how many worlds there were, its host.
"""
import argparse
import os
import signal
import time

import horovod.torch as hvd
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--logfile", required=True)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--epoch-wait", type=float, default=0.0, help="seconds that an epoch takes")
parser.add_argument("--change-after", type=int, nargs="*", default=[],
                    help="epochs after which rank 0 waits until it is told of changed hosts")
parser.add_argument("--exit-epoch", type=int, help="the epoch at whose start ranks end")
parser.add_argument("--exit-ranks", type=int, nargs="*", default=[], help="which: their numbers when they were started")
parser.add_argument("--exit-mode", choices=("exception", "kill"), default="exception")
options = parser.parse_args()

BATCHES = 10
CHANGE_LIMIT_S = 20

hvd.init()
started = int(os.environ["HOROVOD_RANK"])
torch.manual_seed(started)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def end_if_due(epoch):
    if epoch != options.exit_epoch or started not in options.exit_ranks:
        return
    if options.exit_mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError(f"the end of rank {started} is due")


def wait_for_change(messages):
    deadline = time.monotonic() + CHANGE_LIMIT_S
    while messages.empty():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody has told of other hosts")
        time.sleep(0.05)


@hvd.elastic.run
def train(state):
    state.worlds += 1
    while state.epoch < options.epochs:
        while state.batch < BATCHES:
            if state.batch == 0:
                end_if_due(state.epoch)
            optimizer.zero_grad()
            model(torch.ones(8, 2)).square().mean().backward()
            optimizer.step()
            state.batch += 1
            state.commit()
        if hvd.rank() == 0:
            with open(options.logfile, "a", encoding="ascii") as file:
                file.write(f"{state.epoch} {started} {hvd.rank()} {hvd.size()} {state.worlds} "
                           f"{os.environ['HOROVOD_HOSTNAME']}\n")
            if state.epoch in options.change_after:
                wait_for_change(state._host_messages)
        time.sleep(options.epoch_wait)
        state.epoch += 1
        state.batch = 0
        state.commit()


train(hvd.elastic.TorchState(model, optimizer, batch=0, epoch=0, worlds=0))
