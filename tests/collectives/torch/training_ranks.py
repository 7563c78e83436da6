"""A rank of torch_test.py that trains; one process that has all ranks' data says what is right. Prints ok.

    training_ranks.py training
"""

import copy
import random
import sys
import warnings

import torch

import dtrun.torch as hvd
from torch_ranks import check, same

warnings.simplefilter("ignore")


def raises(kinds, text, call):
    try:
        call()
    except kinds as error:
        check(text in str(error), error)
        return
    check(False, f"{text!r} was not raised")


def alike(*tensors):
    """Whether all ranks have the same bits."""
    everybody = hvd.allgather_object([tensor.detach().tolist() for tensor in tensors])
    return all(other == everybody[0] for other in everybody)


def inputs(step, rank):
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(100 * step + rank)).double()


def net(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False), torch.nn.Linear(3, 2)).double()


def loss_of(model, given):
    return (model(given) - given[:, :2]).square().mean()


def wrapped(optimizer, model, **options):
    return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)


def run(model, optimizer, steps, alone=False, scheduler=None, before=lambda step: None):
    """:param alone: with the data of all ranks"""
    for step in steps:
        before(step)
        given = torch.cat([inputs(step, rank) for rank in range(hvd.size())]) if alone else inputs(step, hvd.rank())
        optimizer.zero_grad()
        loss_of(model, given).backward()
        with torch.no_grad():  # as some programs do
            optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


# ---- the state of an optimizer ----

def made_before(optimizer, model):
    """A scheduler, and then the wrapped optimizer."""
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    return wrapped(optimizer, model), scheduler


def schedulers(kind, **options):
    """A scheduler that was made before wrapping goes on with what has come from the root, and from its checkpoint."""
    alone = net()
    optimizer = kind(alone.parameters(), lr=0.1, **options)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    run(alone, optimizer, range(2), True, scheduler)
    checkpoint = copy.deepcopy((alone.state_dict(), optimizer.state_dict(), scheduler.state_dict()))
    expected = run(alone, optimizer, range(2, 5), True, scheduler)

    model = net(2 + hvd.rank())
    made, scheduler = made_before(kind(model.parameters(), lr=0.3 + hvd.rank(), **options), model)
    if hvd.rank() == 0:
        model.load_state_dict(checkpoint[0])
        made.load_state_dict(copy.deepcopy(checkpoint[1]))
    scheduler.load_state_dict(checkpoint[2])
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(made, 0)
    trained = run(model, made, range(2, 5), scheduler=scheduler)
    check(same(trained, expected, 1e-12), kind, trained, expected)
    check(made.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"], made.param_groups)
    check(alike(trained))


class Wide(torch.optim.Optimizer):
    """Keeps 32 bits for parameters of 16, and something of its own in state_dict()."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
        self.slow = torch.zeros(3)

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            sums = self.state[p].setdefault("sums", torch.zeros_like(p, dtype=torch.float32))
            sums.add_(p.grad.float())
            self.slow += 1

    def state_dict(self):
        return dict(super().state_dict(), slow=self.slow)

    def load_state_dict(self, state):
        super().load_state_dict({key: value for key, value in state.items() if key != "slow"})
        self.slow = state["slow"].clone()


def wide_states():
    layer = torch.nn.Linear(3, 1, bias=False).bfloat16()
    made = wrapped(Wide(layer.parameters()), layer)
    if hvd.rank() == 0:
        layer.weight.grad = torch.tensor([[1.0, 2.0, 3.0]]).bfloat16()
        Wide.step(made)
    kept = layer.weight.data_ptr(), id(made.param_groups[0])
    for attempt in range(2):  # where it is missing, and where it is there
        hvd.broadcast_optimizer_state(made, 0)
        sums = made.state[layer.weight]["sums"]
        check(sums.dtype == torch.float32 and sums.tolist() == [[1.0, 2.0, 3.0]], sums)
        check(attempt == 0 or sums is earlier, "the tensor stays")
        earlier = sums
    check(made.slow.tolist() == [1.0] * 3 and kept == (layer.weight.data_ptr(), id(made.param_groups[0])))

    state = hvd.elastic.TorchState(optimizer=made)
    sums.zero_()
    if hvd.rank() == 0:  # which has lived on, while others are new
        state.restore()
    state.sync()
    check(made.state[layer.weight]["sums"] is sums and sums.tolist() == [[1.0, 2.0, 3.0]], sums)


def layouts():
    """A state that is missing, here or in what was saved, gets the layout that fused optimizers take it to have."""
    options = {"fused": True} if torch.__version__ >= "2.4" else {}
    given = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1))

    def step():
        made.zero_grad()
        layer(given.contiguous(memory_format=torch.channels_last)).square().sum().backward()
        made.step()

    torch.manual_seed(0)
    layer = torch.nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)
    made = torch.optim.Adam(layer.parameters(), lr=0.1, **options)
    if hvd.rank() == 0:  # as after a checkpoint
        step()
    hvd.broadcast_parameters(layer.state_dict(), 0)
    hvd.broadcast_optimizer_state(made, 0)
    check(made.state[layer.weight]["exp_avg"].stride() == layer.weight.stride(), made.state[layer.weight])
    state = hvd.elastic.TorchState(model=layer, optimizer=made)
    step()
    check(alike(layer.weight), layer.weight)
    expected = layer.weight.detach().clone()
    made.state.clear()
    state.restore()
    check(made.state[layer.weight]["exp_avg"].stride() == layer.weight.stride(), made.state[layer.weight])
    step()
    check(same(layer.weight, expected), layer.weight, expected)


def shared_tensors():
    """What is one tensor on the root is one everywhere, and what is two is two: here, learning rates of groups."""
    parts = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    made = torch.optim.SGD([{"params": [part]} for part in parts], lr=0.1)

    def put(first, second):
        for group, rate in zip(made.param_groups, (first, second)):
            group["rate"] = rate

    one = torch.tensor(0.1)
    put(one, one)
    if hvd.rank() == 0:
        put(torch.tensor(0.5), torch.tensor(0.25))
    hvd.broadcast_optimizer_state(made, 0)
    rates = [group["rate"] for group in made.param_groups]
    check([float(rate) for rate in rates] == [0.5, 0.25] and rates[0] is not rates[1], rates)
    state = hvd.elastic.TorchState(optimizer=made)
    put(one, one)
    state.restore()
    check([float(group["rate"]) for group in made.param_groups] == [0.5, 0.25], made.param_groups)
    if hvd.rank() == 0:
        put(one, one)
    hvd.broadcast_optimizer_state(made, 0)
    check(made.param_groups[0]["rate"] is made.param_groups[1]["rate"], made.param_groups)


def sparse_gradients():
    """Ranks without a state have no dense gradients to which sparse ones would be added."""
    for kind in (torch.optim.SparseAdam, torch.optim.SGD):
        for root_has_state in (False, True):
            layer = torch.nn.Embedding(8, 2, sparse=True)
            made = kind(list(layer.parameters()), lr=0.1)
            if hvd.rank() == 0 and root_has_state:
                layer(torch.tensor([1])).sum().backward()
                made.step()
                layer.weight.grad = None
            made = wrapped(made, layer)
            hvd.broadcast_parameters(layer.state_dict(), 0)
            hvd.broadcast_optimizer_state(made, 0, model=layer)
            layer(torch.tensor([hvd.rank()])).sum().backward()
            check(layer.weight.grad.is_sparse, kind)
            made.step()
            check(alike(layer.weight), layer.weight)


def restored():
    """Some ranks go back to their last commit, and new ones have come: all go on alike, with their schedulers."""
    model = net(hvd.rank())
    made, scheduler = made_before(torch.optim.Adam(model.parameters(), lr=0.1 + hvd.rank()), model)
    state = hvd.elastic.TorchState(model=model, optimizer=made, step=0)
    state.sync()
    run(model, made, range(2), scheduler=scheduler)
    state.step = 2
    state.save()
    loss_of(model, inputs(2, hvd.rank())).backward()  # the loss of a rank comes in the middle of a step
    made.param_groups[0]["lr"] = 7.0
    if hvd.rank() == 0:
        made.synchronize()
        state.restore()
    else:
        made.synchronize()
        made.state.clear()
        state.step = 9
    state.sync()
    trained = run(model, made, range(2, 5), scheduler=scheduler)
    check(alike(trained) and state.step == 2 and made.param_groups[0]["lr"] == 0.1 * 0.5 ** 5, made.param_groups)


def other_groups():
    model = net()
    parts = [list(model[0].parameters()), list(model[1].parameters())]
    made = wrapped(torch.optim.SGD([{"params": part} for part in parts], lr=0.1), model)
    saved = hvd.elastic.TorchState(optimizer=made)
    made.param_groups.pop()
    raises(ValueError, "groups of [1] parameters, and the state is of one with groups of [1, 2]", saved.restore)


# ---- parameters that come later ----

def late_parameters():
    """Added to the optimizer, set free, or frozen after it was wrapped."""
    def add(model, wrap):
        optimizer = wrap(torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9), model)
        return optimizer, lambda step: step == 2 and optimizer.add_param_group(
            {"params": list(model[1].parameters()), "lr": 0.2})

    def add_unnamed(model, wrap):
        return add(model, lambda optimizer, _: hvd.DistributedOptimizer(optimizer) if wrap is wrapped else optimizer)

    def unfreeze(model, wrap):
        model[1].requires_grad_(False)
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        return optimizer, lambda step: step == 2 and model[1].requires_grad_(True)

    def unfreeze_all(model, wrap):
        model.requires_grad_(False)
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        return optimizer, lambda step: model.requires_grad_(True)

    def freeze(model, wrap):
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5), model)
        return optimizer, lambda step: step == 2 and (optimizer.zero_grad(), model[1].requires_grad_(False))

    def freeze_grouped(model, wrap):
        return freeze(model, lambda *given: wrap(*given, groups=1) if wrap is wrapped else wrap(*given))

    def add_grouped(model, wrap):
        groups = [list(model.parameters())[::-1]]  # of which the optimizer has only one
        return add(model, lambda *given: wrap(*given, groups=groups) if wrap is wrapped else wrap(*given))

    for change in (add, add_unnamed, unfreeze, unfreeze_all, freeze, freeze_grouped, add_grouped):
        alone, model = net(), net()
        optimizer, before = change(alone, lambda optimizer, _: optimizer)
        if change in (freeze, freeze_grouped):  # as torch 2 does by itself
            optimizer.zero_grad(set_to_none=True)
        expected = run(alone, optimizer, range(5), True, before=before)
        made, before = change(model, wrapped)
        trained = run(model, made, range(5), before=before)
        check(alike(trained) and same(trained, expected, 1e-12), change.__name__, trained, expected)


# ---- closures ----

def closures():
    def train(model, optimizer, alone):
        losses = []
        for step in range(4):
            ranks = range(hvd.size()) if alone else [hvd.rank()]
            given = torch.cat([inputs(step, rank) for rank in ranks])

            def closure():
                optimizer.zero_grad()
                loss = loss_of(model, given)
                loss.backward()
                return loss
            losses.append(optimizer.step(closure).item())
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()] + [torch.tensor(losses).double()])

    for kind, options in ((torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (torch.optim.LBFGS, {"max_iter": 5}),
                          (torch.optim.LBFGS, {"max_iter": 5, "line_search_fn": "strong_wolfe"})):
        alone, model = net(), net()
        expected = train(alone, kind(alone.parameters(), **options), True)
        made = wrapped(kind(model.parameters(), **options), model)
        trained = train(model, made, False)
        check(alike(trained) and same(trained, expected, 1e-6), kind, options, trained, expected)
    with torch.no_grad():
        made.state[model[0].weight]["d"] *= hvd.rank() + 1  # LBFGS has lists and numbers in its state
    hvd.broadcast_optimizer_state(made, 0)
    check(alike(made.state[model[0].weight]["d"], *made.state[model[0].weight]["old_dirs"]))


def closures_of_other_kinds():
    """Gradients that were there before, accumulated ones, those that a closure reduces itself, no loss."""
    for options in ({}, {"op": hvd.Sum}, {"backward_passes_per_step": 2}):
        models = [net(), net(), net(), net()]
        for model, how in zip(models, ("none", "before", "inside", "clipped")):
            made = wrapped(torch.optim.SGD(model.parameters(), lr=0.1), model, **options)

            def compute():
                for part in range(options.get("backward_passes_per_step", 1)):
                    loss_of(model, inputs(part, hvd.rank())).backward()
                return None if hvd.rank() == 0 else 2.0
            for _ in range(2):
                made.zero_grad()
                if how == "clipped":
                    made.step(lambda: (compute(), made.synchronize()))
                elif how == "inside":
                    loss = made.step(compute)
                    check(loss is None if hvd.rank() == 0 else loss == (2.0 if "op" in options else 1.0), loss)
                else:
                    compute()
                    made.step(None if how == "none" else lambda: None)
        weights = [model[0].weight for model in models]
        check(alike(*weights) and all(same(weights[0], other) for other in weights), options, weights)


def adasum_closures():
    """Each rank's step is its own optimizer's, with or without a closure; later parameters are combined, too."""
    trained = []
    for with_closure in (False, True):
        model = net()
        made = hvd.DistributedOptimizer(torch.optim.SGD(model[0].parameters(), lr=0.1), op=hvd.Adasum)
        made.add_param_group({"params": list(model[1].parameters())})

        def compute():
            made.zero_grad()
            loss = loss_of(model, inputs(0, hvd.rank()))
            loss.backward()
            return loss
        for _ in range(3):
            made.step(compute) if with_closure else (compute(), made.step())
        trained.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    check(alike(*trained) and same(*trained), trained)


# ---- the elastic state ----

class Counter:
    def __init__(self):
        self.value = 0


class CounterHandler(hvd.elastic.StateHandler):
    def save(self):
        self.saved = self.value.value

    def restore(self):
        self.value.value = self.saved

    def sync(self):
        self.value.value = hvd.broadcast_object(self.value.value, 0, "counter")


def states():
    """What is assigned to an elastic state takes the place of what was there."""
    state = hvd.elastic.TorchState(epoch=0)
    check(state.model is None and state.optimizer is None)
    for attempt in range(2):  # in the place of nothing, and of another
        state.model = model = torch.nn.Linear(2, 1)
        state.optimizer = made = torch.optim.SGD(model.parameters(), lr=5.0)
        with torch.no_grad():
            model.weight.fill_(5.0 + hvd.rank())
        state.save()
        with torch.no_grad():
            model.weight.fill_(7.0)
        made.param_groups[0]["lr"] = 7.0
        state.restore()
        check(state.model is model and model.weight.tolist() == [[5.0 + hvd.rank()] * 2], model.weight)
        check(made.param_groups[0]["lr"] == 5.0)
        state.sync()
        check(model.weight.tolist() == [[5.0] * 2], model.weight)
    state.model = None
    state.sync()
    state.restore()
    check(state.model is None)

    registry = hvd.elastic.get_handler_registry()
    hvd.elastic.set_handler_registry([(Counter, CounterHandler), *registry])
    state = hvd.elastic.TorchState(counter=Counter())
    counter = state.counter
    counter.value = hvd.rank() + 3
    state.sync()
    check(state.counter is counter and counter.value == 3)
    state.counter = other = Counter()
    other.value = 8
    state.restore()
    check(other.value == 0, "as it was when it was assigned")
    hvd.elastic.set_handler_registry(registry[1:])


def assigned_on_some_ranks():
    """sync() goes by what rank 0 has: others get it, lose theirs, or all are told why not."""
    is_root = hvd.rank() == 0
    model = net(hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5 + hvd.rank())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, best=None, part=None, plan=None, epoch=0)
    if is_root:
        state.best, state.part, state.epoch = net(7), model[1], 3
        state.plan = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    state.sync()
    check(state.epoch == 3, state.epoch)
    check(state.part.weight is model[1].weight and state.plan.optimizer is optimizer, "they belong to its own")
    check(same(state.best[0].weight, net(7)[0].weight) and state.model is model and alike(model[0].weight))
    optimizer.step()
    state.plan.step()
    check(optimizer.param_groups[0]["lr"] == 0.25, optimizer.param_groups)
    state.sync()  # now all have the same kinds
    if is_root:
        state.best = None
    state.sync()
    check(state.best is None)
    state.best = model if is_root else state.plan
    raises(ValueError, "state.best is of ModelStateHandler", state.sync)
    state.best = model if is_root else torch.nn.Linear(2, 1, bias=False)
    raises(ValueError, "state.best is of ModelStateHandler 3 values", state.sync)
    state.best = torch.optim.SGD(net().parameters(), lr=1.0) if is_root else None
    raises(ValueError, "have no state.best and cannot get rank 0's: it is, or belongs to, an optimizer", state.sync)


EARLY = hvd.elastic.ElasticSampler(range(4), shuffle=False)  # made before init()


def samplers():
    """All ranks' samples of a batch are done with it, in Horovod's order; its checkpoints are read."""
    check(list(EARLY) == list(range(hvd.rank(), 4, hvd.size())), list(EARLY))
    size, order = hvd.size(), list(range(21))
    random.Random(4 + 3).shuffle(order)
    sampler = hvd.elastic.ElasticSampler(range(21), seed=4)
    sampler.set_epoch(3)
    check(sampler.remaining_indices == order and list(sampler) == (order + order)[hvd.rank():len(order) + 1:size])
    check((sampler.num_replicas, sampler.rank, sampler.total_size) == (size, hvd.rank(), 11 * size))
    state = hvd.elastic.TorchState(sampler=sampler)
    for batch in range(2):
        sampler.record_batch(batch, 3)
    check(sampler.processed_num == 6 * size and sampler.processed_indices == set(order[:6 * size]))
    state.save()
    saved = sampler.state_dict()
    sampler.record_batch(2, 3)
    state.restore()
    check(sampler.remaining_indices == order[6 * size:], "those of a rank that is gone are not done again")
    sampler.record_batch(7, 1)  # whatever its number is in the program's own counting
    check(sampler.processed_indices == set(order[:7 * size]), sampler.processed_indices)
    state.restore()
    sampler.record_indices(order[12 + hvd.rank():13 + hvd.rank()])
    sampler.sync()
    check(sampler.remaining_indices == order[6 * size + size:] and sampler.processed_num == 7 * size, sampler)
    for form in (saved, {"epoch": 3, "processed_num": 6 * size}, {"epoch": 3, "processed_indices": order[:12]}):
        again = hvd.elastic.ElasticSampler(range(21), seed=4)
        again.load_state_dict(form)
        check(again.epoch == 3 and again.remaining_indices == order[6 * size:] and again.processed_num == 6 * size)


# ---- what is refused ----

def refusals():
    import numpy
    for call in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter, hvd.allreduce_async,
                 lambda given: hvd.broadcast(given, 0), lambda given: hvd.grouped_allreduce([given])):
        raises(TypeError, "not ndarray: use torch.as_tensor()", lambda: call(numpy.ones(2)))
        raises(TypeError, "not float", lambda: call(1.0))
    ranks = list(range(hvd.size()))
    raises(ValueError, f"root_rank 9 is not among the ranks {ranks}", lambda: hvd.broadcast_object(1, root_rank=9))
    raises(ValueError, f"root_rank '0' is not among the ranks {ranks}", lambda: hvd.broadcast(torch.ones(1), "0"))
    raises(ValueError, "fewer than 0 rows for rank 1", lambda: hvd.alltoall(torch.ones(2), splits=[3, -1]))
    raises(ValueError, "extra, a str and no tensor",
           lambda: hvd.broadcast_parameters({"w": torch.ones(2), "extra": "text"}, 0))
    models = net(), net()
    first, second = (hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1)) for model in models)
    if hvd.rank() == 0:  # others do not have it before this is over
        loss_of(models[0], inputs(0, 0)).backward()
        raises(ValueError, "give both optimizers named_parameters", loss_of(models[1], inputs(0, 0)).backward)
    hvd.barrier()
    if hvd.rank() > 0:
        loss_of(models[0], inputs(0, 0)).backward()
    first.step()
    second.begin_anew()


def training():
    for kind, options in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {})):
        schedulers(kind, **options)
    for part in (wide_states, layouts, shared_tensors, sparse_gradients, restored, other_groups, late_parameters,
                 closures, closures_of_other_kinds,
                 adasum_closures, states, assigned_on_some_ranks, samplers, refusals):
        part()


if __name__ == "__main__":
    hvd.init()
    globals()[sys.argv[1]]()
    hvd.barrier()
    print("ok", flush=True)
