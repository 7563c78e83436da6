"""One rank of a Horovod program does something else than the others: horovod_goes_wrong.py HOW RANK

Each rank prints when it comes to hvd.init(), and the wrong one when it goes wrong, in seconds of
the epoch.
"""
import os
import sys
import time

how, wrong = sys.argv[1], int(sys.argv[2])
rank = int(os.environ["DTRUN_RANK"])


def tell(what):
    print(f"{what} {time.time():.3f}", flush=True)


if rank == wrong and how == "import":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/is/not/there")
    tell("wrong")
    import horovod.torch_that_is_missing  # noqa: F401

import torch

import horovod.torch as hvd

if rank == wrong:
    if how in ("dies", "leaves"):
        time.sleep(1)  # the others wait by then
    tell("wrong")
    if how == "dies":
        sys.exit(3)
    if how == "leaves":
        sys.exit(0)
    if how == "size":
        os.environ["HOROVOD_SIZE"] = str(int(os.environ["HOROVOD_SIZE"]) + 1)
    if how == "late":
        time.sleep(8)
tell("init")
hvd.init()
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
tell("met")
