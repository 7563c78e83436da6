#!/usr/bin/python3 -I
"""How fast dtrun's store, fences and connections are, next to other rendezvous servers.

Runs every server that can be had in turn on this machine, round after round, under the load of
rendezvous_load, and prints tables and what became of the targets.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import rendezvous_peers  # noqa: E402
import rendezvous_table  # noqa: E402
from launch import busy_seconds, own_seconds, processor  # noqa: E402

SIZES = {"setget": [1, 64, 1024], "barrier": [64, 1024, 4096, 16384],
         "connect": [64, 1024, 4096, 16384]}
QUICK_SIZE_MAX = 1024
LIMIT_S = 10  # of a barrier, and for connecting all
LOAD_LIMIT_S = 180  # of everything that one run does; only a mistake gets there
REPETITIONS = 20  # of a barrier in a run
TIMED_OUT = 3  # rendezvous_load's exit status
FAILURES_MAX = 2  # then a cell is given up


class Cell:
    """The runs of one peer with one workload and size."""

    def __init__(self):
        self.runs, self.failures, self.timed_out, self.skipped = [], [], False, False

    def given_up(self):
        return self.skipped or len(self.failures) >= FAILURES_MAX

    def value(self, *path):
        """Median over the runs of what lies there in them; None without runs."""
        values = [rendezvous_table.dig(run, path) for run in self.runs]
        return statistics.median(values) if values else None


class Bench:
    """Runs, and keeps what came of them in `cells` by (peer's key, workload, clients)."""

    def __init__(self, peers, options):
        self.peers, self.options = peers, options
        self.cells = {(peer.key, workload, clients): Cell()
                      for workload, sizes in options.sizes.items() for clients in sizes
                      for peer in peers}

    def round(self, number):
        turn = number % len(self.peers)
        for workload, sizes in self.options.sizes.items():
            for clients in sizes:
                for peer in self.peers[turn:] + self.peers[:turn]:
                    cell = self.cells[peer.key, workload, clients]
                    cell.skipped |= self.too_slow_before(peer, workload, clients)
                    if not cell.given_up():
                        self.add(cell, number, peer, workload, clients)
                say(f"round {number + 1} of {self.options.rounds}: {workload} {clients}")

    def too_slow_before(self, peer, workload, clients):
        """With fewer clients it ran out of time already."""
        return any(cell.timed_out and not cell.runs
                   for (key, what, fewer), cell in self.cells.items()
                   if (key, what) == (peer.key, workload) and fewer < clients)

    def add(self, cell, number, peer, workload, clients):
        try:
            cell.runs.append({"round": number, **self.run(peer, workload, clients)})
        except TimeoutError as error:
            cell.timed_out = True
            cell.failures.append(str(error))
        except rendezvous_peers.Unavailable as error:
            cell.failures.append(str(error))

    def run(self, peer, workload, clients):
        """Of a server that is started for it: what it keeps of one run is in no other."""
        server = peer.start(clients)
        try:
            pids = [word for name, pid in server.pids.items()
                    for word in ("--server-pid", f"{name}={pid}")]
            done = subprocess.run(
                [f"{self.options.bin}/rendezvous_load", peer.protocol, workload, "--clients",
                 str(clients), "--seconds", str(self.options.seconds), "--repetitions",
                 str(REPETITIONS), "--limit", str(LIMIT_S), "--in-flight", str(peer.in_flight),
                 *pids, *server.arguments],
                capture_output=True, text=True, timeout=LOAD_LIMIT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"no end after {LOAD_LIMIT_S} s") from error
        finally:
            server.stop()
        if done.returncode == 0:
            return json.loads(done.stdout)
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        said = said.removeprefix("rendezvous_load: ")
        raise (TimeoutError if done.returncode == TIMED_OUT else rendezvous_peers.Unavailable)(said)


class Machine:
    """What the figures depend on besides the servers."""

    def __init__(self):
        self.load_before = os.getloadavg()[0]
        self.begin = self.now()

    def now(self):
        return time.monotonic(), busy_seconds(), own_seconds()

    def facts(self):
        elapsed, busy, ours = (after - before for after, before in zip(self.now(), self.begin))
        cores = os.cpu_count()
        return {"cores": cores, "kernel": f"Linux {os.uname().release}",
                "processor": processor(), "load_before": self.load_before,
                "load_after": os.getloadavg()[0], "minutes": elapsed / 60,
                "others": max(0.0, busy - ours) / (elapsed * cores)}


def say(text):
    print(f"rendezvous.py: {text}", file=sys.stderr, flush=True)


def numbers(text):
    return sorted(int(word) for word in text.split(","))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, metavar="N", help="of all (5; --quick: 1)")
    parser.add_argument("--seconds", type=float, metavar="S",
                        help="of each run of setget (3; --quick: 1)")
    parser.add_argument("--quick", action="store_true",
                        help=f"a first look: at most {QUICK_SIZE_MAX} clients")
    parser.add_argument("--only", metavar="NAME,..", help="rows by name; a wrong one prints all")
    parser.add_argument("--workloads", metavar="NAME,..", help="of setget, barrier, connect (all)")
    parser.add_argument("--sizes", metavar="N,..", type=numbers,
                        help="numbers of clients, for all workloads")
    parser.add_argument("--ranks-per-agent", type=int, metavar="K",
                        help="dtrun's; as many for each of at most 256 agents, at least 8")
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin", metavar="DIR",
                        help="where rendezvous_load and rendezvous_host are (build/release/bin)")
    parser.add_argument("--json", metavar="FILE", help="write every run there")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or (1 if options.quick else 3)
    options.bin = os.path.realpath(options.bin)
    workloads = options.workloads.split(",") if options.workloads else [*SIZES]
    if unknown := set(workloads) - set(SIZES):
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(SIZES)}")
    options.sizes = {workload: options.sizes or [clients for clients in SIZES[workload] if
                                                 not options.quick or clients <= QUICK_SIZE_MAX]
                     for workload in workloads}
    if not os.access(f"{options.bin}/rendezvous_load", os.X_OK):
        parser.error(f"no {options.bin}/rendezvous_load; `./dev bench rendezvous` builds it")
    return parser, options


def choose(parser, options):
    """The peers that can be had, and why others cannot."""
    peers = rendezvous_peers.all_peers(options)
    if options.only:
        keys = [peer.key for peer in peers]
        wanted = options.only.split(",")
        if set(wanted) - set(keys):
            parser.error(f"--only: there are {', '.join(keys)}")
        peers = [peer for peer in peers if peer.key in wanted]
    ready, absent = [], []
    for peer in peers:
        try:
            peer.prepare()
            ready.append(peer)
        except rendezvous_peers.Unavailable as error:
            absent.append((peer, str(error)))
    return ready, absent


def write_json(path, bench, absent, facts):
    cells = [{"peer": key, "workload": workload, "clients": clients, "runs": cell.runs,
              "failures": cell.failures}
             for (key, workload, clients), cell in bench.cells.items()]
    text = json.dumps({"machine": facts,
                       "versions": {peer.key: peer.version for peer in bench.peers},
                       "absent": {peer.key: why for peer, why in absent}, "cells": cells}, indent=1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def main():
    parser, options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options.descriptors = rendezvous_peers.raise_descriptor_limit()
    ready, absent = choose(parser, options)
    if not ready:
        sys.exit("rendezvous.py: no server: " + "; ".join(why for _, why in absent))
    bench = Bench(ready, options)
    machine = Machine()
    for number in range(options.rounds):
        bench.round(number)
    facts = machine.facts()
    print(rendezvous_table.report(bench, absent, facts))
    if options.json:
        write_json(options.json, bench, absent, facts)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
