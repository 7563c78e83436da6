"""check_ssh.py DTRUN: log-ins to an sshd of our own. It and its user's home are in namespaces that only this test
sees, with one network interface that leads nowhere."""
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

DTRUN = sys.argv[1]
ADDRESS = "10.97.0.1"
LIMIT_S = 100
SSHD = "/usr/sbin/sshd"


def run(*words, **more):
    return subprocess.run(words, check=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, **more).stdout


def read(path):
    with open(path) as file:
        return file.read()


def write(path, text):
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)


def make_place(home):
    """Network, passwd and keys."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
    run("ip", "address", "add", ADDRESS + "/24", "dev", "d0")
    for name in ("d0", "d1"):
        run("ip", "link", "set", name, "up")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    os.mkdir("/run/sshd", 0o755)
    write(f"{home}/passwd", f"root:x:0:0:root:{home}:/bin/sh\n"
                            "sshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n")
    os.chmod(f"{home}/passwd", 0o644)
    run("mount", "--bind", f"{home}/passwd", "/etc/passwd")
    os.mkdir(f"{home}/.ssh", 0o700)
    os.mkdir(f"{home}/keys", 0o700)
    for kind in ("ed25519", "ecdsa"):
        run("ssh-keygen", "-q", "-t", kind, "-N", "", "-f", f"{home}/keys/{kind}")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{home}/.ssh/id_ed25519")
    write(f"{home}/.ssh/authorized_keys", read(f"{home}/.ssh/id_ed25519.pub"))
    write(f"{home}/sshd_config", f"ListenAddress {ADDRESS}\nHostKey {home}/keys/ed25519\n"
                                 f"HostKey {home}/keys/ecdsa\nUsePAM no\nStrictModes no\n"
                                 "PermitRootLogin yes\nPidFile none\n")


def start_sshd(home):
    sshd = subprocess.Popen([SSHD, "-D", "-e", "-f", f"{home}/sshd_config"],
                            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in sshd.stderr:
        if "listening on" in line:
            return sshd
    raise AssertionError("sshd does not start")


class Home:
    def __init__(self, place):
        self.place = place
        self.known_hosts = f"{place}/.ssh/known_hosts"
        self.environment = {"HOME": place, "PATH": os.environ["PATH"]}

    def key(self, kind):
        return " ".join(read(f"{self.place}/keys/{kind}.pub").split()[:2])

    def dtrun(self, *words, **environment):
        return subprocess.run([DTRUN, "-H", f"root@{ADDRESS}", *words], capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, timeout=LIMIT_S,
                              env={**self.environment, **environment})

    def works(self, *words):
        done = self.dtrun(*words, "--tag", "none", "echo", "here")
        assert (done.returncode, done.stdout) == (0, "here\n"), (done, read(self.known_hosts))

    def refused(self, *texts, words=()):
        before = read(self.known_hosts)
        done = self.dtrun(*words, "true")
        assert done.returncode == 202, done
        assert all(text in done.stderr for text in texts), done.stderr
        assert read(self.known_hosts) == before


def check_host_keys(home):
    ed25519, ecdsa = home.key("ed25519"), home.key("ecdsa")
    accept = ["--accept-new-host-keys"]
    write(home.known_hosts, f"other {ed25519}\n# no end")
    home.refused("its host key is not in known_hosts", "--accept-new-host-keys")
    home.works(*accept)
    lines = read(home.known_hosts).split("\n")
    assert lines[1] == "# no end" and lines[2].startswith(ADDRESS + " ") and lines[3:] == [""], lines
    home.works()
    run("ssh", "-o", "BatchMode=yes", ADDRESS, "true", env=home.environment)

    # The server would rather show its other key.
    write(home.known_hosts, f"{ADDRESS} {ecdsa}\n")
    home.works()
    run("ssh-keygen", "-q", "-H", "-f", home.known_hosts, stderr=subprocess.DEVNULL)
    assert ADDRESS not in read(home.known_hosts)
    home.works()

    write(home.known_hosts, f"10.97.0.* {ed25519}\n@revoked * {ed25519}\n")
    home.refused("@revoked")
    write(home.known_hosts, f"@revoked * {ed25519}\n")
    home.refused("@revoked", words=accept)
    write(home.known_hosts, f"@cert-authority 10.* {ecdsa}\n")
    home.refused("Host key verification failed.")  # ssh, which can check what an authority has signed
    write(home.known_hosts, f"{ADDRESS} {home.key('ecdsa')[:-8]}AAAAAAAA\n")
    home.refused("its host key has changed", f"ssh-keygen -R {ADDRESS}", words=accept)
    write(home.known_hosts, f"{ADDRESS} {ed25519}\n")


def on_terminal(words, environment):
    """Exit status, and what a person would see."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(words[0], words, environment)
    seen = b""
    end = time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < end and select.select([terminal], [], [], LIMIT_S)[0]:
            seen += os.read(terminal, 4096)
    except OSError:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode()
    os.kill(pid, signal.SIGKILL)
    raise AssertionError(f"waits on its terminal: {seen}")


def check_passphrase(home):
    """In PEM form: OpenSSL would ask for the passphrase by itself."""
    for name in ("id_ed25519", "id_ed25519.pub"):
        os.remove(f"{home.place}/.ssh/{name}")
    key = f"{home.place}/.ssh/id_rsa"
    run("ssh-keygen", "-q", "-t", "rsa", "-m", "PEM", "-N", "sesame", "-f", key)
    assert "ENCRYPTED" in read(key)
    write(f"{home.place}/.ssh/authorized_keys", read(key + ".pub"))
    status, seen = on_terminal([DTRUN, "-H", f"root@{ADDRESS}", "true"], home.environment)
    assert status == 202 and "ssh-add" in seen, (status, seen)
    assert "Enter" not in seen, seen

    write(f"{home.place}/ask", "#!/bin/sh\necho sesame\n")
    os.chmod(f"{home.place}/ask", 0o700)
    asked = {**home.environment, "SSH_ASKPASS": f"{home.place}/ask", "SSH_ASKPASS_REQUIRE": "force"}
    script = f"ssh-add -q && exec {DTRUN} -H root@{ADDRESS} --tag none echo here"
    assert run("ssh-agent", "sh", "-c", script, env=asked) == "here\n"


def has_keepalive():
    """Whether a timer of the client's connection to sshd is about keeping it alive (proc(5), tcp)."""
    for line in read("/proc/net/tcp").splitlines()[1:]:
        fields = line.split()
        if fields[2].endswith(":0016") and fields[3] == "01" and fields[5].startswith("02:"):
            return True
    return False


def check_keepalive(home):
    job = subprocess.Popen([DTRUN, "-H", f"root@{ADDRESS}", "sh", "-c", "echo up; exec sleep 1000"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=home.environment)
    try:
        assert b"up" in job.stdout.readline()
        end = time.monotonic() + LIMIT_S
        while not has_keepalive():
            assert time.monotonic() < end, read("/proc/net/tcp")
            time.sleep(0.05)
    finally:
        job.terminate()
        job.wait(LIMIT_S)


def main():
    if "--inside" not in sys.argv:
        if os.geteuid() != 0 or not os.path.exists(SSHD):
            skip("needs root and sshd")
        os.execvp("unshare", ["unshare", "-m", "-n", sys.executable, *sys.argv, "--inside"])
    with tempfile.TemporaryDirectory() as place:
        make_place(place)
        sshd = start_sshd(place)
        try:
            home = Home(place)
            check_host_keys(home)
            check_keepalive(home)
            check_passphrase(home)
        finally:
            sshd.terminate()
            sshd.wait(LIMIT_S)


main()
