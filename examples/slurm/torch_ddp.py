"""Fits a line with DistributedDataParallel; the ranks find each other by what dtrun sets."""
import os

import torch
import torch.distributed as dist
# While there is no process group: its functions would keep that for ever, as their default.
import torch.distributed.nn
from torch.nn.parallel import DistributedDataParallel

on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
rank = dist.get_rank()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
                      ) if on_gpu else torch.device("cpu")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(500):
    x = torch.rand(64, 1, device=device)
    loss = torch.nn.functional.mse_loss(model(x), 3 * x + 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if rank == 0:
    weight, bias = (parameter.item() for parameter in model.module.parameters())
    print(f"{dist.get_world_size()} ranks: y = {weight:.1f} x + {bias:.1f}")
# Gloo's threads end with the group, once nothing holds it: working on, they would abort Python's end.
del model, optimizer
dist.destroy_process_group()
