"""check_first.py DTRUN: what somebody meets first: `dtrun demo`, and who waits for others says so."""
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

DTRUN = os.path.abspath(sys.argv[1])
LIMIT_S = 60


def dtrun(*words, **options):
    return subprocess.run([DTRUN, *words], capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=LIMIT_S,
                          check=False, **options)


def check_demo():
    """Works in an empty folder, says who is where, how long it took, and what to type next."""
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as state:
        kept = {**os.environ, "XDG_STATE_HOME": state}
        done = dtrun("demo", cwd=empty, env=kept)
        told = dtrun("jobs", "--all", env=kept)
    assert re.search(r" well  +dtrun demo$", told.stdout, re.M), told
    assert done.returncode == 0 and done.stderr == "", done
    for rank in range(4):
        assert re.search(rf"rank {rank} of 4 runs on \S+: process \d+, \d+ processor", done.stdout), done.stdout
    assert re.search(r"all 4 ranks on 1 host have met, which takes \d+\.\d\d ms; to write a key of the job's store and to "
                     r"read it takes \d+\.\d\d ms", done.stdout), done.stdout
    assert re.search(r"\n  dtrun -np 4 python3? train\.py\n", done.stdout), done.stdout
    assert "\n  dtrun demo -H HOST1:2,HOST2:2\n" in done.stdout, done.stdout
    # What was typed is typed next, too; with --quiet it is the ranks' output alone.
    done = dtrun("demo", "-np", "2", "--tag", "rank")
    assert done.returncode == 0 and re.search(r"\n  dtrun -np 2 --tag rank python3? train\.py\n", done.stdout), done
    done = dtrun("demo", "-np", "70", "--quiet")
    assert done.returncode == 0 and "That was it" not in done.stdout, done
    assert len(re.findall(r"rank \d+ of 70 runs on \S+ with 69 others", done.stdout)) == 1, done.stdout
    for words, text in ((["train.py"], "dtrun: 'train.py': dtrun demo has a program of its own"),
                        (["--max-restarts", "1"], "unknown option --max-restarts; see dtrun demo --help")):
        done = dtrun("demo", *words)
        assert done.returncode == 200 and text in done.stderr, done
    done = dtrun("demo", "-H", "nosuch.invalid:2")
    assert done.returncode == 201 and "That was it" not in done.stdout, done


class Running:
    """A command whose standard error is read as it comes."""

    def __init__(self, *words, env):
        self.process = subprocess.Popen([DTRUN, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def wait_for(self, text):
        until = time.monotonic() + LIMIT_S
        while not any(text in line for line in self.lines):
            assert time.monotonic() < until and (self.process.poll() is None or self.reader.is_alive()), (text, self.lines)
            time.sleep(0.05)
        return next(line for line in self.lines if text in line)

    def end(self):
        status = self.process.wait(LIMIT_S)
        self.reader.join(LIMIT_S)
        return status, self.process.stdout.read(), "".join(self.lines)


def held_port():
    """A port on which nobody listens yet, and the socket that keeps it from tests that run beside: Linux gives a port that
    is bound to nobody else, except to who asks for just that one with SO_REUSEADDR, as dtrun's servers do."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held, held.getsockname()[1]


def check_waiting(place):
    env = {**os.environ, "HOME": place, "XDG_CONFIG_HOME": f"{place}/config"}
    secret = f"{place}/secret"
    with open(secret, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write("0123456789abcdef0123456789abcdef\n")
    held, port = held_port()
    at = f"127.0.0.1:{port}"
    join = ["join", at, "--secret-file", secret, "--job", "t", "--min-np", "2", "--connect-timeout", "50"]
    # In whatever order they are started.
    first = Running(*join, "--", "sh", "-c", "echo here", env=env)
    line = first.wait_for("waiting for dtrun serve at ")
    assert "Connection refused" in line and re.search(r" \(until [\d:]+, --connect-timeout\)$", line), line
    daemon = Running("serve", "--listen", at, "--secret-file", secret, env=env)
    line = first.wait_for("job t: 1 of 2 ranks")
    assert re.fullmatch(r"dtrun: job t: 1 of 2 ranks is there; waiting for 1 more: the same command on another node "
                        r"\(until \d\d:\d\d(:\d\d)?, --start-timeout\)\n", line), line
    quiet = Running(*join, "--quiet", "--", "sh", "-c", "echo here", env=env)
    for member, said in ((first, "dtrun: job t: all are there\n"), (quiet, "")):
        status, out, err = member.end()
        assert status == 0 and out == "here\n" and (said in err if said else err == ""), (status, out, err)
    daemon.process.terminate()
    daemon.end()
    held.close()


def check_torchrun(place):
    """The node that serves says where it is found, and by which secret."""
    env = {**os.environ, "HOME": place, "XDG_CONFIG_HOME": f"{place}/config"}
    held, port = held_port()
    words = ["torchrun", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint",
             f"127.0.0.1:{port}", "--no-python", "sh", "-c"]
    first = Running(*words, "echo node", env=env)
    line = first.wait_for("1 of 2 ranks")
    assert (f"the same command on another node, which finds this one at 127.0.0.1:{port} and needs the secret of "
            f"{place}/config/dtrun/secret (until ") in line and "--start-timeout)" in line, line
    second = Running(*words, "echo node; sleep 3", env=env)
    status, out, err = first.end()
    assert status == 0 and out == "node\n", (status, out, err)
    assert "job none: the ranks of this host have ended; waiting for the others\n" in err, err
    status, out, err = second.end()
    assert status == 0 and out == "node\n" and err == "", (status, out, err)
    held.close()


def main():
    check_demo()
    with tempfile.TemporaryDirectory() as place:
        check_waiting(place)
    with tempfile.TemporaryDirectory() as place:
        check_torchrun(place)


main()
