"""A process for each device: each has the whole net, gradients are averaged during the backward pass."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import common
import net

chosen = common.options()
rank, world, local_rank, hosts = common.place()
where = common.device(chosen, local_rank)
dist.init_process_group(common.backend(where))
model = DistributedDataParallel(net.whole(chosen.model).to(where))
optimizer = torch.optim.Adam(model.parameters(), lr=chosen.lr)
data = common.Data(chosen)
meter = common.train(data, rank, world, common.usual_step(model, optimizer, where))
# Every rank has the same weights now, and so the same accuracy.
accuracy = data.accuracy(lambda pictures: model.module(pictures.to(where)))
(rate, _, _), (_, *memories) = common.total_and_most([meter.rate(), *common.memory()], where)
if rank == 0:
    common.report("DDP", world, hosts, where, rate, memories, accuracy)
del model, optimizer
common.leave()
