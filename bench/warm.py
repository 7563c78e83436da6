#!/usr/bin/python3 -I
"""What dtrun's first run on hosts costs, and what a job costs in log-ins that are kept (dtrun hold).

Brings up hosts of its own (tests/cluster). Needs root. All hosts share this machine's processors, so beside the time of
a run stands what processor time the command that was typed has used, which hosts of their own would not share.
"""
import argparse
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import table  # noqa: E402
from launch import Cluster  # noqa: E402

LIMIT_S = 300  # of one command
CACHE = "/root/.cache"
MEMORY_KB_MAX = 64 * 1024
SHARED_RATIO_MAX = 1.3
SEPARATE_RATIO_MAX = 2.0


def say(text):
    print(f"warm.py: {text}", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, options):
        self.options = options
        self.hosts = max(options.hosts + [hosts for hosts, _ in options.warm])
        self.cluster = Cluster(self.hosts, {ROOT, options.bin})
        self.names = [f"s{i}" for i in range(1, self.hosts + 1)]
        self.shared = f"{self.cluster.scratch}/cache"
        self.is_shared = False

    def dtrun(self, *words):
        return [f"{self.options.bin}/dtrun", *words]

    def list_of(self, hosts, slots=1):
        return ",".join(f"{name}:{slots}" for name in self.names[:hosts])

    def run(self, *words, rounds=0):
        """A command on the head to its end: its wall, own_cpu and own_kb, and the cpu of all hosts together."""
        before = self.cluster.cpu_seconds()
        answer = self.cluster.tell_runner(what="run", limit_s=LIMIT_S, command=self.dtrun(*words))
        if not answer["in_time"] or answer["status"] != 0:
            sys.exit(f"warm.py: dtrun {' '.join(words)[:200]}: {answer['status']}: {answer['errors']}")
        answer["round"] = rounds
        answer["cpu"] = None if before is None else self.cluster.cpu_seconds() - before
        return answer

    def share_home(self, shared):
        """One cache for all hosts, or each its own."""
        if shared == self.is_shared:
            return
        os.makedirs(self.shared, exist_ok=True)
        for name in self.names:
            if shared:
                self.cluster.ask("exec", name, "mkdir", "-p", CACHE)
                self.cluster.ask("bind", name, self.shared, CACHE)
            else:
                self.cluster.ask("unbind", name, CACHE)
        self.is_shared = shared

    def forget(self, hosts):
        """The agent, on hosts."""
        for name in self.names[:1] if self.is_shared else self.names[:hosts]:
            self.cluster.ask("exec", name, "rm", "-rf", f"{CACHE}/dtrun")

    def limit_links(self, rate):
        for name in ["head", *self.names]:
            words = ["replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb",
                     "latency", "200ms"] if rate else ["del", "dev", "eth0", "root"]
            self.cluster.ask("exec", name, "tc", "qdisc", *words)

    def first_runs(self, shared, hosts, rounds):
        """([first runs], [runs thereafter])."""
        self.share_home(shared)
        first, again = [], []
        for number in range(rounds):
            self.forget(hosts)
            words = ["--connect-timeout", "120", "-H", self.list_of(hosts), "/bin/true"]
            first.append(self.run(*words, rounds=number))
            again.append(self.run(*words, rounds=number))
            self.cluster.wait_quiet()
        return first, again

    def holder_cpu(self):
        ticks = os.sysconf("SC_CLK_TCK")
        for _, pid, _ in self.cluster.processes():
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
            if name == "dtrun-holder":
                fields = rest.split()
                return (int(fields[11]) + int(fields[12])) / ticks
        return None

    def kept_runs(self, hosts, slots, rounds):
        """([runs with a log-in each], [runs in kept ones], processor seconds of the holder for one of the latter)."""
        self.share_home(True)
        words = ["--connect-timeout", "120", "-H", self.list_of(hosts, slots), "/bin/true"]
        self.run(*words)
        self.run("hold", "--connect-timeout", "120", "-H", self.list_of(hosts))
        cold, kept = [], []
        holder = 0.0
        for number in range(rounds):
            before = self.holder_cpu()
            kept.append(self.run(*words, rounds=number))
            after = self.holder_cpu()
            holder += after - before
            cold.append(self.run("--no-warm", *words, rounds=number))
        self.run("release")
        self.cluster.wait_quiet()
        return cold, kept, holder / rounds


def row_of(name, runs):
    def value(key, scale, text):
        found = table.median(run.get(key) for run in runs)
        return "-" if found is None else text.format(found * scale)
    return [name, value("wall", 1, "{:.2f}"), value("cpu", 1, "{:.2f}"),
            value("own_cpu", 1000, "{:.0f}"), value("own_kb", 1 / 1024, "{:.0f}")]


def print_table(rows):
    head = ["", "s", "s of all processors", "ms of dtrun's own", "its MB"]
    print("| " + " | ".join(head) + " |")
    print("|---|" + "---:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def target(text, value, limit):
    return f"- {text}: {value:.2f}, {'met' if value <= limit else 'MISSED'} (at most {limit})"


def pairs(text):
    return [tuple(int(part) for part in word.split("x")) for word in text.split(",")]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin", help="where dtrun is")
    parser.add_argument("--only", nargs="+", choices=["shared", "separate", "kept"],
                        default=["shared", "separate", "kept"])
    parser.add_argument("--hosts", type=lambda text: [int(word) for word in text.split(",")],
                        default=[1, 16, 64], help="of first runs (default: 1,16,64)")
    parser.add_argument("--warm", type=pairs, default=[(16, 1), (64, 4)],
                        help="hosts x ranks in kept log-ins (default: 16x1,64x4)")
    parser.add_argument("--rate", default="1gbit", help="of each host's link, for separate homes (default: 1gbit)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.bin = os.path.realpath(options.bin)
    return options


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    say("bringing up hosts")
    bench = Bench(options)
    rows, targets, most_kb = [], [], 0
    one = None
    for hosts in options.hosts if "shared" in options.only else []:
        first, again = bench.first_runs(True, hosts, options.rounds)
        rows += [row_of(f"one home, first run of {hosts}", first), row_of(f"one home, {hosts} again", again)]
        ratio = table.paired_ratio(first, again, lambda run: run["wall"])
        of_cpu = table.paired_ratio(first, again, lambda run: run["cpu"] or run["wall"])
        targets.append(target(f"one home, {hosts} hosts, first run by the next one", ratio, SHARED_RATIO_MAX))
        targets.append(f"  by processor time {of_cpu:.2f}")
        most_kb = max([most_kb] + [run["own_kb"] for run in first])
        say(f"one home: {hosts} hosts")
    if "separate" in options.only:
        bench.share_home(False)
        bench.limit_links(options.rate)
        for hosts in options.hosts:
            first, again = bench.first_runs(False, hosts, options.rounds)
            rows += [row_of(f"own homes at {options.rate}, first run of {hosts}", first),
                     row_of(f"own homes, {hosts} again", again)]
            more = table.median(one_run["wall"] - other["wall"] for one_run, other in zip(first, again))
            one = one or more
            targets.append(target(f"own homes, {hosts} hosts, what copies add, by one host's", more / one,
                                  SEPARATE_RATIO_MAX))
            most_kb = max([most_kb] + [run["own_kb"] for run in first])
            say(f"own homes: {hosts} hosts")
        bench.limit_links(None)
    if most_kb:
        targets.append(target("dtrun's own memory in MB", most_kb / 1024, MEMORY_KB_MAX / 1024))
    for hosts, slots in options.warm if "kept" in options.only else []:
        cold, kept, holder = bench.kept_runs(hosts, slots, options.rounds)
        rows += [row_of(f"{hosts}x{slots} with log-ins", cold), row_of(f"{hosts}x{slots} in kept ones", kept)]
        targets.append(f"- {hosts}x{slots}: the holder uses {holder * 1000:.0f} ms of a processor for each job")
        say(f"kept: {hosts}x{slots}")
    print_table(rows)
    print("\n".join(targets))


if __name__ == "__main__":
    began = time.monotonic()
    main()
    say(f"took {time.monotonic() - began:.0f} s")
