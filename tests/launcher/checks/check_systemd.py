"""check_systemd.py DTRUN BUILD: the daemon as systemd starts it, with a socket of its own, readiness and life told, and its
unit as BUILD installs it."""
import os
import signal
import socket
import subprocess
import sys
import tempfile

DTRUN, BUILD = sys.argv[1:]
SECRET = "0123456789abcdef0123456789abcdef\n"


def start(directory, listener, notify_path):
    pid = os.fork()
    if pid:
        return pid
    os.dup2(listener.fileno(), 3)
    os.set_inheritable(3, True)
    os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", NOTIFY_SOCKET=notify_path,
                      WATCHDOG_USEC="400000", WATCHDOG_PID=str(os.getpid()),
                      CREDENTIALS_DIRECTORY=f"{directory}/credentials")
    os.execv(DTRUN, [DTRUN, "serve", "--state", f"{directory}/state",
                     "--secret-file", f"{directory}/credentials/secret"])


def run(directory, abstract):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    name = f"dtrun-test-{os.getpid()}"
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(f"\0{name}" if abstract else f"{directory}/notify")
    notify.settimeout(60)
    pid = start(directory, listener, f"@{name}" if abstract else f"{directory}/notify")
    try:
        assert notify.recv(100) == b"READY=1"
        assert [notify.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        command = [DTRUN, "store", "--help"]
        assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=60).returncode == 0
        for words in (["set", "k", "v"], ["get", "k"]):
            done = subprocess.run([DTRUN, "store", words[0], "--server", f"127.0.0.1:{port}",
                                   "--secret-file", f"{directory}/secret", "--job", "j",
                                   *words[1:]], capture_output=True, timeout=60)
            assert done.returncode == 0, done.stderr
        assert done.stdout == b"v"
        os.kill(pid, signal.SIGTERM)
        told = b"WATCHDOG=1"
        while told == b"WATCHDOG=1":
            told = notify.recv(100)
        assert told == b"STOPPING=1"
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0


def check_unit(directory):
    """The unit starts the dtrun of the prefix into which it was installed."""
    for name in ("opt", "usr"):
        subprocess.run(["cmake", "--install", BUILD, "--prefix", f"{directory}/{name}", "--component", "systemd"],
                       check=True, stdout=subprocess.DEVNULL, timeout=60)
        with open(f"{directory}/{name}/lib/systemd/system/dtrun-serve.service") as file:
            unit = file.read()
        assert f"\nExecStart={directory}/{name}/bin/dtrun serve " in unit, unit
        assert "@" not in unit.replace("@system-service", ""), unit


def write(path, mode):
    with open(path, "w") as file:
        file.write(SECRET)
    os.chmod(path, mode)


def check_modes(directory):
    """Which files are taken for a secret; there is no daemon at that port."""
    def mistake(file, credentials):
        environment = {**os.environ, "CREDENTIALS_DIRECTORY": credentials}
        done = subprocess.run([DTRUN, "store", "ls", "--server", "127.0.0.1:9", "--job", "j",
                               "--secret-file", file], capture_output=True, env=environment, timeout=60)
        assert done.returncode in (200, 201), done
        return b"others can read it; chmod 600" in done.stderr

    file = f"{directory}/credentials/secret"
    assert not mistake(file, "")
    write(file, 0o444)
    assert mistake(file, f"{directory}/credentials")
    write(file, 0o440)
    assert mistake(file, "")
    assert mistake(file, f"{directory}/cred")
    if os.geteuid() == 0:  # only root can give a file to root
        assert not mistake(file, f"{directory}/credentials")


with tempfile.TemporaryDirectory() as place:
    os.mkdir(f"{place}/credentials")
    write(f"{place}/secret", 0o600)
    # As systemd does since version 254, beside an access control list.
    write(f"{place}/credentials/secret", 0o440 if os.geteuid() == 0 else 0o400)
    run(place, abstract=False)
    run(place, abstract=True)
    os.chmod(f"{place}/credentials/secret", 0o600)
    check_modes(place)
    check_unit(place)
