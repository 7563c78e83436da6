"""DDP where the optimizer's state is divided among the ranks: ZeRO's first stage, torch's own."""
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import common
import net

chosen = common.options()
rank, world, local_rank, hosts = common.place()
where = common.device(chosen, local_rank)
dist.init_process_group(common.backend(where))
model = DistributedDataParallel(net.whole(chosen.model).to(where))
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam,
                                    lr=chosen.lr)
data = common.Data(chosen)
meter = common.train(data, rank, world, common.usual_step(model, optimizer, where))
accuracy = data.accuracy(lambda pictures: model.module(pictures.to(where)))
state = sum(value.numel() for values in optimizer.optim.state.values()
            for value in values.values() if torch.is_tensor(value) and value.dim() > 0)
(rate, states, _, _), (_, most, *memories) = common.total_and_most(
    [meter.rate(), state, *common.memory()], where)
if rank == 0:
    common.report("ZeRO-1 (torch)", world, hosts, where, rate, memories, accuracy,
                  largest_share_of_state=round(most / states, 3))
del model, optimizer
common.leave()
