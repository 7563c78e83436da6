"""A rank of torch_test.py: checks one thing and prints ok.

    torch_ranks.py operations|disagrees|optimizer|interrupts|ends|fails|killed|stalls EVENTS|
                   stalls_for_good|elastic FILE|hooks FORMAT|loses FORMAT|resumes FORMAT
"""

import builtins
import copy
import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
import warnings

import torch

from dtrun.collectives import Communicator

warnings.simplefilter("ignore")


def check(condition, *what):
    if not condition:
        raise AssertionError(what)


def same(one, other, within=0.0):
    return one.shape == other.shape and bool(((one.double() - other.double()).abs() <= within).all())


# ---- Horovod's interface ----

def reductions(hvd):
    rank, size = hvd.rank(), hvd.size()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        given = (torch.arange(30).reshape(5, 6) + rank).to(dtype)
        everything = sum(torch.arange(30).reshape(5, 6) + other for other in range(size))
        check(same(hvd.allreduce(given, op=hvd.Sum), everything.to(dtype)), dtype)
        check(same(given, (torch.arange(30).reshape(5, 6) + rank).to(dtype)), "the input is not changed")
        check(same(hvd.allreduce(given, op=hvd.Max), (torch.arange(30).reshape(5, 6) + size - 1).to(dtype)))
    ones = torch.ones(7)
    check(same(hvd.allreduce(ones, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4), 2.0 * size * ones))
    for factors in ({"prescale_factor": 0.0}, {"postscale_factor": 0.0}):
        check(same(hvd.allreduce(ones, op=hvd.Sum, **factors), 0 * ones), factors)
    hvd.allreduce_(ones, op=hvd.Average)
    check(same(ones, torch.ones(7)))
    gaps = torch.arange(12.0).reshape(3, 4).t()
    hvd.allreduce_(gaps, op=hvd.Sum)
    check(same(gaps, torch.arange(12.0).reshape(3, 4).t() * size), "elements with gaps between them")
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16, hvd.Compression.int8, hvd.Compression.fp8):
        given = torch.linspace(-1, 1, 4096)
        check(same(hvd.allreduce(given, compression=compression), given, 0.08), compression)
    group = [torch.full((3,), float(rank)), torch.full((2, 2), 1), torch.full((1,), 2.0)]
    summed = hvd.grouped_allreduce(group, op=hvd.Sum)
    check([t.flatten()[0].item() for t in summed] == [sum(range(size)), size, 2.0 * size])


def order(hvd):
    """Every rank submits in its own order."""
    names = list(range(40))
    shift = hvd.rank() * 7
    handles = {i: hvd.allreduce_async(torch.full((i + 1,), float(i)), name=f"layer.{i}", op=hvd.Sum)
               for i in names[shift:] + names[:shift]}
    for i in reversed(names):
        check(same(hvd.synchronize(handles[i]), torch.full((i + 1,), float(i * hvd.size()))), i)
    check(hvd.synchronize(handles[0]) is None, "it has been waited for")


def copies(hvd):
    rank, size = hvd.rank(), hvd.size()
    own = torch.full((rank + 1, 2), float(rank))
    check(same(hvd.allgather(own), torch.cat([torch.full((r + 1, 2), float(r)) for r in range(size)])))
    check(same(hvd.allgather(torch.empty(0, 3)), torch.empty(0, 3)))
    shorts = hvd.grouped_allgather([torch.tensor([rank], dtype=torch.int16), torch.tensor([True])])
    check(shorts[0].tolist() == list(range(size)) and shorts[1].tolist() == [True] * size)
    for root in range(size):
        check(same(hvd.broadcast(torch.full((3,), float(rank)), root), torch.full((3,), float(root))))
    splits = torch.tensor([rank + other for other in range(size)], dtype=torch.int32)
    output, received = hvd.alltoall(torch.full((int(splits.sum()), 2), float(rank)), splits)
    check(received.tolist() == [other + rank for other in range(size)])
    check(same(output, torch.cat([torch.full((other + rank, 2), float(other)) for other in range(size)])))
    check(same(hvd.alltoall(torch.arange(2.0 * size)), torch.tensor([2.0 * rank, 2.0 * rank + 1] * size)))
    rows = 2 * size + 1
    part = hvd.reducescatter(torch.arange(float(rows)), op=hvd.Sum)
    first = rank * 2 + min(rank, 1)
    check(same(part, torch.arange(float(rows))[first:first + 2 + (rank == 0)] * size), part)
    check(hvd.allgather_object({"rank": rank}) == [{"rank": other} for other in range(size)])
    check(hvd.broadcast_object([rank], root_rank=size - 1) == [size - 1])


def gradients(hvd):
    size = hvd.size()
    for made in (lambda x: hvd.allreduce(x, op=hvd.Sum), lambda x: hvd.alltoall(x),
                 lambda x: hvd.reducescatter(x, op=hvd.Sum), lambda x: hvd.allgather(x)):
        x = torch.ones(2 * size, 3, requires_grad=True)
        made(x).sum().backward()
        check(x.grad.shape == x.shape and bool((x.grad == x.grad[0, 0]).all()), x.grad)


def views(hvd):
    """Tensors whose elements are not what is in memory, and types whose sums would be something else."""
    size = hvd.size()
    turned = torch.full((2,), 1 + 2j).conj()
    check(hvd.allgather(turned).tolist() == [1 - 2j] * (2 * size))
    check(same(hvd.allreduce(turned.imag, op=hvd.Sum), torch.full((2,), -2.0 * size)))
    for options in ({"op": hvd.Sum}, {"op": hvd.Max, "prescale_factor": 2.0}):
        try:
            hvd.allreduce(torch.tensor([True]), **options)
            check(False, "a bool was added up or multiplied")
        except ValueError as error:
            check("bools" in str(error), error)


def normalization(hvd):
    """Batches of 16 bits have statistics of 32, as on one rank."""
    rank, size = hvd.rank(), hvd.size()
    if size == 1:  # it is torch's
        return
    batches = [(torch.linspace(-400, 400, 64).reshape(16, 4) + other).half() for other in range(size)]
    layers = hvd.SyncBatchNorm(4), torch.nn.BatchNorm1d(4)
    own = batches[rank].clone().requires_grad_()
    out = layers[0](own)
    expected = layers[1](torch.cat(batches).float())
    check(out.dtype == torch.float16 and same(out, expected[16 * rank:16 * rank + 16], 2e-2))
    check(same(layers[0].running_var, layers[1].running_var, 1.0), layers[0].running_var)
    out.float().square().sum().backward()
    check(own.grad.dtype == torch.float16 and layers[0].weight.grad.dtype == torch.float32)


def samples(hvd):
    """No rank is without samples while others have some."""
    sampler = hvd.elastic.ElasticSampler(range(10), shuffle=False)
    sampler.record_indices(range(9))
    sampler.reset()
    check(list(sampler) == [9], list(sampler))


def subsets(hvd):
    rank, size = hvd.rank(), hvd.size()
    if size < 2:
        return
    firsts = hvd.add_process_set([0, 1])
    check(firsts.included() == (rank < 2) and firsts.size() == 2)
    if firsts.included():
        check(same(hvd.allreduce(torch.ones(3), op=hvd.Sum, process_set=firsts), torch.full((3,), 2.0)))
    else:
        try:
            hvd.allreduce(torch.ones(3), process_set=firsts)
            check(False, "a rank that is not in the set was let in")
        except ValueError as error:
            check("is not in the process set" in str(error), error)
    check(hvd.remove_process_set(firsts) and not hvd.remove_process_set(hvd.global_process_set))


def joins(hvd):
    size = hvd.size()
    for step in range(hvd.rank() + 1):
        reduced = hvd.allreduce(torch.ones(5), name=f"step{step}", op=hvd.Sum)
        check(same(reduced, torch.full((5,), float(size - step))), reduced)
    check(hvd.join() == size - 1)
    check(same(hvd.allreduce(torch.ones(5), op=hvd.Sum), torch.full((5,), float(size))))


def operations(hvd):
    for part in (reductions, order, copies, views, gradients, normalization, samples, subsets, joins):
        part(hvd)
    size = hvd.size()
    hvd.shutdown()
    check(not hvd.is_initialized())
    try:
        hvd.init(comm=[0, 1, 2, 3, 4])
        check(False, "ranks that were not started were taken")
    except ValueError as error:
        check("is not all" in str(error), error)
    hvd.init(comm=list(range(size)))
    hvd.barrier()


def disagrees(hvd):
    rank = hvd.rank()
    try:
        hvd.allreduce(torch.ones(3 + rank % 2), name="shape")
        check(False, "ranks that disagree were not told")
    except hvd.HorovodInternalError as error:
        for has in ("shapes for", "rank 0 has f32 [3]", "rank 1 has f32 [4]"):
            check(has in str(error), error)
    if rank == 0:  # the others do not have it before this is over
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
        try:
            hvd.allreduce_async(torch.ones(2), name="twice")
            check(False, "a name was used twice")
        except ValueError as error:
            check("pending already" in str(error), error)
    hvd.barrier()
    hvd.synchronize(handle if rank == 0 else hvd.allreduce_async(torch.ones(2), name="twice"))
    check(same(hvd.allreduce(torch.ones(4), op=hvd.Sum), torch.full((4,), float(hvd.size()))), "it goes on")


# ---- what interrupts and ends a program ----

class Alarm(Exception):
    """What a signal handler raises, as that of Ctrl-C raises KeyboardInterrupt."""


def raise_alarm(_number, _frame):
    raise Alarm


def is_interrupted(seconds, call):
    signal.signal(signal.SIGALRM, raise_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        call()
    except Alarm:
        return True
    return False


def turns_of_another_thread(call):
    """How often a thread has woken up during a call."""
    turns, stop = [], threading.Event()
    thread = threading.Thread(target=lambda: [turns.append(1) for _ in iter(lambda: stop.wait(0.001), True)])
    thread.start()
    call()
    stop.set()
    thread.join()
    return len(turns)


def interrupts(hvd):
    rank, size, worker = hvd.rank(), hvd.size(), hvd.worker()
    late, values = torch.full((4,), float(size)), torch.ones(1000).numpy()
    with Communicator(worker) as comm:
        if rank == 0:
            handle = hvd.allreduce_async(torch.ones(4), name="late", op=hvd.Sum)
            future = comm.start_allreduce(values)
            turns = turns_of_another_thread(
                lambda: check(is_interrupted(1, lambda: hvd.synchronize(handle)), "in synchronize()"))
            check(turns > 40, "others run while synchronize() waits", turns)
            check(is_interrupted(0.2, future.result), "in result()")
            check(is_interrupted(0.2, lambda: hvd.allreduce(torch.ones(4), name="dropped")), "in allreduce()")
            worker.set("rank 0 was interrupted", "1")
            check(same(hvd.synchronize(handle), late), "it can be waited for again")
            check(future.result()[0] == size and future.result() is values, "it can be waited for again")
        else:
            worker.get("rank 0 was interrupted")
            check(same(hvd.allreduce(torch.ones(4), name="late", op=hvd.Sum), late))
            hvd.allreduce(torch.ones(4), name="dropped")
            comm.allreduce(values)
    hvd.barrier()
    hvd.barrier()
    check(not hvd.global_process_set.coordinator()._kept, "nothing is kept of what nobody waits for")


class Late:
    """Looks at a result when the interpreter is on its way out."""

    def __init__(self, values):
        self.values = values

    def __del__(self, sleep=time.sleep):
        sleep(0.5)
        check(self.values[0] == 1)


def ends(hvd):
    builtins.late = Late(hvd.allgather(torch.ones(1 << 20)))
    comm = Communicator(hvd.worker())
    if hvd.rank() == 0:
        threading.Thread(target=comm.barrier, daemon=True).start()
        time.sleep(0.3)
    else:
        time.sleep(2)


def fails(hvd):
    with Communicator(hvd.worker()) as comm:
        if hvd.rank() == 0:
            pending = comm.start_allreduce(torch.ones(4).numpy())
            raise ValueError("the program is wrong", pending)
        hvd.worker().get("never")


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64),
                               torch.nn.ReLU(), torch.nn.Linear(64, 10))


def batch(generator):
    inputs = torch.randn(8, 64, generator=generator)
    return inputs, inputs[:, :10].argmax(1)


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def train_alone(size, steps, passes):
    """What the ranks do together, by one process: the mean of all ranks' gradients."""
    model = model_of(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generators = [torch.Generator().manual_seed(100 + rank) for rank in range(size)]
    for _ in range(steps):
        optimizer.zero_grad()
        for generator in generators * passes:
            inputs, targets = batch(generator)
            (torch.nn.functional.cross_entropy(model(inputs), targets) / size).backward()
        optimizer.step()
    return weights(model)


def optimizer(hvd):
    changes_type(hvd)
    for options in ({}, {"groups": 2}, {"backward_passes_per_step": 2}, {"gradient_predivide_factor": 2.0}):
        model = model_of(1 + hvd.rank())
        passes = options.get("backward_passes_per_step", 1)
        made = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
                                        named_parameters=model.named_parameters(), **options)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(made, root_rank=0)
        generator = torch.Generator().manual_seed(100 + hvd.rank())
        for _ in range(10):
            made.zero_grad()
            for _ in range(passes):
                inputs, targets = batch(generator)
                torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            made.step()
        check(same(weights(model), train_alone(hvd.size(), 10, passes), 1e-5), options)
        digests = hvd.allgather_object(hashlib.sha1(weights(model).numpy().tobytes()).hexdigest())
        check(len(set(digests)) == 1, digests)


def changes_type(hvd):
    """A model may have other types than when the optimizer was made."""
    model = torch.nn.Linear(4, 4, bias=False)
    made = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0),
                                    named_parameters=model.named_parameters())
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model.to(dtype)
        made.zero_grad()
        model(torch.full((2, 4), hvd.rank() + 1.0, dtype=dtype)).sum().backward()
        made.step()
        check(same(model.weight.grad, torch.full((4, 4), hvd.size() + 1.0, dtype=dtype)), model.weight.grad)


def killed(hvd):
    hvd.allreduce(torch.ones(2))
    last = hvd.size() - 1
    if hvd.rank() == last:
        os.kill(os.getpid(), signal.SIGKILL)
    for attempt in range(2):
        try:
            hvd.allreduce(torch.ones(2))
            check(False, "nobody was missed")
        except hvd.HorovodInternalError as error:
            check(f"rank {last} on " in str(error), error)


def wait_for_line(text, begin):
    """Waits until this process writes such a line on its standard error, after begin() was called."""
    reads, writes = os.pipe()
    kept = os.dup(2)
    os.dup2(writes, 2)
    os.close(writes)
    begin()
    with open(reads, encoding="utf-8") as lines:
        check(any(re.fullmatch(text, line.strip()) for line in lines), text)
        os.dup2(kept, 2)
    os.close(kept)


def wait_for_event(path, kind, what):
    """Waits until the job's events, in that file, have one of that kind whose `what` begins like that."""
    while True:
        with open(path, encoding="utf-8") as events:
            whole = [json.loads(line) for line in events if line.endswith("\n")]
        if any(event["event"] == kind and event["what"].startswith(what) for event in whole):
            return
        time.sleep(0.05)


def stalls(hvd, events):
    """What some rank does not ask for is told, nothing is ended, and it is done as soon as that rank comes."""
    hvd.allreduce(torch.ones(2))
    pair = hvd.add_process_set([1, 2])
    handles = []

    def begin():
        if hvd.rank() != 1:
            handles.extend(hvd.allreduce_async(torch.ones(2), name=name, op=hvd.Sum) for name in ("a", "b"))

    if hvd.rank() == 0:
        wait_for_line(r'dtrun: "allreduce\.a" and "allreduce\.b": ranks 0, 2 have waited for \d+ s; rank 1 has not '
                      "asked for them", begin)
        wait_for_event(events, "stalled", '"allreduce.a" and "allreduce.b"; rank 1')
    else:
        begin()
    hvd.worker().barrier("told")
    handles = handles or [hvd.allreduce_async(torch.ones(2), name=name, op=hvd.Sum) for name in ("b", "a")]
    for handle in handles:
        check(same(hvd.synchronize(handle), torch.full((2,), 3.0)))
    if hvd.rank() == 1:
        wait_for_line(r'dtrun: "barrier\.noname\.1": rank 2 has waited for \d+ s; rank 1 has not asked for it',
                      lambda: hvd.worker().barrier("others have asked"))
    else:
        hvd.worker().barrier("others have asked")
    if pair.included():
        hvd.barrier(pair)


def stalls_for_good(hvd):
    """After the shutdown time all operations of all ranks fail, those that come later, too."""
    if hvd.rank() == 1:
        hvd.worker().barrier("failed")
    for _ in range(2):
        try:
            hvd.allreduce(torch.ones(2), name="a")
            check(False, "nobody was missed")
        except hvd.HorovodInternalError as error:
            check('"allreduce.a": rank 0 has waited for' in str(error) and "rank 1 has not asked for it" in str(error),
                  error)
    if hvd.rank() == 0:
        hvd.worker().barrier("failed")


def elastic(hvd, marker):
    """The last rank dies once, and the others go on at the last commit. :param marker: a file that says it has"""
    model = model_of(1 + hvd.rank())
    made = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05),
                                    named_parameters=model.named_parameters())
    generator = torch.Generator().manual_seed(hvd.rank())

    @hvd.elastic.run
    def train_on(state):
        while state.step < 30:
            inputs, targets = batch(generator)
            made.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            made.step()
            state.step += 1
            if state.step == 12 and hvd.rank() == hvd.size() - 1 and not os.path.exists(marker):
                with open(marker, "w", encoding="ascii"):
                    os.kill(os.getpid(), signal.SIGKILL)
            if state.step % 5 == 0:
                state.commit()

    train_on(hvd.elastic.TorchState(model=model, optimizer=made, step=0))
    digests = hvd.allgather_object(hashlib.sha1(weights(model).numpy().tobytes()).hexdigest())
    check(len(set(digests)) == 1, digests)


# ---- torch's DistributedDataParallel ----

def distributed_model(seed=1):
    return torch.nn.parallel.DistributedDataParallel(model_of(seed))


def train(model, steps, made=None, generator=None):
    made = made or torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = generator or torch.Generator().manual_seed(100 + torch.distributed.get_rank())
    for _ in range(steps):
        inputs, targets = batch(generator)
        made.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        made.step()
    return weights(model)


def alike(values):
    digest = hashlib.sha1(values.numpy().tobytes()).digest()
    everybody = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everybody, digest)
    return len(set(everybody)) == 1


def refuses_a_part(hooks_):
    """A hook would add up what ranks of other groups have."""
    first = torch.distributed.new_group([0])
    if torch.distributed.get_rank() > 0:
        return
    model = torch.nn.parallel.DistributedDataParallel(model_of(1), process_group=first)
    try:
        hooks_.register(model)
        check(False, "registered for a part of all ranks")
    except ValueError as error:
        check("hooks are for models of all ranks" in str(error), error)


def hooks(format):
    from dtrun.torch import hooks as hooks_
    refuses_a_part(hooks_)
    model, plain = distributed_model(), distributed_model()
    state = hooks_.register(model, format, min_numel=1024)
    trained, expected = train(model, 50), train(plain, 50)
    check(alike(trained), "all ranks have the same weights")
    check(same(trained, expected, {"none": 1e-6, "fp16": 1e-2, "bf16": 1e-2}.get(format, 5e-2)), format)
    stats = state.stats()
    check(stats.steps == 50 and stats.ratio >= {"none": 1.0, "fp16": 1.7, "bf16": 1.7}.get(format, 2.5), stats)


def loses(format):
    from dtrun.torch import hooks as hooks_
    model, last = distributed_model(), torch.distributed.get_world_size() - 1
    hooks_.register(model, format)
    train(model, 3)
    if torch.distributed.get_rank() == last:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        train(model, 1)
        check(False, "nobody was missed")
    except RuntimeError as error:
        check(f"rank {last} on " in str(error), error)
    print("ok", flush=True)
    os._exit(0)  # torch's own process group waits for the one that is gone


def resumes(format):
    from dtrun.torch import hooks as hooks_
    model = distributed_model()
    made = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + torch.distributed.get_rank())
    state = hooks_.register(model, format, min_numel=1024)
    train(model, 10, made, generator)
    saved = {"model": {k: v.clone() for k, v in model.state_dict().items()}, "hook": state.state_dict(),
             "generator": generator.get_state()}
    saved["optimizer"] = copy.deepcopy(made.state_dict())
    expected = train(model, 10, made, generator)

    again = distributed_model(2)
    resumed = hooks_.register(again, format, min_numel=1024)
    train(again, 1)  # which has DDP arrange its buckets as they were
    again.load_state_dict(saved["model"])
    made = torch.optim.SGD(again.parameters(), lr=0.05, momentum=0.9)
    made.load_state_dict(saved["optimizer"])
    generator.set_state(saved["generator"])
    name = next(iter(saved["hook"]["errors"]))
    try:
        resumed.load_state_dict({"step": 1, "errors": {name: torch.zeros(10)}})
        check(False, "errors of another size were taken")
    except ValueError as error:
        check(f"10 errors of {name}" in str(error), error)
    resumed.load_state_dict(saved["hook"])
    check(same(train(again, 10, made, generator), expected), "the same bits as without an interruption")


def main():
    mode, format = sys.argv[1], (sys.argv[2:] or [None])[0]
    if mode in ("hooks", "loses", "resumes"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group("gloo")
        globals()[mode](*([format] if format else []))
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    else:
        import dtrun.torch as hvd
        hvd.init()
        globals()[mode](hvd, *([format] if format else []))
        if mode not in ("killed", "ends", "stalls_for_good"):
            hvd.barrier()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
