"""What torch programs do with the other ranks, one thing after another in one process.

usage: torch_works.py [NAME ...]      without names: all that this torch can do on CPUs

Prints "ok NAME" for each thing that worked; an assertion or an exception ends it.
"""
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def small_net(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def train(model, steps):
    """The mean loss over all ranks, in the first and the last step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(100 + RANK)
    losses = []
    for _ in range(steps):
        x = torch.rand(16, 4, generator=generator)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack([losses[0], losses[-1]])
    dist.all_reduce(mean)
    return (mean / WORLD).tolist()


def equal_everywhere(values):
    gathered = [torch.empty_like(values) for _ in range(WORLD)]
    dist.all_gather(gathered, values)
    return all(torch.equal(gathered[0], other) for other in gathered)


def collectives():
    ones = torch.ones(1000)
    dist.all_reduce(ones)
    assert ones.eq(WORLD).all()
    told = [{"rank": 3, "text": "x" * 5000}] if RANK == WORLD - 1 else [None]
    dist.broadcast_object_list(told, src=WORLD - 1)
    assert told[0]["rank"] == 3 and len(told[0]["text"]) == 5000
    gathered = [None] * WORLD
    dist.all_gather_object(gathered, RANK * RANK)
    assert gathered == [rank * rank for rank in range(WORLD)]
    dist.barrier()


def ddp():
    model = DistributedDataParallel(small_net(1 + RANK))  # made equal by DDP
    first, last = train(model, 60)
    assert last < first / 10, f"loss went from {first} to {last}"
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    assert equal_everywhere(weights)


def new_group():
    """Groups that overlap, of two and of all even ranks; others hold nothing of them."""
    for members in ([0, WORLD - 1], list(range(0, WORLD, 2))):
        group = dist.new_group(members)
        if RANK in members:
            total = torch.tensor([float(RANK)])
            dist.all_reduce(total, group=group)
            assert total.item() == sum(members)
    if VERSION >= (2, 0):  # not without CUDA before
        mine, _ = dist.new_subgroups(2)
        total = torch.tensor([float(RANK)])
        dist.all_reduce(total, group=mine)
        assert total.item() == 2 * (RANK - RANK % 2) + 1


def monitored_barrier():
    dist.monitored_barrier(timeout=timedelta(seconds=30), wait_all_ranks=True)


def store_of_the_job():
    """Several clients of the store that env:// names, in the manner of torch's own tests of it."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    clients = [dist.TCPStore(host, port, None, False, timedelta(seconds=30)) for _ in range(2)]
    a, b = (dist.PrefixStore("of_the_test", client) for client in clients)
    mine = f"rank{RANK}"
    a.set(mine, f"value of {RANK}")
    for rank in range(WORLD):
        assert b.get(f"rank{rank}") == f"value of {rank}".encode()  # waits for it
    a.set(f"{mine}/empty", "")
    assert b.get(f"{mine}/empty") == b""
    a.set(f"{mine}/bytes", bytes(range(256)) * 100)
    assert b.get(f"{mine}/bytes") == bytes(range(256)) * 100
    total = a.add("counter", 3)
    assert total % 3 == 0 and 3 <= total <= 3 * WORLD
    a.set(f"{mine}/done", "1")
    b.wait([f"rank{rank}/done" for rank in range(WORLD)], timedelta(seconds=30))
    assert b.add("counter", 0) == 3 * WORLD
    assert a.add(f"{mine}/below", -5) == -5
    # Of all that want it to be their own number one becomes the first, and everybody sees which.
    won = a.compare_set("leader", "", str(RANK)).decode()
    assert b.get("leader").decode() == won and 0 <= int(won) < WORLD
    assert a.compare_set("leader", "nobody", "me").decode() == won
    assert a.compare_set(f"{mine}/absent", "expected", "new").decode() == "expected"
    assert a.delete_key(mine) and not b.delete_key(mine)
    try:
        b.wait([mine], timedelta(milliseconds=200))
        raise AssertionError("a wait for what is gone came back")
    except RuntimeError as error:  # DistStoreError since 2.1
        assert "imeout" in str(error) or "imed out" in str(error), error
    if VERSION >= (2, 3):
        c = dist.PrefixStore("of_the_test", dist.TCPStore(
            host, port, None, False, timedelta(seconds=30)))
        c.multi_set([f"{mine}/m1", f"{mine}/m2"], ["one", "two"])
        assert b.multi_get([f"{mine}/m2", f"{mine}/m1"]) == [b"two", b"one"]
        c.append(f"{mine}/m1", "more")
        assert b.get(f"{mine}/m1") == b"onemore"
        assert b.check([f"{mine}/m1", f"{mine}/m2"]) and not b.check([f"{mine}/m3"])
        assert clients[0].num_keys() > 2 * WORLD
    if VERSION >= (2, 9):
        a.queue_push(f"{mine}/queue", "first")
        a.queue_push(f"{mine}/queue", "second")
        assert b.queue_len(f"{mine}/queue") == 2
        assert [b.queue_pop(f"{mine}/queue") for _ in range(2)] == [b"first", b"second"]
        after = f"rank{(RANK + 1) % WORLD}/ring"
        a.queue_push(after, str(RANK))
        assert int(b.queue_pop(f"{mine}/ring")) == (RANK - 1) % WORLD  # waits for it
    dist.barrier()


def fsdp():
    from torch.distributed.fsdp import FullyShardedDataParallel
    net = small_net(1)
    whole = sum(parameter.numel() for parameter in net.parameters())
    model = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    held = sum(parameter.numel() for parameter in model.parameters())
    assert held < whole, f"each rank holds {held} of {whole} parameters"
    first, last = train(model, 60)
    assert last < first / 10, f"loss went from {first} to {last}"


def fully_shard():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard as shard
    net = small_net(1)
    shard(net, mesh=init_device_mesh("cpu", (WORLD,)))
    held = sum(parameter.to_local().numel() for parameter in net.parameters())
    whole = sum(parameter.numel() for parameter in net.parameters())
    assert held < whole, f"each rank holds {held} of {whole} parameters"
    first, last = train(net, 60)
    assert last < first / 10, f"loss went from {first} to {last}"


def device_mesh():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    mesh = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("hosts", "ranks"))
    total = torch.tensor([float(RANK)])
    dist.all_reduce(total, group=mesh.get_group("ranks"))
    assert total.item() == 2 * (RANK - RANK % 2) + 1
    rows = DTensor.from_local(torch.full((1, 3), float(RANK)), mesh["hosts"], [Shard(0)])
    column = rows.full_tensor()[:, 0]
    assert column.tolist() == [float(2 * row + RANK % 2) for row in range(WORLD // 2)]


def cube(value):
    return value ** 3 + rpc.get_worker_info().id


def remote_calls():
    rpc.init_rpc(f"worker{RANK}", rank=RANK, world_size=WORLD)
    target = (RANK + 1) % WORLD
    assert rpc.rpc_sync(f"worker{target}", cube, args=(RANK,)) == RANK ** 3 + target
    held = rpc.remote(f"worker{target}", torch.full, args=((2, 2), float(RANK)))
    assert held.to_here().sum().item() == 4 * RANK
    rpc.shutdown()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    assert (dist.get_rank(), dist.get_world_size()) == (RANK, WORLD)
    checks = [collectives, ddp, new_group, monitored_barrier, store_of_the_job, remote_calls]
    if VERSION >= (2, 8):
        checks += [fsdp, fully_shard, device_mesh]
    for check in checks:
        if len(sys.argv) == 1 or check.__name__ in sys.argv[1:]:
            check()
            print("ok", check.__name__, flush=True)
    dist.destroy_process_group()
    print("ok with torch", torch.__version__.split("+")[0], flush=True)


if __name__ == "__main__":
    main()
    # FSDP keeps groups for ever, and a thread of Gloo that still works while Python ends aborts it
    # (pytorch issue 190489). What is tested here is over.
    os._exit(0)
