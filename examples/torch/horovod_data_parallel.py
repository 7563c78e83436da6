"""Horovod: gradients are averaged by its DistributedOptimizer, with 16 bits or by Adasum if asked for."""
import horovod.torch as hvd
import torch

import common
import net

chosen = common.options(fp16=(False, "gradients travel with 16 bits"),
                        adasum=(False, "combine gradients by Adasum instead of their mean"))
hvd.init()
where = common.device(chosen, hvd.local_rank())
model = net.whole(chosen.model, seed=1 + hvd.rank()).to(where)
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(model.parameters(), lr=chosen.lr), named_parameters=model.named_parameters(),
    compression=hvd.Compression.fp16 if chosen.fp16 else hvd.Compression.none,
    op=hvd.Adasum if chosen.adasum else hvd.Average)
# Everybody begins with rank 0's weights.
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

data = common.Data(chosen)
meter = common.train(data, hvd.rank(), hvd.size(), common.usual_step(model, optimizer, where))
accuracy = data.accuracy(lambda pictures: model(pictures.to(where)))
values = hvd.allgather(torch.tensor([[meter.rate(), *common.memory()]]))
if hvd.rank() == 0:
    name = "Horovod" + (" fp16" if chosen.fp16 else "") + (" Adasum" if chosen.adasum else "")
    common.report(name, hvd.size(), hvd.cross_size(), where, values[:, 0].sum().item(),
                  values[:, 1:].max(dim=0).values.tolist(), accuracy)
