"""A rank of hvd.py: how long a DistributedOptimizer takes to reduce gradients, with Horovod or with dtrun.torch.

    hvd_step.py horovod|dtrun COMPRESSION
"""

import statistics
import sys
import time
import warnings

import torch

warnings.simplefilter("ignore")


def resnet50():
    """The shapes of ResNet-50's 161 parameters."""
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for width, depth in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(depth):
            shapes += [(width, inputs, 1, 1), (width,), (width,), (width, width, 3, 3), (width,), (width,),
                       (4 * width, width, 1, 1), (4 * width,), (4 * width,)]
            if block == 0:
                shapes += [(4 * width, inputs, 1, 1), (4 * width,), (4 * width,)]
            inputs = 4 * width
    return shapes + [(1000, 2048), (1000,)]


MODELS = [
    ("one value", [(1,)], 200),
    ("small net", [(10, 1, 5, 5), (10,), (20, 10, 5, 5), (20,), (50, 320), (50,), (10, 50), (10,)], 200),
    ("ResNet-50", resnet50(), 8),
]


def measure(hvd, compression, shapes, steps):
    """Median seconds from the first gradient until all are reduced. The backward pass costs next to nothing."""
    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    gradients = [torch.ones(shape) for shape in shapes]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.0), named_parameters=[(f"p{i}", p) for i, p in enumerate(parameters)],
        compression=getattr(hvd.Compression, compression))
    times = []
    for _ in range(steps + 3):
        for p in parameters:
            p.grad = None
        begin = time.perf_counter()
        torch.autograd.backward(parameters, gradients)
        optimizer.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[3:])


def main():
    library, compression = sys.argv[1:]
    if library == "horovod":
        import horovod.torch as hvd
    else:
        import dtrun.torch as hvd
    hvd.init()
    torch.set_num_threads(1)
    for name, shapes, steps in MODELS:
        hvd.allreduce(torch.zeros(1), name="together")
        seconds = measure(hvd, compression, shapes, steps)
        if hvd.rank() == 0:
            print(f"{name}\t{seconds * 1e3:.3f}", flush=True)


if __name__ == "__main__":
    main()
