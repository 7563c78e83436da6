"""One process, the net cut into two halves on two devices, which take turns: a larger net, no more speed.

Without two GPUs both halves are on the same device; pipeline.py has them in two processes.
"""
import torch
from torch.nn.functional import cross_entropy

import common
import net

chosen = common.options()
first, second = net.halves(chosen.model)
there = common.device(chosen, 0), common.device(chosen, 1)
first, second = first.to(there[0]), second.to(there[1])
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=chosen.lr)


def forward(pictures):
    return second(first(pictures.to(there[0])).to(there[1]))


def step(pictures, labels):
    optimizer.zero_grad()
    loss = cross_entropy(forward(pictures), labels.to(there[1]))
    loss.backward()
    optimizer.step()
    if there[1].type == "cuda":
        torch.cuda.synchronize(there[1])


data = common.Data(chosen)
meter = common.train(data, 0, 1, step)
accuracy = data.accuracy(forward)
common.report("model parallel, 1 process", 1, 1, " + ".join(map(str, there)), meter.rate(),
              common.memory(), accuracy)
