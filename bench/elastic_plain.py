"""A rank of `bench/elastic_soak.py` that talks with nobody and imports nothing: steps of 20 ms.

Arguments: DIRECTORY. It knows its world from its environment. Rank 0 writes each step to a checkpoint of its generation, so
that one which is cut off, and does not know yet, spoils nothing; all go on at the newest one.
"""
import glob
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from elastic_log import Log, load, save  # noqa: E402

directory, generation = sys.argv[1], int(os.environ["DTRUN_GENERATION"])
log = Log(directory)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
saved = [int(path.rsplit("-", 1)[1]) for path in glob.glob(f"{directory}/checkpoint-*") if path[-1].isdigit()]
step = load(f"{directory}/checkpoint-{max(saved)}") if saved else 0
log.enter(generation, rank, size, step)
while not os.path.exists(f"{directory}/end"):
    step += 1
    if rank == 0:
        save(f"{directory}/checkpoint-{generation}", step)
    log.done(step)
    time.sleep(0.02)
