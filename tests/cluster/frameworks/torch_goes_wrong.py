"""A torch program in which something goes wrong on one rank: usage: torch_goes_wrong.py HOW RANK"""
import os
import signal
import sys
import time

HOW, WRONG = sys.argv[1], sys.argv[2] == os.environ["RANK"]


def say(what):
    """With the time, by which the test sees how long the end took."""
    print(what, f"{time.time():.3f}", flush=True)


if HOW == "import" and WRONG:
    say("imports")
    import a_module_that_only_the_others_have  # noqa: F401
if HOW == "leaves" and WRONG:
    sys.exit(0)  # a program that thinks it has nothing to do here
if HOW == "sleeps" and WRONG:
    time.sleep(600)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.elastic.multiprocessing.errors import record  # noqa: E402


def came(rank):
    """A file that says that this rank is about to meet the others; all hosts see it."""
    return f"came.{os.environ['DTRUN_JOB']}.{rank}"


def die_in_init(world):
    """After the rank has announced itself in the store, and when the others wait for it."""
    def killed(*_, **__):
        others = [rank for rank in range(world) if str(rank) != os.environ["RANK"]]
        while not all(os.path.exists(came(rank)) for rank in others):
            time.sleep(0.05)
        time.sleep(3)  # from there to their first wait, on a busy machine
        say("dies")
        os.kill(os.getpid(), signal.SIGKILL)
    torch.distributed.distributed_c10d._new_process_group_helper = killed


@record
def main():
    world = int(os.environ["WORLD_SIZE"])
    if HOW == "dies" and WRONG:
        die_in_init(world)
    open(came(os.environ["RANK"]), "w").close()
    if HOW == "world":
        say("starts")
        dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=world + 1)
    else:
        say("starts")
        dist.init_process_group("gloo")
        dist.barrier()
    if HOW == "raises" and WRONG:
        sys.excepthook = lambda *_: None  # so that only @record's file tells of it
        say("raises")
        raise ValueError("batch 7 has no labels")
    dist.barrier()


if __name__ == "__main__":
    main()
