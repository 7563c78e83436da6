"""Clean Debian systems: made once, kept in a cache, and entered as often as a test likes.

A root that runs is an overlay over the cached one, whose changes are in memory and in a mount namespace that
ends with the process that made it: nothing is ever mounted, written or left on the machine itself.
"""
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster", "support"))
from host import SSHD_CONFIG  # noqa: E402
from machine import (MNT_DETACH, NEW_IPC, NEW_NET, NEW_NS, NEW_PID, NEW_UTS, PATH, Failure,  # noqa: E402
                     call, can_unshare, die_with_parent, fork, mount, read, run, wait_until, write)

SUITES = ("bullseye", "bookworm", "trixie")
PROXIES = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
MIRROR = os.environ.get("DTRUN_DEBIAN_MIRROR", "http://deb.debian.org/debian")
CACHE = os.environ.get("DTRUN_ROOTS") or os.path.expanduser("~/.cache/dtrun-roots")
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
# Of a test's hosts: what people have who install dtrun, and what its hosts have.
HOST_PACKAGES = ("openssh-server", "python3-venv")
MACHINE_PROGRAMS = ("ip", "mmdebstrap", "nsenter", "pivot_root", "setpriv", "unshare")
_AS_MADE = "1"  # changes when roots are made in another way, so that none is taken that was made before


def missing():
    """What this machine lacks for roots, in words, or None."""
    if os.geteuid() != 0:
        return "needs root"
    for program in MACHINE_PROGRAMS:
        if not shutil.which(program, path=PATH):
            return f"{program} is missing (./dev deps roots)"
    pid = os.fork()
    if pid == 0:
        os._exit(0 if can_unshare() else 1)
    return None if os.waitpid(pid, 0)[1] == 0 else "no right to make namespaces (in a container: --privileged)"


# ---------------------------------------------------------------------------------------------- cache
def make(suite, packages=(), unpacked=None):
    """The folder of a root with these packages and what they depend on, made if it is not in the cache.

    With `unpacked`, the name of a CPU as Debian has it, it has nothing else, and no package's script was run.
    """
    if suite not in SUITES:
        raise Failure(f"no suite '{suite}'; there are {', '.join(SUITES)}")
    kind = [f"--architectures={unpacked}", "--variant=extract"] if unpacked else ["--variant=apt"]
    names = sorted(set(packages))
    words = [_AS_MADE, suite, *names, *(kind if unpacked else [])]
    key = hashlib.sha256(" ".join(words).encode()).hexdigest()[:10]
    folder = f"{CACHE}/{suite}-{key}"
    os.makedirs(f"{CACHE}/mount", exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            _bootstrap(suite, names, folder, kind)
    return folder


def _bootstrap(suite, packages, folder, kind):
    remove(f"{folder}.new")
    # All that is mounted meanwhile is in a namespace of its own, which ends with this process.
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation=private",
               "mmdebstrap", "--mode=root", "--format=directory", *kind,
               "--skip=cleanup/reproducible", "--aptopt=Acquire::Languages \"none\"",
               *([f"--include={','.join(packages)}"] if packages else []), suite, f"{folder}.new", MIRROR]
    with open(f"{folder}.log", "w+", encoding="utf-8") as log:
        done = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False,
                              env={"PATH": PATH, **PROXIES}, preexec_fn=die_with_parent)
        log.seek(0)
        if done.returncode != 0:
            raise Failure(f"{suite} from {MIRROR}: mmdebstrap failed, {folder}.log:\n{log.read()[-3000:]}")
    os.rename(f"{folder}.new", folder)


def remove(folder):
    """Removes a folder of the cache, and nothing that is mounted below it."""
    if any(line.split()[1].startswith(folder) for line in read("/proc/mounts").splitlines()):
        raise Failure(f"something is mounted below {folder}; it is left as it is")
    run("rm", "-rf", "--one-file-system", folder)


# ---------------------------------------------------------------------------------------------- roots
class Root:
    """A root that runs: process 1 of its own namespaces. It ends with close(), and with this process.

    name  its host name
    net   a network namespace: None for a new one with nothing but lo, "host" for the machine's, or the path of one
    binds {folder there: folder of the machine}, to be read
    shares the same, also to be written
    """
    namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid")

    def __init__(self, suite, packages=HOST_PACKAGES, name="fresh", net=None, binds=None, shares=None):
        self.suite, self.name, self.net = suite, name, net
        self.binds, self.shares = binds or {}, shares or {}
        self.lower = self._made(suite, packages)
        self.environment = {"PATH": PATH, "HOME": "/root", "USER": "root", "LOGNAME": "root", "LANG": "C.UTF-8",
                            "TERM": "dumb"}
        ready, done = os.pipe()
        here = os.open("/proc/self/ns/pid", os.O_RDONLY)
        call("unshare", NEW_PID)
        try:
            self.pid = fork(lambda: self._init(done), done)
        finally:
            call("setns", here, NEW_PID)
            os.close(here)
            os.close(done)
        with os.fdopen(ready, encoding="utf-8") as answer:
            if (text := answer.read()) != "up":
                self.close()
                raise Failure(f"{suite}: {text or 'its first process ended'}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    @staticmethod
    def _made(suite, packages):
        return make(suite, packages)

    # ---- within
    def _init(self, done):
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            os.umask(0o022)
            self._move_in()
            os.write(done, b"up")
        except (OSError, Failure) as error:
            os.write(done, str(error).encode())
            os._exit(1)
        os.close(done)
        while True:
            signal.sigwait({signal.SIGCHLD})
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0] != 0:
                    pass

    def _move_in(self):
        self._enter_network()
        call("unshare", NEW_NS | NEW_UTS | NEW_IPC)
        call("sethostname", self.name.encode(), len(self.name))
        mount("none", "/", None, "rec,private")
        self._mount_tree()

    def _enter_network(self):
        if self.net is None:
            call("unshare", NEW_NET)
            run("ip", "link", "set", "lo", "up")
        elif self.net != "host":
            fd = os.open(self.net, os.O_RDONLY)
            call("setns", fd, NEW_NET)
            os.close(fd)

    def _mount_tree(self):
        """Becomes at home in the root, before anything is written: no link of it leads out into the machine."""
        stage = f"{CACHE}/mount"  # an empty folder of the cache
        etc = {"hosts": f"127.0.0.1 localhost {self.name}\n"}
        if self.net == "host":
            etc = {name: read(f"/etc/{name}") for name in ("hosts", "resolv.conf")}
        sources = {target: os.open(source, os.O_PATH) for target, source in {**self.binds, **self.shares}.items()}
        mount("tmpfs", stage, "tmpfs", "mode=755")
        os.chdir(stage)
        for name in ("upper", "work", "root"):
            os.mkdir(name)
        mount("overlay", "root", "overlay", f"lowerdir={self.lower},upperdir=upper,workdir=work")
        os.chdir("root")
        run("pivot_root", ".", ".")  # "." is now the machine's tree, over ours
        mount("proc", "/proc", "proc", "nosuid,nodev,noexec")
        mount("sysfs", "/sys", "sysfs", "ro,nosuid,nodev,noexec")
        mount("tmpfs", "/run", "tmpfs", "nosuid,nodev,mode=755")
        mount("tmpfs", "/tmp", "tmpfs", "nosuid,nodev,mode=1777")
        for target, source in sources.items():
            os.makedirs(target, exist_ok=True)
            mount(f"/proc/self/fd/{source}", target, None, "bind")
            if target in self.binds:
                mount("none", target, None, "bind,remount,ro")
            os.close(source)
        call("umount2", b".", MNT_DETACH)
        os.chdir("/")
        self._make_devices()
        for name, text in etc.items():
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"/etc/{name}")
            write(f"/etc/{name}", text)

    @staticmethod
    def _make_devices():
        """The few that programs need, as nodes of the root's own: what becomes of them changes none of the machine's."""
        mount("tmpfs", "/dev", "tmpfs", "nosuid,noexec,mode=755")
        for name, (major, minor) in DEVICES.items():
            os.mknod(f"/dev/{name}", 0o20666, os.makedev(major, minor))
            os.chmod(f"/dev/{name}", 0o666)
        for name in ("pts", "shm"):
            os.mkdir(f"/dev/{name}")
        mount("devpts", "/dev/pts", "devpts", "nosuid,noexec,newinstance,mode=620,ptmxmode=666,gid=5")
        mount("tmpfs", "/dev/shm", "tmpfs", "nosuid,nodev,mode=1777")
        for name, target in {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
                             "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}.items():
            os.symlink(target, f"/dev/{name}")

    # ---- from outside
    def command(self, words, user="root", folder=None, environment=None):
        """What to start on the machine, and with which environment, for `words` to run in the root."""
        values = {**self.environment, **(environment or {})}
        identity = []
        if user != "root":
            home = f"/home/{user}"
            values = {**self.environment, "HOME": home, "USER": user, "LOGNAME": user, **(environment or {})}
            identity = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        enter = ["nsenter", f"--target={self.pid}", *self.namespaces, "--",
                 *identity, "/bin/sh", "-c", 'cd "$0" && exec "$@"', folder or values["HOME"], *words]
        return enter, values

    def start(self, *words, user="root", folder=None, environment=None, **options):
        enter, values = self.command(words, user, folder, environment)
        return subprocess.Popen(enter, env=values, text=True, **options)

    def run(self, *words, user="root", folder=None, environment=None, code=0, text=None, seconds=300):
        """What the command printed, both streams in one. AssertionError: its status is another than `code`."""
        enter, values = self.command(words, user, folder, environment)
        done = subprocess.run(enter, env=values, input=text or "", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False)
        assert code is None or done.returncode == code, \
            f"{self.name} ({self.suite}): {' '.join(words)}: status {done.returncode}, not {code}:\n{done.stdout}"
        return done.stdout

    def shell(self, script, **options):
        return self.run("/bin/bash", "-euo", "pipefail", "-c", script, **options)

    def write(self, path, text, mode="644", user="root"):
        self.run("/bin/sh", "-c", 'umask 077; cat >"$0" && chmod "$1" "$0"', path, mode, text=text, user=user)

    def files(self, *folders, but="none"):
        """Paths below the folders, on the root's own file system, less those of a kind (find's -type)."""
        kinds = [] if but == "none" else ["!", "-type", but]
        return set(self.run("find", *(folders or ("/",)), "-xdev", "-mindepth", "1", *kinds).splitlines())

    def add_user(self, name):
        """One whom sshd lets in: a password that is locked would not do."""
        self.run("useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", name)


# ---------------------------------------------------------------------------------------------- hosts
def connect(first, second):
    """Puts a cable between two roots, and each other's name into their /etc/hosts."""
    addresses = {first: "10.98.0.1", second: "10.98.0.2"}
    run("ip", "link", "add", "eth0", "netns", str(first.pid), "type", "veth", "peer", "name", "eth0",
        "netns", str(second.pid))
    names = "".join(f"{address} {root.name}\n" for root, address in addresses.items())
    for root, address in addresses.items():
        run("nsenter", f"--net=/proc/{root.pid}/ns/net", "ip", "-batch", "-",
            text=f"addr add {address}/24 dev eth0\nlink set eth0 up\n")
        root.write("/etc/hosts", f"127.0.0.1 localhost\n{names}")


def let_in(first, second, user="root"):
    """Starts an sshd in `second` that lets the user of `first` in, without a question."""
    home = "/root" if user == "root" else f"/home/{user}"
    first.shell(f"mkdir -pm 700 {home}/.ssh; ssh-keygen -qt ed25519 -N '' -f {home}/.ssh/id_ed25519", user=user)
    second.run("mkdir", "-pm", "700", f"{home}/.ssh", user=user)
    second.write(f"{home}/.ssh/authorized_keys", first.run("cat", f"{home}/.ssh/id_ed25519.pub"), "600", user)
    second.write("/etc/ssh/sshd_config", SSHD_CONFIG)
    second.shell("ssh-keygen -qA; mkdir -p /run/sshd; /usr/sbin/sshd")
    if not wait_until(lambda: second.run("cat", "/run/sshd.pid", code=None).strip().isdigit(), 30):
        raise Failure(f"{second.name}: sshd does not start")
    key = second.run("cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()
    first.write(f"{home}/.ssh/known_hosts", f"{second.name} {key[0]} {key[1]}\n", "600", user)
