#!/usr/bin/python3 -I
"""How long dtrun takes to start a job and how fast its output is, next to other launchers.

Brings up 64 hosts of its own (tests/cluster), runs every launcher that is installed in turn, round
after round, and prints one table and what became of the targets. Needs root.
"""
import argparse
import atexit
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import launch_peers  # noqa: E402
import table  # noqa: E402
from launch_peers import Shape  # noqa: E402

RUNNER = f"{HERE}/launch_runner.py"
CLUSTER = f"{ROOT}/tests/cluster/cluster"
SHAPES = [Shape(1, 2), Shape(4, 4), Shape(16, 4), Shape(64, 1)]
OUTPUT_SHAPE = Shape(4, 4)
WRITERS = ("line", "block")
RANK_BYTES = 20_000_000
RANK_BYTES_QUICK = 4_000_000
LIMIT_S = 60  # of one command
CELL_LIMIT_S = 150  # of all runs of a cell: slow launchers get fewer
FAILURES_MAX = 2  # then a cell is given up
QUIET_LIMIT_S = 5  # until what a command has left on hosts is called left
SLEEP_S = 300  # of the ranks whose agents are measured
AGENT_KB_MAX = 8 * 1024
OUTPUT_RATIO_MIN = 2.0


class Cluster:
    """The hosts, and the process on their head that runs the commands."""

    def __init__(self, hosts, shares):
        self.state = tempfile.mkdtemp(prefix="dtrun-bench.") + "/cluster"
        self.environment = {**os.environ, "CLUSTER_STATE": self.state}
        self.runner = None
        options = [word for path in shares for word in ("--share", path)]
        atexit.register(self.down)
        self.ask("up", str(hosts), "--owner", str(os.getpid()), *options)
        self.scratch = f"{self.state}/scratch"
        try:
            with open(f"{self.state}/cgroup", encoding="utf-8") as file:
                self.cpu_file = f"{file.read().strip()}/cpu.stat"
        except OSError:
            self.cpu_file = None

    def ask(self, *words):
        done = subprocess.run([CLUSTER, *words], env=self.environment, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"launch.py: {done.stderr.strip() or 'the cluster does not answer'}")
        return done.stdout

    def down(self):
        subprocess.run([CLUSTER, "down"], env=self.environment, capture_output=True, check=False)
        if self.runner:
            self.runner.kill()
        shutil.rmtree(os.path.dirname(self.state), ignore_errors=True)

    def tell_runner(self, **request):
        if self.runner is None:
            self.runner = subprocess.Popen(
                [CLUSTER, "exec", "head", "/usr/bin/python3", "-I", RUNNER], env=self.environment,
                cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.runner.stdin.write(json.dumps(request) + "\n")
        self.runner.stdin.flush()
        return json.loads(self.runner.stdout.readline())

    def reset(self):
        """Ends everything on all hosts, the runner too."""
        self.ask("reset")
        self.runner.stdin.close()
        self.runner.wait()
        self.runner = None

    def processes(self):
        """(host, pid here, command) of all but the runner."""
        rows = [line.split("\t") for line in self.ask("ps").splitlines()]
        return [(host, int(pid), command) for host, pid, _, command in rows
                if RUNNER not in command]

    def wait_quiet(self):
        """How many processes there are, waiting for none."""
        deadline = time.monotonic() + QUIET_LIMIT_S
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return len(left)

    def cpu_seconds(self):
        """That all hosts have used; None if the kernel does not say."""
        if self.cpu_file is None:
            return None
        with open(self.cpu_file, encoding="utf-8") as file:
            return int(file.readline().split()[1]) * 1e-6


class Cell:
    """The runs of one launcher in one column."""

    def __init__(self):
        self.runs, self.failures, self.spent_s, self.timed_out, self.left = [], [], 0.0, False, 0

    def given_up(self):
        return len(self.failures) >= FAILURES_MAX or self.spent_s > CELL_LIMIT_S

    def of_runs(self, name):
        return table.median(run[name] for run in self.runs)

    def mark(self):
        """What stands in the table for a cell without runs."""
        return f">{LIMIT_S}" if self.timed_out else "failed"


class Bench:
    """Runs, and keeps what came of them in `cells` by (launcher's key, column)."""

    def __init__(self, cluster, launchers, options):
        self.cluster, self.launchers, self.options = cluster, launchers, options
        self.cells = {}
        self.first = {}  # seconds of dtrun's first run by its shape
        self.memory = {}  # of a launcher's daemon and its parents: [(name, kB), ...]

    def warm_up(self):
        """Puts programs into the page cache and the agent on hosts."""
        for launcher in self.launchers:
            for shape in self.options.shapes:
                if launcher.key != "dtrun" and shape is not self.options.shapes[0]:
                    continue
                answer = self.run(launcher, shape, ["/bin/true"])
                if launcher.key == "dtrun" and answer["status"] == 0:
                    self.first[shape.name] = answer["wall"]

    def run(self, launcher, shape, words, **more):
        answer = self.cluster.tell_runner(what="run", limit_s=LIMIT_S,
                                          command=launcher.command(shape, words), **more)
        answer["left"] = self.cluster.wait_quiet()
        if answer["left"]:
            self.cluster.reset()
        return answer

    def columns(self):
        """(name, which launchers, how to run one)."""
        for shape in self.options.shapes:
            yield shape.name, "launch", lambda launcher, shape=shape: self.launch(launcher, shape)
        for writer in self.options.writers:
            yield writer, "output", lambda launcher, writer=writer: self.output(launcher, writer)

    def launch(self, launcher, shape):
        return self.run(launcher, shape, ["/bin/true"])

    def output(self, launcher, writer):
        line_writer, rank_bytes = f"{self.options.bin}/line_writer", str(self.options.rank_bytes)
        words = [line_writer, "write", writer, rank_bytes, *launcher.rank_option]
        answer = self.run(launcher, OUTPUT_SHAPE, words,
                          reader=[line_writer, "check", str(OUTPUT_SHAPE.ranks), rank_bytes])
        read = answer.get("read")
        if read and read["bytes"]:
            wanted = OUTPUT_SHAPE.ranks * self.options.rank_bytes
            mb = min(read["bytes"], wanted) * 1e-6
            answer["mb_s"] = mb / (read["end"] - answer["begin"])
            answer["mb_s_streaming"] = mb / (read["end"] - read["first"])
            answer["broken"] = read["lines"] - read["whole"]
        else:
            answer["in_time"] = answer["in_time"] and answer["status"] != 0
        return answer

    def round(self, number):
        order = table.in_turns(self.launchers, number)
        for column, kind, run in self.columns():
            for launcher in order:
                cell = self.cells.setdefault((launcher.key, column), Cell())
                if getattr(launcher, kind) and not cell.given_up():
                    self.add(cell, number, run, launcher)
            say(f"round {number + 1} of {self.options.runs}: {column}")

    def add(self, cell, number, run, launcher):
        cpu = self.cluster.cpu_seconds()
        answer = run(launcher)
        answer["round"] = number
        answer["cpu"] = None if cpu is None else self.cluster.cpu_seconds() - cpu
        cell.spent_s += answer["wall"]
        cell.left = max(cell.left, answer["left"])
        if answer["in_time"] and answer["status"] == 0:
            cell.runs.append(answer)
        else:
            cell.failures.append(answer)
            cell.timed_out |= not answer["in_time"]

    def measure_memory(self):
        for launcher in self.launchers:
            if launcher.daemon:
                self.memory[launcher.key] = self.memory_of(launcher)

    def memory_of(self, launcher):
        """Of the ranks' parent and that one's, while ranks sleep; the largest of all hosts."""
        self.cluster.tell_runner(what="start",
                                 command=launcher.command(OUTPUT_SHAPE, ["sleep", str(SLEEP_S)]))
        deadline = time.monotonic() + LIMIT_S
        ranks = []
        while len(ranks) < OUTPUT_SHAPE.ranks and time.monotonic() < deadline:
            time.sleep(0.2)
            ranks = [pid for host, pid, command in self.cluster.processes()
                     if host != "head" and command == f"sleep {SLEEP_S}"]
        time.sleep(0.5)
        largest = {}
        for daemon in {status_of(pid)["PPid"] for pid in ranks}:
            of_host = [status_of(daemon)]
            of_host.append(status_of(of_host[0]["PPid"]))
            for place, status in enumerate(of_host):
                if place == 0 or "guard" in status["Name"]:
                    found = (place, status["Name"])
                    largest[found] = max(largest.get(found, 0), int(status["VmRSS"].split()[0]))
        self.cluster.reset()
        return [(name, kilobytes) for (_, name), kilobytes in sorted(largest.items())]


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return {name: value.strip() for name, value in (line.split(":", 1) for line in file)}


def busy_seconds():
    """Of all processors since the machine started."""
    with open("/proc/stat", encoding="utf-8") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class Machine:
    """What the figures depend on besides the launchers."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.load_before = os.getloadavg()[0]
        self.begin = self.now()

    def now(self):
        return time.monotonic(), busy_seconds(), own_seconds() + (self.cluster.cpu_seconds() or 0)

    def facts(self):
        elapsed, busy, ours = (after - before for after, before in zip(self.now(), self.begin))
        cores = os.cpu_count()
        others = max(0.0, busy - ours) / (elapsed * cores)
        return {"cores": cores, "kernel": f"{platform.system()} {platform.release()}",
                "processor": processor(), "load_before": self.load_before,
                "load_after": os.getloadavg()[0], "minutes": elapsed / 60,
                "others": None if self.cluster.cpu_file is None else others}


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


# ---- from runs to text ----
def launch_entry(cell, launcher):
    if not launcher.launch:
        return ""
    return table.seconds(cell.of_runs("wall")) if cell.runs else cell.mark()


def output_entries(cell, launcher):
    """MB/s, and lines broken or missing."""
    if not launcher.output:
        return "", ""
    if not cell.runs:
        return cell.mark(), ""
    return f"{cell.of_runs('mb_s'):.0f}", f"{cell.of_runs('broken'):,.0f}"


def memory_entry(bench, launcher):
    found = bench.memory.get(launcher.key)
    return f"{found[0][1]:,}" if found else ""


def header_lines(bench, facts):
    options, shape = bench.options, OUTPUT_SHAPE
    return table.wrapped(
        f"Median of {options.runs} interleaved runs. Hosts x slots: wall seconds of /bin/true. "
        f"line, block: MB/s when {shape.ranks} ranks on {shape.hosts} hosts write "
        f"{options.rank_bytes // 1_000_000} MB each to stdout, a pipe, one line of 80 bytes or "
        "64 KiB at a time: the ranks' own bytes over the whole time of the command. broken: lines "
        "broken or missing. kB: resident memory of the launcher's process on each host, the "
        "largest.", table.machine(facts)) + [""]


def rows(bench, absent):
    shapes = [shape.name for shape in bench.options.shapes]
    yield ["launcher", "version", *shapes,
           *(word for writer in bench.options.writers for word in (writer, "broken")),
           "kB"]
    for launcher in bench.launchers:
        row = [launcher.label, launcher.version]
        for shape in shapes:
            row.append(launch_entry(bench.cells[launcher.key, shape], launcher))
        for writer in bench.options.writers:
            row += output_entries(bench.cells[launcher.key, writer], launcher)
        yield row + [memory_entry(bench, launcher)]
    for launcher in absent:
        yield [launcher.label, "not installed"]


def notes(bench):
    """What a median hides."""
    for (key, column), cell in bench.cells.items():
        yield from table.failed_runs(f"{key} {column}", cell)
        if not cell.failures and 0 < len(cell.runs) < bench.options.runs:
            yield f"{key} {column}: only {len(cell.runs)} runs, being slow"


def ratio_of(bench, ours, theirs, column, name):
    ours, theirs = (bench.cells.get((key, column), Cell()).runs for key in (ours, theirs))
    return table.paired_ratio(ours, theirs, lambda run: run[name])


def target_lines(bench):
    targets = table.Targets()
    for shape in bench.options.shapes:
        targets.at_most(f"launch {shape.name}: never slower than the ssh loop (curve25519)",
                        ratio_of(bench, "dtrun", "ssh", shape.name, "wall"), 1, "{:.2f} x its time")
    for writer in bench.options.writers:
        targets.at_least(f"output {writer}: prefixed, at least {OUTPUT_RATIO_MIN:g} x Hydra unprefixed",
                         ratio_of(bench, "dtrun", "hydra", writer, "mb_s"), OUTPUT_RATIO_MIN, "{:.2f} x its MB/s")
        if runs := bench.cells.get(("dtrun", writer), Cell()).runs:
            targets.at_most(f"output {writer}: every line whole", max(run["broken"] for run in runs), 0, "{} broken")
    if found := bench.memory.get("dtrun"):
        text = " + ".join(f"{kilobytes:,} kB {'guard' if place else 'agent'}"
                          for place, (_, kilobytes) in enumerate(found))
        targets.add(f"memory: agent at most {AGENT_KB_MAX:,} kB resident", text, found[0][1] <= AGENT_KB_MAX)
    return targets.lines()


def first_line(bench):
    if not bench.first:
        return []
    runs = ", ".join(f"{table.seconds(wall)} s on {shape}" for shape, wall in bench.first.items())
    return table.wrapped(f"dtrun's first run on fresh hosts copies the agent to them: {runs} (a column's hosts "
                         "include those of the columns before it).")


def report(bench, absent, facts):
    lines = header_lines(bench, facts) + table.columns(list(rows(bench, absent)), words=2)
    return "\n".join(lines + [""] + first_line(bench) + list(notes(bench)) + [""] + target_lines(bench))


def cpu_table(bench):
    """Processor seconds that all hosts and the head used in a run: less noisy than wall time."""
    names = [column for column, _, _ in bench.columns()]
    lines = [["processor seconds", "", *names]]
    for launcher in bench.launchers:
        found = [bench.cells[launcher.key, column].of_runs("cpu") for column in names]
        lines.append([launcher.label, "", *("" if cpu is None else table.seconds(cpu) for cpu in found)])
    return "\n" + "\n".join(table.columns(lines, words=2))


def say(text):
    print(f"launch.py: {text}", file=sys.stderr, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, metavar="N", help="runs of each cell (7; --quick: 3)")
    parser.add_argument("--quick", action="store_true",
                        help="a first look: 16 hosts, 4 MB a rank, 3 runs")
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin", metavar="DIR",
                        help="where dtrun, dtrun-agent and line_writer are (build/release/bin)")
    parser.add_argument("--only", metavar="NAME,..", help="rows by name; a wrong one prints all")
    parser.add_argument("--columns", metavar="NAME,..",
                        help="of 1x2, 4x4, 16x4, 64x1, line, block and memory (all)")
    parser.add_argument("--cpu", action="store_true",
                        help="print processor seconds of all hosts too, in a second table")
    parser.add_argument("--json", metavar="FILE", help="write every run there")
    options = parser.parse_args()
    options.runs = options.runs or (3 if options.quick else 7)
    options.bin = os.path.realpath(options.bin)
    options.rank_bytes = RANK_BYTES_QUICK if options.quick else RANK_BYTES
    names = [shape.name for shape in SHAPES] + [*WRITERS, "memory"]
    wanted = options.columns.split(",") if options.columns else names
    if unknown := set(wanted) - set(names):
        parser.error(f"no column {', '.join(unknown)}; there are {', '.join(names)}")
    options.shapes = [shape for shape in SHAPES
                      if shape.name in wanted and not (options.quick and shape.hosts > 16)]
    options.writers = [writer for writer in WRITERS if writer in wanted]
    options.memory = "memory" in wanted
    for program in ("dtrun", "dtrun-agent", "line_writer"):
        if not os.access(f"{options.bin}/{program}", os.X_OK):
            parser.error(f"{options.bin}/{program} is missing; `./dev bench launch` builds it")
    return parser, options


def choose(parser, options, launchers):
    if not options.only:
        return launchers
    keys = [launcher.key for launcher in launchers]
    wanted = options.only.split(",")
    if set(wanted) - set(keys):
        parser.error(f"--only: there are {', '.join(keys)}")
    return [launcher for launcher in launchers if launcher.key in wanted]


def write_json(path, bench, facts):
    cells = [{"launcher": key, "column": column, "runs": cell.runs, "failures": cell.failures}
             for (key, column), cell in bench.cells.items()]
    text = json.dumps({"machine": facts, "versions": {launcher.key: launcher.version
                                                      for launcher in bench.launchers},
                       "first": bench.first, "memory_kb": bench.memory, "cells": cells}, indent=1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def main():
    parser, options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = choose(parser, options, launch_peers.all_launchers(options.bin))
    hosts = max([shape.hosts for shape in options.shapes] + [OUTPUT_SHAPE.hosts])
    say(f"bringing up {hosts} hosts")
    cluster = Cluster(hosts, {ROOT, options.bin})
    for launcher in chosen:
        launcher.scratch = cluster.scratch
    absent = [launcher for launcher in chosen if not launcher.program]
    bench = Bench(cluster, [launcher for launcher in chosen if launcher.program], options)
    machine = Machine(cluster)
    say("warming up")
    bench.warm_up()
    for number in range(options.runs):
        bench.round(number)
    if options.memory:
        bench.measure_memory()
    facts = machine.facts()
    print(report(bench, absent, facts))
    if options.cpu:
        print(cpu_table(bench))
    if options.json:
        write_json(options.json, bench, facts)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
