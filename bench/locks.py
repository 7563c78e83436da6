"""./dev bench locks: how soon a leader that is lost is replaced, and how fast a lock goes round.

election   a leader is SIGKILLed, or SIGSTOPped, while another process waits for its lock: seconds until that has it; next
           to etcd with a lease of 3 s, both with their data on disk
hand-over  processes take a lock and let it go, as fast as they can: how often in a second; next to Redis, both in memory
"""
import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import table  # noqa: E402

DTRUN = f"{ROOT}/build/release/bin/dtrun"
LEASE_S = 3
CONTENDERS = 8
START_LIMIT_S = 20
USER = [sys.executable, f"{HERE}/locks_user.py"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, is_there):
    limit = time.monotonic() + START_LIMIT_S
    while not is_there():
        if time.monotonic() > limit:
            raise SystemExit(f"locks: {what} does not start")
        time.sleep(0.02)


class Server:
    """A process that ends with the block."""

    def __init__(self, directory):
        self.directory, self.environment = directory, dict(os.environ)
        self.process = None

    def run(self, command):
        with open(f"{self.directory}/log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)

    def __enter__(self):
        try:
            self.start(free_port())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    def holder(self, name):
        return [*self.user, "hold", name]


class Dtrun(Server):
    label, user, is_durable = "dtrun serve", [*USER, "dtrun"], False

    def start(self, port):
        secret = f"{self.directory}/secret"
        with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(os.urandom(32).hex())
        self.environment.update(DTRUN_SECRET_FILE=secret, DTRUN_SERVE=f"127.0.0.1:{port}", DTRUN_JOB_NAME="bench",
                                RANK="0", WORLD_SIZE="1", PYTHONPATH=f"{ROOT}/worker/python",
                                LIBDTRUN_PATH=f"{ROOT}/build/release/lib/libdtrun.so.0", PYTHONDONTWRITEBYTECODE="1")
        state = ["--state", f"{self.directory}/state"] if self.is_durable else []
        self.run([DTRUN, "serve", "--listen", f"127.0.0.1:{port}", "--heartbeat-timeout", str(LEASE_S), *state])
        wait_for("dtrun serve", lambda: "serving on port" in open(f"{self.directory}/log", encoding="utf-8").read())


class DurableDtrun(Dtrun):
    label, is_durable = "dtrun serve --state", True


class Etcd(Server):
    label = "etcd"

    def start(self, port):
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
        self.environment.update(ETCDCTL_API="3", ETCDCTL_ENDPOINTS=client)
        self.run(["etcd", "--data-dir", f"{self.directory}/state", "--listen-client-urls", client,
                  "--advertise-client-urls", client, "--listen-peer-urls", peer,
                  "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"])

        def is_healthy():
            with contextlib.suppress(OSError, urllib.error.URLError):
                return b"true" in urllib.request.urlopen(f"{client}/health", timeout=1).read()
            return False

        wait_for("etcd", is_healthy)

    def holder(self, name):
        return ["etcdctl", "lock", f"--ttl={LEASE_S}", name]


class Redis(Server):
    label, kind = "Redis: BLPOP and LPUSH of a token", "token"

    def start(self, port):
        self.user = [*USER, "redis", str(port), self.kind]
        self.run(["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", self.directory])

        def cli(*words):
            return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, check=False).returncode == 0

        wait_for("redis-server", lambda: cli("ping"))
        if self.kind == "token":
            cli("lpush", "lock", "")


class RedisLock(Redis):
    label, kind = "Redis: Lock of redis-py", "lock"


# ---- what is measured ----

@contextlib.contextmanager
def process(command, server):
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=server.environment) as started:
        try:
            yield started
        finally:
            started.kill()


def elect(server, kind):
    """Seconds from the leader's loss to the next one."""
    with process(server.holder("lock"), server) as leader:
        assert leader.stdout.readline()
        with process(server.holder("lock"), server) as follower:
            time.sleep(1 + random.uniform(0, LEASE_S))  # it waits, and heartbeats are anywhere
            began = time.monotonic()
            leader.send_signal(kind)
            assert follower.stdout.readline()
            return time.monotonic() - began


def hand_over(server, seconds):
    """Times that the lock was taken, in a second."""
    with contextlib.ExitStack() as stack:
        users = [stack.enter_context(process([*server.user, "contend", "lock", str(seconds)], server))
                 for _ in range(CONTENDERS)]
        for user in users:
            assert user.stdout.readline() == "ready\n"
        for user in users:
            user.stdin.write("\n")
            user.stdin.flush()
        return sum(int(user.stdout.readline()) for user in users) / seconds


def measure(name, servers, rounds, run):
    """Runs by server's label."""
    runs = {kind.label: [] for kind in servers}
    for number in range(rounds):
        for kind in table.in_turns(servers, number):
            with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, kind(directory) as server:
                runs[kind.label].append({"round": number, "value": run(server)})
        print(f"locks: {name}, round {number + 1} of {rounds}", file=sys.stderr)
    return runs


def lines(title, runs, text):
    rows = [["", "median", "least", "most"]]
    for label, all_runs in runs.items():
        values = [run["value"] for run in all_runs]
        rows.append([label] + [text(value) for value in (table.median(values), min(values), max(values))])
    return [title, *table.columns(rows), ""]


def ratio(runs, ours, theirs):
    return table.paired_ratio(runs[ours.label], runs[theirs.label], lambda run: run["value"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="./dev bench locks",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("election", "hand-over"), default=("election", "hand-over"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3, help="of each run of hand-over")
    parser.add_argument("--json", metavar="FILE", help="write every run there")
    options = parser.parse_args()
    targets, kept = table.Targets(), {}
    if "election" in options.only:
        for kind, words in ((signal.SIGKILL, "SIGKILLed"), (signal.SIGSTOP, "SIGSTOPped")):
            runs = kept[words] = measure(words, [DurableDtrun, Etcd], options.rounds, lambda server: elect(server, kind))
            print(*lines(f"a leader is {words}: seconds to the next one", runs, table.seconds), sep="\n")
            if kind == signal.SIGKILL:
                targets.at_most(f"a leader is {words}: seconds to the next one",
                                max(run["value"] for run in runs[DurableDtrun.label]), LEASE_S + 0.1, "{:.3f}")
            # One that stands still is given four times as long: a machine may have much else to do.
            targets.add(f"a leader is {words}: next to etcd", f"{ratio(runs, DurableDtrun, Etcd):.2f} x", None)
    if "hand-over" in options.only:
        runs = kept["hand-over"] = measure("hand-over", [Dtrun, Redis, RedisLock], options.rounds,
                                           lambda server: hand_over(server, options.seconds))
        print(*lines(f"a lock goes round {CONTENDERS} processes: times a second", runs, table.number), sep="\n")
        for theirs in (Redis, RedisLock):
            targets.at_least(f"hand-over, next to {theirs.label}", ratio(runs, Dtrun, theirs), 1, "{:.2f} x")
    print(*targets.lines(), sep="\n")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)


main()
