"""./dev bench scale: what a job of thousands of hosts costs its head.

dtrun is the real one, and so is its protocol; all hosts of a job are played by one process (scale_hosts.cpp), which dtrun
takes for Slurm's srun. Each job starts, meets at a fence, writes a line for each rank, and rests for two seconds; then
a rank fails, or in an elastic job a host is lost and comes back, or half of all hosts are lost. Log-ins and ranks are not
measured.
"""
import argparse
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

import table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = f"{ROOT}/build/release/bin"
SHAPES = {"tree": [], "no tree": ["--tree-threshold", "1000000"], "elastic": ["--blacklist-cooldown-range", "1", "1"],
          "half lost": ["--blacklist-cooldown-range", "100", "100"]}
ALL_UP_TO = 4_000  # hosts; heartbeats of more without a tree, and who plays them, take all of two processors
CPU_S_AT_10000, KB_EACH, TURN_MS, TOLD_S = 10, 20, 100, 0.5  # targets


def environment_of(directory, hosts, slots):
    """Of an allocation with the hosts n0, n1 and so on."""
    return dict(os.environ, HOME=directory, XDG_STATE_HOME=directory, XDG_CACHE_HOME=directory, XDG_RUNTIME_DIR=directory,
                PATH=f"{directory}:{os.environ['PATH']}", SCALE_FILE=f"{directory}/steps", LOOP_TURNS=f"{directory}/turns",
                LD_PRELOAD=f"{ROOT}/build/release/bench/libloop_turns.so", SLURM_JOB_ID="1",
                SLURM_JOB_NODELIST=f"n[0-{hosts - 1}]", SLURM_TASKS_PER_NODE=f"{slots}(x{hosts})",
                SLURM_NTASKS=str(hosts * slots), SLURM_JOB_NUM_NODES=str(hosts))


def losses_of(shape, hosts):
    """How many hosts an elastic job loses at once; 0: it is not elastic."""
    return {"elastic": 1, "half lost": hosts // 2}.get(shape, 0)


def read_steps(path):
    """By name: when, and what the head had used of the processor (s), its memory, and the most of it (KB)."""
    with open(path, encoding="ascii") as file:
        words = [line.split() for line in file]
    return {name: dict(zip(("time", "cpu_s", "kb", "most_kb"), map(float, values))) for name, *values in words}


def run_job(shape, hosts, slots, limit):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        shutil.copy(f"{BIN}/scale_hosts", f"{directory}/srun")
        flags = ["--connect-timeout", "100", *SHAPES[shape]]
        losses = losses_of(shape, hosts)
        if losses > 0:
            flags += ["--min-np", str((hosts - losses) * slots)]
        command = [f"{BIN}/dtrun", "-x", "SCALE_FILE", "-x", f"SCALE_LOSSES={losses}", *flags, "true"]
        done = subprocess.run(command, env=environment_of(directory, hosts, slots), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=directory, timeout=limit, check=False)
        expected = 0 if losses > 0 else 1
        lines = done.stdout.count(b"\n")
        if done.returncode != expected or lines < hosts * slots:
            sys.exit(f"scale: {shape}, {hosts} hosts: dtrun ended with {done.returncode}, and {lines} lines:\n"
                     f"{done.stderr.decode()[-2000:]}")
        with open(f"{directory}/turns", "rb") as file:
            turns, longest, longest_cpu, above = struct.unpack("<4Q", file.read(32))
        return dict(shape=shape, hosts=hosts, slots=slots, steps=read_steps(f"{directory}/steps"), turns=turns,
                    longest_ms=longest / 1e6, longest_cpu_ms=longest_cpu / 1e6, above_100_ms=above)


def last_of(run):
    """Its last step that was noted: whoever plays the hosts may be ended before their connections are."""
    return list(run["steps"].values())[-1]


def kb_each(run, small):
    """What a host costs, besides what a job of two hosts has."""
    return (last_of(run)["most_kb"] - last_of(small)["most_kb"]) / run["hosts"]


def row(run, small):
    steps = run["steps"]
    first, last = steps["told"], last_of(run)
    told = steps["stop"]["time"] - steps["fails"]["time"] if "fails" in steps else None
    change = steps["generation_2"]["time"] - steps["loses"]["time"] if "loses" in steps else None
    return [run["shape"], f"{run['hosts']:,}", f"{steps['generation_1']['time'] - first['time']:.2f}",
            f"{last['cpu_s']:.2f}", f"{last['most_kb'] / 1024:.0f}", f"{kb_each(run, small):.1f}",
            f"{run['longest_cpu_ms']:.0f}", "" if told is None else f"{told:.2f}", "" if change is None else f"{change:.2f}"]


def verdicts(runs, small):
    """What became of the targets, at the largest number of hosts."""
    most = max(run["hosts"] for run in runs)
    for run in runs:
        if run["hosts"] != most:
            continue
        steps = run["steps"]
        limits = [("processor time", last_of(run)["cpu_s"], CPU_S_AT_10000 * most / 10_000, "s"),
                  ("memory for each host", kb_each(run, small), KB_EACH, "KB"),
                  ("longest turn", run["longest_cpu_ms"], TURN_MS, "ms")]
        if "fails" in steps:
            limits.append(("failure told to all", steps["stop"]["time"] - steps["fails"]["time"], TOLD_S, "s"))
        yield f"{run['shape']}, {most:,} hosts: " + "; ".join(
            f"{what} {value:.2f} {unit} (target {limit:g}): {'met' if value <= limit else 'MISSED'}"
            for what, value, limit, unit in limits)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1_000, 4_000, 10_000])
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, help="default: all; of more than 4,000 hosts the tree")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a job")
    parser.add_argument("--json", help="a file for all runs")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    runs = []
    small = run_job("tree", 2, options.slots, options.limit)
    rows = [["", "hosts", "start s", "CPU s", "most MB", "KB each", "turn ms", "told s", "change s"]]
    for hosts in options.hosts:
        for shape in options.shapes or (SHAPES if hosts <= ALL_UP_TO else ["tree"]):
            runs.append(run_job(shape, hosts, options.slots, options.limit))
            rows.append(row(runs[-1], small))
            print(f"{hosts} hosts, {shape}: done", file=sys.stderr, flush=True)
    print(f"{options.slots} ranks a host; the head's processor time is that of a whole job, the longest turn of its loop is "
          f"processor time, too:")
    print("\n".join(table.columns(rows)))
    print("\n".join(verdicts(runs, small)))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(runs, file, indent=1)


main()
