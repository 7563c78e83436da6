#!/usr/bin/python3 -B
"""./dev bench elastic: from an event to the first step of the new world, next to horovodrun and torchrun. Needs root.

Four hosts of this machine, one rank on each, steps of 20 ms; real Horovod and torch (tests/frameworks/setup). H: a program
under hvd.elastic.run, which keeps its processes. T: a program of torch.distributed, whose ranks start again from a
checkpoint. Launchers take turns. `--only` chooses among:

rank     a rank is killed
host     all processes of a host are killed, and its kernel tells the others
cut      a host is cut off, and nobody is told
add      a host is added, whose ranks import for 3 s: how long the others pause
remove   a host is taken from the list
goodput  steps in two minutes with an event each 15 s, by those without events
idle     processor seconds of the launcher in a minute in which nothing happens

--soak MINUTES does something else: see elastic_soak.py.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import elastic_peers  # noqa: E402
import elastic_soak  # noqa: E402
import table  # noqa: E402
from elastic_hosts import Hosts, kill  # noqa: E402
from elastic_job import Events, Job  # noqa: E402
from table import median, p95  # noqa: E402

HOSTS = 4
START_LIMIT_S = 60
LIMIT_S = 120  # from an event to the new world
RETURN_LIMIT_S = 60  # of a host
IMPORT_S = 3
CELL_LIMIT_S = 240  # of all samples of a launcher and an event: slow launchers get fewer; --quick: 30
GOODPUT_S, GOODPUT_EVERY_S = 120, 15
PARTS = ("rank", "host", "cut", "add", "remove", "goodput", "idle")
H, T = ("dtrun H", "horovodrun"), ("dtrun T", "torchrun", "torchrun tuned")
LAUNCHERS = {"rank": H + T, "host": H + T, "cut": ("dtrun H", "dtrun H 1s", "horovodrun", *T),
             "add": H + T[:2], "remove": H + T[:1], "goodput": H + T, "idle": H + T[:2]}
# What is measured one after the other in one job.
IN_A_JOB = {"rank": 5, "host": 3, "cut": 2, "add": 2}
TITLES = {"rank": "a rank is killed", "host": "a host is killed", "cut": "a host is cut off, silently",
          "add": "a host is added, whose rank imports for 3 s", "remove": "a host is removed from the list"}


class Cell:
    """What came of one launcher and one event."""

    def __init__(self):
        self.seconds, self.pauses, self.lost, self.failures, self.left = [], [], [], [], 0
        self.values = []  # of goodput and idle
        self.spent_s = 0.0


class Bench:
    def __init__(self, hosts, options):
        self.hosts, self.options = hosts, options
        self.events = Events(hosts)
        self.launchers = elastic_peers.all_launchers()
        self.cells = {}

    def cell(self, key, part):
        return self.cells.setdefault((key, part), Cell())

    def rounds(self):
        for part in self.options.parts:
            parts = ("add", "remove") if part == "add" else (part,)
            measure = getattr(self, part, None) or (lambda job, cell, part=part: self.losses(job, cell, part))
            if part == "remove":
                continue  # what was added is removed
            keys = [key for key in LAUNCHERS[part] if self.can(key, part)]
            for number in range(1 if part in ("goodput", "idle") else self.options.runs):
                for key in table.in_turns(keys, number):
                    cells = [self.cell(key, one) for one in parts]
                    if cells[0].spent_s < self.options.cell_limit_s:
                        self.one(key, part, cells, measure)
                say(f"round {number + 1} of {self.options.runs}: {part}")

    def can(self, key, part):
        discovers = part in ("add", "idle") and key.startswith("dtrun")
        return self.options.launchers(key) and not (discovers and part == "add" and not elastic_peers.can_discover())

    def one(self, key, part, cells, measure):
        """One job, in which something is measured once or several times."""
        began = time.monotonic()
        discovers = part in ("add", "idle") and elastic_peers.can_discover()
        listed = self.hosts.names[:-1] if part == "add" else self.hosts.names
        job = Job(self.hosts, self.launchers[key], listed=listed, discovers=discovers,
                  arguments=[str(IMPORT_S)] if part == "add" else [])
        if job.wait_size(len(listed), START_LIMIT_S) and job.wait_steps(25):
            measure(job, *cells)
        else:
            cells[0].failures.append("it did not start")
            say(f"{key}: {part}: it did not start\n{job.tail()}")
        status = job.end()
        if status != 0:
            cells[0].failures.append(f"it ended with {status}" if status is not None else "it did not end")
        if left := self.hosts.left():
            cells[0].left += len(left)
            if self.options.verbose:
                say(f"{key}: {part}: left {left}")
        self.hosts.ask("reset")
        cells[0].spent_s += time.monotonic() - began

    # ---- the parts ----
    def losses(self, job, cell, part):
        """A rank or a host is lost, and comes back, and once more."""
        event = {"rank": self.events.kill_rank, "host": self.events.kill_host, "cut": self.events.cut}[part]
        began = time.monotonic()
        for number in range(IN_A_JOB[part]):
            if cell.spent_s + time.monotonic() - began > self.options.cell_limit_s:
                return
            host = self.hosts.names[-1 - number % 2]  # torchrun does not survive the loss of its first one
            world, _, _ = job.worlds.newest()
            happened = event(job, host)
            if not self.new_world(job, cell, world, happened):
                if part == "cut":
                    self.events.heal(host)
                return
            if part == "cut":
                self.events.heal(host)
            back = time.monotonic()
            if part != "rank":
                job.launcher.host_is_back(job, host)
            if not job.wait(lambda worlds, back=back: worlds.is_running(HOSTS, back), RETURN_LIMIT_S):
                cell.failures.append("the host did not come back")
                return
            cell.pauses.append(pause(job, back, host))
            job.wait_steps(25)

    def new_world(self, job, cell, world, happened):
        """Waits for the world that follows an event, and keeps the time it took."""
        def is_there(worlds):
            number, _, complete = worlds.newest()
            return number != world and complete and complete > happened
        if not job.wait(is_there, LIMIT_S):
            cell.failures.append("the job ended" if job.is_over() else f"> {LIMIT_S} s")
            if self.options.verbose:
                say(f"{job.launcher.key}: {cell.failures[-1]} {self.facts(job)}\n{job.tail()}")
            return False
        number, _, complete = job.worlds.newest()
        cell.seconds.append(complete - happened)
        if self.options.verbose:
            say(f"{job.launcher.key}: {cell.seconds[-1]:.2f} s")
        cell.lost.append(lost_steps(job, happened, number))
        return True

    @staticmethod
    def facts(job):
        now = time.monotonic()
        members = job.worlds.members(job.worlds.newest()[0])
        steps = [f"{p.host} rank {p.entered[-1][2]} of {p.entered[-1][3]}: last step {now - p.steps[-1][0]:.1f} s ago"
                 for p in members if p.steps]
        return f"(newest world: {'; '.join(steps)})"

    def add(self, job, added, removed):
        host = self.hosts.names[-1]
        for _ in range(IN_A_JOB["add"]):
            since = time.monotonic()
            job.launcher.add_host(job, host)
            if not job.wait_size(HOSTS, START_LIMIT_S):
                added.failures.append("the host did not come")
                return
            added.seconds.append(job.worlds.newest()[2] - since)
            added.pauses.append(pause(job, since, host))
            job.wait_steps(50)
            if not job.launcher.removes:
                return
            world, _, _ = job.worlds.newest()
            happened = time.monotonic()
            job.list_hosts(self.hosts.names[:-1])
            if not self.new_world(job, removed, world, happened):
                return
            job.wait_steps(50)
            time.sleep(self.options.rest_s)  # a host that was removed is not taken at once again

    def goodput(self, job, cell):
        """The same events for each launcher."""
        chance = random.Random(self.options.seed)
        job.wait_steps(50)
        before, first = time.monotonic(), job.worlds.last_step()
        job.wait_steps(500, 60)
        rate = (job.worlds.last_step() - first) / (time.monotonic() - before)
        began, first = time.monotonic(), job.worlds.last_step()
        end = began + self.options.goodput_s
        next_event = began + GOODPUT_EVERY_S / 2
        undo = None
        while time.monotonic() < end and not job.is_over():
            job.wait(lambda _: False, 0.1)
            if undo and time.monotonic() >= undo[0]:
                undo[1]()
                undo = None
            if time.monotonic() >= next_event:
                next_event += GOODPUT_EVERY_S
                undo = self.goodput_event(job, chance)
        if undo:
            undo[1]()
        job.worlds.read()
        cell.values.append((job.worlds.last_step() - first) / (rate * self.options.goodput_s))
        if job.is_over():
            cell.failures.append("the job ended")

    def goodput_event(self, job, chance):
        """:return: when to do what to undo it"""
        kind, host = chance.choice(["rank", "host", "cut"]), chance.choice(self.hosts.names[1:])
        if kind == "rank":
            self.events.kill_rank(job, host)
            return None
        if kind == "host":
            self.events.kill_host(job, host)
            return time.monotonic() + 1, lambda: job.launcher.host_is_back(job, host)
        self.events.cut(job, host)

        def heal():
            self.events.heal(host)
            job.launcher.host_is_back(job, host)
        return time.monotonic() + 6, heal

    def idle(self, job, cell):
        job.wait_steps(50)
        host = job.launcher.host
        before = cpu_seconds(self.hosts, host, job)
        time.sleep(self.options.idle_s)
        cell.values.append((cpu_seconds(self.hosts, host, job) - before) * 60 / self.options.idle_s)


def cpu_seconds(hosts, host, job):
    """Of all processes there but ranks, and of what they have started and seen end."""
    ranks = set(job.ranks(host))
    used = 0
    for _, pid, _ in hosts.processes(host):
        if pid not in ranks:
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    used += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:15]))
            except OSError:
                pass
    return used / os.sysconf("SC_CLK_TCK")


def lost_steps(job, happened, world):
    """That somebody had committed, and the new world did again."""
    committed = max((step for process in job.worlds.processes.values() for when, step in process.steps
                     if process.world != world or when < happened), default=0)
    went_on = min(entry[4] for process in job.worlds.members(world) for entry in process.entered if entry[1] == world)
    return max(0, committed - went_on)


def pause(job, since, newcomer):
    """The longest time between two steps of a host that had ranks all the time."""
    steps = {}
    for process in job.worlds.processes.values():
        if process.host != newcomer:
            steps.setdefault((process.host, process.slot), []).extend(when for when, _ in process.steps)
    longest = 0.0
    for times in steps.values():
        times.sort()
        longest = max([longest] + [after - before for before, after in zip(times, times[1:]) if after >= since])
    return longest


def say(text):
    print(f"elastic.py: {text}", file=sys.stderr, flush=True)


# ---- from samples to text ----
def seconds(value):
    return table.seconds(value, 2)


def rows(cells, part):
    yield ("launcher", "n", "p50", "p95", "lost steps", "pause at return", "left")
    for (key, name), cell in cells.items():
        if name != part:
            continue
        yield (key, str(len(cell.seconds)), seconds(median(cell.seconds)), seconds(p95(cell.seconds)),
               str(max(cell.lost, default="-")),
               f"{seconds(median(cell.pauses))} / {seconds(p95(cell.pauses))}", str(cell.left))


def failures(cells, part):
    for (key, name), cell in cells.items():
        for text in dict.fromkeys(cell.failures) if name == part else ():
            yield f"  {key}: {cell.failures.count(text)} x {text}"


def of(cells, key, part, name="seconds"):
    """Median; for a peer that never came through, what it took at least."""
    cell = cells.get((key, part), Cell())
    values = getattr(cell, name)
    least = [text for text in cell.failures if text.startswith("> ")]
    return float(least[0].split()[1]) if not values and name == "seconds" and least else median(values)


def target_lines(cells):
    targets = table.Targets()
    for text, key, part, name, limit in (
            ("rank killed, p50", "dtrun H", "rank", "seconds", 0.3), ("host killed, p50", "dtrun H", "host", "seconds", 0.3),
            ("host cut, p50", "dtrun H", "cut", "seconds", 3.5),
            ("host cut, --heartbeat-timeout 1, p50", "dtrun H 1s", "cut", "seconds", 1.5),
            ("host added, pause of the others, p50", "dtrun H", "add", "pauses", 0.5)):
        targets.at_most(f"dtrun H, {text}: at most {limit} s", of(cells, key, part, name), limit, "{:.2f} s")
    for own, part, other, least in (("dtrun T", "host", "torchrun", 10), ("dtrun T", "host", "torchrun tuned", 2),
                                    ("dtrun H", "rank", "horovodrun", 1)):
        mine, theirs = of(cells, own, part), of(cells, other, part)
        if mine and theirs:
            targets.at_least(f"{part} killed, {own} against {other}: at least {least} x", theirs / mine, least, "{:.1f} x")
    if cell := cells.get(("dtrun H", "rank")):
        targets.add("rank killed, dtrun H goes on", f"{len(cell.seconds)} of {len(cell.seconds) + len(cell.failures)}",
                    not cell.failures)
    targets.at_least("dtrun H, goodput with an event each 15 s: at least 85 %",
                     of(cells, "dtrun H", "goodput", "values"), 0.85, "{:.0%}")
    own, other = of(cells, "dtrun H", "idle", "values"), of(cells, "horovodrun", "idle", "values")
    if own is not None and other:
        targets.at_most("idle, processor time of dtrun by that of horovodrun: at most 0.1", own / other, 0.1)
    return targets.lines()


def single(cells, part, title, text):
    found = [(key, cell) for (key, name), cell in cells.items() if name == part]
    if found:
        yield f"\n{title}"
        for key, cell in found:
            failures = f"; {', '.join(cell.failures)}" if cell.failures else ""
            yield f"  {key}: {', '.join(text(value) for value in cell.values) or '-'}{failures}; {cell.left} left"


def report(cells, options):
    lines = ["Seconds from the event to the first step of the last rank of the new world; how long the others paused when the\n"
             "host, or the rank, was there again; the most steps that were done twice; processes left on hosts."]
    for part, title in TITLES.items():
        found = list(rows(cells, part))
        if len(found) > 1:
            lines += [f"\n{title}", *table.columns(found), *failures(cells, part)]
    lines += single(cells, "goodput", f"goodput: {options.goodput_s} s with an event each 15 s", lambda value: f"{value:.0%}")
    lines += single(cells, "idle", "idle: processor seconds of the launcher in a minute", lambda value: f"{value:.2f}")
    return "\n".join([*lines, "", *target_lines(cells)])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PART,..", default=",".join(PARTS), help="which parts")
    parser.add_argument("--launchers", metavar="NAME,..", help="which launchers; a wrong one prints all")
    parser.add_argument("--runs", type=int, metavar="N", help="jobs for each launcher and part (6; --quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a first look: one job each, short goodput and idle")
    parser.add_argument("--seed", type=int, default=1, help="of what is random (1)")
    parser.add_argument("--json", metavar="FILE", help="write every sample there")
    parser.add_argument("--bin", default=f"{elastic_peers.ROOT}/build/release/bin", metavar="DIR",
                        help="where dtrun and dtrun-agent are (build/release/bin)")
    parser.add_argument("--cell-limit", type=float, metavar="SECONDS",
                        help="for all jobs of a launcher and an event (240; --quick: 30)")
    parser.add_argument("--verbose", action="store_true", help="say what failing launchers said")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="random events instead, and no peers")
    parser.add_argument("--soak-kind", choices=("plain", "horovod"), default="plain",
                        help="which program: ranks that start again (plain), or Horovod's, which live on")
    parser.add_argument("--per-minute", type=int, default=50, metavar="N", help="events of a soak (50)")
    parser.add_argument("--keep", metavar="DIR", help="copy what a soak has written there")
    options = parser.parse_args()
    elastic_peers.DTRUN = f"{options.bin}/dtrun"
    options.parts = options.only.split(",")
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    names = list(elastic_peers.all_launchers())
    wanted = options.launchers.split(",") if options.launchers else names
    if unknown := set(wanted) - set(names):
        parser.error(f"no launcher {', '.join(unknown)}; there are {', '.join(names)}")
    options.launchers = lambda key: key in wanted
    options.runs = options.runs or (1 if options.quick else 6)
    options.goodput_s = 45 if options.quick else GOODPUT_S
    options.idle_s = 20 if options.quick else 60
    options.cell_limit_s = options.cell_limit or (30 if options.quick else CELL_LIMIT_S)
    options.rest_s = 3
    return options


def write_json(path, bench):
    cells = [{"launcher": key, "part": part, **vars(cell)} for (key, part), cell in bench.cells.items()]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cells, file, indent=1)


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if options.soak:
        return 0 if elastic_soak.soak(options) else 1
    hosts = Hosts(HOSTS)
    bench = Bench(hosts, options)
    try:
        bench.rounds()
    except (KeyboardInterrupt, SystemExit):
        say("interrupted; this is what there is")
    print(report(bench.cells, options))
    if options.json:
        write_json(options.json, bench)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
