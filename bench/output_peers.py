#!/usr/bin/python3 -I
"""How fast one host's output is, next to Hydra's, without ssh: ranks of this machine write, `line_writer check` reads.

Root gives what is measured nearly all of the machine, by a cgroup of its own, and reads there how much of the processors it took.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import table  # noqa: E402

BIN = os.path.dirname(HERE) + "/build/release/bin"
WRITER = f"{BIN}/line_writer"
CGROUP = f"dtrun-bench.{os.getpid()}"
LIMIT_S = 120  # of one command
RATIO_MIN = 1.2  # of Hydra with prefixes
LINE_PART = 4  # a write for each line takes so many times as long as blocks
SLOW_PART = 8  # as much less for who is so much slower


class OwnShare:
    """A cgroup that nobody else is in."""

    def __init__(self):
        self.usage, self.folders = None, []
        root = "/sys/fs/cgroup"
        unified = os.path.exists(f"{root}/cgroup.controllers")
        parts = [("", "cpu.weight", "10000")] if unified else [("cpu/", "cpu.shares", "200000"), ("cpuacct/", None, None)]
        try:
            for part, weight, value in parts:
                folder = f"{root}/{part}{CGROUP}"
                os.mkdir(folder)
                self.folders.append(folder)
                if weight:
                    self.write(f"{folder}/{weight}", value)
                self.write(f"{folder}/cgroup.procs", os.getpid())
            self.usage = f"{self.folders[-1]}/" + ("cpu.stat" if unified else "cpuacct.usage")
        except OSError as error:
            print(f"output_peers.py: no cgroup of its own, so no processor time: {error}", file=sys.stderr)

    @staticmethod
    def write(path, value):
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(value))

    def cpu_s(self):
        if self.usage is None:
            return None
        with open(self.usage, encoding="utf-8") as file:
            words = file.readline().split()
        return int(words[1]) * 1e-6 if len(words) == 2 else int(words[0]) * 1e-9

    def leave(self):
        for folder in self.folders:
            self.write(f"{os.path.dirname(folder)}/cgroup.procs", os.getpid())
            os.rmdir(folder)


def launchers(ranks, state):
    """Commands by their names, and whether they are slow."""
    found = {"dtrun": ([f"{BIN}/dtrun", "-np", str(ranks), "--oversubscribe"], False)}
    if shutil.which("mpiexec.hydra"):
        found["Hydra"] = (["mpiexec.hydra", "-n", str(ranks)], False)
        found["Hydra, prefixes"] = (["mpiexec.hydra", "-prepend-rank", "-n", str(ranks)], True)
    environment = {**os.environ, "XDG_STATE_HOME": state, "XDG_CACHE_HOME": state}
    return {name: (command, environment, slow) for name, (command, slow) in found.items()}


def run_once(command, environment, how, ranks, each, share):
    cpu = share.cpu_s()
    began = time.monotonic()
    with subprocess.Popen([*command, WRITER, "write", how, str(each)], env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        seen = subprocess.run([WRITER, "check", str(ranks), str(each)], stdin=job.stdout, capture_output=True,
                              timeout=LIMIT_S, check=False)
        code = job.wait(timeout=LIMIT_S)
    wall = time.monotonic() - began
    assert code == 0 and seen.returncode == 0, (command, code, seen)
    gb = ranks * each * 1e-9
    return {"mb_s": gb * 1e3 / wall, "cpu_s_gb": None if cpu is None else (share.cpu_s() - cpu) / gb,
            "lines": json.loads(seen.stdout)}


def measure(options, share, state):
    """Runs by (write, ranks) and launcher."""
    runs = {}
    for number in range(options.rounds):
        for how in ("line", "block"):
            for ranks in (1, 16):
                for name, (command, environment, slow) in table.in_turns(list(launchers(ranks, state).items()), number):
                    part = (LINE_PART if how == "line" else 1) * (SLOW_PART if slow else 1)
                    each = options.mb * 1_000_000 // part // ranks // 80 * 80
                    run = run_once(command, environment, how, ranks, each, share)
                    runs.setdefault((how, ranks), {}).setdefault(name, []).append({**run, "round": number})
    return runs


def show(runs):
    for (how, ranks), cells in runs.items():
        for name, done in cells.items():
            cpu = table.median(run["cpu_s_gb"] for run in done)
            print(f"{how:6} {ranks:3} ranks  {name:16} {table.median(run['mb_s'] for run in done):5.0f} MB/s"
                  + ("" if cpu is None else f"  {cpu:5.2f} s of processors a GB"))
        for name in cells:
            if name == "dtrun":
                continue
            ratio = table.paired_ratio(cells["dtrun"], cells[name], lambda run: run["mb_s"])
            is_target = name == "Hydra, prefixes"
            print(f"    {ratio:.2f} x {name}" + (f": {'met' if ratio >= RATIO_MIN else 'MISSED'}" if is_target else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mb", type=int, default=800, help="of all ranks together, in blocks; a quarter line by line")
    parser.add_argument("--json", metavar="FILE", help="every run")
    options = parser.parse_args()
    share = OwnShare()
    try:
        with tempfile.TemporaryDirectory() as state:
            runs = measure(options, share, state)
    finally:
        share.leave()
    show(runs)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([{"write": how, "ranks": ranks, "launcher": name, **run} for (how, ranks), cells in runs.items()
                       for name, done in cells.items() for run in done], file, indent=1)


main()
