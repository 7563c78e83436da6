"""A host, and its init: process 1 of the namespaces that make it a host."""
import json
import os
import select
import signal
import socket

from machine import (MNT_DETACH, NEW_CGROUP, NEW_IPC, NEW_NET, NEW_NS, NEW_UTS, PATH, Failure, call,
                     mount, read, run, wait_until, write)

# A full mesh of more floods a busy machine: what is asked and answered gets lost, for seconds, and with
# many more the machine-wide table of neighbours overflows.
DYNAMIC_ARP_MAX = 8
NETWORK = "10.99.0"
USER = "dtuser"
PRIVATE = {"/tmp": "1777", "/run": "755", "/dev/shm": "1777", "/root": "711", "/home": "755"}
HOMES = ("/root", "/home")

SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile /run/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
MaxStartups 200:30:400
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""


class Host:
    """What the supervisor knows about a host, and its init as of the fork."""

    def __init__(self, state, number):
        self.number = number
        self.name = f"s{number}" if number else "head"
        self.address = f"{NETWORK}.{number or 254}"
        self.mac = f"02:64:74:00:00:{number:02x}"
        self.port = f"v{number}"
        self.directory = f"{state}/hosts/{self.name}"
        self.public_key = ""
        self.cgroup = None
        self.pid = 0  # of its init, seen from outside; 0: crashed
        self.channel = None
        self.frozen = False
        self.link = "up"
        self.binds = []

    def file(self, name):
        return f"{self.directory}/{name}"


class Init:
    """Process 1 of a host: makes it look like one, keeps its sshd, reaps orphans, obeys."""

    def __init__(self, supervisor, host, channel):
        self.hosts, self.etc = supervisor.hosts, supervisor.file("etc")
        self.key = supervisor.file("id_ed25519")
        self.shares, self.uid = supervisor.shares, supervisor.uid
        self.host, self.channel = host, channel
        self.log = -1
        self.sshd = 0

    def main(self):
        os.setsid()
        wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        if self.host.cgroup:
            write(f"{self.host.cgroup}/cgroup.procs", "0")
        call("unshare", NEW_NS | NEW_UTS | NEW_IPC | NEW_NET | NEW_CGROUP)
        self.channel.send(b'{"ok": true}')
        while True:
            select.select([self.channel, wake], [], [])
            self.reap(wake)
            try:
                message = self.channel.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            if not message:
                os._exit(0)
            self.channel.send(json.dumps(self.obey(json.loads(message))).encode())

    def reap(self, wake):
        try:
            os.read(wake, 4096)
        except BlockingIOError:
            pass
        try:
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                if pid == self.sshd:
                    self.sshd = 0
        except ChildProcessError:
            pass

    def obey(self, message):
        try:
            getattr(self, message[0])(*message[1:])
            return {"ok": True}
        except (OSError, Failure) as error:
            return {"ok": False, "text": str(error)}

    def boot(self):
        self.log = os.open(self.host.file("sshd.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        call("sethostname", self.host.name.encode(), len(self.host.name))
        self.start_network()
        mount("none", "/", None, "rec,private")
        mount("proc", "/proc", "proc", "nosuid,nodev,noexec")
        mount("sysfs", "/sys", "sysfs", "ro,nosuid,nodev,noexec")
        if self.host.cgroup:
            mount("cgroup2", "/sys/fs/cgroup", "cgroup2", "nosuid,nodev,noexec")
        keys = {path: read(path) for path in (self.key, self.key + ".pub", self.host.file("key"))}
        self.replace_etc(keys)
        self.replace_directories()
        self.fill_home("/root", 0, keys)
        os.mkdir(f"/home/{USER}", 0o755)
        self.fill_home(f"/home/{USER}", self.uid, keys)
        self.start_sshd()

    def start_network(self):
        batch = [f"addr add {self.host.address}/24 brd + dev eth0", "link set lo up",
                 "link set eth0 up"]
        if len(self.hosts) > DYNAMIC_ARP_MAX + 1:
            batch += [f"neigh replace {other.address} lladdr {other.mac} dev eth0 nud permanent"
                      for other in self.hosts if other is not self.host]
        run("ip", "-batch", "-", text="\n".join(batch))

    def replace_etc(self, keys):
        for name in os.listdir(self.etc):
            mount(f"{self.etc}/{name}", f"/etc/{name}", None, "bind")
        mount("tmpfs", "/etc/ssh", "tmpfs", "nosuid,nodev,mode=755")
        write("/etc/ssh/sshd_config", SSHD_CONFIG)
        write("/etc/ssh/ssh_config", "")
        write("/etc/ssh/ssh_host_ed25519_key", keys[self.host.file("key")], 0o600)

    def replace_directories(self):
        shares = [(path, os.open(path, os.O_PATH)) for path in self.shares]
        for directory, mode in PRIVATE.items():
            mount("tmpfs", directory, "tmpfs", f"nosuid,nodev,mode={mode}")
            for path, fd in shares:
                if path.startswith(directory + "/"):
                    os.makedirs(path, exist_ok=True)
                    mount(f"/proc/self/fd/{fd}", path, None, "bind,rec")
        for _, fd in shares:
            os.close(fd)
        os.makedirs("/run/sshd")
        os.makedirs("/run/lock")

    def fill_home(self, home, owner, keys):
        os.chown(home, owner, owner)
        os.mkdir(f"{home}/.ssh", 0o700)
        os.chown(f"{home}/.ssh", owner, owner)
        write(f"{home}/.ssh/authorized_keys", keys[self.key + ".pub"], 0o600, owner)
        if self.host.name == "head":
            known = "".join(f"{h.name},{h.address} {h.public_key}\n" for h in self.hosts)
            write(f"{home}/.ssh/known_hosts", known, 0o600, owner)
            write(f"{home}/.ssh/id_ed25519", keys[self.key], 0o600, owner)

    def start_sshd(self):
        if self.sshd:
            return
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                   (os.POSIX_SPAWN_DUP2, self.log, 1), (os.POSIX_SPAWN_DUP2, self.log, 2)]
        self.sshd = os.posix_spawn("/usr/sbin/sshd", ["/usr/sbin/sshd", "-D", "-e"],
                                   {"PATH": PATH}, file_actions=actions, setsid=True,
                                   setsigdef=range(1, signal.SIGRTMIN), setsigmask=[])
        if not wait_until(lambda: os.path.exists("/run/sshd.pid"), 30):
            raise Failure("sshd does not start")

    def stop_sshd(self):
        if self.sshd:
            os.kill(self.sshd, signal.SIGTERM)
            os.waitpid(self.sshd, 0)
            self.sshd = 0

    def bind(self, source, target):
        mount(source, target, None, "bind,rec")

    def unbind(self, target):
        call("umount2", target.encode(), MNT_DETACH)

    def home(self, size, noexec):
        options = f"remount,nosuid,nodev,size={size or '50%'}" + (",noexec" if noexec else "")
        for home in HOMES:
            mount("tmpfs", home, "tmpfs", options)
