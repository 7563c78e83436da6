"""./dev bench daemon: what a daemon promises, under strangers, SIGKILL and bad disks. Needs root.

Hosts are network namespaces of this machine. `--only` chooses among:

hostile  10,000 connections of eight kinds from four hosts, while a job runs and others want to get in;
kills    the daemon is SIGKILLed 1,000 times while ranks change its store;
disk     its disk is full, takes ten seconds for a sync, or fails;
jobs     a million jobs in turn, each a store that nobody comes back to, leave its memory and its file as they are.

The exit status is 1 if anything was lost or done twice, or a target was missed.
"""
import argparse
import collections
import contextlib
import glob
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLUSTER = f"{ROOT}/tests/cluster/cluster"
ATTACK = f"{ROOT}/tests/cluster/support/attack.py"
DTRUN = f"{ROOT}/build/release/bin/dtrun"
PYTHON = "/usr/bin/python3"
ADDRESS, PORT = "10.99.0.254", "29400"
GETS_IN_S = 1.0


class Bench:
    def __init__(self, directory):
        self.directory = directory
        self.environment = dict(os.environ, CLUSTER_STATE=f"{directory}/cluster")
        self.started = []
        self.failed = False

    def on(self, host, *command, **options):
        """Starts a command on a host."""
        env = {"DTRUN_SERVE": f"{ADDRESS}:{PORT}", "DTRUN_SECRET_FILE": f"{self.directory}/secret",
               "PYTHONPATH": f"{ROOT}/worker/python", "LIBDTRUN_PATH": f"{ROOT}/build/release/lib/libdtrun.so.0", **options.pop("env", {})}
        process = subprocess.Popen([CLUSTER, "exec", host, "env", *(f"{k}={v}" for k, v in env.items()), *command],
                                   env=self.environment, stdin=subprocess.DEVNULL, text=True, **options)
        self.started.append(process)
        return process

    def users(self, part, processes):
        """Ranks that use the store until stop(). :return: their directory"""
        directory = f"{self.directory}/{part}"
        os.makedirs(directory, exist_ok=True)
        running = [self.on(f"s{1 + rank % 2}", PYTHON, f"{ROOT}/bench/daemon_user.py", directory, str(rank), "2",
                           env={"RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_RANK": "0",
                                "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank), "DTRUN_JOB_NAME": part,
                                "GROUP_WORLD_SIZE": str(processes), "DTRUN_SERVER_TIMEOUT": "120"})
                   for rank in range(processes)]
        return directory, running

    def check(self, met, text):
        self.failed |= not met
        print(f"{text}: {'met' if met else 'MISSED'}", flush=True)

    def judge(self, name, directory, running, words):
        """Ends users, and holds what they were told against each other."""
        with open(f"{directory}/stop", "w", encoding="utf-8"):
            pass
        for process in running:
            process.wait(timeout=180)
        told = []
        for path in glob.glob(f"{directory}/[0-9]*.json"):
            with open(path, encoding="utf-8") as file:
                told += json.load(file)
        with open(f"{directory}/left", encoding="utf-8") as file:
            left = json.load(file)
        pushed = collections.Counter(item for one in told for item in one["pushed"])
        came = collections.Counter(item for one in told for item in one["popped"])
        came.update(left["items"])
        wrong = [text for one in told for text in one["wrong"]]
        if left["sum"] != sum(one["sum"] for one in told):
            wrong.append(f"all added {sum(one['sum'] for one in told)}, the sum is {left['sum']}")
        lost = sum((pushed - came).values())
        twice = sum((came - pushed).values())
        operations = sum(one["operations"] for one in told)
        refused = sum(one["refused"] for one in told)
        slowest = max(one["slowest"] for one in told)
        for text in wrong[:5]:
            print(f"  {text}")
        self.check(not wrong and not lost and not twice and operations > 100,
                   f"{name}: {words}; {operations} operations acknowledged, {len(pushed)} items: {lost} lost, "
                   f"{twice} twice, {len(wrong)} other contradictions; {refused} refused, the longest took "
                   f"{slowest:.1f} s (target 0 lost, 0 twice)")
        return [one["why"] for one in told if one["why"]], slowest

    # ---- the parts ----

    def inner(self, part, directory, *more):
        """Runs that part of this program that is on the daemon's host."""
        return self.on("head", PYTHON, __file__, "--inner", part, directory, *more, stdout=subprocess.PIPE)

    def kills(self, options):
        directory, users = self.users("kills", 4)
        daemon = self.inner("kills", directory, str(options.kills))
        words = daemon.stdout.readline().strip()
        self.judge("kills", directory, users, words)
        daemon.wait(timeout=60)

    def disk(self, options):
        for part in ("full", "slow", "fails"):
            directory, users = self.users(part, 2)
            daemon = self.inner(part, directory)
            words = daemon.stdout.readline().strip()
            why, slowest = self.judge(f"disk {part}", directory, users, words)
            if why:
                print(f"  users were told: {why[0]}")
            if part == "slow":
                self.check(slowest >= 9, "  it waits for a sync of ten seconds, and ends nobody")
            daemon.wait(timeout=60)
            with open(f"{directory}/log", encoding="utf-8") as file:
                said = [line.strip() for line in file if "disk" in line or "write" in line]
            for line in list(dict.fromkeys(said))[:3]:
                print(f"  the daemon said: {line}")
            self.check(bool(said), f"  disk {part}: it is told")

    def hostile(self, options):
        directory = f"{self.directory}/hostile"
        os.makedirs(directory)
        with open(f"{directory}/log", "w", encoding="utf-8") as log:
            daemon = self.on("head", DTRUN, "serve", "--secret-file", f"{self.directory}/secret", "--state",
                             f"{directory}/state", stderr=log)
        self.wait_for_daemon()
        recorder = self.on("s3", PYTHON, ATTACK, "--record", "4000", ADDRESS, PORT, f"{directory}/recorded",
                           stdout=subprocess.PIPE)
        recorder.stdout.readline()
        subprocess.run([CLUSTER, "exec", "s2", "env", f"DTRUN_SECRET_FILE={self.directory}/secret", DTRUN, "status",
                        "10.99.0.3:4000"], env=self.environment, check=True, stdout=subprocess.DEVNULL)
        users_directory, users = self.users("hostile.job", 2)
        time.sleep(1)
        before = self.knock(10)
        attackers = [self.on(f"s{3 + number}", PYTHON, ATTACK, ADDRESS, PORT, str(options.connections // 4),
                             "--recorded", f"{directory}/recorded", "--seconds", str(options.seconds),
                             stdout=subprocess.PIPE) for number in range(4)]
        knocks = []
        while any(attacker.poll() is None for attacker in attackers):
            knocks += self.knock(1)
        kinds = collections.Counter()
        for attacker in attackers:
            if attacker.returncode != 0:
                self.check(False, "hostile: an attacker has failed")
            words = attacker.stdout.read().split("\n")[1].split()
            kinds.update({words[i]: int(words[i + 1]) for i in range(0, len(words), 2)})
        print("hostile: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items()))
        self.check(sum(kinds.values()) >= 0.99 * options.connections,
                   f"  {sum(kinds.values())} connections in {options.seconds} s")
        self.check(max(knocks) <= GETS_IN_S,
                   f"  `dtrun status` from another host, {len(knocks)} times meanwhile: median "
                   f"{statistics.median(knocks):.2f} s, longest {max(knocks):.2f} s (before: median "
                   f"{statistics.median(before):.2f} s; target {GETS_IN_S:g} s)")
        self.judge("  the job meanwhile", users_directory, users, "2 ranks of 2 threads")
        daemon.terminate()

    def jobs(self, options):
        directory = f"{self.directory}/jobs"
        os.makedirs(directory)
        with open(f"{directory}/log", "w", encoding="utf-8") as log:
            self.on("head", DTRUN, "serve", "--quiet", "--secret-file", f"{self.directory}/secret", "--state",
                    f"{directory}/state", "--keep-unused", "1", stderr=log)
        self.wait_for_daemon()
        sizes = []
        part = options.jobs // 10
        began = time.monotonic()
        for tenth in range(10):
            users = [self.on(f"s{1 + number}", PYTHON, f"{ROOT}/bench/daemon_jobs.py",
                             str(tenth * part + number * (part // 4)), str(part // 4),
                             env={"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})
                     for number in range(4)]
            if any(user.wait() != 0 for user in users):
                self.check(False, "jobs: a user has failed")
            time.sleep(5)
            sizes.append(self.daemon_size(f"{directory}/state"))
        (memory, file), (memory_then, file_then) = sizes[-1], sizes[1]
        self.check(memory <= 1.2 * memory_then + 2 and file <= 1.2 * file_then + 8,
                   f"jobs: {options.jobs} in turn in {time.monotonic() - began:.0f} s: memory {memory_then:.1f} MB after "
                   f"a fifth of them, {memory:.1f} MB after all; state {file_then:.1f} and {file:.1f} MB")

    def daemon_size(self, state):
        """Megabytes in memory, and on the disk."""
        status = self.on("s1", DTRUN, "status", "--json", stdout=subprocess.PIPE)
        pid = json.loads(status.stdout.read())["pid"]
        # A host has processes of its own.
        of_process = self.on("head", "cat", f"/proc/{pid}/status", stdout=subprocess.PIPE).stdout.read()
        memory = next(int(line.split()[1]) for line in of_process.splitlines() if line.startswith("VmRSS"))
        return memory / 1e3, sum(os.path.getsize(name) for name in glob.glob(f"{state}/*")) / 1e6

    def knock(self, times):
        """How long others take to get in, and an answer."""
        took = []
        for _ in range(times):
            began = time.monotonic()
            done = self.on("s2", DTRUN, "status", stdout=subprocess.DEVNULL)
            if done.wait(timeout=60) != 0:
                self.check(False, "  `dtrun status` got no answer")
            took.append(time.monotonic() - began)
            time.sleep(0.2)
        return took

    def wait_for_daemon(self):
        limit = time.monotonic() + 30
        while self.on("s2", DTRUN, "status", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait() != 0:
            if time.monotonic() > limit:
                raise SystemExit("daemon: it does not serve")
            time.sleep(0.1)


# ---- on the daemon's host ----

class Daemon:
    """`dtrun serve --state`, again and again."""

    def __init__(self, directory, state):
        self.command = [DTRUN, "serve", "--secret-file", os.environ["DTRUN_SECRET_FILE"], "--state", state]
        self.log = f"{directory}/log"
        self.bad_disk = f"{directory}/bad_disk"
        self.process = None

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            at = log.tell()
            self.process = subprocess.Popen(
                self.command, stderr=log,
                env=dict(os.environ, LD_PRELOAD=f"{ROOT}/build/release/bench/libbad_disk.so", BAD_DISK=self.bad_disk))
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            with open(self.log, encoding="utf-8") as log:
                log.seek(at)
                if "serving on port" in log.read():
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.002)
        raise SystemExit(f"daemon: it does not start; see {self.log}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def disk(self, words):
        with open(self.bad_disk + ".new", "w", encoding="utf-8") as file:
            file.write(words)
        os.rename(self.bad_disk + ".new", self.bad_disk)


def kill_often(daemon, count):
    for _ in range(int(count)):
        daemon.start()
        time.sleep(random.uniform(0, 0.5))
        daemon.kill()
    daemon.start()
    return f"{count} times SIGKILL"


def fill(daemon, state):
    daemon.start()
    for _ in range(3):
        time.sleep(3)
        with open(f"{state}/filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))
        time.sleep(4)
        os.unlink(f"{state}/filler")
    time.sleep(3)
    return "full for 4 s, three times"


def slow_down(daemon):
    daemon.start()
    for _ in range(2):
        time.sleep(3)
        daemon.disk("slow 10000")
        time.sleep(1)
        daemon.disk("")
        time.sleep(12)
    return "a sync takes 10 s, twice"


def fail(daemon):
    daemon.start()
    for _ in range(5):
        time.sleep(2)
        daemon.disk("fail")
        status = daemon.process.wait(timeout=60)
        if status <= 0:
            raise SystemExit(f"daemon: with a failing disk it ended with {status}")
        daemon.disk("")
        daemon.start()
    time.sleep(2)
    return "EIO, five times, each the end of a daemon"


def inner(part, directory, *more):
    state = f"{directory}/state"
    os.makedirs(state)
    if part == "full":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs", state], check=True)
    daemon = Daemon(directory, state)
    run = {"kills": kill_often, "full": lambda d: fill(d, state), "slow": slow_down, "fails": fail}[part]
    print(run(daemon, *more), flush=True)
    while not os.path.exists(f"{directory}/left"):
        time.sleep(0.05)
    time.sleep(0.5)
    daemon.process.terminate()
    daemon.process.wait()
    if part == "full":
        subprocess.run(["umount", state], check=True)


def main():
    if sys.argv[1:2] == ["--inner"]:
        return inner(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, prog="./dev bench daemon",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("hostile", "kills", "disk", "jobs"),
                        default=("hostile", "kills", "disk", "jobs"))
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=30, help="that hostile connections last")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        with open(f"{directory}/secret", "w", encoding="utf-8") as file:
            os.chmod(file.name, 0o600)
            file.write(os.urandom(32).hex())
        bench = Bench(directory)
        subprocess.run([CLUSTER, "up", "6", "--share", ROOT, "--share", directory, "--owner", str(os.getpid())],
                       env=bench.environment, check=True, stdout=subprocess.DEVNULL)
        try:
            for part in options.only:
                getattr(bench, part)(options)
        finally:
            subprocess.run([CLUSTER, "down"], env=bench.environment, check=False, stdout=subprocess.DEVNULL)
            for process in bench.started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=5)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
