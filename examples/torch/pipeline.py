"""The two halves of the net in two processes, which may be on two hosts.

With --micro-batches 1 one half waits while the other works: manual model parallelism. With more the
first half is already at the next micro-batch while the second works on the last.
"""
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import common
import net

chosen = common.options(micro_batches=(4, "parts that a batch is cut into"))
rank, world, local_rank, hosts = common.place()
if world != 2:
    raise SystemExit(f"the net has two halves, so this needs 2 processes, not {world}")
where = common.device(chosen, local_rank)
dist.init_process_group(common.backend(where))
parts = net.halves(chosen.model)
between = parts[0](torch.zeros(1, 1, 28, 28)).shape[1:]  # of what goes from one half to the other
half = parts[rank].to(where)
optimizer = torch.optim.Adam(half.parameters(), lr=chosen.lr)


def step_of_first(pictures, _):
    optimizer.zero_grad()
    outputs, sent = [], []
    for part in pictures.chunk(chosen.micro_batches):
        outputs.append(half(part.to(where)))
        content = outputs[-1].detach().contiguous()
        sent.append((dist.isend(content, dst=1), content))  # kept until it is sent
    for output in outputs:
        gradient = torch.empty_like(output)
        dist.recv(gradient, src=1)
        output.backward(gradient)
    for request, _ in sent:
        request.wait()
    optimizer.step()


def step_of_second(_, labels):
    optimizer.zero_grad()
    parts_of_labels = labels.chunk(chosen.micro_batches)
    inputs = [torch.empty(len(part), *between, device=where) for part in parts_of_labels]
    coming = [dist.irecv(content, src=0) for content in inputs]
    sent = []
    for part, content, request in zip(parts_of_labels, inputs, coming):
        request.wait()
        content.requires_grad_()
        loss = cross_entropy(half(content), part.to(where), reduction="sum") / len(labels)
        loss.backward()
        sent.append(dist.isend(content.grad, dst=0))
    optimizer.step()
    for request in sent:
        request.wait()


def predict(pictures):
    """Both ranks go through the test pictures together; only the second learns the scores."""
    if rank == 0:
        output = half(pictures.to(where))
        dist.send(output.contiguous(), dst=1)
        return torch.zeros(len(pictures), 10)
    content = torch.empty(len(pictures), *between, device=where)
    dist.recv(content, src=0)
    return half(content)


data = common.Data(chosen)  # the same on both: one uses the pictures, the other the labels
meter = common.train(data, 0, 1, step_of_first if rank == 0 else step_of_second)
accuracy = data.accuracy(predict)
_, memories = common.total_and_most(list(common.memory()), where)
if rank == 1:
    name = "model parallel" if chosen.micro_batches == 1 else "pipelined model parallel"
    common.report(name, world, hosts, where, meter.rate(), memories, accuracy,
                  micro_batches=chosen.micro_batches)
common.leave()
