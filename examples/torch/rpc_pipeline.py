"""Rank 0 drives: it calls the halves of the net on ranks 0 and 1 by torch.distributed.rpc.

Autograd and the optimizer work across the processes. Micro-batches are under way at the same time.
"""
import torch
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer
from torch.nn.functional import cross_entropy

import common
import net

chosen = common.options(micro_batches=(4, "parts that a batch is cut into"))
rank, world, _, hosts = common.place()
if world != 2:
    raise SystemExit(f"the net has two halves, so this needs 2 processes, not {world}")


class Half(torch.nn.Module):
    """Lives on one of the ranks; others hold a reference. RPC brings main memory only."""

    def __init__(self, size, number):
        super().__init__()
        self.where = common.device(chosen, number)
        self.layers = net.halves(size)[number].to(self.where)

    def forward(self, inputs):
        return self.layers(inputs.to(self.where)).cpu()

    def references(self):
        return [rpc.RRef(parameter) for parameter in self.parameters()]


def drive():
    halves = [rpc.remote(f"rank{number}", Half, args=(chosen.model, number)) for number in (0, 1)]
    parameters = [one for half in halves for one in half.rpc_sync().references()]
    optimizer = DistributedOptimizer(torch.optim.Adam, parameters, lr=chosen.lr)

    def step(pictures, labels):
        with autograd.context() as context:
            middle = [halves[0].rpc_async().forward(part)
                      for part in pictures.chunk(chosen.micro_batches)]
            scores = [halves[1].rpc_async().forward(output.wait()) for output in middle]
            loss = cross_entropy(torch.cat([output.wait() for output in scores]), labels)
            autograd.backward(context, [loss])
            optimizer.step(context)

    def predict(pictures):
        return halves[1].rpc_sync().forward(halves[0].rpc_sync().forward(pictures))

    data = common.Data(chosen)
    meter = common.train(data, 0, 1, step)
    accuracy = data.accuracy(predict)
    both = [common.memory(), rpc.rpc_sync("rank1", common.memory)]
    where = common.device(chosen)
    common.report("RPC pipeline", world, hosts, where, meter.rate(),
                  [max(values) for values in zip(*both)], accuracy,
                  micro_batches=chosen.micro_batches)


if __name__ == "__main__":
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world)
    if rank == 0:
        drive()
    rpc.shutdown()
