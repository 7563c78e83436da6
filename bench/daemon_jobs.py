"""Jobs of a daemon, one after the other, each a store that nobody comes back to; for `./dev bench daemon`.

    daemon_jobs.py FIRST COUNT
"""
import os
import sys

import dtrun

FIRST, COUNT = int(sys.argv[1]), int(sys.argv[2])

for number in range(FIRST, FIRST + COUNT):
    os.environ["DTRUN_JOB_NAME"] = f"run {number}"
    with dtrun.Worker() as worker:
        worker.set("master_addr", f"10.0.0.{number % 250}")
        worker.set("state", bytes(number % 2000))
        worker.push("work", f"item {number}")
