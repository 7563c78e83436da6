#!/usr/bin/python3 -I
"""How fast dtrun's store, fences and connections are, next to other rendezvous servers.

Runs every server that can be had in turn on this machine, round after round, under the load of
rendezvous_load, and prints tables and what became of the targets.
"""
import argparse
import functools
import json
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import rendezvous_peers  # noqa: E402
import table  # noqa: E402
from launch import busy_seconds, own_seconds, processor  # noqa: E402
from table import number  # noqa: E402

SIZES = {"setget": [1, 64, 1024], "barrier": [64, 1024, 4096, 16384],
         "connect": [64, 1024, 4096, 16384],
         "durable": [1, 16],
         "flight": [10_000],  # of one client's operations, not of clients
         "large": [64, 1 << 20]}  # bytes of a value of one client
ONE_CLIENT = ("durable", "flight", "large")
QUICK_SIZE_MAX = 1024
LOAD_LIMIT_S = 180  # of everything that one run does; only a mistake gets there
TIMED_OUT = 3  # rendezvous_load's exit status
FAILURES_MAX = 2  # then a cell is given up
LOAD_BUSY_MAX = 0.95  # of a processor: from there on the load may be what limits
OPS_RATIO_MIN = 2.0
OPS_CLIENTS = 64
FLIGHT_RATIO_MIN = 5.0
DURABLE_RATIO_MIN = 0.8
LARGEST = 16384
BARRIER_MS_MAX = 20
CONNECT_S_MAX = 1
HEAD_BYTES_MAX = 2048


def dig(run, path):
    return functools.reduce(lambda value, name: value[name], path, run)


class Cell:
    """The runs of one peer with one workload and size."""

    def __init__(self):
        self.runs, self.failures, self.timed_out, self.skipped = [], [], False, False

    def given_up(self):
        return self.skipped or len(self.failures) >= FAILURES_MAX

    def value(self, *path):
        """Median over the runs of what lies there in them; None without runs."""
        return table.median(dig(run, path) for run in self.runs)


class Bench:
    """Runs, and keeps what came of them in `cells` by (peer's key, workload, clients)."""

    def __init__(self, peers, options):
        self.peers, self.options = peers, options
        self.cells = {(peer.key, workload, clients): Cell()
                      for workload, sizes in options.sizes.items() for clients in sizes
                      for peer in peers}

    def round(self, number):
        for workload, sizes in self.options.sizes.items():
            for clients in sizes:
                for peer in table.in_turns(self.peers, number):
                    cell = self.cells[peer.key, workload, clients]
                    cell.skipped |= workload not in peer.workloads or self.too_slow_before(peer, workload, clients)
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
        server = peer.start(1 if workload in ("flight", "large") else clients)
        try:
            command, read = peer.load(server, workload, clients, self.options)
            done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_LIMIT_S, check=False)
            if done.returncode == 0:
                return read(done.stdout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"no end after {LOAD_LIMIT_S} s") from error
        finally:
            server.stop()
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
                        help="of each run of setget, and of each part of flight, durable and large (3; --quick: 1)")
    parser.add_argument("--quick", action="store_true",
                        help=f"a first look: at most {QUICK_SIZE_MAX} clients")
    parser.add_argument("--only", metavar="NAME,..", help="rows by name; a wrong one prints all")
    parser.add_argument("--workloads", metavar="NAME,..", help=f"of {', '.join(SIZES)} (all)")
    parser.add_argument("--sizes", metavar="N,..", type=numbers,
                        help="numbers of clients, for all workloads")
    parser.add_argument("--ranks-per-agent", type=int, metavar="K",
                        help="dtrun's; as many for each of at most 256 agents, at least 8")
    parser.add_argument("--real-time", action="store_true",
                        help="before all other programs of the machine (SCHED_FIFO): for one that is busy; needs root")
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin", metavar="DIR",
                        help="where rendezvous_load and rendezvous_host are (build/release/bin)")
    parser.add_argument("--json", metavar="FILE", help="write every run there")
    options = parser.parse_args()
    if options.real_time:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # and all that this starts
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or (1 if options.quick else 3)
    options.bin = os.path.realpath(options.bin)
    workloads = options.workloads.split(",") if options.workloads else [*SIZES]
    if unknown := set(workloads) - set(SIZES):
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(SIZES)}")
    options.sizes = {workload: options.sizes or [clients for clients in SIZES[workload] if
                                                 not options.quick or workload in ONE_CLIENT or
                                                 clients <= QUICK_SIZE_MAX]
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


# ---- from runs to text ----
def people(clients):
    return f"{clients:,} client" + ("s" if clients > 1 else "")


def server_us(cell):
    """Of processor, of all processes of the server, an operation."""
    return table.median(sum(use["cpu_us"] for name, use in run["processes"].items()
                                 if name != "load") for run in cell.runs)


def load_busy(cell):
    """Share of one processor that the load has used."""
    return cell.value("processes", "load", "cpu_us") * cell.value("ops_per_s") * 1e-6


def bytes_per_client(process, clients, cell):
    """By which a process has grown since before the first connection; None: no such process."""
    if not cell.runs or process not in cell.runs[0]["processes"]:
        return None
    before, after = (table.median(run["processes"][process]["pss_kb"][i] for run in cell.runs)
                     for i in (0, 1))
    return max(0.0, after - before) * 1024 / clients


class Column:
    """A figure of a workload, for one number of clients."""

    def __init__(self, bench, workload, clients, heading, figure, is_first):
        self.bench, self.workload, self.clients = bench, workload, clients
        self.heading, self.figure, self.is_first = heading, figure, is_first

    def entry(self, peer):
        cell = self.bench.cells[peer.key, self.workload, self.clients]
        if cell.runs:
            return number(self.figure(cell))
        if not self.is_first:
            return ""
        if cell.timed_out:
            return ">10 s"
        return "-" if cell.skipped else "failed"


def columns_of(bench, workload, clients, figures):
    return [Column(bench, workload, clients, heading, figure, i == 0)
            for i, (heading, figure) in enumerate(figures)]


def table_of(bench, columns):
    """A row for each peer; the numbers of clients stand above their columns."""
    rows = [[""] + [f"{column.clients:,}" if column.is_first else "" for column in columns],
            ["clients"] + [column.heading for column in columns]]
    return table.columns(rows + [[peer.label] + [column.entry(peer) for column in columns] for peer in bench.peers])


def section(bench, workload, title, *figures):
    """A table with all figures, each (heading, function of a cell), for each size."""
    sizes = bench.options.sizes.get(workload)
    if not sizes:
        return []
    columns = [column for clients in sizes
               for column in columns_of(bench, workload, clients, figures)]
    return table.wrapped(title) + table_of(bench, columns) + [""]


def setget_lines(bench):
    rate = section(
        bench, "setget", "set/get: thousand operations a second; processor time of the server's "
        "processes and of the load for each operation, in us",
        ("kops/s", lambda cell: cell.value("ops_per_s") * 1e-3), ("server", server_us),
        ("load", lambda cell: cell.value("processes", "load", "cpu_us")))
    latency = section(
        bench, "setget", "set/get: latency in us",
        ("p50", lambda cell: cell.value("latency_us", "p50")),
        ("p99", lambda cell: cell.value("latency_us", "p99")),
        ("max", lambda cell: cell.value("latency_us", "max")))
    return rate + latency


def barrier_lines(bench):
    return section(
        bench, "barrier", "barrier: ms from the last arrival to the release, p50 and p99 over "
        "clients and repetitions; whole: from the first arrival to the last release, p50",
        ("p50", lambda cell: cell.value("release_us", "p50") * 1e-3),
        ("p99", lambda cell: cell.value("release_us", "p99") * 1e-3),
        ("whole", lambda cell: cell.value("whole_us", "p50") * 1e-3))


def connect_lines(bench):
    return section(
        bench, "connect", "connect: ms until all clients can be used; processor time of the "
        "server's processes for each, in us",
        ("ms", lambda cell: cell.value("seconds") * 1e3), ("server", server_us))


def flight_lines(bench):
    return section(
        bench, "flight", "flight: thousand operations a second of one thread of a program, through the client library: "
        "one at a time by functions that wait, and so many in flight by requests that do not",
        *((name, functools.partial(lambda name, cell: cell.value(name), name)) for name in ("set", "sets", "get", "gets")))


def durable_lines(bench):
    return section(
        bench, "durable", "durable: thousand sets a second that are on disk before their answers, of one client, and of so many at "
        "once (dtrun's: in flight of one program)", ("kops/s", lambda cell: cell.value("ops_per_s") * 1e-3))


def large_lines(bench):
    return section(
        bench, "large", "large: operations a second of one client, with values of so many bytes",
        *((name, functools.partial(lambda name, cell: cell.value(name), name)) for name in ("set", "get")))


def memory_sizes(bench):
    """(workload, the most clients)."""
    return [(workload, max(bench.options.sizes[workload])) for workload in ("connect", "barrier")
            if bench.options.sizes.get(workload)]


def memory_lines(bench):
    sizes = memory_sizes(bench)
    if not sizes:
        return []
    names = sorted({name for peer in bench.peers for workload, clients in sizes
                    for run in bench.cells[peer.key, workload, clients].runs
                    for name in run["processes"]} - {"load"}, key=lambda name: name != "head")
    columns = []
    for workload, clients in sizes:
        figures = [(f"{workload}: {name}", functools.partial(bytes_per_client, name, clients))
                   for name in names]
        columns += columns_of(bench, workload, clients, figures)
    title = ("memory: bytes for each client, by which a server's processes have grown (PSS), when "
             "all are connected, and after the barriers; not what the kernel keeps for sockets")
    return table.wrapped(title) + table_of(bench, columns) + [""]


class Contest:
    """dtrun, by the better of its rows, against the best of the others in one figure."""

    def __init__(self, bench, workload, clients, path, best):
        def figure(row):
            return row[1].value(*path)

        rows = [(peer, cell) for peer in bench.peers
                if (cell := bench.cells[peer.key, workload, clients]).runs]
        ours = [row for row in rows if row[0].key.startswith("dtrun")]
        theirs = [row for row in rows if not row[0].key.startswith("dtrun")]
        self.ours = best(ours, key=figure) if ours else None
        self.theirs = best(theirs, key=figure) if theirs else None
        self.value = figure(self.ours) if ours else None
        self.ratio = table.paired_ratio(self.ours[1].runs, self.theirs[1].runs,
                                        lambda run: dig(run, path)) if ours and theirs else None

    def text(self):
        return f"{self.ours[0].label}: {number(self.ratio)} x {self.theirs[0].label}"


def contests(bench, workload, path, best):
    for clients in bench.options.sizes.get(workload, []):
        contest = Contest(bench, workload, clients, path, best)
        if contest.ours:
            yield clients, contest


def target_lines(bench):
    targets = table.Targets()
    for clients, contest in contests(bench, "setget", ("ops_per_s",), max):
        if contest.ratio is not None:
            is_target = clients == OPS_CLIENTS
            wish = f", > {OPS_RATIO_MIN:g} x the best" if is_target else ""
            targets.add(f"set/get, {people(clients)}: operations a second{wish}", contest.text(),
                        contest.ratio > OPS_RATIO_MIN if is_target else None)
    for clients, contest in contests(bench, "durable", ("ops_per_s",), max):
        if contest.ratio is not None:
            targets.add(f"durable, {clients} at once: sets a second, >= {DURABLE_RATIO_MIN:g} x", contest.text(),
                        contest.ratio >= DURABLE_RATIO_MIN)
    for name in ("set", "get"):
        for clients, contest in contests(bench, "large", (name,), max):
            if contest.ratio is not None:
                targets.add(f"large, {clients:,} bytes: {name}, operations a second", contest.text(), None)
    for clients, contest in contests(bench, "barrier", ("release_us", "p99"), min):
        if clients == LARGEST:
            targets.at_most(f"barrier, {people(clients)}: p99 of release <= {BARRIER_MS_MAX} ms", contest.value * 1e-3,
                            BARRIER_MS_MAX, contest.ours[0].label + ": {:.1f} ms")
        if contest.ratio is not None:
            targets.add(f"barrier, {people(clients)}: p99 of release, < the best", contest.text(), contest.ratio < 1)
    for clients, contest in contests(bench, "connect", ("seconds",), min):
        if clients == LARGEST:
            targets.at_most(f"connect, {people(clients)}: <= {CONNECT_S_MAX} s", contest.value, CONNECT_S_MAX,
                            contest.ours[0].label + ": {:.2f} s")
        if contest.ratio is not None:
            targets.add(f"connect, {people(clients)}: time", contest.text(), None)
    for (key, workload, clients), cell in bench.cells.items():
        if workload == "flight" and cell.runs:
            ratio = table.median(min(run["sets"] / run["set"], run["gets"] / run["get"]) for run in cell.runs)
            targets.add(f"flight, {clients:,} operations: >= {FLIGHT_RATIO_MIN:g} x one at a time",
                        f"{key}: {number(ratio)} x", ratio >= FLIGHT_RATIO_MIN)
    for peer in bench.peers:
        found = [bytes_per_client("head", clients, bench.cells[peer.key, workload, clients])
                 for workload, clients in memory_sizes(bench) if clients == LARGEST]
        if peer.key.startswith("dtrun") and "connect" in peer.workloads:
            targets.at_most(f"memory, {people(LARGEST)}: head <= {HEAD_BYTES_MAX:,} B for each",
                            max((value for value in found if value is not None), default=None), HEAD_BYTES_MAX,
                            peer.label + ": {:,.0f} B")
    return targets.lines()


def notes(bench, absent):
    """What the tables do not say."""
    for peer, why in absent:
        yield f"{peer.label}: not measured: {why}"
    for (key, workload, clients), cell in bench.cells.items():
        if cell.failures:
            count = len(cell.runs) + len(cell.failures)
            yield (f"{key} {workload} {clients}: {len(cell.failures)} of {count} runs failed; the "
                   f"last: {cell.failures[-1]}")
        if workload == "setget" and cell.runs and load_busy(cell) > LOAD_BUSY_MAX:
            yield f"{key} {workload} {clients}: the load used up its processor and may be the limit"
    if any(cell.skipped for cell in bench.cells.values()):
        yield ("-: not tried, because fewer clients took too long already, or because the server's own benchmark does not "
               "know the workload")


def agents_text(bench):
    """How dtrun's ranks were spread."""
    sizes = sorted({clients for workload, sizes in bench.options.sizes.items() if workload not in ONE_CLIENT
                    for clients in sizes})
    if not sizes:
        return ""
    for peer in bench.peers:
        if peer.key.startswith("dtrun"):
            shapes = ["{} x {}".format(*peer.shape(clients)) for clients in sizes]
            return f" dtrun's agents x ranks of each: {', '.join(shapes)}."
    return ""


def report(bench, absent, facts):
    options = bench.options
    versions = ", ".join(f"{peer.label} {peer.version}" for peer in bench.peers if peer.key in ("dtrun", "tcpstore", "redis"))
    lines = table.wrapped(
        f"Median of {options.rounds} interleaved rounds, a fresh server for each run, all on "
        f"loopback. {versions}.{agents_text(bench)}",
        f"{table.machine(facts)} {options.descriptors:,} descriptors for each process.") + [""]
    lines += (setget_lines(bench) + barrier_lines(bench) + connect_lines(bench) + flight_lines(bench) + durable_lines(bench) + large_lines(bench) +
              memory_lines(bench))
    for note in notes(bench, absent):
        lines += table.wrapped(note, indent="    ")
    return "\n".join(lines + [""] + target_lines(bench)).rstrip()


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
    print(report(bench, absent, facts))
    if options.json:
        write_json(options.json, bench, absent, facts)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
