"""Cases of PyTorch's own tests of torch.distributed, each in processes of its own:

    pytorch_cases.py gloo|dtrun [--on-cpu] [--ranks NUMBER] [--limit SECONDS] [--only FILE] MODULE

MODULE is distributed_test, whose cases are in torch itself, or a file of PyTorch's test/distributed. For each case
there is a line on standard output: ok, FAILED, skipped, or alone for one that has made no group of the backend, its
name, and how long it took; what a failed one said is on standard error.

With "dtrun" every group that is asked for with the backend gloo, or with none, is one of dtrun, whose ranks meet by
`dtrun serve` as DTRUN_SERVE and DTRUN_SECRET_FILE say: the processes of a case are ranks that torchrun might have
started. Nothing else of the tests is changed, so that they believe to have gloo, but that processes are forked, not
spawned, which saves loading torch in each. --on-cpu runs also what wants GPUs: it reads "cpu" where a file says "cuda".
--ranks is how many processes a case has that says nothing of it; else it is as many as torch gives it.
"""

import argparse
import contextlib
import fnmatch
import functools
import importlib.machinery
import importlib.util
import inspect
import io
import mmap
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import unittest
import uuid

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.testing._internal import common_distributed, common_utils

#: Of newer torch, a class whose cases have their processes together; of older, one whose cases are to be run on each rank.
CONTINUOUS, EACH_RANK = (tuple(filter(None, [getattr(common_distributed, name, None)]))
                         for name in ("MultiProcContinuousTest", "MultiProcContinousTest"))
PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "DTRUN_JOB_NAME")


def take_place(rank, size, job):
    """Makes this process a rank of a job of dtrun."""
    from dtrun.torch.basics import shared_worker
    before = {name: os.environ.get(name) for name in PLACE}
    os.environ.update(zip(PLACE, [str(rank), str(size), str(rank), str(size), "0", "1", job]))
    shared_worker()
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def as_rank(rank, size, job, target, args, kwargs):
    take_place(rank, size, job)
    target(*args, **kwargs)


class ForkedRanks:
    """Processes of a case that are forked, as ranks of a job if they are to be. The first argument of what runs in
    them is their rank."""

    def __init__(self, on_dtrun, size):
        self._make, self._job = multiprocessing.get_context("fork").Process, uuid.uuid4().hex
        self._on_dtrun, self._size = on_dtrun, size

    def process(self, target, name, args, kwargs=None, daemon=None):
        if self._on_dtrun:
            target, args, kwargs = as_rank, (args[0], self._size, self._job, target, args, kwargs or {}), {}
        return self._make(target=target, name=name, args=args, kwargs=kwargs or {}, daemon=daemon)


def fork_ranks(on_dtrun):
    """What PyTorch's classes of cases spawn is forked."""
    def spawn_of_case(test):
        test._start_processes(ForkedRanks(on_dtrun, int(test.world_size)).process)

    common_distributed.MultiProcessTestCase._spawn_processes = spawn_of_case
    if not CONTINUOUS:
        return
    spawn = CONTINUOUS[0]._spawn_processes.__func__

    def spawn_of_class(cls, world_size):
        own, torch.multiprocessing.Process = torch.multiprocessing.Process, ForkedRanks(on_dtrun, world_size).process
        spawn(cls, world_size)
        torch.multiprocessing.Process = own
    CONTINUOUS[0]._spawn_processes = classmethod(spawn_of_class)


def watch_groups(on_dtrun, has_made):
    """Groups of gloo are noted, and are of dtrun if they are to be. :param has_made: its first byte becomes 1"""
    from dtrun.torch.backend import ProcessGroupDtrun
    make = distributed_c10d._new_process_group_helper
    signature = inspect.signature(make)

    @functools.wraps(make)
    def make_group(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        if str(bound.arguments["backend"]) in ("gloo", "cpu:gloo", "cpu:gloo,cuda:nccl", "undefined"):
            has_made[0] = 1
            if on_dtrun:
                bound.arguments["backend"] = dist.Backend("dtrun")
        return make(*bound.args, **bound.kwargs)
    distributed_c10d._new_process_group_helper = make_group
    own = dist.ProcessGroupGloo

    class Group(own):
        """torch's class, by whose name a test makes a group."""

        def __new__(cls, store, rank, size, options=None, timeout=None):
            has_made[0] = 1
            if not on_dtrun:
                return super().__new__(cls, store, rank, size)
            return ProcessGroupDtrun(store, rank, size, timeout or getattr(options, "_timeout", None))
    dist.ProcessGroupGloo = Group
    ProcessGroupDtrun.create_device = own.create_device  # of gloo alone, for its options, which nobody reads here


#: What a file says of GPUs, and what it is on processors.
ON_CPU = (
    (r"""f?(["'])cuda(:\d|:\{[^{}"']*\})?\1""", r"\1cpu\1"), (r"/cuda:(\d|\{\w+\})", "/cpu"), (r"""(["'])nccl\1""", r"\1gloo\1"),
    (r"\bBackend\.NCCL\b", "Backend.GLOO"), (r"(?<== )torch\.device\((\d \* )?self\.rank\)", "torch.device('cpu')"),
    (r"cpu:gloo,cuda:nccl", "gloo"), (r"\.cuda\((?:[^()]|\([^()]*\))*\)", ".cpu()"), (r"\w+\.is_cuda\b", "True"),
    (r"torch\.cuda\.(synchronize|empty_cache|set_device|reset_\w+)\([^()]*\)", "None"),
    (r"torch\.cuda\.is_available\(\)", "True"), (r"torch\.cuda\.current_device\(\)", "0"),
    (r"torch\.cuda\.device_count\(\)", "4"), (r"device_ids=\[[^\[\]]*\]", "device_ids=None"))


class OnCpu(importlib.machinery.SourceFileLoader):
    """A file that does on the processor what it says of GPUs."""

    def get_data(self, path):
        data = super().get_data(path)
        if not path.endswith(".py"):
            return data
        text = data.decode()
        for pattern, instead in ON_CPU:
            text = re.sub(pattern, instead, text)
        return text.encode()

    def get_code(self, fullname):
        return self.source_to_code(self.get_data(self.path), self.path)  # and not what is cached of the file as it was


def let_all_run_on_cpu():
    from torch.testing._internal import common_cuda, common_fsdp
    from torch.testing._internal.distributed._shard import sharded_tensor
    common_distributed.skip_if_lt_x_gpu = lambda number, **_: lambda function: function
    common_distributed.requires_nccl = lambda: lambda function: function
    common_cuda.TEST_MULTIGPU = True
    common_fsdp.skip_if_lt_x_gpu = common_distributed.skip_if_lt_x_gpu
    common_fsdp.DEVICE_COUNT = 2
    common_fsdp.test_compiled_fsdp = lambda **_: lambda function: function  # of files that are older than torch 2.10
    if hasattr(common_fsdp, "FSDPTestMixin"):  # whose _run() leaves the processor alone, as that of older torch does
        common_fsdp.FSDPTest._run = classmethod(common_fsdp.FSDPTestMixin._run.__func__)
    sharded_tensor.with_comms.__defaults__ = (*sharded_tensor.with_comms.__defaults__[:-1], "gloo")


def set_ranks(number):
    """Of cases that do not say how many they want. Before files of tests are loaded, which take it from here."""
    from torch.testing._internal import common_fsdp
    from torch.testing._internal.distributed._tensor import common_dtensor
    common_distributed.DEFAULT_WORLD_SIZE = common_dtensor.NUM_DEVICES = common_fsdp.DEVICE_COUNT = number
    for kind in (*CONTINUOUS, *EACH_RANK):
        kind.world_size = number
    os.environ["WORLD_SIZE"] = str(number)


def find_cases(module, on_cpu):
    if module == "distributed_test":
        os.environ.update(BACKEND="gloo", WORLD_SIZE=os.environ.get("WORLD_SIZE", "3"))
        from torch.testing._internal.distributed import distributed_test

        class DistributedTest(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
            """As PyTorch's test_distributed_spawn.py has it."""

            def setUp(self):
                super().setUp()
                self._spawn_processes()
        return unittest.defaultTestLoader.loadTestsFromTestCase(DistributedTest)
    folder, name = os.path.split(os.path.abspath(module))
    sys.path[:0] = [folder, re.sub(r"(/test)/distributed(/.*)?$", r"\1/distributed", folder),
                    re.sub(r"/test/distributed(/.*)?$", r"/test", folder)]
    loader = (OnCpu if on_cpu else importlib.machinery.SourceFileLoader)(name[:-3], os.path.abspath(module))
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader(name[:-3], loader))
    sys.modules[name[:-3]] = made
    loader.exec_module(made)
    return unittest.defaultTestLoader.loadTestsFromModule(made)


def all_of(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from all_of(part)
        else:
            yield part


def outcome_of(case):
    """In a process of its own. :return: ok, FAILED or skipped, and what was said"""
    result = unittest.TestResult()
    unittest.TestSuite([case]).run(result)
    wrong = result.errors + result.failures + [(case, "was to fail") for case in result.unexpectedSuccesses]
    if wrong:
        return "FAILED", "\n".join(text for _, text in wrong)
    return ("skipped", result.skipped[0][1]) if result.skipped else ("ok", "")


def outcome_of_ranks(case, on_dtrun):
    """As outcome_of(), where each of some processes runs the case."""
    kind, outcomes = type(case), multiprocessing.get_context("fork").SimpleQueue()

    def run_on(rank):
        kind.rank = rank
        outcomes.put(outcome_of(case))

    ranks = ForkedRanks(on_dtrun, kind.world_size)
    with tempfile.TemporaryDirectory() as folder:
        kind.rdvz_file = f"{folder}/meeting"
        for rank in range(kind.world_size):
            ranks.process(run_on, f"rank {rank}", (rank,)).start()
        return min(outcomes.get() for _ in range(kind.world_size))  # one that has failed, if there is one


def run(case, on_dtrun, limit, log, has_made):
    """:return: as outcome_of(), or alone"""
    log.seek(0)
    log.truncate()
    has_made[0] = 0
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0, closefd=False), write_through=True)
        if on_dtrun and not isinstance(case, (common_distributed.MultiProcessTestCase, *CONTINUOUS, *EACH_RANK)):
            take_place(0, 1, uuid.uuid4().hex)
        outcome, text = outcome_of_ranks(case, on_dtrun) if isinstance(case, EACH_RANK) else outcome_of(case)
        os.write(writer, f"{outcome}\n{text[-8000:]}".encode())
        os._exit(0)
    os.close(writer)
    timer = signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(limit)
    with os.fdopen(reader, "rb") as said:
        _, status = os.waitpid(child, 0)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, timer)
        with contextlib.suppress(ProcessLookupError):  # what the case has left
            os.killpg(child, signal.SIGKILL)
        outcome, _, text = said.read().decode(errors="replace").partition("\n")
    if not outcome:
        return "FAILED", f"it ended with status {status:#x}, after {limit} s at most"
    return ("alone" if outcome == "ok" and not has_made[0] else outcome), text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("backend", choices=("gloo", "dtrun"))
    parser.add_argument("module")
    parser.add_argument("--on-cpu", action="store_true")
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--only", help="a file with names, or patterns of them, one a line")
    options = parser.parse_args()
    on_dtrun = options.backend == "dtrun"
    common_utils.check_test_defined_in_running_script = lambda case: None
    common_distributed.get_timeout = lambda name: options.limit - 5
    has_made = mmap.mmap(-1, 1)  # which forked processes share
    fork_ranks(on_dtrun)
    watch_groups(on_dtrun, has_made)
    if options.on_cpu:
        let_all_run_on_cpu()
    if options.ranks:
        set_ranks(options.ranks)
    patterns = ["*"]
    if options.only:
        with open(options.only, encoding="utf-8") as file:
            patterns = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    os.environ.setdefault("BACKEND", "gloo")  # which a few files ask for
    torch.set_num_threads(1)
    with open(f"/tmp/pytorch_cases.{os.getpid()}", "w+", encoding="utf-8") as log:
        os.unlink(log.name)
        for case in all_of(find_cases(options.module, options.on_cpu)):
            name = ".".join(case.id().split(".")[-2:])
            if isinstance(case, common_distributed.MultiThreadedTestCase) or not any(
                    fnmatch.fnmatch(name, pattern) for pattern in patterns):
                continue
            begin = time.monotonic()
            outcome, text = run(case, on_dtrun, options.limit, log, has_made)
            print(f"{outcome} {name} {time.monotonic() - begin:.1f}", flush=True)
            if outcome == "FAILED":
                log.seek(0)
                print(f"---- {name}\n{text}\n{log.read()[-3000:]}", file=sys.stderr, flush=True)


main()
