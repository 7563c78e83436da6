"""The servers that are compared: what each is called, whether it can be had, and how it is run."""
import csv
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from launch_peers import find, first_match

HERE = os.path.dirname(os.path.realpath(__file__))
BUILD = f"{os.path.dirname(HERE)}/build"
VENV = f"{BUILD}/bench-venv"
INSTALL_LIMIT_S = 1200
START_LIMIT_S = 60
STOP_LIMIT_S = 10
IN_FLIGHT = 256  # connects at a time
LIMIT_S = 10  # of a barrier, and for connecting all
REPETITIONS = 20  # of a barrier in a run
REDIS_OPS = 40_000  # in a second: redis-benchmark wants a number of operations
REDIS_LARGE_OPS, REDIS_DURABLE_OPS = 400, 500  # the same of large values, and of each client's durable ones
AGENTS_MAX = 256
RANKS_PER_AGENT = 8  # until there are AGENTS_MAX

# Given a listening socket, the store sees IPv4 addresses. On one of its own, which takes IPv6 too,
# it asks the name server for the name of ::ffff:127.0.0.1 at each connection, which can take long.
TCPSTORE = """
import socket, sys, torch.distributed
listener = socket.create_server(("127.0.0.1", 0), backlog=16384)
port = listener.getsockname()[1]
store = torch.distributed.TCPStore("127.0.0.1", port, None, True, wait_for_workers=False,
                                   use_libuv=True, master_listen_fd=listener.detach())
print("port", port, flush=True)
sys.stdin.read()
"""


FLIGHTS = ("flight", "large")  # workloads of one program, through the client library


class Unavailable(Exception):
    """Why a server cannot be run here."""


def raise_descriptor_limit():
    """To the hard limit, for the servers and the load; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def is_listening(port):
    with socket.create_connection(("127.0.0.1", port)):
        return True


def run_or_give_up(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S,
                              check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error
    if done.returncode != 0:
        raise Unavailable((done.stderr.strip().splitlines() or ["failed"])[-1])


def python_environment():
    """The interpreter of a virtual environment with requirements.txt, made once."""
    with open(f"{HERE}/requirements.txt", encoding="utf-8") as file:
        wanted = file.read()
    done = f"{VENV}/requirements.txt"
    try:
        with open(done, encoding="utf-8") as file:
            if file.read() == wanted:
                return f"{VENV}/bin/python"
    except OSError:
        pass
    print("rendezvous.py: installing PyTorch and others in build/bench-venv", file=sys.stderr)
    run_or_give_up("/usr/bin/python3", "-m", "venv", VENV)
    run_or_give_up(f"{VENV}/bin/pip", "install", "-q", "-r", f"{HERE}/requirements.txt")
    with open(done, "w", encoding="utf-8") as file:
        file.write(wanted)
    return f"{VENV}/bin/python"


class Server:
    """A running server, in a directory of its own, until stop().

    command    of the directory
    talks      says on its standard output when it is ready, and ends at the end of its input
    arguments  of rendezvous_load: where to connect
    pids       of its processes, by name
    """

    def __init__(self, command, talks, parent=None, **environment):
        self.directory = tempfile.mkdtemp(prefix="dtrun-bench.", dir=parent)
        self.talks, self.arguments, self.lines = talks, [], []
        with open(f"{self.directory}/errors", "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                command(self.directory), stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else errors, stderr=errors, text=True,
                env={**os.environ, **environment})
        self.pids = {"head": self.process.pid}

    def read_until(self, pattern):
        """Lines of its output up to one that matches; the match."""
        alarm = threading.Timer(START_LIMIT_S, self.process.kill)
        alarm.start()
        try:
            for line in self.process.stdout:
                self.lines.append(line.rstrip("\n"))
                if found := re.match(pattern, line):
                    return found
        finally:
            alarm.cancel()
        raise self.failure()

    def wait_until(self, is_ready, port):
        """Asks again and again; an OSError is a no."""
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if is_ready(port):
                    return
            except OSError:
                pass
            time.sleep(0.01)
        raise self.failure()

    def failure(self):
        with open(f"{self.directory}/errors", encoding="utf-8", errors="replace") as file:
            said = (file.read().strip().splitlines() or self.lines or ["it said nothing"])[-1]
        self.stop()
        return Unavailable(f"does not start: {said}")

    def stop(self):
        if self.talks:
            self.process.stdin.close()
        else:
            self.process.terminate()
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.talks:
            self.process.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Peer:
    """One row of the table.

    key       for --only
    label     for the table
    version   after prepare()
    workloads that it is measured with
    """
    key = label = ""
    version = "?"
    workloads = ("setget", "barrier", "connect")

    def prepare(self):
        """Finds or installs the server; Unavailable if that cannot be."""
        raise NotImplementedError

    def start(self, clients):
        """A server that is ready for so many clients; Unavailable."""
        raise NotImplementedError

    def load(self, server, workload, clients, options):
        """A command, and what makes a run of what it prints."""
        pids = [word for name, pid in server.pids.items() for word in ("--server-pid", f"{name}={pid}")]
        return [f"{options.bin}/rendezvous_load", self.key.removesuffix("-tree"), workload, "--clients", str(clients),
                "--seconds", str(options.seconds), "--repetitions", str(REPETITIONS), "--limit", str(LIMIT_S),
                "--in-flight", str(IN_FLIGHT), *pids, *server.arguments], json.loads


class Dtrun(Peer):
    """The head, and all agents in a second process."""
    key, label = "dtrun", "dtrun"
    workloads = (*Peer.workloads, *FLIGHTS)
    options = []

    def __init__(self, options):
        self.program = f"{options.bin}/rendezvous_host"
        self.dtrun = f"{options.bin}/dtrun"
        self.ranks_per_agent = options.ranks_per_agent

    def prepare(self):
        if not os.access(self.program, os.X_OK):
            raise Unavailable(f"{self.program} is missing")
        self.version = first_match(r"(\d[\w.]*)", self.dtrun, "--version")

    def shape(self, clients):
        """(agents, ranks of each), as many ranks as clients."""
        each = self.ranks_per_agent or max(RANKS_PER_AGENT, -(-clients // AGENTS_MAX))
        each = min(each, clients)
        return clients // each, each

    def start(self, clients):
        agents, each = self.shape(clients)
        if agents * each != clients:
            raise Unavailable(f"{clients} ranks are not agents of {each} ranks each")
        command = [self.program, "--agents", str(agents), "--ranks-per-agent", str(each)]
        server = Server(lambda _: command + self.options, talks=True)
        server.read_until(r"^ready$")
        names = {"root": "head"}
        for line in server.lines:
            if found := re.match(r"(\w+)-pid (\d+)$", line):
                server.pids[names.get(found[1], found[1])] = int(found[2])
            elif found := re.match(r"socket (\S+) (\d+) \d+$", line):
                server.arguments += ["--unix", f"{found[1]}={found[2]}"]
        return server


    def load(self, server, workload, clients, options):
        if workload not in FLIGHTS:
            return super().load(server, workload, clients, options)
        name, rank = server.arguments[1].rsplit("=", 1)
        return flight(options, workload, clients, DTRUN_SOCKET=name, DTRUN_RANK=rank, DTRUN_GENERATION=1)


def flight(options, workload, size, **variables):
    """The load of one program through the client library: `size` operations in flight, or values of so many bytes."""
    in_flight, value_bytes = (1, size) if workload == "large" else (size, 64)

    def durable_run(said):
        return {"ops_per_s": json.loads(said)["set" if size == 1 else "sets"] * 1e3}

    def large_run(said):
        return {name: rate * 1e3 for name, rate in json.loads(said).items() if name in ("set", "get")}

    read = {"durable": durable_run, "large": large_run, "flight": json.loads}[workload]
    return ["env", *(f"{name}={value}" for name, value in variables.items()), f"{options.bin}/rendezvous_flight",
            str(in_flight), str(options.seconds), str(value_bytes)], read


class DtrunTree(Dtrun):
    """With relays between head and agents."""
    key, label = "dtrun-tree", "dtrun --tree"
    workloads = Peer.workloads
    options = ["--tree"]


class DtrunHere(Dtrun):
    """Ranks on the machine of the head, which may ask that themselves."""
    key, label = "dtrun-here", "dtrun, head's machine"
    workloads = FLIGHTS
    options = ["--here"]


class DtrunDirect(Dtrun):
    """Ranks on other machines, which may ask the head over TCP."""
    key, label = "dtrun-direct", "dtrun, the head's port"
    workloads = FLIGHTS
    options = ["--direct"]


class DtrunServe(Peer):
    """A daemon without a file."""
    key, label = "dtrun-serve", "dtrun serve"
    workloads = FLIGHTS
    options, parent = [], None

    def __init__(self, options):
        self.dtrun = f"{options.bin}/dtrun"

    def prepare(self):
        self.version = first_match(r"(\d[\w.]*)", self.dtrun, "--version")

    def start(self, clients):
        port, secret = free_port(), ["--secret-file", "secret"]
        server = Server(lambda directory: [
            "sh", "-c", 'cd "$1" && umask 077 && head -c 64 /dev/urandom >secret && shift && exec "$@"', "sh", directory,
            self.dtrun, "serve", "--listen", f"127.0.0.1:{port}", *secret, *self.options], talks=False, parent=self.parent)
        server.wait_until(is_listening, port)
        server.arguments = [port]
        return server

    def load(self, server, workload, clients, options):
        return flight(options, workload, clients, DTRUN_SERVE=f"127.0.0.1:{server.arguments[0]}", DTRUN_JOB_NAME="flight",
                      DTRUN_SECRET_FILE=f"{server.directory}/secret", RANK=0, WORLD_SIZE=1)


class DtrunState(DtrunServe):
    """A daemon that answers when a change is on disk: of the build, since /tmp may be in memory."""
    key, label = "dtrun-state", "dtrun serve --state"
    workloads = ("durable",)
    options, parent = ["--state", "state"], BUILD


class TcpStore(Peer):
    """PyTorch's, on its libuv server."""
    key, label = "tcpstore", "TCPStore"

    def __init__(self, _):
        self.python = None

    def prepare(self):
        self.python = python_environment()
        self.version = first_match(r"(\d\S*)", self.python, "-c",
                                   "import torch; print(torch.__version__)")

    def start(self, clients):
        server = Server(lambda _: [self.python, "-c", TCPSTORE], talks=True)
        port = server.read_until(r"^port (\d+)$")[1]
        server.arguments = ["--tcp", f"127.0.0.1:{port}"]
        return server


class Redis(Peer):
    """Without persistence, by redis-benchmark, which is its own."""
    key, label = "redis", "Redis"
    workloads = ("setget", "large")
    options, parent = ["--appendonly", "no"], None

    def __init__(self, _):
        self.program = self.benchmark = None

    def prepare(self):
        self.program, self.benchmark = find("redis-server"), find("redis-benchmark")
        if not self.program or not self.benchmark:
            raise Unavailable("redis-server and redis-tools are not installed")
        self.version = first_match(r"v=(\S+)", self.program, "--version")

    def start(self, clients):
        port = free_port()
        server = Server(lambda directory: [
            self.program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", *self.options,
            "--tcp-backlog", "4096", "--maxclients", str(clients + 100), "--dir", directory,
            "--unixsocket", f"{directory}/socket"], talks=False, parent=self.parent)
        server.wait_until(is_listening, port)
        server.arguments = self.endpoint(port, server.directory)
        return server

    def endpoint(self, port, _):
        return ["-h", "127.0.0.1", "-p", str(port)]

    def load(self, server, workload, clients, options):
        number = max(round(options.seconds * REDIS_OPS / 2), 20 * clients)
        usage = Usage(server.pids["head"])
        tests, value_bytes, keys, read = "set,get", 64, clients, lambda said: redis_run(said, 2 * number, usage)
        if workload == "large":
            number, value_bytes, keys, clients = round(options.seconds * REDIS_LARGE_OPS), clients, 64, 1
            read = redis_rates
        elif workload == "durable":
            number, tests, keys = round(options.seconds * REDIS_DURABLE_OPS * clients), "set", 1000
            read = redis_sets
        return [self.benchmark, *server.arguments, "-t", tests, "-d", str(value_bytes), "-c", str(clients), "-n", str(number),
                "-r", str(keys), "--csv"], read


class Usage:
    """Processor time of a server and of what loads it, from now on."""

    def __init__(self, pid):
        self.pid, self.before = pid, self.now(pid)

    @staticmethod
    def now(pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            ticks = sum(map(int, file.read().rsplit(") ", 1)[1].split()[11:13]))
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ticks / os.sysconf("SC_CLK_TCK"), children.ru_utime + children.ru_stime

    def of(self, operations):
        used = [(after - before) * 1e6 / operations for after, before in zip(self.now(self.pid), self.before)]
        return {name: {"cpu_us": each} for name, each in zip(("head", "load"), used)}


def redis_run(said, operations, usage):
    """Of the lines of its two tests, SET and GET, as if they had been one."""
    tests = list(csv.DictReader(said.splitlines()))
    latency = {name: max(float(test[f"{column}_latency_ms"]) for test in tests) * 1e3
               for name, column in (("p50", "p50"), ("p99", "p99"), ("max", "max"))}
    return {"ops_per_s": len(tests) / sum(1 / float(test["rps"]) for test in tests), "latency_us": latency,
            "processes": usage.of(operations)}


def redis_rates(said):
    """Operations a second, by its tests' names."""
    return {test["test"].lower(): float(test["rps"]) for test in csv.DictReader(said.splitlines())}


def redis_sets(said):
    return {"ops_per_s": redis_rates(said)["set"]}


class RedisUnix(Redis):
    """The same over its Unix socket: what dtrun's ranks use."""
    key, label = "redis-unix", "Redis, Unix"

    def endpoint(self, _, directory):
        return ["-s", f"{directory}/socket"]


class RedisAppend(Redis):
    """Each change is in its file, which is synced, before the answer."""
    key, label = "redis-append", "Redis, appendfsync always"
    workloads = ("durable",)
    options, parent = ["--appendonly", "yes", "--appendfsync", "always"], BUILD


def all_peers(options):
    """In the order of the table."""
    return [kind(options)
            for kind in (Dtrun, DtrunTree, DtrunHere, DtrunDirect, DtrunServe, DtrunState, TcpStore, Redis, RedisUnix, RedisAppend)]
