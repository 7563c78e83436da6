"""One linear layer under DeepSpeed's engine."""
import gc

import deepspeed
import torch
# While there is no process group: its functions would keep that for ever, as their default.
import torch.distributed.nn

config = {"train_micro_batch_size_per_gpu": 8,
          "optimizer": {"type": "Adam", "params": {"lr": 0.01}}}
model = torch.nn.Linear(4, 1)
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                       config=config)
for step in range(20):
    x = torch.rand(8, 4, device=engine.device)
    loss = torch.nn.functional.mse_loss(engine(x), x.sum(dim=1, keepdim=True))
    engine.backward(loss)
    engine.step()
if torch.distributed.get_rank() == 0:
    print(f"{torch.distributed.get_world_size()} ranks: loss {loss.item():.3f}")
# Gloo's threads end with the group, once nothing holds it: working on, they would abort Python's end.
engine.destroy()
del engine, model, loss, x
gc.collect()
deepspeed.comm.destroy_process_group()
