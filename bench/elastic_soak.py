"""Hundreds of random events in one elastic job, whose worlds are checked. Needs root; started by bench/elastic.py --soak.

Four hosts of two slots. Events follow each other so fast that most hit a job that is still busy with the last one; now and
then nothing happens until all ranks are there again. What may never be:

stuck        with all hosts up for a minute, there is no world of all slots
wrong world  ranks of one world that do not agree on its size, or have a rank twice; a process of an older world that
             goes on; rank 0 is a new process although others have lived on
lost steps   a world that goes on more than one step before what rank 0 had committed
left         processes on the hosts after the end
growth       of the head's, or an agent's, memory or descriptors
"""
import collections
import os
import random
import re
import shutil
import time

import elastic_peers
from elastic_hosts import Hosts, is_agent, kill
from elastic_job import Events, Job

SLOTS = 2
PER_MINUTE = 50
QUIET_EVERY = 40  # events
FULL_LIMIT_S = 120
NOTICED_S = 4  # by then a silent host is lost
DOWN_MAX = 3
COOLDOWN = ["--blacklist-cooldown-range", "1", "4"]
GROWTH = 1.25
WEIGHTS = {"kill rank": 34, "kill two ranks": 8, "kill agent": 10, "kill host": 6, "crash": 10, "cut": 12,
           "freeze": 10, "two events": 10}
DOWN_S = {"crash": (0.1, 4), "cut": (0.3, 9), "freeze": (0.3, 9)}
UNDO = {"crash": "boot", "cut": "heal", "freeze": "thaw"}


def launcher(kind):
    if kind == "plain":
        return elastic_peers.Dtrun("plain", ["/usr/bin/python3", "-IS"], "elastic_plain.py", *COOLDOWN)
    return elastic_peers.Dtrun("horovod", [f"{elastic_peers.HOROVOD}/python"], "elastic_horovod.py", *COOLDOWN)


class Soak:
    def __init__(self, kind, minutes, seed, per_minute):
        self.kind, self.random = kind, random.Random(seed)
        self.minutes, self.per_minute = minutes, per_minute
        self.hosts = Hosts(4)
        self.events = Events(self.hosts)
        self.down = {}  # host: (event, when it is undone)
        self.away = []  # (host, from, until) in which its processes cannot be ended
        self.counts = collections.Counter()
        self.faults = []
        self.story = []
        self.sizes = []  # (memory in kB, descriptors) of the head and of the largest agent at quiet times
        self.job = None

    # ---- what happens ----
    def fault(self, text):
        self.faults.append(text)
        self.tell(f"FAULT: {text}")

    def tell(self, text):
        self.story.append(f"{time.monotonic():.3f} {text}")
        print(f"soak: {time.monotonic():.3f} {text}", flush=True)

    def up(self):
        return [name for name in self.hosts.names if name not in self.down]

    def happen(self):
        name = self.random.choices(list(WEIGHTS), WEIGHTS.values())[0]
        if name == "two events":
            for one in self.random.sample(["kill rank", "kill agent", "crash", "cut", "freeze"], 2):
                self.one(one)
        elif name == "kill two ranks":
            self.one("kill rank")
            self.one("kill rank")
        else:
            self.one(name)
        self.counts[name] += 1

    def one(self, name):
        hosts = self.up()
        if not hosts or (name in DOWN_S and len(self.down) >= DOWN_MAX):
            return
        host = self.random.choice(hosts)
        which = self.random.randrange(SLOTS)
        if name == "kill rank":
            happened = self.events.kill_rank(self.job, host, which)
        else:
            happened = getattr(self.events, name.replace(" ", "_"))(self.job, host)
        self.tell(f"{name} {host}" + (f" {which}" if name == "kill rank" else "") + ("" if happened else " (none)"))
        if name in DOWN_S:
            until = time.monotonic() + self.random.uniform(*DOWN_S[name])
            self.down[host] = (name, until)
            self.away.append([host, happened, until])

    def undo(self, now):
        for host, (name, until) in list(self.down.items()):
            if until > now:
                continue
            getattr(self.events, UNDO[name])(host)
            self.tell(f"{UNDO[name]} {host}")
            del self.down[host]

    # ---- what must be ----
    def wait_quiet(self):
        while self.down:
            self.undo(max(until for _, until in self.down.values()))
        since = time.monotonic()
        full = SLOTS * len(self.hosts.names)
        # A silent host counts as a member of its world until it is lost.
        if not self.job.wait(lambda worlds: worlds.is_running(full, since + NOTICED_S), FULL_LIMIT_S):
            number, size, complete = self.job.worlds.newest()
            self.fault("the job is over" if self.job.is_over() else
                       f"stuck: after {FULL_LIMIT_S} s with all hosts the newest world is {number} of {size} ranks, "
                       f"{'complete' if complete else 'which have not all done a step'}")
            print(self.job.tail(25), flush=True)
            return False
        self.tell(f"all ranks are there after {time.monotonic() - since:.1f} s")
        self.job.wait_steps(30)
        self.measure()
        return True

    def measure(self):
        sizes = [(0, 0), (0, 0)]
        for host, pid, command in self.hosts.processes():
            kind = 0 if host == "head" and command.split(" ")[0].endswith("/dtrun") else 1
            if kind == 1 and not is_agent(command):
                continue
            try:
                with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                    memory = int(re.search(r"VmRSS:\s*(\d+)", file.read())[1])
                found = (memory, len(os.listdir(f"/proc/{pid}/fd")))
            except (OSError, TypeError):
                continue
            sizes[kind] = tuple(max(pair) for pair in zip(sizes[kind], found))
        self.sizes.append(sizes)

    def check_sizes(self):
        if len(self.sizes) < 3:
            return
        for i, name in enumerate(("head", "agent")):
            for j, what in enumerate(("kB", "descriptors")):
                values = [sizes[i][j] for sizes in self.sizes]
                text = f"{name}: {values[1]} {what} at first, {values[-1]} at last, at most {max(values)}"
                self.tell(text)
                if values[-1] > GROWTH * values[1] + 2:
                    self.fault(f"growth of {text}")

    def check_worlds(self):
        entries = collections.defaultdict(list)  # world: [(time, process, rank, size, step)]
        for process in self.job.worlds.processes.values():
            for when, world, rank, size, step in process.entered:
                entries[world].append((when, process, rank, size, step))
        begins = sorted((min(when for when, *_ in members), world) for world, members in entries.items())
        committed = [pair for process in self.job.worlds.processes.values() for pair in self.committed(process, begins)]
        committed.sort()
        position, newest = 0, 0
        seen = set()
        before = None
        for world in sorted(entries):
            members = entries[world]
            began = min(when for when, *_ in members)
            while position < len(committed) and committed[position][0] < began:
                newest = max(newest, committed[position][1])
                position += 1
            self.check_world(world, members, newest, seen)
            if self.kind == "plain" and before is not None:
                self.check_ended(before, entries[before], world, began)
            seen |= {process for _, process, *_ in members}
            before = world
        self.tell(f"{len(entries)} worlds, {len(self.job.worlds.processes)} processes, "
                  f"{self.job.worlds.last_step()} steps")

    def committed(self, process, begins):
        """(time, step) of what may not be lost. Ranks of `plain` do not know of each other: what rank 0 commits behind
        a cut, when others have formed the next world, counts for nothing."""
        if self.kind != "plain":
            return process.steps
        if not process.entered or process.entered[0][2] != 0:
            return []
        over = min((when for when, world in begins if world > process.world), default=float("inf"))
        return [(when, step) for when, step in process.steps if when < over]

    def check_world(self, world, members, newest, seen):
        sizes = {size for _, _, _, size, _ in members}
        ranks = sorted(rank for _, _, rank, _, _ in members)
        if len(sizes) != 1 or len(set(ranks)) != len(ranks) or ranks[-1] >= max(sizes):
            self.fault(f"wrong world {world}: sizes {sorted(sizes)}, ranks {ranks}")
        first = [(process, step) for _, process, rank, _, step in members if rank == 0]
        lived_on = [process for _, process, *_ in members if process in seen]
        if first and lived_on and first[0][0] not in seen:
            self.fault(f"wrong world {world}: rank 0 is new, and {len(lived_on)} of {len(ranks)} have lived on")
        if first and first[0][1] < newest - 1:
            self.fault(f"lost steps: world {world} goes on at {first[0][1]}, and {newest} had been committed")

    def check_ended(self, old, members, new, began):
        """Ranks of the last world must have ended before the next one begins, unless their host was out of reach."""
        for _, process, rank, _, _ in members:
            if any(host == process.host and since - 1 < began < until + 15 for host, since, until in self.away):
                continue
            last = process.steps[-1][0] if process.steps else 0
            if last > began + 0.001:
                self.fault(f"wrong world {new}: rank {rank} of world {old} on {process.host} went on for "
                           f"{last - began:.3f} s beside it")

    # ---- all of it ----
    def base_rate(self):
        """Steps in a second while nothing happens."""
        self.job.wait_steps(50)
        begin, steps = time.monotonic(), self.job.worlds.last_step()
        self.job.wait_steps(250, 60)
        return (self.job.worlds.last_step() - steps) / (time.monotonic() - begin)

    def run(self):
        self.job = Job(self.hosts, launcher(self.kind), slots=SLOTS)
        if not self.wait_quiet():
            return False
        rate = self.base_rate()
        began, first = time.monotonic(), self.job.worlds.last_step()
        total = int(self.minutes * self.per_minute)
        due = began
        quiet_s = 0.0
        for number in range(1, total + 1):
            due += self.random.uniform(0.2, 1.8) * 60 / self.per_minute
            while (now := time.monotonic()) < due and not self.job.is_over():
                self.undo(now)
                time.sleep(0.02)
            if self.job.is_over():
                self.fault(f"the job ended after {number - 1} events")
                print(self.job.tail(25), flush=True)
                break
            self.happen()
            if number % QUIET_EVERY == 0 or number == total:
                since = time.monotonic()
                if not self.wait_quiet():
                    break
                quiet_s += time.monotonic() - since
                due += time.monotonic() - since
        spent = time.monotonic() - began
        self.finish(rate, first, spent, quiet_s)
        return not self.faults

    def finish(self, rate, first, spent, quiet_s):
        self.job.worlds.read()
        steps = self.job.worlds.last_step() - first
        status = self.job.end()
        if status != 0 and not self.job.is_over():
            self.fault(f"it did not end by itself: {status}")
        elif status != 0:
            self.fault(f"it ended with {status}")
        if left := self.hosts.left():
            self.fault(f"left: {left}")
            kill([pid for _, pid, _ in left])
        self.job.worlds.read()
        self.check_worlds()
        self.check_sizes()
        happened = ", ".join(f"{count} x {name}" for name, count in self.counts.items())
        print(f"soak of {self.kind}: {sum(self.counts.values())} events in {spent:.0f} s ({happened}; {quiet_s:.0f} s of it "
              f"quiet); goodput {steps / (rate * spent):.0%} of {rate:.0f} steps/s; {len(self.faults)} faults")
        for text in self.faults:
            print(f"  {text}")


def soak(options):
    """:return: whether nothing was wrong"""
    run = Soak(options.soak_kind, options.soak, options.seed, options.per_minute)
    try:
        return run.run()
    finally:
        if options.keep and run.job:
            shutil.copytree(run.job.directory, options.keep, dirs_exist_ok=True)
