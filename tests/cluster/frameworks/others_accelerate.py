"""A program for Accelerate that says nothing of processors: the environment has to.

Trains one model on every rank's own data and prints what must be the same on all.
"""
import os

import torch
from accelerate import Accelerator

accelerator = Accelerator()
rank, size = accelerator.process_index, accelerator.num_processes
torch.manual_seed(rank)  # so that only what the ranks exchange makes them equal
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(32, 3)
data = torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()

weights = torch.cat([p.detach().flatten() for p in model.parameters()])
everywhere = accelerator.gather(weights[None])
assert everywhere.shape[0] == size, everywhere.shape
assert torch.equal(everywhere, weights.expand_as(everywhere)), "the models differ"
total = accelerator.reduce(torch.tensor(float(rank + 1)), "sum").item()
print(f"accelerate rank {rank} of {size}, local rank {accelerator.local_process_index}, "
      f"{accelerator.distributed_type.value}, sum {total:.0f}\n", end="", flush=True)
accelerator.end_training()
# A thread of Gloo that still works while Python ends aborts it (pytorch issue 190489). What is tested
# here is over.
os._exit(0)
