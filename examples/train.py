#!/usr/bin/env python3
"""Trains a small net on several processors or GPUs, on data that it makes itself: what the README's first minutes run.

    dtrun -np 4 python3 examples/train.py
    dtrun -np 4 -H s1:2,s2:2 python3 examples/train.py --steps 500

Nothing in it knows dtrun: it is what torch calls DistributedDataParallel, and runs under torchrun as well.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description="trains a small net with DistributedDataParallel")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=64, help="examples a step, of each rank")
parser.add_argument("--lr", type=float, default=0.05)
chosen = parser.parse_args()

# A GPU for each rank of a host, if there is one; RANK, WORLD_SIZE and MASTER_ADDR say where the others are.
on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
dist.init_process_group("nccl" if on_gpu else "gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)  # the same truth everywhere
truth = torch.nn.Linear(16, 1).to(device)
torch.manual_seed(1 + rank)  # and other examples of it in each rank
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
model = DistributedDataParallel(model)  # all begin with rank 0's weights, and average their gradients
optimizer = torch.optim.SGD(model.parameters(), lr=chosen.lr)

began = time.monotonic()
for step in range(1, chosen.steps + 1):
    examples = torch.randn(chosen.batch, 16, device=device)
    with torch.no_grad():
        answers = truth(examples)
    loss = torch.nn.functional.mse_loss(model(examples), answers)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and (step % 50 == 0 or step == chosen.steps):
        rate = step / (time.monotonic() - began)
        print(f"step {step} of {chosen.steps}: loss {loss.item():.4f}, {rate:.0f} steps/s", flush=True)

if rank == 0:
    print(f"{ranks} ranks have seen {ranks * chosen.batch * chosen.steps} examples")
del model, optimizer  # before the group that they use
dist.destroy_process_group()
