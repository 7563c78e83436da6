"""A rank of torch_test.py that uses the backend dtrun of torch.distributed: checks things and prints ok.

    backend_ranks.py works|meshes|stalls EVENTS|disagrees|killed|late|limits SEED
"""

import copy
import datetime
import functools
import os
import random
import signal
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.utils._pytree import tree_map_only

from dtrun.torch import _work, backend
from dtrun.torch.basics import shared_worker

from torch_ranks import alike, check, distributed_model, same, train, wait_for_event


def raises(kinds, text, call):
    try:
        call()
    except kinds as error:
        check(text in str(error), error)
        return
    check(False, f"{text!r} was not raised")


# ---- what works ----

def collectives(rank, size):
    values = torch.full((4,), float(rank))
    dist.all_reduce(values)
    check(same(values, torch.full((4,), float(sum(range(size))))))
    parts = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    check([part[0].item() for part in parts] == list(range(size)))
    taken = torch.zeros(size)
    dist.all_to_all_single(taken, torch.arange(float(size)) + 10 * rank)
    check(taken.tolist() == [10.0 * other + rank for other in range(size)])
    own = torch.zeros(1)
    dist.scatter(own, [torch.tensor([float(r)]) for r in range(size)] if rank == 0 else None, 0)
    check(own.item() == rank)
    flags = torch.tensor([rank == 0, False, True])
    dist.all_reduce(flags)
    check(flags.view(torch.uint8).tolist() == [1, 0, 1], "a sum of bools is a bool")


def complex_numbers(rank, size):
    ones = torch.full((3,), complex(rank, 1))
    total = complex(sum(range(size)), size)
    for reduce in (dist.all_reduce, lambda tensor: dist.reduce(tensor, 0)):
        reduced = ones.clone()
        reduce(reduced)
        check(rank > 0 or same(reduced, torch.full((3,), total)), reduced)
    conjugate = ones.clone().conj()  # which torch only marks as that
    dist.group.WORLD.allreduce([conjugate]).wait()
    check(same(conjugate.resolve_conj(), torch.full((3,), total.conjugate())), conjugate)
    own = torch.zeros(1, dtype=torch.complex128)
    dist.reduce_scatter_tensor(own, torch.arange(float(size), dtype=torch.float64) * 1j)
    check(own.item() == size * rank * 1j, own)
    gathered = [torch.zeros((), dtype=torch.complex64) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.tensor(complex(rank, -rank)), gathered)
    check(rank > 0 or [part.item() for part in gathered] == [complex(other, -other) for other in range(size)])
    gathered = [torch.zeros(0, dtype=torch.complex64) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.zeros(0, dtype=torch.complex64), gathered)
    product = torch.tensor(complex(rank + 1, 1))
    expected = torch.tensor([complex(other + 1, 1) for other in range(size)]).prod()
    dist.group.WORLD.allreduce([product], reduce_options(dist.ReduceOp.PRODUCT)).wait()
    check(torch.allclose(product, expected), product)
    raises(ValueError, "does not reduce torch.complex64 with MAX",
           lambda: dist.group.WORLD.allreduce([ones], reduce_options(dist.ReduceOp.MAX)))


def reduce_options(op):
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options


def bits(rank, size):
    """What the library has no arithmetic for is reduced by torch."""
    for dtype in (torch.int16, torch.uint8, torch.int64):
        for op, function in ((dist.ReduceOp.BAND, torch.bitwise_and), (dist.ReduceOp.BOR, torch.bitwise_or),
                             (dist.ReduceOp.BXOR, torch.bitwise_xor)):
            everybodys = [torch.arange(5, dtype=dtype) * 7 + other for other in range(size)]
            expected = functools.reduce(function, everybodys)
            values = everybodys[rank].clone()
            dist.all_reduce(values, op)
            check(torch.equal(values, expected), (op, values, expected))
            values = everybodys[rank].clone()
            dist.reduce(values, size - 1, op)
            check(torch.equal(values, expected if rank == size - 1 else everybodys[rank]), (op, values))
            part = torch.empty(5, dtype=dtype)
            dist.reduce_scatter(part, everybodys, op)
            check(torch.equal(part, everybodys[rank]) or op == dist.ReduceOp.BXOR, (op, part))
    values = torch.full((7,), 1000 + rank, dtype=torch.int16)
    dist.all_reduce(values)
    check(values.tolist() == [sum(1000 + other for other in range(size))] * 7, values)
    flags = torch.tensor([True, rank == 0, False])
    dist.all_reduce(flags, dist.ReduceOp.BXOR)
    check(flags.tolist() == [size % 2 == 1, True, False], flags)
    raises(ValueError, "does not reduce torch.float32 with BAND",
           lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND))


def shapes(rank, size):
    """Only the number of elements has to be the same on both sides."""
    taken = [torch.zeros(2, 3) for _ in range(size)]
    dist.all_to_all(taken, [torch.full((6,), float(rank)) for _ in range(size)])
    check([part[1, 2].item() for part in taken] == list(range(size)))
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3,), -float(rank))])
    check([parts[0][1].item() for parts in lists] == list(range(size)))
    check([parts[1][2].item() for parts in lists] == [-float(other) for other in range(size)])


def sparse(rank, size):
    """Sparse tensors are added up, whatever places they have elements at, and so is an embedding's sparse gradient."""
    other = torch.sparse_coo_tensor([[0]], torch.ones(1), (3 + rank,))
    raises(RuntimeError, "different shapes", lambda: dist.all_reduce(other))
    for dtype in (torch.float32, torch.complex64, torch.int16, torch.float16):
        given = torch.sparse_coo_tensor([[0, rank, rank]], torch.ones(3, 2, dtype=dtype), (size + 1, 2))
        dense = sum(torch.sparse_coo_tensor([[0, other, other]], torch.ones(3, 2, dtype=dtype), (size + 1, 2)).to_dense()
                    for other in range(size))
        dist.group.WORLD.allreduce([given]).wait()
        check(torch.equal(given.to_dense(), dense), given)
    nothing = torch.sparse_coo_tensor(torch.zeros(2, 0), torch.zeros(0), (3, 4))
    dist.all_reduce(nothing)
    check(nothing._nnz() == 0 and nothing.shape == (3, 4), nothing)
    raises(RuntimeError, "unsupported reduction operation MAX", lambda: dist.all_reduce(nothing, dist.ReduceOp.MAX))
    torch.manual_seed(5)
    alone = torch.nn.EmbeddingBag(6, 3, sparse=True)
    model = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(alone))
    words = [torch.tensor([[0, other % 6, 5]]) for other in range(size)]
    model(words[rank]).sum().backward()
    (sum(alone(part).sum() for part in words) / size).backward()
    check(torch.allclose(model.module.weight.grad.to_dense(), alone.weight.grad.to_dense()))


def short_forms(rank, size):
    """What torch's own groups take instead of lists and options; and several tensors of one rank."""
    group = dist.group.WORLD
    values = torch.full((2,), float(rank + 1))
    total = float(sum(range(size + 1)))
    own = values.clone()
    group.allreduce(own).wait()
    check(own.tolist() == [total] * 2, own)
    own = values.clone()
    group.allreduce(own, op=dist.ReduceOp.MAX, timeout=datetime.timedelta(seconds=60)).wait()
    check(own.tolist() == [size] * 2, own)
    group.broadcast(own.fill_(rank), root=1).wait()
    check(own.tolist() == [1] * 2, own)
    own = values.clone()
    group.reduce(own, 0).wait()
    check(rank > 0 or own.tolist() == [total] * 2, own)
    parts = [torch.zeros(2) for _ in range(size)]
    check(group.allgather(parts, values).get_future().wait()[size - 1].tolist() == [size] * 2, parts)
    group.reduce_scatter(own, [torch.full((2,), float(part)) for part in range(size)], dist.ReduceOp.SUM).wait()
    check(own.tolist() == [size * rank] * 2, own)
    group.barrier(timeout=datetime.timedelta(seconds=60)).wait()
    several = [torch.full((2,), rank + place + 1.0) for place in range(2)]
    group.allreduce(several).wait()
    check(several[0].tolist() == several[1].tolist() == [2 * total + size] * 2, several)
    lists = [[torch.zeros(1) for _ in range(2 * size)] for _ in range(2)]
    group.allgather(lists, [torch.tensor([rank + 0.0]), torch.tensor([rank + 0.5])]).wait()
    check([part.item() for part in lists[1]] == [number / 2 for number in range(2 * size)], lists)
    twice = torch.ones(3)
    dist.group.WORLD.allreduce_coalesced([twice, twice]).wait()
    check(twice.tolist() == [size] * 3, twice)
    for text, call in (("invalid root rank 7", lambda: group.broadcast(own, 7)),
                       ("invalid tensor type at index 1", lambda: group.allreduce([own, own.double()])),
                       ("requires non-empty tensor list", lambda: group.allreduce([])),
                       ("requires a single-element tensor list", lambda: group.reduce([own, own], 0)),
                       ("Incorrect input list size 1", lambda: group.scatter([own], [[own]], rank))):
        raises(RuntimeError, text, call)
        raises(ValueError, text, call)
    check(group._device_types == [torch.device("cpu")] and group._get_backend(torch.device("cpu")).name() == "dtrun")


def ring(rank, size, group=None):
    before = torch.zeros(3)  # everybody receives first
    receive = dist.irecv(before, (rank - 1) % size, group=group)
    dist.isend(torch.full((3,), float(rank)), (rank + 1) % size, group=group).wait()
    receive.wait()
    check(before[0].item() == (rank - 1) % size)


def messages(rank, size):
    ring(rank, size)
    ring(rank, size, dist.new_group(list(range(size))))
    # A message does not wait for those of other ranks: rank 2 takes the large one of rank 0 last.
    large, small = torch.ones(16 << 20), torch.ones(4)
    if rank == 0:
        works = [dist.isend(large, 2), dist.isend(small, 1)]
    elif rank == 1:
        dist.recv(small, 0)
        works = [dist.isend(small, 2)]
    else:
        dist.recv(small, 1)
        works = [dist.irecv(large, 0)]
    for work in works:
        work.wait()


def from_anybody(rank, size):
    """Messages come by their tags, and from whoever sends one; what nobody has asked for yet is kept."""
    if rank > 0:
        works = [dist.isend(torch.full((3,), 10.0 * rank + tag), 0, tag=tag) for tag in (1, 2, 3)]
        works.append(dist.isend(torch.zeros(0), 0, tag=4))
        for work in works:
            work.wait()
    else:
        taken = torch.zeros(3)
        for tag in (3, 1):
            others = {dist.recv(taken, tag=tag): taken[0].item() for _ in range(1, size)}
            check(others == {other: 10.0 * other + tag for other in range(1, size)}, others)
        for other in range(1, size):
            check(dist.recv(taken, other, tag=2) == other and taken[2].item() == 10 * other + 2)
            dist.recv(torch.zeros(0), other, tag=4)
        raises(ValueError, "rank 0 is this one", lambda: dist.recv(taken, 0))
    dist.barrier()
    if rank == 1:
        dist.send(torch.ones(4, dtype=torch.int32), 0)
        dist.send(torch.ones(4), 0)
    elif rank == 0:
        raises(RuntimeError, "ranks disagree: rank 1 sends 4 elements of int32, and the tensor that gets them has 4 of "
               "float32", lambda: dist.recv(torch.zeros(4), 1))
        taken = torch.zeros(4)
        dist.recv(taken, 1)
        check(taken.tolist() == [1] * 4, "and all goes on")
        hurried = dist.group.WORLD.recv_anysource([taken], 0)
        raises(RuntimeError, "Timed out waiting 200ms, and the operation goes on",
               lambda: hurried.wait(datetime.timedelta(seconds=0.2)))
    dist.barrier()
    if rank == 1:
        dist.send(torch.full((4,), 7.0), 0)
    elif rank == 0:
        hurried.wait()
        check(taken.tolist() == [7] * 4 and hurried._source_rank() == 1)


def parts_of_all(rank, size):
    """Some ranks make groups, which need not ask the others."""
    if rank > 0:  # rank 0 knows nothing of it
        others = dist.new_group(list(range(1, size)), use_local_synchronization=True)
        values = torch.ones(1)
        dist.all_reduce(values, group=others)
        check(values.item() == size - 1)
        gathered = [None] * (size - 1)
        dist.all_gather_object(gathered, rank, group=others)
        check(gathered == list(range(1, size)))
    pair = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        values = torch.tensor([float(rank + 1)])
        dist.all_reduce(values, group=pair)
        check(values.item() == size + 1)
        ring_of_two = torch.zeros(1)
        peer = size - 1 - rank
        work = dist.isend(torch.tensor([float(rank)]), peer, group=pair)
        check(dist.recv(ring_of_two, group=pair) == peer and ring_of_two.item() == peer)
        work.wait()
    alone = [dist.new_group([other]) for other in range(size)][rank]
    dist.barrier(alone)


def profiles(rank, size):
    """Operations are in torch's profile until they are over."""
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.ones(3))
        ring(rank, size)
    names = [event.name for event in profile.function_events if event.name.startswith("dtrun:")]
    check(sorted(names) == ["dtrun:all_reduce", "dtrun:recv", "dtrun:send"], names)


def handles(rank, size):
    """What a program can ask of an operation."""
    values = torch.ones(4)
    work = dist.all_reduce(values, async_op=True)
    check(work.wait(datetime.timedelta(seconds=60)) and work.is_completed() and work.is_success())
    check(same(work.result()[0], torch.full((4,), float(size))))
    for _ in range(20):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        work.wait()
        check(work.get_future().done() and work.get_future().value(), "its future is complete, too")
    if rank > 0:  # come late
        shared_worker().get("rank 0 has waited in vain")
    work = dist.all_reduce(values, async_op=True)
    if rank == 0:
        raises(RuntimeError, "Timed out waiting 100ms, and the operation goes on",
               lambda: work.wait(datetime.timedelta(seconds=0.1)))
        shared_worker().set("rank 0 has waited in vain", "1")
    check(work.wait())


def wrong_sizes(rank, size):
    """No operation writes past the end of a tensor: they are refused where they are called."""
    memory = torch.zeros(4 * size + 8)
    raises(ValueError, "and the other tensor has 4",
           lambda: dist.all_gather_into_tensor(memory[:4], torch.ones(4)))
    raises(ValueError, "different types", lambda: dist.all_gather_into_tensor(memory.double(), torch.ones(4)))
    raises(ValueError, "and the other tensor has 4", lambda: dist.reduce_scatter_tensor(memory[:4], torch.ones(4)))
    raises(ValueError, "they have to be the same",
           lambda: dist.all_gather([memory[:1]] * size, torch.ones(4)))
    raises(ValueError, "are not",
           lambda: dist.all_to_all_single(memory[:4], torch.ones(4), [4] * size, [1] * size))
    raises(ValueError, "in host memory, not on meta", lambda: dist.all_reduce(torch.ones(2, device="meta")))
    check(not memory.any())


def callbacks(rank, size):
    """A function that waits for an operation may do another one."""
    def again(done):
        return dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0]
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(4)]
    futures = [work.get_future().then(again) for work in works[-1:]]
    check(all(same(future.wait(), torch.full((1000,), float(size * size))) for future in futures))
    # Its own operation is over, for that function too.
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(4)]
    waited = works[-1].get_future().then(lambda _: works[-1].wait(datetime.timedelta(seconds=20)))
    check(waited.wait() is True)


def power_sgd(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        model(torch.full((4, 64), float(rank))).sum().backward()
    check(alike(model.module.weight.grad.reshape(-1)))


def names(rank, size):
    """Groups are found by their names."""
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    everybody = dist.new_group(list(range(size)))
    check(everybody.group_name != dist.group.WORLD.group_name)
    check(same(functional.all_reduce(torch.ones(3), "sum", everybody) + 0, torch.full((3,), float(size))))
    check(init_device_mesh("cpu", (size,)).size() == size)
    before = everybody._get_sequence_number_for_group()
    dist.barrier(everybody)
    dist.all_reduce(torch.ones(1), group=everybody, async_op=True).wait()
    check(everybody._get_sequence_number_for_group() == before + 2)
    mesh = init_device_mesh("cpu", (1, size), mesh_dim_names=("one", "all"))
    check(same(functional.all_reduce(torch.ones(3), "sum", (mesh, 1)) + 0, torch.full((3,), float(size))))


def into_tensors(rank, size):
    """Functional collectives that write into a tensor that is there, with groups of dtrun and of gloo."""
    functional = torch.ops._c10d_functional
    for group in (dist.group.WORLD, dist.new_group(backend="gloo")):
        everybodys, part = torch.empty(2 * size), torch.empty(2)
        functional.wait_tensor(functional.all_gather_into_tensor_out(
            torch.full((2,), float(rank)), size, group.group_name, out=everybodys))
        check(same(everybodys, torch.arange(float(size)).repeat_interleave(2)))
        if hasattr(functional, "reduce_scatter_tensor_out"):  # not in torch 2.6
            for op, factor in (("sum", size), ("max", 1)):
                functional.wait_tensor(functional.reduce_scatter_tensor_out(
                    torch.arange(2.0 * size), op, size, group.group_name, out=part))
                check(same(part, factor * torch.tensor([2.0 * rank, 2.0 * rank + 1])))


class Held(torch.Tensor):
    """A tensor without memory of its own, as FSDP's extensions have them: its elements are in another one."""

    @staticmethod
    def __new__(cls, elements):
        return torch.Tensor._make_wrapper_subclass(cls, elements.shape, elements.stride(), dtype=elements.dtype)

    def __init__(self, elements):
        self.elements = elements

    @classmethod
    def __torch_dispatch__(cls, function, types, args, kwargs=None):
        def elements(tree):
            return tree_map_only(cls, lambda held: held.elements, tree)
        return tree_map_only(torch.Tensor, cls, function(*elements(args), **elements(kwargs or {})))


class Scaled(Held):
    """A quantized tensor, as it were: its second part has another shape, and no sum."""

    scale = torch.ones(1)

    def __tensor_flatten__(self):
        return ["elements", "scale"], None


def held_elsewhere(rank, size):
    values = Held(torch.full((3,), float(rank)))
    dist.all_reduce(values)
    check(same(values.elements, torch.full((3,), float(sum(range(size))))))
    own, parts = Held(torch.zeros(2)), [Held(torch.full((2,), float(part))) for part in range(size)]
    dist.scatter(own, parts if rank == 0 else None, 0)
    check(same(own.elements, torch.full((2,), float(rank))))
    dist.all_gather(parts, Held(torch.full((2,), 10.0 * rank)))
    check([part.elements[1].item() for part in parts] == [10.0 * other for other in range(size)])


def made_of_two(rank, size):
    """Each of the two tensors that one is made of gets its own, also where both are parts of a longer one."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate
    from torch.testing._internal.two_tensor import TwoTensor

    def made(*numbers):
        return TwoTensor(*(torch.full((2,), float(number)) for number in numbers))
    own = made(-1, -1)
    dist.scatter(own, [made(part, part + 50) for part in range(size)] if rank == 0 else None, 0)
    check(same(own.a, made(rank, 0).a) and same(own.b, made(rank + 50, 0).a))
    whole = TwoTensor(torch.empty(2 * size), torch.empty(2 * size))
    dist.all_gather_into_tensor(whole, own)
    check(same(whole.a, torch.arange(float(size)).repeat_interleave(2)) and same(whole.b, whole.a + 50))
    dist.all_reduce(own)
    check(same(own.b, torch.full((2,), 50.0 * size + sum(range(size)))))
    raises(ValueError, "tensors of an operation have to be of one class: Tensor has no 'a'",
           lambda: dist.all_gather_into_tensor(torch.empty(2 * size), own))
    alone, together = made(1, 10), torch.ones(2)
    dist.group.WORLD.allreduce(tensors=[alone]).wait()
    check(same(alone.a, torch.full((2,), 1.0 * size)) and same(alone.b, torch.full((2,), 10.0 * size)))
    raises(ValueError, "tensors of an operation have to be of one class",
           lambda: dist.all_reduce_coalesced([together, alone]))
    wider = TwoTensor(torch.ones(2), torch.ones(2), torch.Size([4]), (1,))
    raises(ValueError, "'a' of TwoTensor has another type or shape than the whole", lambda: dist.all_reduce(wider))
    scaled = Scaled(torch.ones(2))
    raises(ValueError, "'scale' of Scaled has another type or shape than the whole", lambda: dist.all_reduce(scaled))
    check(same(scaled.elements, torch.ones(2)))  # nothing had begun
    raises(ValueError, "a TwoTensor is made of other tensors: give these one by one",
           lambda: dist.send(alone, (rank + 1) % size))
    ragged = torch.nested.nested_tensor([torch.ones(2, 1), torch.ones(3, 1)], layout=torch.jagged)
    raises(ValueError, "unsupported layout", lambda: dist.all_reduce(ragged))
    spread = DTensor.from_local(torch.ones(2), init_device_mesh("cpu", (size,)), [Replicate()], run_check=False)
    raises(ValueError, "a DTensor is spread already", lambda: dist.all_reduce(spread))


def unfinished(rank, size):
    """The result of a functional collective of one group goes into an operation of another, which waits for it."""
    from torch.distributed import _functional_collectives as functional
    slow, length = dist.new_group(), 1_000_000

    def result():
        return functional.all_reduce(torch.ones(length), "sum", slow)
    for _ in range(3):
        own = result()
        dist.all_reduce(own)
        check(same(own + 0, torch.full((length,), 1.0 * size * size)))
        everybodys = [torch.zeros(length) for _ in range(size)]
        dist.all_gather(everybodys, result())
        check(all(same(each, torch.full((length,), 1.0 * size)) for each in everybodys))
        part = torch.empty(length)
        given = [result()] * size
        dist.scatter(part, given if rank == 0 else None, 0)
        given[0].trigger_wait()
        check(same(part, torch.full((length,), 1.0 * size)))
        sent = result()
        message = dist.isend(sent, (rank + 1) % size)
        dist.recv(part, (rank - 1) % size)
        message.wait()
        check(same(part, torch.full((length,), 1.0 * size)))


def compiled(rank, size):
    """torch.compile leaves the group's own code alone, which DDP's C++ calls in a compiled model."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    faster = torch.compile(model, backend="eager")
    for _ in range(3):
        model.zero_grad()
        faster(torch.full((3, 4), float(rank))).sum().backward()
    check(same(model.module.weight.grad, torch.full((2, 4), 3.0 * sum(range(size)) / size)))

    @torch.compile(backend="aot_eager")
    def total(values):
        doubled = 2 * values
        dist.all_reduce(doubled)
        return doubled + 1
    check(same(total(torch.ones(2)), torch.full((2,), 2.0 * size + 1)))


def meshes(rank, size):
    """Two dimensions, of an even number of ranks: tensors in parts of parts, and a model in both."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("data", "model"))
    check((mesh["data"].get_local_rank(), mesh["model"].get_local_rank()) == divmod(rank, size // 2))
    whole = torch.arange(float(8 * size)).reshape(4, -1)
    spread = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    check(same((spread @ spread.T).full_tensor(), whole @ whole.T))
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    alone = copy.deepcopy(model)
    fully_shard(model, mesh=mesh["data"])
    torch.manual_seed(rank // (size // 2))  # ranks of one "model" have the same samples
    samples = torch.rand(6, 8)
    model(samples).sum().backward()
    everybodys = [torch.empty_like(samples) for _ in range(size)]
    dist.all_gather(everybodys, samples)
    (alone(torch.cat(everybodys)).sum() / size).backward()
    for parameter, expected in zip(model.parameters(), alone.parameters()):
        check(torch.allclose(parameter.grad.full_tensor(), expected.grad, atol=1e-5))
    checkpoints(rank, size)
    pipelines(rank, size)


def checkpoints(rank, size):
    """What ranks have saved together, each its part, is read by them in other parts."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(12.0 * size).reshape(3 * size, 4)
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder)
        checkpoint.save({"parts": distribute_tensor(whole, mesh, [Shard(0)]), "step": 7}, checkpoint_id=folder[0])
        read = {"parts": distribute_tensor(torch.zeros_like(whole), mesh, [Shard(1)]), "step": 0}
        checkpoint.load(read, checkpoint_id=folder[0])
        check(same(read["parts"].full_tensor(), whole) and read["step"] == 7)
        dist.barrier()


def pipelines(rank, size):
    """A layer on each rank: what goes forward and back between them, in turn, gives the gradients of one process."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    torch.manual_seed(5)
    alone = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(size)))
    layer, samples, wanted = copy.deepcopy(alone[rank]), torch.rand(4 * size, 6), torch.rand(4 * size, 6)
    loss = torch.nn.functional.mse_loss
    schedule = Schedule1F1B(PipelineStage(layer, rank, size, torch.device("cpu")), 2 * size, loss_fn=loss)
    schedule.step(*[samples] if rank == 0 else [], **{"target": wanted} if rank == size - 1 else {})
    loss(alone(samples), wanted).backward()
    check(torch.allclose(layer.weight.grad, alone[rank].weight.grad, atol=1e-6))


def dropped(rank, size):
    """With an older torch a work that nobody has any more is kept until its outcome was asked for, and not longer."""
    _work._MUST_HOLD, must_hold = True, _work._MUST_HOLD
    group, values = dist.group.WORLD, [torch.ones(1), torch.ones(2)]
    for release in (lambda work: [work.wait() for _ in values], lambda work: work.get_future()):
        group.allreduce_coalesced(values)
        work, = _work._held.values()
        release(work)
        check(not _work._held)
    group.allreduce(values[0]).wait()
    group.allreduce(values[0]).get_future().wait()
    check(not _work._held)
    for _ in range(2 * _work._HELD_MAX):
        _work.OperationWork(work._started, values)
    check(len(_work._held) == _work._HELD_MAX)
    _work._held.clear()
    _work._MUST_HOLD = must_hold


def works(rank, size):
    for part in (dropped, collectives, complex_numbers, bits, shapes, sparse, short_forms, messages, from_anybody,
                 parts_of_all, profiles, handles, wrong_sizes, callbacks, power_sgd, names, into_tensors, held_elsewhere,
                 made_of_two, unfinished, compiled):
        part(rank, size)
    dist.barrier()
    check(alike(train(distributed_model(1 + rank), 10)))
    group = dist.group.WORLD
    dist.barrier()
    group.shutdown()
    raises(RuntimeError, "the communicator is closed", lambda: group.barrier().wait())


# ---- what fails ----

def stalls(rank, size):
    """A rank that does not come is named; and when it comes, all goes on."""
    some = dist.new_group([0, size - 1])
    dist.barrier()
    if rank == size - 1:
        wait_for_event(sys.argv[2], "stalled", "allreduce of 3 f32 (sum), operation 1 of 2 ranks")
    if rank in (0, size - 1):
        values = torch.ones(3)
        dist.all_reduce(values, group=some)
        check(values.tolist() == [2] * 3)
    dist.barrier()


def late(rank, size):
    """A time limit of one operation ends it on all ranks, in torch's own words; and so does that of a group, also one that it
    got when it was there already. An operation may have more time than its group."""
    second, minutes = datetime.timedelta(seconds=1), datetime.timedelta(minutes=10)
    some = [dist.new_group(timeout=limit) for limit in (2 * second, minutes, minutes)]
    distributed_c10d._set_pg_timeout(second, some[2])
    check([group.options._timeout for group in some] == [2 * second, minutes, second])
    done = shared_worker()
    for number, (group, limit) in enumerate(zip(some, (None, second, None))):
        if rank > 0:
            done.get(f"limit {number} has passed")
            raises(RuntimeError, "", lambda: dist.all_reduce(torch.ones(1), group=group))
            continue
        raises(RuntimeError, f"barrier: Timed out waiting {2000 if number == 0 else 1000}ms",
               lambda: group.barrier(*[limit] if limit else []).wait())
        done.set(f"limit {number} has passed", "1")
    patient = dist.new_group(timeout=second)
    if rank > 0:
        time.sleep(3)
    check(patient.barrier(minutes).wait())
    dist.barrier()


def limits(rank, size):
    """A call's time limit ends it at whichever moment it passes, also between two of its steps; behind it, it ends nothing."""
    draw, made = random.Random(int(sys.argv[2])), []
    before_first, between, behind_last, behind, anywhere = range(5)

    class KnownLimit(backend.CallLimit):
        def __init__(self, *arguments):
            made.append(self)
            super().__init__(*arguments)
    backend.CallLimit = KnownLimit

    def expire_at(comm, moment, seconds):
        step, done = comm._do, []

        def do(*arguments):
            if moment == anywhere and not done:
                threading.Timer(seconds, made[-1].expire).start()
            if moment == len(done):
                made[-1].expire()
            step(*arguments)
            done.append(arguments)
            if moment == behind_last == len(done):
                made[-1].expire()
        comm._do = do

    for case in range(10):
        group = dist.new_group()
        dist.barrier()  # a rank that still makes the group would be told that another one has given it up
        moment, length, seconds = draw.randrange(5), draw.choice((1, 1000, 300_000)), draw.uniform(0, 0.005)
        if rank == 0:
            expire_at(group._comm, moment, seconds)
        failure = ""
        try:
            group.allreduce(torch.full((length,), rank), op=dist.ReduceOp.BXOR,
                            timeout=datetime.timedelta(seconds=60)).wait()
        except RuntimeError as error:
            failure = str(error)
        if rank == 0 and moment == behind:
            made[-1].expire()
        if rank == 0 and moment != anywhere:
            check(bool(failure) == (moment != behind), case, moment, failure)
        check(rank > 0 or not failure or failure.startswith("all_reduce: Timed out waiting 60000ms"), failure)
        ended = torch.tensor([bool(failure)])
        dist.broadcast(ended, 0)
        if not ended:
            check(not failure, case, moment, failure)
            total = torch.ones(1)
            dist.all_reduce(total, group=group)
            check(total.item() == size)


def disagrees(rank, size):
    types = dist.new_group([0, 1])
    own = torch.ones(4, dtype=torch.int16 if rank == 0 else torch.float16)
    raises(RuntimeError, "rank 0 on ", lambda: dist.all_gather([own.clone(), own.clone()], own, group=types))
    raises(RuntimeError, "ranks disagree", lambda: dist.all_reduce(torch.ones(4 + rank)))
    raises(RuntimeError, "ranks disagree", dist.barrier)


def killed(rank, size):
    if rank == size - 1:
        for other in range(rank):
            dist.send(torch.ones(4), other)
    else:
        dist.recv(torch.ones(4), size - 1)
    dist.barrier()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raises(RuntimeError, f"rank {size - 1} on ", lambda: dist.all_reduce(torch.ones(4)))
    raises(RuntimeError, f"rank {size - 1} on ", lambda: dist.recv(torch.ones(4), size - 1))
    raises(RuntimeError, f"rank {size - 1} on ", dist.barrier)
    work = dist.all_reduce(torch.ones(4), async_op=True)
    raises(RuntimeError, f"rank {size - 1} on ", work.get_future().wait)
    check(work.is_completed() and not work.is_success() and f"rank {size - 1} on " in str(work.exception()))


def main():
    mode = sys.argv[1]
    dist.init_process_group("dtrun")
    globals()[mode](dist.get_rank(), dist.get_world_size())
    print("ok", flush=True)
    if mode != "works":
        os._exit(0)  # torch's groups are not ended without the others


main()
