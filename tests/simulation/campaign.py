#!/usr/bin/python3
"""Runs the simulation with one seed after the other, and the fuzzers between them, for as long as wanted.

    ./dev simulate [--hours H] [--seed N]

Each processor is kept busy; SIGINT or SIGTERM ends it once the runs at hand have ended. A seed that fails is printed with what was found and goes to the end of
build/simulation/failed, so that it can be replayed; the exit status is 1 then."""

import argparse
import concurrent.futures
import glob
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.realpath(os.path.dirname(os.path.abspath(__file__)) + "/../..")
BUILD = f"{ROOT}/build/simulation"
TEST = "nothing acknowledged*,a job of a head*"
SOAK = "a daemon keeps for weeks*"
RUNS_FOR_EACH_SOAK = 64
SOAK_DAYS = 90
RUNS_FOR_EACH_FUZZER = 8
FUZZ_SECONDS = 30
HANGS = 600  # seconds, of which a run takes ten


def simulate(test, seed):
    """What went wrong with this seed, and how much was acknowledged."""
    try:
        environment = {"DTRUN_SIMULATION_DAYS": str(SOAK_DAYS), **os.environ, "DTRUN_SEED": str(seed)}
        done = subprocess.run([f"{BUILD}/bin/test_simulation", test], env=environment,
                              capture_output=True, text=True, timeout=HANGS)
    except subprocess.TimeoutExpired:
        return f"seed {seed}: has not ended in {HANGS} s", 0
    acknowledged = re.search(r"(\d+) acknowledged", done.stdout)
    count = int(acknowledged.group(1)) if acknowledged else 0
    if done.returncode == 0:
        return None, count
    found = re.search(rf"DTRUN_SEED={seed}\n(.*?)\n\n", done.stdout, re.DOTALL)
    return f"seed {seed}: " + (found.group(1) if found else done.stdout[-2000:]).strip(), count


def fuzz(program, seed):
    name = os.path.basename(program)[len("fuzz_"):]
    directory = f"{BUILD}/fuzz"
    os.makedirs(directory, exist_ok=True)
    done = subprocess.run([program, f"{ROOT}/tests/fuzz/corpus/{name}", "--seconds", str(FUZZ_SECONDS),
                           "--seed", str(seed)], cwd=directory, capture_output=True, text=True)
    return None if done.returncode == 0 else f"{os.path.basename(program)} --seed {seed}: {done.stdout[-1000:]}"


def main():
    parser = argparse.ArgumentParser(prog="./dev simulate")
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    asked = parser.parse_args()
    fuzzers = sorted(glob.glob(f"{BUILD}/bin/fuzz_*"))
    lock = threading.Lock()
    totals = {"runs": 0, "acknowledged": 0, "soaked": 0, "fuzzed": 0, "failed": 0}
    next_seed = asked.seed
    began = time.monotonic()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())

    def is_over():
        return stopped.is_set() or time.monotonic() - began > asked.hours * 3600

    def report(problem):
        totals["failed"] += 1
        print(problem, flush=True)
        with open(f"{BUILD}/failed", "a", encoding="utf-8") as failed:
            failed.write(problem + "\n")

    def work():
        nonlocal next_seed
        while not is_over():
            with lock:
                seed, next_seed = next_seed, next_seed + 1
            problem, count = simulate(TEST, seed)
            with lock:
                totals["runs"] += 1
                totals["acknowledged"] += count
                if problem:
                    report(problem)
            if seed % RUNS_FOR_EACH_SOAK == 0:
                problem, _ = simulate(SOAK, seed)
                with lock:
                    totals["soaked"] += 1
                    if problem:
                        report(problem)
            if seed % RUNS_FOR_EACH_FUZZER == 0 and fuzzers:
                problem = fuzz(fuzzers[seed // RUNS_FOR_EACH_FUZZER % len(fuzzers)], seed)
                with lock:
                    totals["fuzzed"] += 1
                    if problem:
                        report(problem)

    workers = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    hours = (time.monotonic() - began) / 3600
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{totals['runs']} runs of 30 simulated seconds, {totals['acknowledged']} acknowledged operations, "
          f"{totals['soaked']} x {SOAK_DAYS} simulated days of a daemon, {totals['fuzzed']} x {FUZZ_SECONDS} s of fuzzing, {totals['failed']} failed; "
          f"{(used.ru_utime + used.ru_stime) / 3600:.2f} processor-hours in {hours:.2f}; the next seed is {next_seed}")
    return 1 if totals["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
