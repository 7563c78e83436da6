"""Hosts of `./dev bench elastic`, and what its workers (elastic_log.py) write down on them."""
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
CLUSTER = f"{ROOT}/tests/cluster/cluster"
QUIET_LIMIT_S = 5  # until what a job has left on hosts is called left


class Hosts:
    """s1 to sN and head. Commands go to the supervisor itself, so that none of their time is a program's start."""

    def __init__(self, count):
        self.names = [f"s{i + 1}" for i in range(count)]
        # Workers save their state here, which should cost no disk's time.
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.base = tempfile.mkdtemp(prefix="dtrun-bench.", dir=where)
        os.chmod(self.base, 0o755)
        self.state = f"{self.base}/cluster"
        self.environment = {**os.environ, "CLUSTER_STATE": self.state}
        atexit.register(self.down)
        subprocess.run([CLUSTER, "up", str(count), "--share", ROOT, "--owner", str(os.getpid())],
                       env=self.environment, check=True, stdout=subprocess.DEVNULL)
        self.scratch = f"{self.state}/scratch"

    def down(self):
        subprocess.run([CLUSTER, "down"], env=self.environment, capture_output=True, check=False)
        shutil.rmtree(self.base, ignore_errors=True)

    def ask(self, *words):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(f"{self.state}/control")
            connection.sendall((json.dumps(words) + "\n").encode())
            reply = json.loads(connection.makefile().read())
        if not reply["ok"]:
            raise RuntimeError(f"cluster {' '.join(words)}: {reply['text']}")
        return reply["text"]

    def start(self, host, command, output, env=None):
        """A command on a host, whose output goes to the file `output`."""
        words = ["env", *(f"{name}={value}" for name, value in (env or {}).items())] if env else []
        with open(output, "ab") as file:
            return subprocess.Popen([CLUSTER, "exec", host, *words, *command], env=self.environment, cwd=ROOT,
                                    stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def processes(self, *names):
        """(host, pid here, command) of everything on these hosts, or on all."""
        rows = [line.split("\t") for line in self.ask("ps", *names).splitlines()]
        return [(host, int(pid), command) for host, pid, _, command in rows]

    def ranks(self, host, program):
        """Pids of the ranks on a host."""
        return sorted(pid for _, pid, command in self.processes(host) if script_of(command) == program)

    def agents(self, host):
        """Pids of dtrun's agents there, without their guards."""
        return [pid for _, pid, command in self.processes(host)
                if is_agent(command) and name_of(pid) not in ("", "dtrun-guard")]

    def left(self):
        """What is there on all hosts after a while, and is ended then."""
        deadline = time.monotonic() + QUIET_LIMIT_S
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found


def script_of(command):
    """What a Python was started with; launchers of such programs have a script of their own, or a module."""
    words = command.split(" ")
    return next((word for word in words[1:] if not word.startswith("-")), "") if "python" in words[0] else ""


def is_agent(command):
    """Of dtrun, or its guard: both have the name of the file that was copied to the host."""
    return "/dtrun/agent-" in command.split(" ")[0]


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Process:
    """A rank's log, read as far as it is written."""

    def __init__(self, path):
        self.path = path
        name = os.path.basename(path).split(".")
        self.host, self.slot, self.pid, self.born = name[0], int(name[1]), int(name[2]), int(name[3]) / 1e9
        self.offset, self.rest = 0, b""
        self.entered = []  # (time, world, rank, size, step) of each world
        self.steps = []  # (time, step) of each committed step

    def read(self):
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read()
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            kind, when, world, rank, size, step = line.split()
            if kind == b"W":
                self.entered.append((float(when), int(world), int(rank), int(size), int(step)))
            elif kind == b"C":
                self.steps.append((float(when), int(step)))

    @property
    def world(self):
        return self.entered[-1][1] if self.entered else 0

    def first_step(self, world):
        """When it had done its first step in a world; None if it has not yet."""
        for i, entry in enumerate(self.entered):
            if entry[1] != world:
                continue
            until = self.entered[i + 1][0] if i + 1 < len(self.entered) else float("inf")
            return next((when for when, _ in self.steps if entry[0] <= when < until), None)
        return None


class Worlds:
    """All that the ranks of one job have written down."""

    def __init__(self, directory):
        self.directory = directory
        self.processes = {}

    def read(self):
        for entry in os.scandir(self.directory):
            if entry.name.endswith(".log") and entry.name not in self.processes:
                self.processes[entry.name] = Process(entry.path)
        for process in self.processes.values():
            process.read()

    def members(self, world):
        return [process for process in self.processes.values() if any(e[1] == world for e in process.entered)]

    def newest(self):
        """(number, size, when all of its ranks have done a step, or None) of the world that began last."""
        entries = [(entry[0], entry[1], entry[3]) for p in self.processes.values() for entry in p.entered]
        if not entries:
            return 0, 0, None
        _, world, size = max(entries)
        firsts = [process.first_step(world) for process in self.members(world)]
        complete = len(firsts) == size and all(firsts)
        return world, size, max(firsts) if complete else None

    def is_running(self, size, since):
        """Whether all ranks of the newest world are so many, and have done a step after that time."""
        world, now, complete = self.newest()
        return bool(complete) and now == size and all(
            process.world == world and process.steps[-1][0] > since for process in self.members(world))

    def last_step(self):
        return max((p.steps[-1][1] for p in self.processes.values() if p.steps), default=0)

    def last_time(self):
        return max((p.steps[-1][0] for p in self.processes.values() if p.steps), default=0.0)
