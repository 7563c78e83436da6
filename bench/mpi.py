#!/usr/bin/python3 -I
"""From the command to the last rank out of MPI_Init, under dtrun and its peers. Needs root.

The hosts are network namespaces on this machine; "1 host" is the one of the command, without ssh.
Then latency and bandwidth of the same program, between two ranks, under dtrun and under mpirun.
Launchers take turns within a round, in another order each round.
"""
import argparse
import json
import os
import signal
import struct
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import launch  # noqa: E402
import table  # noqa: E402
from launch import Cell  # noqa: E402
from launch_peers import find, first_match  # noqa: E402

HOSTS = 16
SHAPES = [(8, 1), (32, 1), (64, 1), (8, 4), (32, 4), (64, 4), (32, 16), (64, 16)]  # ranks, hosts
SLURM_HOSTS = 4
LIMIT_S = 60
TARGET_SHAPE, TARGET_RATIO = (32, 1), 0.75
PAIR_TOLERANCE = 0.02
PAIR_SIZES = {"latency": (8, 1024, 65536), "bandwidth": (4096, 65536, 4194304)}
READER = ["/usr/bin/python3", "-I", "-c",
          "import json, sys; print(json.dumps(sys.stdin.read()), flush=True)"]


def host_list(ranks, hosts):
    return ",".join(f"s{number}:{ranks // hosts}" for number in range(1, hosts + 1))


class Launcher:
    """One row: a launcher and the MPI of the program that it starts."""

    def __init__(self, key, label, mpi, program):
        self.key, self.label, self.mpi, self.program = key, label, mpi, program

    def can(self, _ranks, _hosts):
        return True

    def command(self, ranks, hosts, words):
        raise NotImplementedError


class Dtrun(Launcher):
    def command(self, ranks, hosts, words):
        where = ["-H", host_list(ranks, hosts)] if hosts > 1 else []
        return [self.program, "--tag", "none", "-np", str(ranks), *where, *words]


class Mpirun(Launcher):
    def command(self, ranks, hosts, words):
        where = ["--host", host_list(ranks, hosts)] if hosts > 1 else ["--oversubscribe"]
        if ranks == 2:  # else it binds ranks of two hosts to the one processor 0 that they have here
            where += ["--bind-to", "none"]
        return [self.program, "--allow-run-as-root", "-np", str(ranks), *where, *words]


class Hydra(Launcher):
    def command(self, ranks, hosts, words):
        where = ["-launcher", "ssh", "-hosts", host_list(ranks, hosts)] if hosts > 1 else []
        return [self.program, *where, "-n", str(ranks), *words]


class Srun(Launcher):
    """In an allocation that is there already."""
    job, plugin = None, ""

    def can(self, _ranks, hosts):
        return hosts <= SLURM_HOSTS

    def command(self, ranks, hosts, words):
        return [self.program, f"--jobid={self.job}", f"--mpi={self.plugin}", "--overcommit",
                f"-N{hosts}", f"-n{ranks}", *words]


def all_launchers(binaries):
    dtrun = f"{binaries}/dtrun"
    mpirun, hydra, srun = find("mpirun.openmpi"), find("mpiexec.hydra"), find("srun")
    rows = [Dtrun("dtrun", "dtrun, Open MPI", "openmpi", dtrun),
            Mpirun("mpirun", "Open MPI's mpirun", "openmpi", mpirun),
            Dtrun("dtrun-mpich", "dtrun, MPICH", "mpich", dtrun),
            Hydra("hydra", "MPICH's mpiexec.hydra", "mpich", hydra),
            Srun("srun-pmix", "srun --mpi=pmix, Open MPI", "openmpi", srun),
            Srun("srun-pmi2", "srun --mpi=pmi2, MPICH", "mpich", srun)]
    for row in rows[4:]:
        row.plugin = row.key.removeprefix("srun-")
    return [row for row in rows if row.program and find(f"mpicc.{row.mpi}")]


def versions():
    texts = [("Open MPI", first_match(r"(\d[\w.]*)", "mpirun.openmpi", "--version")),
             ("MPICH", first_match(r"Version:\s*(\S+)", "mpiexec.hydra", "--version")),
             ("Slurm", first_match(r"Version: ([\d.]+)", "dpkg-query", "-s", "slurm-client")),
             ("libpmix", first_match(r"Version: (\S+)", "dpkg-query", "-s", "libpmix2"))]
    return ", ".join(f"{name} {version}" for name, version in texts if version != "?")


class Bench:
    """Runs, and keeps what came of them: `cells` by (row, (ranks, hosts)), `pairs` by
    (row, hosts), each a list of {(what, bytes): value} by round."""

    def __init__(self, cluster, launchers, options):
        self.cluster, self.launchers, self.options = cluster, launchers, options
        self.cells, self.pairs, self.number = {}, {}, 0
        for mpi in {launcher.mpi for launcher in launchers}:
            os.mkdir(f"{cluster.scratch}/{mpi}")
            for source in (f"{HERE}/mpi_init.c", f"{ROOT}/tests/mpi/pingpong.c"):
                name = os.path.basename(source).removesuffix(".c")
                subprocess.run([f"mpicc.{mpi}", "-std=gnu11", "-O2", "-o",
                                f"{cluster.scratch}/{mpi}/{name}", source], check=True)

    def program(self, launcher, name):
        return f"{self.cluster.scratch}/{launcher.mpi}/{name}"

    def run(self, command, **more):
        answer = self.cluster.tell_runner(what="run", limit_s=LIMIT_S, command=command, **more)
        answer["left"] = self.cluster.wait_quiet()
        if answer["left"]:
            self.cluster.reset()
        return answer

    def start(self, launcher, ranks, hosts):
        """A run whose "init" are seconds until the last rank was out of MPI_Init."""
        self.number += 1
        path = f"{self.cluster.scratch}/times.{self.number}"
        command = launcher.command(ranks, hosts, [self.program(launcher, "mpi_init"), path])
        answer = self.run(command)
        try:
            with open(path, "rb") as file:
                said = list(struct.iter_unpack("<qq", file.read()))
            os.unlink(path)
        except FileNotFoundError:
            said = []
        if [size for _, size in said] == [ranks] * ranks:
            answer["init"] = max(moment for moment, _ in said) * 1e-9 - answer["begin"]
        elif answer["status"] == 0:
            answer["status"] = -1
            answer["errors"] = f"the ranks were {len(said)} worlds of {said[0][1] if said else 0}"
        return answer

    def start_round(self, number, shapes):
        for ranks, hosts in shapes:
            for launcher in table.in_turns(self.launchers, number):
                cell = self.cells.setdefault((launcher.key, (ranks, hosts)), Cell())
                if not launcher.can(ranks, hosts) or cell.given_up():
                    continue
                answer = self.start(launcher, ranks, hosts)
                answer["round"] = number
                cell.spent_s += answer["wall"]
                cell.left = max(cell.left, answer["left"])
                if answer["in_time"] and answer["status"] == 0:
                    cell.runs.append(answer)
                else:
                    cell.failures.append(answer)
                    cell.timed_out |= not answer["in_time"]
            say(f"round {number + 1} of {self.options.runs}: {ranks} ranks on {hosts}")

    def pair_round(self, number):
        """MPICH on one host only: with two it now and then hangs at the end, whoever starts it."""
        keys = ["dtrun", "mpirun", "dtrun-mpich", "hydra"]
        chosen = [launcher for launcher in self.launchers if launcher.key in keys]
        for hosts in (1, 2):
            for launcher in table.in_turns(chosen, number):
                if hosts > 1 and launcher.mpi == "mpich":
                    continue
                words = [self.program(launcher, "pingpong"), str(self.options.pair_seconds)]
                answer = self.run(launcher.command(2, hosts, words), reader=READER)
                lines = [line.split() for line in (answer.get("read") or "").splitlines()]
                if answer["status"] == 0 and answer["in_time"] and lines:
                    found = {int(size): (float(latency), float(rate))
                             for size, latency, rate in lines}
                    self.pairs.setdefault((launcher.key, hosts), []).append(
                        {"round": number, "found": found})
                else:
                    say(f"pingpong under {launcher.key} on {hosts}: {answer['errors'][-200:]}")
        say(f"round {number + 1} of {self.options.pair_runs}: pingpong")

    def pair_best(self, key, hosts, what, size):
        """Of all rounds: a rank that waits for a processor is no figure of MPI."""
        column, best = (0, min) if what == "latency" else (1, max)
        return best(run["found"][size][column] for run in self.pairs[key, hosts])


def slurm_allocation(cluster):
    """The id of a job on all nodes, or None and why not."""
    done = subprocess.run([f"{ROOT}/tests/cluster/support/slurm.py", "up"],
                          env=cluster.environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        done = subprocess.run([launch.CLUSTER, "exec", "head", "salloc", "--no-shell",
                               f"-N{SLURM_HOSTS}", "--exclusive", "--overcommit"],
                              env=cluster.environment, capture_output=True, text=True, check=False)
        words = [word for word in done.stderr.split() if word.isdigit()]
        if done.returncode == 0 and words:
            return words[0]
    say(f"no Slurm: {done.stderr.strip()[-200:]}")
    return None


def say(text):
    print(f"mpi.py: {text}", file=sys.stderr, flush=True)


def init_ratio(bench, ours, theirs, shape):
    ours, theirs = (bench.cells[key, shape].runs for key in (ours, theirs))
    return table.paired_ratio(ours, theirs, lambda run: run["init"])


def init_table(bench):
    shapes = bench.options.shapes
    lines = [["median s to the last rank out of MPI_Init", "",
              *(f"{ranks} on {hosts}" for ranks, hosts in shapes)]]
    for launcher in bench.launchers:
        row = [launcher.label, ""]
        for ranks, hosts in shapes:
            cell = bench.cells[launcher.key, (ranks, hosts)]
            if not launcher.can(ranks, hosts):
                row.append("")
            else:
                row.append(table.seconds(cell.of_runs("init")) if cell.runs else cell.mark())
        lines.append(row)
    keys = {launcher.key for launcher in bench.launchers}
    for ours, theirs, label in (("dtrun", "mpirun", "dtrun / mpirun"),
                                ("dtrun-mpich", "hydra", "dtrun / hydra")):
        if {ours, theirs} <= keys:
            lines.append([label, "", *(table.times(init_ratio(bench, ours, theirs, shape)) for shape in shapes)])
    return table.columns(lines, words=2)


def pair_table(bench):
    """And, for each comparison, the ratio that is the worse for dtrun."""
    columns = [(what, size) for what, sizes in PAIR_SIZES.items() for size in sizes]
    lines = [["two ranks, best", "", *(f"{size_text(size)} {'us' if what == 'latency' else 'MB/s'}"
                                 for what, size in columns)]]
    worst = []
    for ours, theirs, hosts in (("dtrun", "mpirun", 1), ("dtrun", "mpirun", 2),
                                ("dtrun-mpich", "hydra", 1)):
        if not bench.pairs.get((ours, hosts)) or not bench.pairs.get((theirs, hosts)):
            continue
        where = "1 host" if hosts == 1 else f"{hosts} hosts"
        best = {key: [bench.pair_best(key, hosts, *column) for column in columns]
                for key in (ours, theirs)}
        for key, values in best.items():
            lines.append([f"{key}, {where}", "", *(figure(value) for value in values)])
        ratios = [a / b for a, b in zip(best[ours], best[theirs])]
        lines.append([f"ratio, {where}", "", *(f"{ratio:.3f}" for ratio in ratios)])
        losses = [ratio if what == "latency" else 1 / ratio
                  for (what, _), ratio in zip(columns, ratios)]
        worst.append((f"{ours} against {theirs}, {where}", max(losses)))
    return table.columns(lines, words=2), worst


def figure(value):
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def target_lines(bench, worst):
    targets, keys = table.Targets(), {launcher.key for launcher in bench.launchers}
    for shape in bench.options.shapes:
        for ours, theirs in (("dtrun", "mpirun"), ("dtrun", "srun-pmix"),
                             ("dtrun-mpich", "hydra"), ("dtrun-mpich", "srun-pmi2")):
            if {ours, theirs} <= keys:
                wanted = TARGET_RATIO if (theirs, shape) == ("mpirun", TARGET_SHAPE) else 1
                targets.at_most(f"{shape[0]} ranks on {shape[1]}: {ours} at most {wanted:g} x {theirs}",
                                init_ratio(bench, ours, theirs, shape), wanted, "{:.2f} x")
    for what, loss in worst:
        targets.at_most(f"pingpong: {what}, within {PAIR_TOLERANCE:.0%}", loss - 1, PAIR_TOLERANCE, "{:+.1%}")
    return targets.lines()


def report(bench, facts):
    lines = table.wrapped(
        f"Median of {bench.options.runs} interleaved runs, ratios are medians over rounds; two ranks: best of "
        f"{bench.options.pair_runs} runs. {versions()}. {table.machine(facts)}") + [""]
    if bench.options.shapes:
        lines += init_table(bench) + [""]
    pairs, worst = pair_table(bench) if bench.pairs else ([], [])
    lines += [*pairs, ""] if pairs else []
    found = [note for (key, (ranks, hosts)), cell in bench.cells.items()
             for note in table.failed_runs(f"{key} {ranks} on {hosts}", cell)]
    lines += [*found, ""] if found else []
    return "\n".join(lines + target_lines(bench, worst))


def write_json(path, bench, facts):
    cells = [{"launcher": key, "ranks": ranks, "hosts": hosts, "runs": cell.runs,
              "failures": cell.failures} for (key, (ranks, hosts)), cell in bench.cells.items()]
    pairs = [{"launcher": key, "hosts": hosts, "runs": runs}
             for (key, hosts), runs in bench.pairs.items()]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"machine": facts, "versions": versions(), "cells": cells, "pairs": pairs}, file,
                  indent=1)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=7, metavar="N", help="runs of each cell (7)")
    parser.add_argument("--pair-runs", type=int, default=9, metavar="N",
                        help="runs of the latency and bandwidth program (9)")
    parser.add_argument("--pair-seconds", type=float, default=0.1, metavar="S",
                        help="of that program at each message size (0.1)")
    parser.add_argument("--shapes", metavar="RANKSxHOSTS,..",
                        help="of " + ",".join(f"{r}x{h}" for r, h in SHAPES) + " (all); none: -")
    parser.add_argument("--only", metavar="NAME,..", help="rows by name; a wrong one prints all")
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin", metavar="DIR",
                        help="where dtrun is (build/release/bin)")
    parser.add_argument("--json", metavar="FILE", help="write every run there")
    options = parser.parse_args()
    options.bin = os.path.realpath(options.bin)
    names = {f"{ranks}x{hosts}": (ranks, hosts) for ranks, hosts in SHAPES}
    wanted = names if options.shapes is None else options.shapes.split(",")
    if unknown := set(wanted) - {*names, "-"}:
        parser.error(f"--shapes: no {', '.join(unknown)}; there are {', '.join(names)}")
    options.shapes = [shape for name, shape in names.items() if name in wanted]
    return parser, options


def main():
    parser, options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    launchers = all_launchers(options.bin)
    if options.only:
        wanted, keys = options.only.split(","), [launcher.key for launcher in launchers]
        if set(wanted) - set(keys):
            parser.error(f"--only: there are {', '.join(keys)}")
        launchers = [launcher for launcher in launchers if launcher.key in wanted]
    hosts = max([SLURM_HOSTS, *(hosts for _, hosts in options.shapes)])
    say(f"bringing up {hosts} hosts")
    cluster = launch.Cluster(hosts, {ROOT, options.bin})
    job = slurm_allocation(cluster) if any(isinstance(l, Srun) for l in launchers) else None
    for launcher in launchers:
        if isinstance(launcher, Srun):
            launcher.job = job
    launchers = [l for l in launchers if job or not isinstance(l, Srun)]
    bench = Bench(cluster, launchers, options)
    machine = launch.Machine(cluster)
    say("warming up")
    for launcher in launchers:
        bench.start(launcher, hosts, hosts if launcher.can(hosts, hosts) else SLURM_HOSTS)
    for number in range(options.runs):
        bench.start_round(number, options.shapes)
    for number in range(options.pair_runs):
        bench.pair_round(number)
    facts = machine.facts()
    print(report(bench, facts))
    if options.json:
        write_json(options.json, bench, facts)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
