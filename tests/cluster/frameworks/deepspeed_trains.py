"""A small net under DeepSpeed's engine with ZeRO-1. Rank 0 tells what it has seen in one line."""
import argparse
import os

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--local_rank", type=int, help="DeepSpeed's own launcher gives it")
parser = deepspeed.add_config_arguments(parser)
arguments = parser.parse_args()
if arguments.local_rank is not None:
    assert arguments.local_rank == int(os.environ["LOCAL_RANK"])

config = {"train_micro_batch_size_per_gpu": 16,
          "zero_optimization": {"stage": 1},
          "optimizer": {"type": "Adam", "params": {"lr": 0.02, "torch_adam": True}}}
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                       config=config)
rank, world = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
generator = torch.Generator().manual_seed(100 + rank)
losses = []
for _ in range(arguments.steps):
    x = torch.rand(16, 4, generator=generator)
    loss = torch.nn.functional.mse_loss(engine(x), x.sum(dim=1, keepdim=True))
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 5, f"loss went from {losses[0]} to {losses[-1]}"

weights = torch.cat([parameter.detach().flatten() for parameter in engine.module.parameters()])
gathered = [torch.empty_like(weights) for _ in range(world)]
torch.distributed.all_gather(gathered, weights)
assert all(torch.equal(weights, other) for other in gathered)
if rank == 0:
    print(f"{world} ranks of stage {engine.zero_optimization_stage()} over"
          f" {torch.distributed.get_backend()}, argument --local_rank {arguments.local_rank}",
          flush=True)
# A thread of Gloo that still works while Python ends aborts it (pytorch issue 190489). What is tested
# here is over.
os._exit(0)
