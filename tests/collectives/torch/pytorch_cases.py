"""Cases of PyTorch's own tests of torch.distributed, each in processes of its own:

    pytorch_cases.py gloo|dtrun [--on-cpu] [--limit SECONDS] [--only FILE] MODULE

MODULE is distributed_test, whose cases are in torch itself, or a file of PyTorch's test/distributed. For each case
there is a line on standard output: ok, FAILED or skipped, its name, and how long it took; what a failed one said is on
standard error.

With "dtrun" every group that is asked for with the backend gloo, or with none, is one of dtrun, whose ranks meet by
`dtrun serve` as DTRUN_SERVE and DTRUN_SECRET_FILE say: the processes of a case are ranks that torchrun might have
started. Nothing else of the tests is changed, so that they believe to have gloo, but that processes are forked, not
spawned, which saves loading torch in each. --on-cpu runs also what wants GPUs: it reads "cpu" where a file says "cuda".
"""

import argparse
import contextlib
import fnmatch
import functools
import importlib.machinery
import importlib.util
import inspect
import io
import multiprocessing
import os
import re
import signal
import sys
import time
import unittest
import uuid

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.testing._internal import common_distributed, common_utils

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


def fork_processes(test, on_dtrun):
    """Instead of MultiProcessTestCase._spawn_processes()."""
    fork, job = multiprocessing.get_context("fork").Process, uuid.uuid4().hex

    def process(target, name, args, kwargs=None):
        if not on_dtrun:
            return fork(target=target, name=name, args=args, kwargs=kwargs or {})
        return fork(target=as_rank, name=name, args=(args[0], int(test.world_size), job, target, args, kwargs or {}))
    test._start_processes(process)


def give_dtrun_for_gloo():
    from dtrun.torch.backend import ProcessGroupDtrun
    make, own = distributed_c10d._new_process_group_helper, dist.ProcessGroupGloo
    signature = inspect.signature(make)

    @functools.wraps(make)
    def make_group(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        if str(bound.arguments["backend"]) in ("gloo", "cpu:gloo", "cpu:gloo,cuda:nccl", "undefined"):
            bound.arguments["backend"] = dist.Backend("dtrun")
        return make(*bound.args, **bound.kwargs)

    class Group:
        """torch's class, by whose name a test makes a group."""
        _Options, create_device, create_default_device = own._Options, own.create_device, own.create_default_device

        def __new__(cls, store, rank, size, options=None, timeout=None):
            return ProcessGroupDtrun(store, rank, size, timeout or getattr(options, "_timeout", None))

    distributed_c10d._new_process_group_helper = make_group
    dist.ProcessGroupGloo = Group
    ProcessGroupDtrun.create_device = own.create_device  # of gloo alone, for its options, which nobody reads here


class OnCpu(importlib.machinery.SourceFileLoader):
    """A file that does on the processor what it says of GPUs."""

    def get_data(self, path):
        data = super().get_data(path)
        if not path.endswith(".py"):
            return data
        text = re.sub(r"""(["'])cuda(:\d)?\1""", r"\1cpu\1", data.decode()).replace(".cuda()", ".cpu()")
        text = re.sub(r"torch\.cuda\.(synchronize|empty_cache|set_device|reset_\w+)\([^()]*\)", "None", text)
        return re.sub(r"\w+\.is_cuda\b", "True", text).encode()

    def get_code(self, fullname):
        return self.source_to_code(self.get_data(self.path), self.path)  # and not what is cached of the file as it was


def let_all_run_on_cpu():
    from torch.testing._internal import common_fsdp
    common_distributed.skip_if_lt_x_gpu = lambda number, **_: lambda function: function
    common_fsdp.skip_if_lt_x_gpu = common_distributed.skip_if_lt_x_gpu
    common_fsdp.DEVICE_COUNT = 2
    common_fsdp.test_compiled_fsdp = lambda **_: lambda function: function  # of files that are older than torch 2.10
    common_fsdp.FSDPTest._run = classmethod(common_fsdp.FSDPTestMixin._run.__func__)


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


def run(case, on_dtrun, limit, log):
    """:return: as outcome_of()"""
    log.seek(0)
    log.truncate()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0, closefd=False), write_through=True)
        if on_dtrun and not isinstance(case, common_distributed.MultiProcessTestCase):
            take_place(0, 1, uuid.uuid4().hex)
        outcome, text = outcome_of(case)
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
    return (outcome, text) if outcome else ("FAILED", f"it ended with status {status:#x}, after {limit} s at most")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("backend", choices=("gloo", "dtrun"))
    parser.add_argument("module")
    parser.add_argument("--on-cpu", action="store_true")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--only", help="a file with names, or patterns of them, one a line")
    options = parser.parse_args()
    on_dtrun = options.backend == "dtrun"
    common_utils.check_test_defined_in_running_script = lambda case: None
    common_distributed.get_timeout = lambda name: options.limit - 5
    common_distributed.MultiProcessTestCase._spawn_processes = lambda test: fork_processes(test, on_dtrun)
    if on_dtrun:
        give_dtrun_for_gloo()
    if options.on_cpu:
        let_all_run_on_cpu()
    patterns = ["*"]
    if options.only:
        with open(options.only, encoding="utf-8") as file:
            patterns = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    torch.set_num_threads(1)
    with open(f"/tmp/pytorch_cases.{os.getpid()}", "w+", encoding="utf-8") as log:
        os.unlink(log.name)
        for case in all_of(find_cases(options.module, options.on_cpu)):
            name = ".".join(case.id().split(".")[-2:])
            if isinstance(case, common_distributed.MultiThreadedTestCase) or not any(
                    fnmatch.fnmatch(name, pattern) for pattern in patterns):
                continue
            begin = time.monotonic()
            outcome, text = run(case, on_dtrun, options.limit, log)
            print(f"{outcome} {name} {time.monotonic() - begin:.1f}", flush=True)
            if outcome == "FAILED":
                log.seek(0)
                print(f"---- {name}\n{text}\n{log.read()[-3000:]}", file=sys.stderr, flush=True)


main()
