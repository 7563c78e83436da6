"""The process that makes the hosts, is their parent and carries out commands."""
import inspect
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import traceback

from host import USER, Host, Init
from machine import (NEW_NET, NEW_NS, NEW_PID, PATH, Failure, call, fork, mount, read, run,
                     try_kill, wait_until, write)

DAEMONS = ("munged", "slurmctld", "slurmscriptd", "slurmd")  # of slurm.py; also in processes.cpp


def cgroup_base():
    """Our own cgroup v2 directory if children can be made in it, else None."""
    try:
        own = next(l[3:] for l in read("/proc/self/cgroup").splitlines() if l.startswith("0::"))
        point = next(f[1] for f in map(str.split, read("/proc/mounts").splitlines())
                     if f[2] == "cgroup2")
        base = os.path.normpath(point + own)
        return base if os.access(base, os.W_OK) else None
    except (StopIteration, OSError):
        return None


def scheduler_base():
    """Our own directory among the cgroups of processors (v1) if children can be made in it, else None."""
    try:
        own = next(f[2] for f in (l.split(":") for l in read("/proc/self/cgroup").splitlines())
                   if "cpu" in f[1].split(","))
        point = next(f[1] for f in map(str.split, read("/proc/mounts").splitlines())
                     if f[2] == "cgroup" and "cpu" in f[3].split(","))
        base = os.path.normpath(point + own)
        return base if os.access(base, os.W_OK) else None
    except (StopIteration, OSError):
        return None


def remove_cgroup(path):
    for directory, _, _ in os.walk(path, topdown=False):
        wait_until(lambda d=directory: not os.path.isdir(d) or try_rmdir(d), 5)


def try_rmdir(path):
    try:
        os.rmdir(path)
        return True
    except OSError:
        return False


class Supervisor:
    """Parent of all inits; its death is theirs. Serves the commands one at a time."""

    def __init__(self, state, count, shares):
        self.state = state
        self.hosts = [Host(state, number) for number in range(count + 1)]
        self.shares = sorted({os.path.realpath(path) for path in [f"{state}/scratch", *shares]})
        self.switch = 0
        self.uid = 0
        self.cgroup = None
        self.scheduler_group = None

    def file(self, name):
        return f"{self.state}/{name}"

    def up(self):
        for name in ("etc", "hosts", "scratch"):
            os.mkdir(self.file(name))
        os.chmod(self.file("scratch"), 0o1777)
        for host in self.hosts:
            os.mkdir(host.directory)
        self.make_keys()
        self.make_etc()
        base = cgroup_base()
        if base:
            self.cgroup = f"{base}/dtrun-cluster-{os.getpid()}"
            write(self.file("cgroup"), self.cgroup)
            os.mkdir(self.cgroup)
        self.share_processors()
        self.start_switch()
        self.boot_hosts(self.hosts)

    def share_processors(self):
        """One group of the scheduler for all that runs on hosts. Else Linux shares processors out by
        session: an agent, or a head, that wakes up apart from the ranks waits for seconds behind those of
        all hosts."""
        if base := scheduler_base():
            self.scheduler_group = f"{base}/dtrun-cluster-{os.getpid()}"
            write(self.file("scheduler_group"), self.scheduler_group)
            os.mkdir(self.scheduler_group)
            write(f"{self.scheduler_group}/cgroup.procs", "0")

    def make_keys(self):
        targets = [self.file("id_ed25519")] + [host.file("key") for host in self.hosts]
        started = [subprocess.Popen(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "cluster",
                                     "-f", target], env={"PATH": PATH}) for target in targets]
        if any([process.wait() != 0 for process in started]):
            raise Failure("ssh-keygen failed")
        for host in self.hosts:
            host.public_key = " ".join(read(host.file("key.pub")).split()[:2])

    def make_etc(self):
        """The files of /etc that hosts see instead of the machine's."""
        passwd = [l for l in read("/etc/passwd").splitlines() if not l.startswith(("root:", USER))]
        group = [l for l in read("/etc/group").splitlines() if not l.startswith(USER)]
        taken = {int(l.split(":")[2]) for l in passwd + group}
        self.uid = next(uid for uid in range(7001, 60000) if uid not in taken)
        passwd += ["root:x:0:0:root:/root:/bin/bash",
                   f"{USER}:x:{self.uid}:{self.uid}::/home/{USER}:/bin/bash"]
        group += [f"{USER}:x:{self.uid}:"]
        names = [line.split(":")[0] for line in passwd]
        etc = {
            "passwd": passwd,
            "group": group,
            "shadow": [f"{name}:*:19000:0:99999:7:::" for name in names],
            "hosts": ["127.0.0.1 localhost"] +
                     [f"{h.address} {h.name} {h.name}.cluster.local" for h in self.hosts],
            "nsswitch.conf": [f"{database}: files" for database in
                              ("passwd", "group", "shadow", "hosts", "services", "protocols")],
        }
        for name, lines in etc.items():
            mode = 0o600 if name == "shadow" else 0o644
            write(self.file(f"etc/{name}"), "\n".join(lines) + "\n", mode)

    def start_switch(self):
        """A process that does nothing but hold the network namespace with the bridge in it."""
        ready, done = os.pipe()

        def hold():
            call("unshare", NEW_NET | NEW_NS)
            mount("none", "/", None, "rec,private")
            mount("sysfs", "/sys", "sysfs", "ro")
            os.write(done, b".")
            os.close(done)
            while True:
                signal.pause()

        self.switch = fork(hold, done)
        os.close(done)
        if not os.read(ready, 1):
            raise Failure("no network namespaces here")
        os.close(ready)
        self.on_switch("link add br0 type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
                       "link set br0 addrgenmode none", "link set br0 up")

    def on_switch(self, *lines):
        run("nsenter", f"--net=/proc/{self.switch}/ns/net", "ip", "-batch", "-",
            text="\n".join(lines))

    def wait_forwarding(self, host):
        state = f"/proc/{self.switch}/root/sys/class/net/{host.port}/brport/state"
        if not wait_until(lambda: read(state).strip() == "3", 10):
            raise Failure(f"the link of {host.name} does not come up")

    def boot_hosts(self, hosts):
        for host in hosts:
            self.fork_init(host)
        for host in hosts:
            self.answer(host)
        lines = []
        for host in hosts:
            lines += [f"link add {host.port} type veth peer name eth0 address {host.mac} "
                      f"netns {host.pid}",
                      f"link set {host.port} addrgenmode none",
                      f"link set {host.port} master br0 up"]
        self.on_switch(*lines)
        for host in hosts:
            host.channel.send(b'["boot"]')
        for host in hosts:
            self.answer(host)
            self.wait_forwarding(host)
            host.link, host.frozen, host.binds = "up", False, []
            write(host.file("pid"), str(host.pid))

    def fork_init(self, host):
        if self.cgroup:
            host.cgroup = f"{self.cgroup}/{host.name}"
            os.makedirs(host.cgroup, exist_ok=True)
        cgroups = [path for path in (host.cgroup, self.scheduler_group) if path]
        write(host.file("cgroups"), "".join(f"{path}\n" for path in cgroups))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = os.open("/proc/self/ns/pid", os.O_RDONLY)
        call("unshare", NEW_PID)

        def init():
            Init(self, host, theirs).main()

        host.pid = fork(init, theirs.fileno())
        call("setns", here, NEW_PID)
        os.close(here)
        theirs.close()
        host.channel = ours

    def answer(self, host, seconds=60):
        host.channel.settimeout(seconds)
        try:
            reply = json.loads(host.channel.recv(1 << 16) or '{"ok": false, "text": "it died"}')
        except (OSError, ValueError) as error:
            raise Failure(f"{host.name}: no answer from its init: {error}") from error
        if not reply["ok"]:
            raise Failure(f"{host.name}: {reply['text']}")

    def ask(self, host, *message):
        if host.frozen:
            raise Failure(f"{host.name} is frozen")
        host.channel.send(json.dumps(message).encode())
        self.answer(host)

    # ---- processes
    def processes(self, hosts, daemons=False):
        """[host, pid, pid inside, command] of all but init, zombies, the listening sshd and what
        keeps Slurm up."""
        spaces = {os.readlink(f"/proc/{h.pid}/ns/pid"): h for h in hosts if h.pid}
        listening = {h: self.sshd_pid(h) for h in hosts if h.pid}
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                host = spaces.get(os.readlink(f"/proc/{pid}/ns/pid"))
                if host is None or int(pid) == host.pid:
                    continue
                status = dict(l.split(":", 1) for l in read(f"/proc/{pid}/status").splitlines())
                inside = int(status["NSpid"].split()[-1])
                name = status["Name"].strip()
                if status["State"].split()[0] in "ZX":
                    continue
                if daemons or (inside != listening[host] and name not in DAEMONS):
                    command = " ".join(read(f"/proc/{pid}/cmdline").replace("\0", " ").split())
                    found.append([host, int(pid), inside, command or name])
            except (OSError, ValueError):
                continue  # it ended meanwhile
        return found

    def sshd_pid(self, host):
        try:
            return int(read(f"/proc/{host.pid}/root/run/sshd.pid"))
        except (OSError, ValueError):
            return 0

    def do_ps(self, *names):
        hosts = [self.host(name) for name in names] or self.hosts
        lines = [f"{h.name}\t{pid}\t{inside}\t{command}"
                 for h, pid, inside, command in self.processes(hosts)]
        return "\n".join(lines)

    def kill_all(self):
        def none_left():
            left = self.processes(self.hosts)
            for _, pid, _, _ in left:
                try_kill(pid, signal.SIGKILL)
            return not left
        if not wait_until(none_left, 20):
            raise Failure("some processes do not die:\n" + self.do_ps())

    # ---- commands
    def host(self, name):
        for host in self.hosts:
            if host.name == name:
                return host
        raise Failure(f"no host '{name}'; there are head and s1..s{len(self.hosts) - 1}")

    def running(self, name):
        host = self.host(name)
        if not host.pid:
            raise Failure(f"{name} is crashed")
        return host

    def do_kill_link(self, name, silent=""):
        host = self.running(name)
        if silent not in ("", "--silent"):
            raise Failure(f"kill-link: what is '{silent}'?")
        self.on_switch(f"link set {host.port} {'nomaster' if silent else 'down'}")
        host.link = "silent" if silent else "down"

    def do_heal_link(self, name):
        host = self.running(name)
        self.on_switch(f"link set {host.port} master br0 up")
        self.wait_forwarding(host)
        host.link = "up"

    def do_sshd(self, name, what):
        if what not in ("start", "stop"):
            raise Failure("sshd: start or stop?")
        self.ask(self.running(name), f"{what}_sshd")

    def do_crash(self, name):
        host = self.running(name)
        self.on_switch(f"link del {host.port}")
        os.kill(host.pid, signal.SIGKILL)
        self.do_thaw(name)
        os.waitpid(host.pid, 0)
        host.pid = 0
        host.channel.close()
        host.link = "gone"
        os.remove(host.file("pid"))

    def do_boot(self, name):
        host = self.host(name)
        if host.pid:
            raise Failure(f"{name} is running")
        self.boot_hosts([host])

    def do_freeze(self, name):
        host = self.running(name)
        if host.cgroup:
            write(f"{host.cgroup}/cgroup.freeze", "1")
            wait_until(lambda: "frozen 1" in read(f"{host.cgroup}/cgroup.events"), 10)
        else:
            self.signal_all(host, signal.SIGSTOP)
        host.frozen = True

    def do_thaw(self, name):
        host = self.host(name)
        if host.frozen and host.cgroup:
            write(f"{host.cgroup}/cgroup.freeze", "0")
        elif host.frozen:
            self.signal_all(host, signal.SIGCONT)
        host.frozen = False

    def signal_all(self, host, number):
        known = set()
        while True:  # until nothing was forked meanwhile
            pids = {pid for _, pid, _, _ in self.processes([host], daemons=True)} | {host.pid}
            for pid in pids - known:
                try_kill(pid, number)
            if pids <= known:
                return
            known |= pids

    def do_bind(self, name, source, target):
        host = self.running(name)
        self.ask(host, "bind", source, target)
        host.binds.append(target)

    def do_unbind(self, name, target):
        host = self.running(name)
        self.ask(host, "unbind", target)
        host.binds.remove(target)

    def do_home(self, name, *limits):
        size = next((l[5:] for l in limits if l.startswith("size=")), None)
        if any(l != "noexec" and not l.startswith("size=") for l in limits):
            raise Failure("home: size=SIZE, noexec or nothing")
        self.ask(self.running(name), "home", size, "noexec" in limits)

    def do_reset(self):
        for host in self.hosts:
            self.do_thaw(host.name)
        self.kill_all()
        for host in self.hosts:
            if not host.pid:
                self.do_boot(host.name)
            if host.link != "up":
                self.do_heal_link(host.name)
            for target in reversed(host.binds[:]):
                self.do_unbind(host.name, target)
            self.ask(host, "start_sshd")
            self.do_home(host.name)

    def do_status(self):
        return "\n".join(f"{h.name}\t{h.address}\t"
                         f"{'crashed' if not h.pid else 'frozen' if h.frozen else 'running'}\t"
                         f"link {h.link}\tpid {h.pid}" for h in self.hosts)

    # ---- life
    def serve(self, listener, owner):
        """Until `down`, SIGTERM, or until the owner is gone."""
        watched = [listener] + ([owner] if owner is not None else [])
        while True:
            ready, _, _ = select.select(watched, [], [])
            if owner in ready:
                return None
            connection, _ = listener.accept()
            connection.settimeout(10)
            try:
                name, *arguments = json.loads(connection.makefile().readline())
                if name == "down":
                    return connection
                reply = self.handle(name, arguments)
                connection.sendall(json.dumps(reply).encode())
            except (OSError, ValueError) as error:
                print("client:", error, file=sys.stderr, flush=True)
            connection.close()

    def handle(self, name, arguments):
        command = getattr(self, "do_" + name.replace("-", "_"), None)
        try:
            inspect.signature(command).bind(*arguments)
        except TypeError:
            return {"ok": False, "text": f"what is '{' '.join([name, *arguments])}'? See --help"}
        try:
            return {"ok": True, "text": command(*arguments) or ""}
        except Exception as error:  # pylint: disable=broad-except
            traceback.print_exc()
            return {"ok": False, "text": str(error)}

    def down(self):
        children = [host.pid for host in self.hosts if host.pid] + [self.switch] * bool(self.switch)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            wait_until(lambda p=pid: os.waitpid(p, os.WNOHANG)[0] != 0, 10)
        remove_state(self.state)


def remove_state(state):
    if os.path.exists(f"{state}/scheduler_group"):
        group = read(f"{state}/scheduler_group")
        write(f"{os.path.dirname(group)}/cgroup.procs", "0")  # in case that we are in it
        remove_cgroup(group)
    if os.path.exists(f"{state}/cgroup"):
        remove_cgroup(read(f"{state}/cgroup"))
    shutil.rmtree(state, ignore_errors=True)
