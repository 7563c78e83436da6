"""One job of `./dev bench elastic`: its processes, its worlds, and what happens to its hosts."""
import os
import time

from elastic_hosts import Worlds, kill
from elastic_peers import ENVIRONMENT

READ_EVERY_S = 0.02
END_LIMIT_S = 30


class Job:
    """Starts with hosts `listed`, or all.

    discovers  hosts are those of a file that a script prints
    arguments  of the program, behind the directory
    """

    numbers = 0

    def __init__(self, hosts, launcher, slots=1, listed=None, discovers=False, arguments=()):
        self.hosts, self.launcher, self.slots, self.discovers = hosts, launcher, slots, discovers
        self.listed, self.arguments = list(listed or hosts.names), list(arguments)
        Job.numbers += 1
        self.directory = f"{hosts.scratch}/job{Job.numbers}"
        os.mkdir(self.directory)
        self.output = f"{self.directory}/output"
        self.worlds = Worlds(self.directory)
        self.processes = []
        self.list_hosts(self.listed)
        launcher.start(self)

    def launch(self, host, command, env=None):
        self.processes.append(self.hosts.start(host, command, self.output, {**ENVIRONMENT, **(env or {})}))

    def list_hosts(self, names):
        self.launcher.list_hosts(self, names)

    def is_over(self):
        return all(process.poll() is not None for process in self.processes)

    def wait(self, check, limit_s):
        """Reads what ranks write until check(worlds) holds. :return: whether it does"""
        deadline = time.monotonic() + limit_s
        while True:
            self.worlds.read()
            if check(self.worlds):
                return True
            if time.monotonic() > deadline or self.is_over():
                return False
            time.sleep(READ_EVERY_S)

    def wait_size(self, size, limit_s):
        """Until all of a world of this size have done a step."""
        def is_there(worlds):
            _, now, complete = worlds.newest()
            return now == size and complete
        return self.wait(is_there, limit_s)

    def wait_steps(self, count, limit_s=10):
        goal = self.worlds.last_step() + count
        return self.wait(lambda worlds: worlds.last_step() >= goal, limit_s)

    def ranks(self, host):
        return self.hosts.ranks(host, self.launcher.program)

    def end(self):
        """Has the ranks end by themselves. :return: the worst status, None if they had to be killed"""
        with open(f"{self.directory}/end", "w", encoding="ascii"):
            pass
        deadline = time.monotonic() + END_LIMIT_S
        while not self.is_over() and time.monotonic() < deadline:
            time.sleep(READ_EVERY_S)
        status = max(process.returncode for process in self.processes) if self.is_over() else None
        self.kill()
        return status

    def kill(self):
        """What entered the hosts; what it has become there is found on them."""
        for process in self.processes:
            process.kill()
            process.wait()

    def tail(self, lines=15):
        with open(self.output, encoding="utf-8", errors="replace") as file:
            return "".join(f"    {line}" for line in file.readlines()[-lines:])


class Events:
    """What can happen to the host of a rank. Times are taken just before."""

    def __init__(self, hosts):
        self.hosts = hosts

    def kill_rank(self, job, host, which=0):
        pids = job.ranks(host)
        before = time.monotonic()
        kill(pids[which:which + 1])
        return before if pids else None

    def kill_host(self, _, host):
        """All its processes at once; its kernel tells the others."""
        pids = [pid for _, pid, _ in self.hosts.processes(host)]
        before = time.monotonic()
        kill(pids)
        return before

    def kill_agent(self, _, host):
        pids = self.hosts.agents(host)
        before = time.monotonic()
        kill(pids[:1])
        return before if pids else None

    def cut(self, _, host):
        before = time.monotonic()
        self.hosts.ask("kill-link", host, "--silent")
        return before

    def crash(self, _, host):
        """Power is gone: no packet leaves it, and nobody is told."""
        before = time.monotonic()
        self.hosts.ask("crash", host)
        return before

    def freeze(self, _, host):
        before = time.monotonic()
        self.hosts.ask("freeze", host)
        return before

    def heal(self, host):
        self.hosts.ask("heal-link", host)

    def boot(self, host):
        self.hosts.ask("boot", host)

    def thaw(self, host):
        self.hosts.ask("thaw", host)
