#!/usr/bin/python3
"""A long elastic job on this machine, and whether the head or an agent grows. Needs root.

Four hosts of two ranks, all of them this machine, by an ssh that is a shell in a mount namespace of its own. Ranks print lines and set keys, and erase the older of
these; now and then one is killed or, every 20th time, the agent of a host, which comes back. The memory and the descriptors of head
and agents are written down a hundred times. What a process has more at its end than after a fifth of its time is growth: an
agent is as large as what its start was made of, so one is not compared with another.

The job runs copies of the programs: a build beside it may write these anew, and a host that comes back would get another agent
than the others have. A job that does not end when it is told to is looked at before it is killed.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import table

HERE = os.path.dirname(os.path.abspath(__file__))
HOSTS, SLOTS = 4, 2
SAMPLES = 100
AGENT_EVERY = 20  # changes
PROGRAMS = "dtrun", "dtrun-agent", "dtrun-package.tar.gz"
END_LIMIT_S = 120
LOOK_LIMIT_S = 60
REJOIN_LIMIT_S = 300  # after which a process that does not ask for its place is ended (JobPolicy::rejoin_timeout)
LIFE_MIN = 5      # samples of a process that tell whether it grows
GROWTH_KB_MAX = {"dtrun": 1500, "dtrun-agent": 100}


def children(pid):
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as file:
                for child in file.read().split():
                    found += [int(child)] + children(int(child))
    except OSError:
        pass
    return found


def name(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def size(pid):
    """Private memory in kB, descriptors, and processor seconds of a process; none if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            text = file.read()
        private = sum(int(kb) for kb in re.findall(r"^Private_\w+:\s+(\d+)", text, re.M))
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            ticks = sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
        return private, len(os.listdir(f"/proc/{pid}/fd")), ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


class Job:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.random = random.Random(options.seed)
        self.lines = 0
        self.dtrun = options.dtrun
        beside = os.path.dirname(self.dtrun)
        if os.path.exists(os.path.join(beside, "dtrun-agent")):  # a build, and not an installation
            for program in PROGRAMS:
                shutil.copy2(os.path.join(beside, program), folder)
            self.dtrun = os.path.join(folder, "dtrun")
        self.environment = {**os.environ, "XDG_STATE_HOME": os.path.join(folder, "state"),
                            "XDG_CACHE_HOME": os.path.join(folder, "cache")}
        ssh = os.path.join(folder, "ssh")
        with open(ssh, "w", encoding="utf-8") as file:  # options, the host, and a command for a shell there
            file.write('#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nexec unshare --mount sh -c "$1"\n')
        os.chmod(ssh, 0o755)
        length = options.minutes * 60
        self.end = os.path.join(folder, "end")
        self.process = subprocess.Popen(
            [self.dtrun, "--ssh-command", ssh, "--transport", "ssh", "--min-np", "1", "-np", str(HOSTS * SLOTS), "-H",
             ",".join(f"h{host}:{SLOTS}" for host in range(HOSTS)), "--blacklist-cooldown-range", "1", "1",
             "--elastic-timeout", "60",
             "/usr/bin/python3", "-S", os.path.join(HERE, "soak_rank.py"), str(options.lines / length),
             str(options.keys / length), self.end],
            stdin=subprocess.DEVNULL, stdout=open(os.path.join(folder, "out"), "wb"),
            stderr=open(os.path.join(folder, "err"), "wb"),
            env=self.environment)

    def agents(self):
        """An agent that was copied to its host is called after its build id."""
        return [pid for pid in children(self.process.pid) if name(pid).startswith(("dtrun-agent", "agent-"))]

    def ranks(self):
        return [pid for agent in self.agents() for pid in children(agent) if name(pid).startswith("python3")]

    def finish(self):
        """Its exit code, and how long it has taken to end. One that takes long is looked at, and may go on."""
        began = time.monotonic()
        with open(self.end, "w", encoding="utf-8"):
            pass
        try:
            code = self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.look()
            try:
                code = self.process.wait(REJOIN_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.look()
                self.process.kill()
                code = self.process.wait()
        return code, time.monotonic() - began

    def look(self):
        """Prints what a job says of itself that should have ended."""
        for words in ["stacks"], ["jobs"]:
            try:
                done = subprocess.run([self.dtrun, *words], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, errors="replace", check=False, timeout=LOOK_LIMIT_S)
                said = done.stdout + done.stderr
            except subprocess.TimeoutExpired:
                said = f"no answer within {LOOK_LIMIT_S} s"
            print(f"dtrun {words[0]}:", said, sep="\n", flush=True)
        for pid in children(self.process.pid):
            print(pid, name(pid), flush=True)

    def change(self, number):
        kind = "agent" if number % AGENT_EVERY == 0 else "rank"
        found = self.agents() if kind == "agent" else self.ranks()
        if not found:
            return False
        try:
            os.kill(self.random.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def sample(self):
        sizes = {"dtrun": {self.process.pid: size(self.process.pid)}, "dtrun-agent": {pid: size(pid) for pid in self.agents()}}
        # What is printed is counted, and not kept.
        path = os.path.join(self.folder, "out")
        with open(path, "rb") as file:
            self.lines += sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        os.truncate(path, 0)
        return {kind: {pid: one for pid, one in found.items() if one} for kind, found in sizes.items()}


def run(options, folder):
    job = Job(options, folder)
    began = time.monotonic()
    samples, changes = [], 0
    length = options.minutes * 60
    while (passed := time.monotonic() - began) < length and job.process.poll() is None:
        if passed * options.changes / length > changes + 1 and job.change(changes + 1):
            changes += 1
        if passed * SAMPLES / length > len(samples):
            samples.append({"passed": passed, "changes": changes, **job.sample(), "lines": job.lines})
        time.sleep(0.05)
    code, ended_s = job.finish()
    return {"code": code, "ended_s": ended_s, "changes": changes, "samples": samples}


def lives(samples, kind):
    """The memory of each process of this kind, in the order of the samples, if there are enough of it."""
    found = {}
    for sample in samples:
        for pid, one in sample[kind].items():
            found.setdefault(pid, []).append(one[0])
    return [sizes for sizes in found.values() if len(sizes) >= LIFE_MIN]


def report(found):
    samples = found["samples"]
    last = samples[-1]
    print(f"{last['lines']} lines, {found['changes']} changes, exit code {found['code']}; private memory in kB, of who grew most")
    print("| | processes | after a fifth | at the end | descriptors |\n|---|---|---|---|---|")
    targets = table.Targets()
    for kind, growth_max in GROWTH_KB_MAX.items():
        grown = [(sizes[-1] - sizes[len(sizes) // 5], sizes) for sizes in lives(samples, kind)]
        if not grown:
            continue
        growth, sizes = max(grown)
        descriptors = max((one[1] for one in last[kind].values()), default=0)
        print(f"| {kind} | {len(grown)} | {sizes[len(sizes) // 5]} | {sizes[-1]} | {descriptors} |")
        targets.at_most(f"growth of {kind}, kB", growth, growth_max)
    targets.add("exit code of the job", str(found["code"]), found["code"] == 0)
    targets.at_most("end of the job, s", found["ended_s"], END_LIMIT_S)
    print(*targets.lines(), sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtrun", default=os.path.join(HERE, "../build/release/bin/dtrun"))
    parser.add_argument("--minutes", type=float, default=60)
    # Ranks do nothing while one of them starts again, which takes up to half of the time.
    parser.add_argument("--lines", type=float, default=2e6)
    parser.add_argument("--keys", type=float, default=2e5)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="every sample, into this file")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="dtrun-soak-")
    try:
        found = run(options, folder)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(found, file)
        report(found)
        if found["code"] != 0 or found["ended_s"] > END_LIMIT_S:
            with open(os.path.join(folder, "err"), encoding="utf-8", errors="replace") as file:
                print(file.read()[-3000:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
