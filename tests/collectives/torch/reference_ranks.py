"""A rank that trains drawn programs beside one process that has all ranks' data; they have to agree. Prints ok.

    reference_ranks.py SEED CASES        that many programs, drawn by the seed
    reference_ranks.py SEED mutants      functions as they were before faults were mended: each has to be found
    reference_ranks.py SEED CASES FOLDER beside Horovod's own functions.py, optimizer.py and elastic states, which are in
                                         that folder, over dtrun's operations; under --horovod-shim

A program is an optimizer, a scheduler that was made before it was wrapped or after, groups, parameters that are frozen,
added, shared or sparse, closures, accumulation, clipping, compression, types, a checkpoint that only the root has read,
an elastic state. In 64 bits without compression the ranks' weights are those of the one process; in other formats they
are near. In all of them all ranks have the same bits, learning rates and types of state. What fails is made smaller,
choice by choice, as long as it fails, and printed.
"""

import contextlib
import copy
import dataclasses
import importlib
import importlib.util
import random
import sys
import typing
import warnings

import torch

import dtrun.torch as hvd
import dtrun.torch.functions
import dtrun.torch.optimizer

warnings.simplefilter("ignore")
STEPS = 5
OPTIMIZERS = {
    "SGD": {"lr": 0.1}, "Momentum": {"lr": 0.1, "momentum": 0.9, "nesterov": True}, "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01, "amsgrad": True}, "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1}, "Adadelta": {}, "Adamax": {}, "NAdam": {}, "RAdam": {}, "ASGD": {"lr": 0.1},
    "LBFGS": {"lr": 0.1, "max_iter": 3, "history_size": 4}}
SCHEDULERS = {
    "ExponentialLR": lambda lr, opt: lr.ExponentialLR(opt, 0.7), "StepLR": lambda lr, opt: lr.StepLR(opt, 2, 0.3),
    "CosineAnnealingLR": lambda lr, opt: lr.CosineAnnealingLR(opt, 7),
    "LambdaLR": lambda lr, opt: lr.LambdaLR(opt, lambda step: 1.0 / (1 + step)),
    "OneCycleLR": lambda lr, opt: lr.OneCycleLR(opt, [0.05] * len(opt.param_groups), total_steps=2 * STEPS,
                                                cycle_momentum=False),
    "ReduceLROnPlateau": lambda lr, opt: lr.ReduceLROnPlateau(opt, factor=0.5, patience=0)}
COMPRESSIONS = ("none", "fp16", "bf16", "int8")


@dataclasses.dataclass
class Case:
    """A program. The first value of each choice is the plainest."""

    optimizer: str = "SGD"
    scheduler: str = ""
    made_before: bool = False  # the scheduler, before the optimizer is wrapped
    groups: int = 1  # of parameters, the second with another learning rate
    frozen: bool = False  # a layer
    unfrozen_at: int = -1  # a step
    added_at: int = -1  # a layer, as a group of its own
    shared: bool = False  # two layers have one weight
    sparse: str = ""  # an embedding's gradients: "sparse", or "dense" when they are sent
    closure: bool = False
    passes: int = 1
    clipped: bool = False
    op: str = "Average"
    predivide: float = 1.0
    bunches: int = 0  # groups of gradients that are one operation
    compression: str = "none"
    dtype: str = "float64"
    autocast: bool = False
    resumed: bool = False  # from a checkpoint that the root alone has read
    elastic: str = ""  # "restored": two steps are taken back; "replaced": with a model and optimizer put in later

    def is_exact(self):
        return self.dtype == "float64" and self.compression == "none" and not self.autocast


def draw(rng):
    """A case that torch itself allows."""
    chance = lambda part: rng.random() < part  # noqa: E731
    case = Case(optimizer=rng.choice(list(OPTIMIZERS)), scheduler=rng.choice(["", *SCHEDULERS]),
                made_before=chance(0.5), groups=rng.choice((1, 2)), frozen=chance(0.3), shared=chance(0.2),
                closure=chance(0.3), passes=rng.choice((1, 1, 2, 3)), clipped=chance(0.2),
                op=rng.choice(("Average", "Average", "Sum")), bunches=rng.choice((0, 0, 1, 2)),
                compression=rng.choice(("none",) * 4 + COMPRESSIONS), resumed=chance(0.3),
                dtype=rng.choice(("float64",) * 4 + ("float32", "bfloat16")), autocast=chance(0.1),
                elastic=rng.choice(("", "", "", "restored", "replaced")))
    if case.frozen and chance(0.6):
        case.unfrozen_at = rng.randrange(1, STEPS)
    if chance(0.3):
        case.added_at = rng.randrange(1, STEPS)
    if chance(0.3):
        case.predivide = float(hvd.size())
    if chance(0.2):
        case.sparse = rng.choice(("sparse", "dense"))
    return possible(case)


def possible(case):
    """Without what torch, or the function itself, refuses; and what cannot be compared."""
    case = dataclasses.replace(case)
    if case.optimizer == "LBFGS":  # one group, closures, and nothing sparse
        case.closure, case.groups, case.added_at, case.sparse = True, 1, -1, ""
        case.dtype, case.compression = "float64", "none"  # a line search in few bits goes anywhere
        case.autocast = False
        case.scheduler = "" if case.scheduler == "OneCycleLR" else case.scheduler
    if case.closure:
        case.passes, case.clipped = 1, False
    if case.sparse:
        case.optimizer = case.optimizer if case.optimizer in ("SGD", "Adagrad") else "SGD"
        case.clipped, case.bunches, case.compression, case.autocast, case.dtype = False, 0, "none", False, "float64"
    if case.op == "Sum":
        case.predivide = 1.0
    if case.scheduler and (case.added_at >= 0 or case.elastic == "replaced"):
        case.scheduler = ""  # it knows the groups that there were, and the optimizer that there was
    if case.optimizer == "Adagrad" and torch.__version__.startswith("1."):
        case.added_at = -1  # which it does not know there
    if not case.scheduler:
        case.made_before = False
    if not case.frozen:
        case.unfrozen_at = -1
    if case.dtype == "bfloat16" or not hasattr(torch.amp, "GradScaler"):  # torch 1 has none for processors
        case.autocast = False
    return case


class Net(torch.nn.Module):
    def __init__(self, case, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.table = torch.nn.Embedding(6, 4, sparse=True) if case.sparse else None
        self.one = torch.nn.Linear(4, 4)
        self.two = torch.nn.Linear(4, 4)
        self.three = torch.nn.Linear(4, 2)
        self.later = torch.nn.Linear(4, 2) if case.added_at >= 0 else None
        if case.shared:
            self.two.weight = self.one.weight
        self.to(getattr(torch, case.dtype))
        if case.frozen:
            for p in self.two.parameters():
                p.requires_grad_(False)

    def forward(self, given, uses_later):
        values, words = given
        hidden = torch.tanh(self.one(values if self.table is None else values + self.table(words)))
        hidden = torch.tanh(self.two(hidden))
        return self.three(hidden) + (self.later(hidden) if uses_later else 0)


def batch(case, step, turn, rank):
    """What a rank has in one backward()."""
    generator = torch.Generator().manual_seed(1000 * step + 100 * turn + rank)
    values = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    words = torch.randint(0, 6, (6,), generator=generator)
    return values.to(getattr(torch, case.dtype)), words


class Training:
    """One of the two: `alone` has the data of all ranks and a plain optimizer."""

    def __init__(self, case, alone, seed):
        self.case, self.alone = case, alone
        self.model = Net(case, seed)
        self.step_number = 0
        self.plain = self.make_optimizer(1.0 if alone else 1.0 + seed)
        self.scheduler = None
        if case.scheduler and case.made_before:
            self.scheduler = self.make_scheduler(self.plain)
        self.optimizer = self.plain if alone else self.wrap(self.plain)
        if case.scheduler and not case.made_before:
            self.scheduler = self.make_scheduler(self.optimizer)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0) if case.autocast else None

    def make_optimizer(self, factor):
        options = dict(OPTIMIZERS[self.case.optimizer])
        kind = getattr(torch.optim, "SGD" if self.case.optimizer == "Momentum" else self.case.optimizer)
        layers = [layer for layer in (self.model.table, self.model.one, self.model.two, self.model.three) if layer]
        params = list(dict.fromkeys(p for layer in layers for p in layer.parameters()))
        if "lr" in options:
            options["lr"] *= factor
        if self.case.groups == 1:
            return kind(params, **options)
        return kind([{"params": params[:2]}, {"params": params[2:], "lr": 0.02 * factor}], **options)

    def make_scheduler(self, optimizer):
        return SCHEDULERS[self.case.scheduler](torch.optim.lr_scheduler, optimizer)

    def wrap(self, plain):
        case = self.case
        return hvd.DistributedOptimizer(
            plain, named_parameters=self.model.named_parameters(), backward_passes_per_step=case.passes,
            op=getattr(hvd, case.op), gradient_predivide_factor=case.predivide,
            groups=case.bunches or None, sparse_as_dense=case.sparse == "dense",
            compression=getattr(hvd.Compression, case.compression))

    def given(self, turn):
        if not self.alone:
            return batch(self.case, self.step_number, turn, hvd.rank())
        parts = [batch(self.case, self.step_number, turn, rank) for rank in range(hvd.size())]
        return tuple(torch.cat(part) for part in zip(*parts))

    def backward(self, turn):
        uses_later = self.case.added_at >= 0 and self.step_number >= self.case.added_at
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.case.autocast):
            given = self.given(turn)
            loss = (self.model(given, uses_later) - given[0][:, :2]).square().mean()
        if self.alone and self.case.op == "Sum":
            loss = loss * hvd.size()
        (self.scaler.scale(loss) if self.scaler and not self.case.closure else loss).backward()
        return loss.detach()

    def step(self):
        case, optimizer = self.case, self.optimizer
        if self.step_number == case.unfrozen_at:
            for p in self.model.two.parameters():
                p.requires_grad_(True)
        if self.step_number == case.added_at:
            optimizer.add_param_group({"params": list(self.model.later.parameters()), "lr": 0.05})
        if case.closure:
            def closure():
                optimizer.zero_grad()
                return self.backward(0)
            loss = optimizer.step(closure)
        else:
            optimizer.zero_grad()
            loss = sum(self.backward(turn) for turn in range(case.passes))
            self.step_plainly()
        if self.scheduler is not None:
            self.step_scheduler(loss)
        self.step_number += 1

    def step_plainly(self):
        """With what programs do between backward() and step()."""
        stepped = self.scaler.step if self.scaler else lambda optimizer: optimizer.step()
        if self.case.clipped or self.scaler:
            if not self.alone:
                self.optimizer.synchronize()
            if self.scaler:
                self.scaler.unscale_(self.optimizer)
            if self.case.clipped:
                torch.nn.utils.clip_grad_norm_([p for p in self.model.parameters() if p.grad is not None], 0.5)
            if self.alone:
                stepped(self.optimizer)
            else:
                with self.optimizer.skip_synchronize():
                    stepped(self.optimizer)
        else:
            stepped(self.optimizer)
        if self.scaler:
            self.scaler.update()

    def step_scheduler(self, loss):
        if self.case.scheduler != "ReduceLROnPlateau":
            self.scheduler.step()
            return
        loss = loss.double()
        if not self.alone and not self.case.closure:  # step(closure) has that of all ranks
            loss = hvd.allreduce(loss.reshape(1), name="loss", op=getattr(hvd, self.case.op))[0]
        self.scheduler.step(float(loss) if self.case.is_exact() else 1.0)

    def take(self, checkpoint):
        model, optimizer, scheduler, number = copy.deepcopy(checkpoint)
        self.step_number = number
        if model is not None:
            self.model.load_state_dict(model)
            self.optimizer.load_state_dict(optimizer)
        if scheduler is not None:
            self.scheduler.load_state_dict(scheduler)

    def checkpoint(self):
        return copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict(),
                              self.scheduler.state_dict() if self.scheduler else None, self.step_number))

    def outcome(self):
        """Weights; and what has to be equal in the one process, too: learning rates, and the types of state."""
        weights = torch.cat([p.detach().double().reshape(-1) for p in self.model.parameters()])
        rates = [group["lr"] for group in self.optimizer.param_groups]
        kinds = [{name: str(value.dtype) for name, value in self.optimizer.state[p].items() if torch.is_tensor(value)}
                 for group in self.optimizer.param_groups for p in group["params"] if p in self.optimizer.state]
        return weights, rates, kinds


def trained_alone(case):
    training = Training(case, True, 1)
    checkpoint = None
    for number in range(STEPS):
        if number == resumed_at(case):
            checkpoint = training.checkpoint()
            if number > 0:
                training.take(checkpoint)  # load_state_dict() gives some states another type
        training.step()
    return training.outcome(), checkpoint


def resumed_at(case):
    """The step with which the ranks begin."""
    is_later = case.added_at in (0, 1) or case.unfrozen_at in (0, 1)  # a state of them would be missing
    return 2 if case.resumed and not is_later else 0


def trained(case, checkpoint):
    """What the ranks make of the same."""
    training = Training(case, False, 1 + hvd.rank())
    model, optimizer, scheduler, number = checkpoint
    if hvd.rank() == 0:
        training.take((model, optimizer, scheduler, number))
    else:
        training.take((None, None, scheduler, number))  # as a program reads the number of the epoch on all ranks
    hvd.broadcast_parameters(training.model.state_dict(), 0)
    hvd.broadcast_optimizer_state(training.optimizer, 0, training.model)  # which tells what is sparse
    state = None
    if case.elastic:
        state = hvd.elastic.TorchState(model=training.model, optimizer=training.optimizer)
        if case.elastic == "replaced":
            replace(case, training, state)
    while training.step_number < STEPS:
        if case.elastic and training.step_number == 3 and case.added_at != 3 and case.unfrozen_at != 3:
            take_back(training, state)
        training.step()
    return training.outcome()


def replace(case, training, state):
    other = Training(case, False, 7)
    other.take(training.checkpoint())
    state.model, state.optimizer = other.model, other.optimizer
    training.model, training.optimizer = other.model, other.optimizer
    state.save()


def take_back(training, state):
    """A step that is lost, as when a rank dies after it."""
    scheduler = copy.deepcopy(training.scheduler.state_dict()) if training.scheduler else None
    state.save()
    training.step()
    state.restore()
    training.step_number -= 1
    if scheduler is not None:
        training.scheduler.load_state_dict(scheduler)
    state.sync()


def differences(case):
    """What is not as it has to be, in words; empty if all is."""
    try:
        (wanted, wanted_rates, wanted_kinds), checkpoint = trained_alone(case)
        weights, rates, kinds = trained(case, checkpoint)
    except Exception as error:  # the case is shown with it
        return f"{type(error).__name__}: {error}"
    found = []
    everybody = hvd.allgather_object((weights.tolist(), rates, kinds), "outcomes")
    for what, values in zip(("weights", "learning rates", "types of state"), zip(*everybody)):
        if any(value != values[0] for value in values):
            found.append(f"ranks have different {what}: {values if what != 'weights' else ''}")
    near = 1e-9 if case.is_exact() else 0.2
    away = ((weights - wanted).norm() / wanted.norm()).item()
    if not away <= near:
        found.append(f"weights are {away:.3g} away from those of one process")
    if rates != wanted_rates and not torch.allclose(torch.tensor(rates), torch.tensor(wanted_rates), rtol=1e-12):
        found.append(f"learning rates are {rates}, those of one process {wanted_rates}")
    for mine, other in zip(kinds, wanted_kinds):
        if mine != other:
            found.append(f"types of state are {mine}, those of one process {other}")
            break
    return "; ".join(found)


def fails(case):
    """On any rank: all ranks have to go on alike."""
    mine = differences(case)
    return next((other for other in hvd.allgather_object(mine, "differences") if other), "")


def smaller(case, failure):
    """The plainest program that fails as well, one choice after the other."""
    plain, changed = Case(), True
    while changed:
        changed = False
        for field in dataclasses.fields(Case):
            if getattr(case, field.name) == getattr(plain, field.name):
                continue
            tried = possible(dataclasses.replace(case, **{field.name: getattr(plain, field.name)}))
            if tried != case and (told := fails(tried)):
                case, failure, changed = tried, told, True
    return case, failure


def words_of(case):
    plain = Case()
    chosen = {field.name: getattr(case, field.name) for field in dataclasses.fields(Case)
              if getattr(case, field.name) != getattr(plain, field.name)}
    return ", ".join(f"{name}={value!r}" for name, value in chosen.items()) or "the plainest case"


def search(seed, count):
    """The first case that fails, or None."""
    rng = random.Random(seed)
    for number in range(count):
        case = draw(rng)
        if failure := fails(case):
            return number, *smaller(case, failure)
    return None


# ---- Horovod's own functions ----

def as_horovod_can(case):
    """Without what goes wrong in Horovod, or in the formats of dtrun alone."""
    compression = case.compression if case.compression in ("none", "fp16") else "none"
    # A step with gradients of zero, by which Horovod makes the state of an optimizer that has none, counts for Adam,
    # and changes weights that decay.
    case = dataclasses.replace(case, closure=False, added_at=-1, unfrozen_at=-1, made_before=False, autocast=False,
                               compression=compression, resumed=True)
    if case.optimizer in ("LBFGS", "NAdam", "RAdam", "ASGD", "Adadelta", "AdamW"):  # needs a closure, is cast, decays
        case = dataclasses.replace(case, optimizer="Adam")
    if case.dtype == "bfloat16":  # whose state would be cast
        case = dataclasses.replace(case, dtype="float32")
    return possible(case)


def own_module(folder, name):
    spec = importlib.util.spec_from_file_location("horovods_own." + name.replace("/", "_"), f"{folder}/torch/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def horovods_own(folder):
    """Programs find Horovod's functions meanwhile."""
    functions, optimizer, states = (own_module(folder, name) for name in ("functions", "optimizer", "elastic/state"))
    states.broadcast_parameters = functions.broadcast_parameters
    states.broadcast_optimizer_state = functions.broadcast_optimizer_state
    known = importlib.import_module("horovod.torch.optimizer")  # from which broadcast_optimizer_state() knows its own
    taken = [(known, "DistributedOptimizer", optimizer.DistributedOptimizer),
             (hvd, "broadcast_parameters", functions.broadcast_parameters),
             (hvd, "broadcast_optimizer_state", functions.broadcast_optimizer_state),
             (hvd, "DistributedOptimizer", optimizer.DistributedOptimizer),
             (hvd.elastic, "TorchState", states.TorchState)]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in taken]
    for owner, name, value in taken:
        setattr(owner, name, value)
    yield functions
    for owner, name, value in kept:
        setattr(owner, name, value)


def own_differences(case, folder):
    try:
        _, checkpoint = trained_alone(case)
        weights, rates, _ = trained(case, checkpoint)
        with horovods_own(folder):
            wanted, wanted_rates, _ = trained(case, checkpoint)
    except Exception as error:  # the case is shown with it
        return f"{type(error).__name__}: {error}"
    away = ((weights - wanted).norm() / wanted.norm()).item()
    near = 0.1 if case.compression != "none" else 1e-12 if case.dtype == "float64" else 1e-4
    if not away <= near:
        return f"weights are {away:.3g} away from those of Horovod's own optimizer"
    return "" if rates == wanted_rates else f"learning rates are {rates}, and by Horovod's own {wanted_rates}"


def check_own(seed, count, folder):
    """:return: what differs"""
    rng = random.Random(seed)
    for number in range(count):
        case = as_horovod_can(draw(rng))
        for failure in hvd.allgather_object(own_differences(case, folder), "own differences"):
            if failure:
                return f"seed {seed}, case {number}, {words_of(case)}: {failure}"
    with horovods_own(folder) as functions:
        assert functions.broadcast_object({"rank": hvd.rank()}, 1, "theirs") == hvd.broadcast_object(
            {"rank": hvd.rank()}, 1, "ours") == {"rank": 1}
        assert functions.allgather_object([hvd.rank()] * hvd.rank(), "theirs") == hvd.allgather_object(
            [hvd.rank()] * hvd.rank(), "ours")
    samplers = own_module(folder, "elastic/sampler"), hvd.elastic
    theirs, ours = (module.ElasticSampler(list(range(23)), shuffle=True, seed=5) for module in samplers)
    for epoch, batches in ((0, 0), (1, 2), (2, 3)):
        for sampler in (theirs, ours):
            sampler.set_epoch(epoch)
            for index in range(batches):
                sampler.record_batch(index, 2)
            sampler.load_state_dict(sampler.state_dict())
        if (list(theirs), len(theirs), theirs.state_dict()["processed_num"]) != (
                list(ours), len(ours), ours.state_dict()["processed_num"]):
            return f"epoch {epoch}: samples are {list(ours)}, Horovod's own {list(theirs)}"
    return None


# ---- faults that were there once ----

def loads_state(optimizer, root_rank, model=None, process_set=None):
    """broadcast_optimizer_state() that replaces dictionaries, on all ranks but the root."""
    state = hvd.broadcast_object(optimizer.state_dict(), root_rank)
    if hvd.rank() != root_rank:
        type(optimizer).__mro__[3].load_state_dict(optimizer, state)


def steps_before_closure(self, closure=None):
    self.synchronize()
    self._synchronized = False
    return super(dtrun.torch.optimizer._Distributed, self).step(closure)


watch_gradients = dtrun.torch.optimizer._Distributed._watch_gradients


def watch_once(self):
    if not self._gradients:
        watch_gradients(self)


def mutants():
    wrapped = dtrun.torch.optimizer._Distributed
    state = hvd.elastic.TorchState
    yield "optimizer state by load_state_dict()", hvd, "broadcast_optimizer_state", loads_state
    yield "parameters that came later are not reduced", wrapped, "_watch_gradients", watch_once
    yield "a state keeps the model it was made with", state, "__setattr__", object.__setattr__
    yield "step() waits before its closure", wrapped, "step", steps_before_closure


def check_mutants(seed):
    for name, owner, attribute, value in list(mutants()):
        kept = owner.__dict__[attribute]
        setattr(owner, attribute, value)
        found = search(seed, 400)
        setattr(owner, attribute, kept)
        if hvd.rank() == 0:
            print(f"{name}: " + (f"case {found[0]}: {words_of(found[1])}: {found[2]}" if found else "NOT FOUND"))
        assert found, name


def main(seed: int, mode: str, folder: str = "") -> typing.Optional[str]:
    torch.set_num_threads(1)
    hvd.init()
    if folder:
        if found := check_own(seed, int(mode), folder):
            return found
    elif mode == "mutants":
        check_mutants(seed)
    elif found := search(seed, int(mode)):
        number, case, failure = found
        return f"seed {seed}, case {number}, made smaller to {words_of(case)}: {failure}"
    hvd.shutdown()
    print("ok")
    return None


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
