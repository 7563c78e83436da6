"""A rank of the real launcher, where one that asks much goes past its agent: what ranks have set before a
fence is there behind it, whichever way they ask, in several threads and with requests that wait."""
import os
import sys
import threading

import dtrun

STEPS, ENOUGH = 20, 20


def sockets():
    """How many connections this process has."""
    return sum(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:") for fd in os.listdir("/proc/self/fd")
               if os.path.islink(f"/proc/self/fd/{fd}"))


def steps(worker, name):
    """Sets, meets and gets, again and again."""
    for step in range(STEPS):
        worker.set(f"{name}/{step}/{worker.rank}", str(step))
        worker.barrier(name)
        for rank in range(worker.world_size):
            found = worker.get(f"{name}/{step}/{rank}", timeout=0)
            assert found == str(step).encode(), (name, step, rank, found)


with dtrun.Worker() as worker:
    before = sockets()
    for i in range(ENOUGH):
        worker.set(f"own/{worker.rank}", str(i))
        assert worker.get(f"own/{worker.rank}") == str(i).encode()
    assert sockets() == before + 1, (before, sockets())
    steps(worker, "alone")
    popped = []
    threads = [threading.Thread(target=steps, args=(worker, f"thread{i}")) for i in range(2)]
    threads.append(threading.Thread(target=lambda: popped.append(worker.pop(f"queue/{worker.rank}"))))
    for thread in threads:
        thread.start()
    for thread in threads[:-1]:
        thread.join()
    worker.push(f"queue/{(worker.rank + 1) % worker.world_size}", "item")
    threads[-1].join()
    assert popped == [b"item"]
    total = worker.add("total", 1)
    worker.barrier("end")
    assert worker.get("total", timeout=0) == str(worker.world_size).encode()
    large = os.urandom(1 << 20)
    worker.set(f"large/{worker.rank}", large)
    assert worker.get(f"large/{worker.rank}", timeout=0) == large
    print("well", flush=True)
sys.exit(0)
