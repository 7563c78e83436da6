"""DeepSpeed's engine: data parallel, with ZeRO of the chosen stage."""
import deepspeed
import torch
from torch.nn.functional import cross_entropy

import common
import net

chosen = common.options(stage=(1, "of ZeRO: 0 is plain data parallelism"),
                        local_rank=(0, "DeepSpeed's own launcher gives it"))
rank, world, _, hosts = common.place()
model = net.whole(chosen.model)
engine, _, _, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(),
    config={"train_micro_batch_size_per_gpu": chosen.batch,
            "zero_optimization": {"stage": chosen.stage},
            # DeepSpeed's own Adam would be compiled first.
            "optimizer": {"type": "Adam", "params": {"lr": chosen.lr, "torch_adam": True}}})
where = torch.device(engine.device)


def step(pictures, labels):
    loss = cross_entropy(engine(pictures.to(where)), labels.to(where))
    engine.backward(loss)
    engine.step()


data = common.Data(chosen)
meter = common.train(data, rank, world, step)
accuracy = data.accuracy(lambda pictures: engine.module(pictures.to(where)))
(rate, _, _), (_, *memories) = common.total_and_most([meter.rate(), *common.memory()], where)
if rank == 0:
    name = "DeepSpeed" + (f" ZeRO-{chosen.stage}" if chosen.stage else "")
    common.report(name, world, hosts, where, rate, memories, accuracy)
engine.destroy()
del engine, model
common.leave(deepspeed.comm.destroy_process_group)
