"""check_look.py DTRUN: looking into ranks of this machine: wrappers, stacks, attach, terminals, debuggers."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import in_ci  # noqa: E402
from waiting import wait_for  # noqa: E402

DTRUN = os.path.abspath(sys.argv[1])
PYTHON = "/usr/bin/python3"
SECONDS = 60
FOLDER = tempfile.mkdtemp(prefix="dtrun-look-")
# A control socket has to be found in a place of our own, and py-spy may be missing here.
ENV = dict(os.environ, XDG_RUNTIME_DIR=FOLDER)
PY_SPY = """#!/bin/sh
echo 'Thread 1 (idle): "MainThread"'
echo '    rest (look.py:7)'
"""


def dtrun(*words, stdin=""):
    return subprocess.run(
        [DTRUN, *words], capture_output=True, text=True, input=stdin, timeout=60, env=ENV, check=False
    )


@contextlib.contextmanager
def running(*words, stdin=subprocess.DEVNULL):
    """A job that runs; it is ended if it still does."""
    job = subprocess.Popen(
        [DTRUN, *words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV
    )
    try:
        yield job
    finally:
        job.terminate()
        job.communicate(timeout=SECONDS)


def has(*tools):
    """Whether the tools are here, which CI must have."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        print("left out: without", *missing)
        assert not in_ci(), missing
    return not missing


def check_wrap():
    """The wrapped ranks run by the wrapper, with their own macros, and words stay words."""
    done = dtrun(
        "-np", "3", "--tag", "rank", "--wrap", "1-2:env 'WRAPPED=%q{RANK} of {host}'",
        "sh", "-c", 'echo "$WRAPPED:$1"', "sh", "a  'b'",
    )  # fmt: skip
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == [
        "[0] :a  'b'",
        "[1] 1 of localhost:a  'b'",
        "[2] 2 of localhost:a  'b'",
    ], done.stdout
    lacks = dtrun("--wrap", "no-such-perf record", "echo", "started")
    assert lacks.returncode == 127 and lacks.stdout == "", lacks
    assert "no-such-perf: not found on PATH" in lacks.stderr, lacks.stderr
    absent = dtrun("-np", "2", "--wrap", "2:env", "true")
    assert absent.returncode == 200, absent
    assert "--wrap: rank 2 does not exist, the ranks are 0..1" in absent.stderr, absent.stderr
    plan = dtrun("-np", "2", "--plan", "--wrap", "1:env A=1", "true")
    assert "wrapped by: 1:env A=1\n" in plan.stdout, plan.stdout


def sockets():
    folder = FOLDER + "/dtrun"
    return os.listdir(folder) if os.path.isdir(folder) else []


def check_stacks():
    """Equal ranks are one block, by gdb; Python says itself where it is; what is gone is not found."""
    # Jobs of other tests may run beside: each is meant by its own name.
    none = dtrun("stacks", "nothing")
    assert none.returncode == 200 and re.search("no job .* runs here", none.stderr), none
    script = f'echo ready; [ $RANK = 3 ] && exec {PYTHON} -c "import time; time.sleep(60)"; exec sleep 60'
    with running("-np", "4", "--tag", "none", "sh", "-c", script) as job:
        for _ in range(4):
            assert job.stdout.readline() == "ready\n"

        gdb = has("gdb")

        def have_executed():
            found = dtrun("stacks", str(job.pid)).stdout
            is_python = re.search(r"^rank 3 on .*, by faulthandler\n  thread MainThread\n    <module> ", found, re.M)
            return is_python and "ranks 0-2 (3): sleep, by " in found and (not gdb or "nanosleep" in found)

        wait_for(have_executed, "all have executed their programs")
        assert len(sockets()) == 1 and os.stat(FOLDER + "/dtrun").st_mode & 0o777 == 0o700, sockets()
        found = dtrun("stacks", sockets()[0][:8])
        assert found.returncode == 0 and found.stderr == "", found
        tool = "gdb" if gdb else "/proc"
        assert f"ranks 0-2 (3): sleep, by {tool}\n" in found.stdout, found.stdout
        assert re.search(r"^rank 3 on localhost, pid \d+: python3\S*, by faulthandler$", found.stdout, re.M), found.stdout
        assert "  thread MainThread\n    <module> (<string>:1)\n" in found.stdout, found.stdout
        assert "nanosleep" in found.stdout, found.stdout
        # Python catches SIGINT; sleep would die of it, and does not.
        caught = dtrun("stacks", str(job.pid), "--signal", "INT")
        assert caught.stdout.startswith("sent to 1 rank;"), caught
        assert "KeyboardInterrupt" in "".join(iter(job.stderr.readline, "")) + job.stderr.read()
    assert sockets() == [], sockets()


TRAINS = """
import os, time
def load_batch():
    time.sleep(60)
def train_step():
    load_batch() if os.environ["RANK"] == "2" else time.sleep(60)
print("ready", flush=True)
train_step()
"""


def check_python_stacks():
    """Python below a shell and a wrapper is the rank; one that cannot say it is told what to do; a stopped one, too."""
    program = ("sh", "-c", f'{PYTHON} $OPTIONS -c "$1"; true', "sh", TRAINS)
    with running("-np", "4", "--tag", "none", "--wrap", "0:nice", *program) as job:
        for _ in range(4):
            assert job.stdout.readline() == "ready\n"

        def sleep_all():
            shown = dtrun("stacks", str(job.pid)).stdout
            return "ranks 0-1, 3 (3): " in shown and "    train_step" in shown and "    load_batch" in shown

        wait_for(sleep_all, "all sleep")  # a rank is ready a moment before
        begun = time.monotonic()
        found = dtrun("stacks", str(job.pid))
        took = time.monotonic() - begun
        assert found.returncode == 0 and found.stderr == "" and took < 20, (took, found)
        assert re.search(r"^ranks 0-1, 3 \(3\): python3\S*, by faulthandler\n  thread MainThread\n    train_step", found.stdout), found
        assert re.search(r"\nrank 2 on localhost, pid \d+: python3\S*, by faulthandler\n.*\n    load_batch", found.stdout), found
        assert found.stdout.count(", by ") == 2, found.stdout
        pid = int(re.search(r"rank 2 on localhost, pid (\d+)", found.stdout).group(1))
        os.kill(pid, signal.SIGSTOP)
        stopped = dtrun("stacks", str(job.pid)).stdout
        assert f"it is stopped by a signal: `kill -CONT {pid}` lets it go on" in stopped, stopped
        os.kill(pid, signal.SIGCONT)
        if has("gdb"):
            assert ", by gdb\n" in dtrun("stacks", str(job.pid), "--native").stdout
    helped = f'{PYTHON} -c "import time; time.sleep(60)" & echo ready; exec sleep 60'
    with running("-np", "1", "--tag", "none", "sh", "-c", helped) as job:
        assert job.stdout.readline() == "ready\n"

        def have_executed():
            shown = dtrun("stacks", str(job.pid)).stdout
            return re.search(r"pid \d+: sleep, by", shown) and re.search(r"started by it: python3\S*, by faulthandler", shown)

        wait_for(have_executed, "both have executed their programs")
        found = dtrun("stacks", str(job.pid)).stdout
        assert re.search(r"^rank 0 on localhost, pid \d+: sleep, by", found, re.M), found  # its program is no wrapper
        assert re.search(r"^rank 0 on localhost, pid \d+, started by it: python3\S*, by faulthandler", found, re.M), found
    with running("-np", "2", "--tag", "none", "-x", "OPTIONS=-I", *program) as job:
        for _ in range(2):
            assert job.stdout.readline() == "ready\n"
        alike = r"^ranks 0-1 \(2\): python3\S*, by py-spy$"
        wait_for(lambda: re.search(alike, dtrun("stacks", str(job.pid)).stdout, re.M), "both ranks by py-spy, and alike")
    without = dict(ENV, PATH="/usr/bin:/bin")
    if shutil.which("py-spy", path=without["PATH"]) is None:
        job = subprocess.Popen([DTRUN, "-np", "2", "-x", "DTRUN_STACKS=0", "--tag", "none", *program], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=without)  # fmt: skip
        try:
            for _ in range(2):
                assert job.stdout.readline() == "ready\n"
            advice = "ranks 0-1 are Python: for its functions install py-spy on the hosts (pip install py-spy)\n"
            found = dtrun("stacks", str(job.pid)).stdout
            assert found.startswith(advice) and ", by /proc" in found and "gdb" not in found, found
        finally:
            job.terminate()
            job.communicate(timeout=SECONDS)


HANGS = """
import os, time
def waits_for_ever():
    time.sleep(60)
pmi = int(os.environ["PMI_FD"])
os.write(pmi, b"cmd=init pmi_version=1 pmi_subversion=1\\n")
os.read(pmi, 100)
if os.environ["RANK"] == "1":
    waits_for_ever()
os.write(pmi, b"cmd=barrier_in\\n")
os.read(pmi, 100)
"""


def check_hang():
    """The report of a job that --init-timeout ends says where its ranks were; it does not take long."""
    begun = time.monotonic()
    done = dtrun("-np", "2", "--init-timeout", "1", "--contract", "mpi", PYTHON, "-c", HANGS)
    assert done.returncode == 206, done
    assert "(--init-timeout)" in done.stderr and "  where the ranks were then:\n" in done.stderr, done.stderr
    assert "by faulthandler\n" in done.stderr and "      waits_for_ever (<string>:4)\n" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) < 60 and time.monotonic() - begun < 50, done.stderr


def check_attach():
    """Somebody else's terminal sees a rank's output from now on, and types for it; its code is the rank's."""
    script = 'echo up $RANK; while read line; do echo "got $line"; [ "$line" = end ] && exit 7; done; sleep 60'
    with running("-np", "2", "--tag", "none", "sh", "-c", script, stdin=subprocess.PIPE) as job:
        for _ in range(2):
            assert job.stdout.readline().startswith("up ")
        attached = dtrun("attach", str(job.pid), "0", stdin="hello\nend\n")
        assert attached.returncode == 7, attached
        assert attached.stdout == "got hello\ngot end\n", attached
        assert job.stdout.readline() == "got hello\n"
    with running("-np", "1", "sleep", "60") as job:
        wait_for(sockets, "no socket")
        absent = dtrun("attach", str(job.pid), "5")
        assert absent.returncode == 200 and "the job has no rank 5 here" in absent.stderr, absent


class Terminal:
    """dtrun in a terminal of its own."""

    def __init__(self, *words):
        self.text = b""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.update(ENV, PS1="$ ", TERM="xterm")
            # What the terminal is like afterwards is for the parent to see: it keeps it open.
            os.execv("/bin/sh", ["sh", "-c", '"$@"; echo "code $?" $(stty -a | grep -c -- " -icanon")', "sh", DTRUN, *words])
        self.resize(33, 99)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, pattern):
        """Waits for what the terminal shows, which is used up."""
        until = time.monotonic() + SECONDS
        while not re.search(pattern, self.text):
            readable, _, _ = select.select([self.master], [], [], until - time.monotonic())
            assert readable, (pattern, self.text)
            try:
                self.text += os.read(self.master, 4096)
            except OSError:
                raise AssertionError((pattern, self.text)) from None
        found = re.search(pattern, self.text)
        self.text = self.text[found.end() :]
        return found

    def end(self):
        os.close(self.master)
        os.waitpid(self.pid, 0)


def check_terminal():
    """A shell in a rank is as at home: its prompt, its size, Ctrl-C; and the terminal is as before at the end."""
    terminal = Terminal("--pty", "-np", "2", "sh", "-c", "[ $RANK = 1 ] && exec sleep 60; exec bash --norc --noprofile")
    terminal.expect(rb"\$ ")
    terminal.type("tty; stty size\r")
    terminal.expect(rb"/dev/pts/\d+\r\n33 99\r\n")
    terminal.resize(20, 60)
    terminal.type("until stty size | grep '20 60'; do sleep 0.05; done\r")
    terminal.expect(rb"20 60\r\n")
    # Until the program has the terminal, the shell itself takes Ctrl-C, and then waits for the program.
    terminal.type("sh -c 'echo up; exec sleep 100'\r")
    terminal.expect(rb"\rup\r\n")
    terminal.type("\x03")
    terminal.expect(rb"\^C\r\n")
    terminal.type("exit 3\r")
    terminal.expect(rb"code 3 0\r\n")
    terminal.end()


def check_terminal_is_restored():
    """Also after SIGTERM, and after ~. in a program that ignores Ctrl-C."""
    terminal = Terminal("--pty", "-np", "1", "sh", "-c", "trap '' INT; echo ready; sleep 60")
    terminal.expect(rb"ready")
    time.sleep(0.3)
    terminal.type("\r~.")
    terminal.expect(rb"ending the job")
    terminal.expect(rb"code 130 0\r\n")
    terminal.end()
    terminal = Terminal("--pty", "-np", "1", "sh", "-c", "echo ready; sleep 60")
    terminal.expect(rb"ready")
    os.kill(int(subprocess.check_output(["pgrep", "-P", str(terminal.pid)]).split()[0]), signal.SIGTERM)
    terminal.expect(rb"code 143 0\r\n")
    terminal.end()


def check_without_terminal():
    """Where we have none, the rank has one all the same, and the end of input is its end."""
    done = dtrun("--pty", "sh", "-c", "tty && cat", stdin="typed\n")
    assert done.returncode == 0, done
    # Once as the terminal's echo, once by cat; line ends are as text=True makes them.
    assert re.search(r"^/dev/pts/\d+$", done.stdout, re.M) and done.stdout.count("typed\n") == 2, done


def debugger_port(job):
    line = job.stderr.readline()
    found = re.search(r"rank 1 on localhost waits for (gdb|a debugger) at 127\.0\.0\.1:(\d+)", line)
    assert found, line + job.stderr.read()
    return int(found.group(2)), job.stderr.readline()


def check_gdb():
    if not has("gdb", "gdbserver"):
        return
    with running("-np", "2", "--tag", "rank", "--debug-rank", "1", "echo", "done here") as job:
        port, paste = debugger_port(job)
        assert paste == f"  gdb -ex 'target remote 127.0.0.1:{port}' {shutil.which('echo', path=ENV['PATH'])}\n", paste
        assert job.stdout.readline() == "[0] done here\n"
        commands = ["-ex", f"target remote 127.0.0.1:{port}", "-ex", "continue"]
        done = subprocess.run(
            ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", *commands],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False,
        )  # fmt: skip
        assert "exited normally" in done.stdout, done
        assert job.stdout.readline() == "[1] done here\n"
        assert job.wait(timeout=SECONDS) == 0


class Dap:
    """A debugger's half of the Debug Adapter Protocol."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self.stream = self.socket.makefile("rb")
        self.last = 0

    def ask(self, command, **arguments):
        self.last += 1
        text = json.dumps({"seq": self.last, "type": "request", "command": command, "arguments": arguments}).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n" % len(text) + text)

    def expect(self, kind, name):
        while True:
            length = int(self.stream.readline().split(b":")[1])
            self.stream.readline()
            message = json.loads(self.stream.read(length))
            if message["type"] == kind and message.get("event" if kind == "event" else "command") == name:
                return message


def check_debugpy():
    """Also that the others are left alone who wait longer than a hang may take."""
    if subprocess.run([PYTHON, "-c", "import debugpy"], capture_output=True, check=False).returncode != 0:
        print("left out: without debugpy")
        assert not in_ci()
        return
    program = "import os; print('rank', os.environ['RANK'], 'runs', flush=True)"
    with running("-np", "2", "--tag", "none", "--debug-rank", "1", PYTHON, "-u", "-c", program) as job:
        port, paste = debugger_port(job)
        assert json.loads(paste.partition("launch.json: ")[2])["connect"] == {"host": "127.0.0.1", "port": port}, paste
        assert job.stdout.readline() == "rank 0 runs\n"
        debugger = Dap(port)
        debugger.ask("initialize", adapterID="dtrun")
        assert debugger.expect("response", "initialize")["success"]
        debugger.ask("attach", connect={"host": "127.0.0.1", "port": port})
        debugger.expect("event", "initialized")
        debugger.ask("configurationDone")
        assert debugger.expect("response", "configurationDone")["success"]
        assert job.stdout.readline() == "rank 1 runs\n"
        assert job.wait(timeout=SECONDS) == 0


def main():
    if shutil.which("py-spy") is None:
        os.mkdir(FOLDER + "/bin")
        with open(FOLDER + "/bin/py-spy", "w", opener=lambda path, flags: os.open(path, flags, 0o755), encoding="ascii") as file:
            file.write(PY_SPY)
        ENV["PATH"] = FOLDER + "/bin:" + ENV["PATH"]
    try:
        for check in (
            check_wrap, check_stacks, check_python_stacks, check_hang, check_attach, check_without_terminal, check_terminal,
            check_terminal_is_restored, check_gdb, check_debugpy,
        ):  # fmt: skip
            begun = time.monotonic()
            check()
            print(f"{check.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


main()
