"""A rank of torch_test.py that knows Horovod alone: checks what it finds in that name, and prints ok."""

import importlib
import os
import threading

import torch


def check(condition, *what):
    if not condition:
        raise AssertionError(what)


def refused(call, kind, *words):
    """Whether something says in words that it is not there."""
    try:
        call()
    except kind as error:
        check(all(word in str(error) for word in words), error)
        return
    check(False, "it claims to have done it", call)


def names():
    """All modules and names of Horovod that programs import are there, but for those that the list says are not."""
    module = None
    with open(os.path.dirname(os.path.abspath(__file__)) + "/horovod_names.txt", encoding="ascii") as lines:
        for line in (line for line in lines if not line.startswith("#")):
            if not line.startswith(" "):
                name, line = line.split(":", maxsplit=1)
                module = importlib.import_module(name)
            for wanted in line.split():
                is_there = hasattr(module, wanted.lstrip("!"))
                check(is_there != wanted.startswith("!"), module.__name__, wanted)


def what_there_is(hvd):
    from horovod.common import util
    from horovod.common.basics import HorovodBasics
    from horovod.runner import launch
    check([built() for built in (util.nccl_built, util.ddl_built, util.ccl_built, launch.nccl_built)] == [False] * 4)
    check(util.gloo_built() is True and util.mpi_built() is (hvd.mpi_ops._basics.mpi_built() is True))
    check(util.extension_available("torch") and not util.extension_available("tensorflow"))
    check(not util.gpu_available("torch"), "tensors of GPUs go by the host")
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    refused(lambda: util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__), ImportError, "horovod.mxnet")
    basics = HorovodBasics(__file__, "mpi_lib_v2")
    check((basics.rank(), basics.size(), basics.nccl_built()) == (hvd.rank(), hvd.size(), 0))


def what_there_is_not(hvd):
    import horovod
    from horovod.common.elastic import run_fn
    from horovod.runner import launch
    refused(lambda: horovod.run(print), NotImplementedError, "dtrun -np N")
    refused(lambda: launch.run_commandline(), NotImplementedError, "dtrun -np N")
    refused(lambda: hvd.start_timeline("t.json"), NotImplementedError, "t.json", "torch.profiler")
    refused(hvd.stop_timeline, NotImplementedError, "torch.profiler")
    refused(lambda: run_fn(print, print), NotImplementedError, "elastic.run")


def helpers():
    from horovod.common import util
    check(util.split_list(list(range(7)), 3) == [[0, 1, 2], [3, 4], [5, 6]])
    check([n for n in range(10) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8])
    check(util.is_iterable([]) and not util.is_iterable(1))
    check(util.is_version_greater_equal_than("2.13.0+cpu", "2.2.0") and
          not util.is_version_greater_equal_than("1.9.1rc1", "1.10.0"))
    refused(lambda: util.is_version_greater_equal_than("1.0", "1.0"), ValueError, "MAJOR.MINOR.PATCH")
    with util.env(SOME_NAME="x", HOME=None):
        check(os.environ["SOME_NAME"] == "x" and "HOME" in os.environ)
    check("SOME_NAME" not in os.environ)


def loaders():
    from horovod.data import AsyncDataLoaderMixin, BaseDataLoader

    class Numbers(BaseDataLoader):
        def __init__(self, fails_at=100):
            self.fails_at = fails_at

        def __len__(self):
            return 5

        def _iterate(self):
            for i in range(len(self)):
                if i == self.fails_at:
                    raise ValueError("no such file")
                yield i

        def _process_batch(self, batch):
            return batch * 10

    class Async(AsyncDataLoaderMixin, Numbers):
        pass

    for loader in (Numbers(), Async(), Async(async_loader_queue_size=1), Async(async_loader_queue_size=0)):
        for _ in range(2):
            check(list(loader) == [0, 10, 20, 30, 40], loader)
    refused(lambda: list(Async(fails_at=3)), ValueError, "no such file")
    before = threading.active_count()
    left = Async(async_loader_queue_size=1)
    check(next(iter(left)) == 0)
    left.close_async_loader()
    check(threading.active_count() == before, "a pass that was left early has no thread any more")


def operations(hvd):
    from horovod.torch.mpi_ops import HorovodAllreduce
    from horovod.torch.optimizer import _DistributedOptimizer
    x = torch.ones(3, requires_grad=True)
    HorovodAllreduce.apply(x, None, None, hvd.Sum, 1.0, 1.0, hvd.global_process_set).sum().backward()
    check(x.grad.tolist() == [float(hvd.size())] * 3, x.grad)
    model = torch.nn.Linear(2, 1)
    made = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    check(isinstance(made, _DistributedOptimizer))


def states(hvd):
    from horovod.common.elastic import ObjectState, State

    class Own(State):
        def __init__(self):
            super().__init__(bcast_object=hvd.broadcast_object, get_rank=hvd.rank)
            self.value, self.saved = 1, 0

        def save(self):
            self.saved = self.value

    own = Own()
    own.save()
    check(own.saved == 1)
    state = ObjectState(hvd.broadcast_object, hvd.rank, batch=hvd.rank())
    state.sync()
    check(state.batch == 0)
    state.batch = 7
    state.restore()
    check(state.batch == 0)


def main():
    import horovod
    import horovod.torch as hvd
    import horovod.torch.elastic
    from horovod.common.exceptions import HorovodInternalError
    from horovod.torch.compression import Compression
    from horovod.torch.mpi_ops import Sum

    import dtrun.torch
    names()
    hvd.init()
    check(horovod.__version__ == "0.28.1")
    check(HorovodInternalError is hvd.HorovodInternalError and Compression is hvd.Compression and Sum == hvd.Sum)
    check(dtrun.torch.mpi_ops.Sum == Sum and horovod.torch.elastic.TorchState is dtrun.torch.elastic.TorchState)
    check(hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [float(hvd.size())] * 3)
    what_there_is(hvd)
    what_there_is_not(hvd)
    helpers()
    loaders()
    operations(hvd)
    states(hvd)
    print("ok", flush=True)


if __name__ == "__main__":
    main()
