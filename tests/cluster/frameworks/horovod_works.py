"""What Horovod programs do with the other ranks, one thing after another in one process: with Gloo, or
with MPI if HOROVOD_CONTROLLER says so.

Prints "ok NAME" for each thing that worked; an assertion or an exception ends it.
"""
import os

import torch

import horovod.torch as hvd

WITH_MPI = os.environ["HOROVOD_CONTROLLER"] == "mpi"


def equal_everywhere(values):
    gathered = hvd.allgather(values.reshape(1, -1))
    return all(torch.equal(gathered[0], other) for other in gathered)


def small_net(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def train(steps=30, **more):
    """Trains with DistributedOptimizer. The mean loss of all ranks, in the first and last step."""
    model = small_net(seed=1 + hvd.rank())  # made equal by the broadcast
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **more)
    generator = torch.Generator().manual_seed(100 + hvd.rank())
    losses = []
    for _ in range(steps):
        x = torch.rand(16, 4, generator=generator)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert equal_everywhere(flat)
    return hvd.allreduce(torch.stack([losses[0], losses[-1]]), name="losses").tolist()


def place():
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        assert getattr(hvd, name)() == int(os.environ["DTRUN_" + name.upper()]), name
    assert hvd.mpi_enabled() == WITH_MPI and hvd.gloo_enabled() == (not WITH_MPI)


def collectives():
    rank, size = hvd.rank(), hvd.size()
    mean = hvd.allreduce(torch.full((1000,), float(rank)))
    assert mean.eq((size - 1) / 2).all()
    assert hvd.allreduce(torch.tensor([rank]), op=hvd.Sum).item() == size * (size - 1) // 2
    blocks = hvd.allgather(torch.full((rank + 1, 2), rank))
    assert blocks[:, 0].tolist() == [r for r in range(size) for _ in range(r + 1)]
    told = hvd.broadcast(torch.full((3,), float(rank)), root_rank=size - 1)
    assert told.eq(size - 1).all()
    sent = torch.arange(size) + 100 * rank
    assert hvd.alltoall(sent).tolist() == [rank + 100 * r for r in range(size)]
    told = hvd.broadcast_object({"text": "x" * 5000} if rank == 0 else None, name="told")
    assert told["text"] == "x" * 5000
    hvd.barrier()


def optimizer():
    first, last = train()
    assert last < first / 2, (first, last)


def fp16():
    first, last = train(compression=hvd.Compression.fp16)
    assert last < first / 2, (first, last)


def process_sets():
    rank, size = hvd.rank(), hvd.size()
    chosen = [hvd.add_process_set([r for r in range(size) if r % 2 == odd]) for odd in (0, 1)]
    mine = chosen[rank % 2]
    assert mine.included() and not chosen[1 - rank % 2].included() and mine.rank() == rank // 2
    total = hvd.allreduce(torch.tensor([float(rank)]), op=hvd.Sum, process_set=mine,
                          name=f"of {rank % 2}")
    assert total.item() == sum(mine.ranks)
    for process_set in chosen:
        assert hvd.remove_process_set(process_set)


def again():
    for _ in range(3):
        hvd.shutdown()
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def adasum():
    """Scaled sums of pairs, then of pairs of these: what two gradients have in common counts once."""
    def pair(a, b):
        product = a @ b
        return (1 - product / (2 * (a @ a))) * a + (1 - product / (2 * (b @ b))) * b

    size = hvd.size()
    generator = torch.Generator().manual_seed(7)
    sums = [torch.rand(1001, generator=generator, dtype=torch.float64) - 0.3 for _ in range(size)]
    result = hvd.allreduce(sums[hvd.rank()], op=hvd.Adasum)
    while len(sums) > 1:
        sums = [pair(a, b) for a, b in zip(sums[::2], sums[1::2])]
    assert torch.allclose(result, sums[0], rtol=1e-12, atol=1e-12)
    first, last = train(op=hvd.Adasum)
    assert last < first / 2, (first, last)


hvd.init()
# MPI can be finalized once only, and Adasum on processors is MPI's.
for check in (place, collectives, optimizer, fp16, process_sets, adasum if WITH_MPI else again):
    check()
    print(f"ok {check.__name__}", flush=True)
hvd.shutdown()
