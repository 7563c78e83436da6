"""check_endings.py DTRUN: whatever ends dtrun, its exit code says so and nothing that it has started is left."""
import os
import signal
import subprocess
import sys
import time

DTRUN = sys.argv[1]
LIMIT_S = 60
MARK = f"DTRUN_CHECK_ENDINGS={os.getpid()}"


def heed_signals():
    """Whoever runs tests in the background may have SIGINT ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def hear_nothing():
    """As launchers leave what they start: Slurm's and MPI's block SIGCHLD, and some supervisors ignore it."""
    heed_signals()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1})


def start(*words, stdin=subprocess.DEVNULL, before=heed_signals):
    name, value = MARK.split("=")
    return subprocess.Popen([DTRUN, *words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, name: value}, preexec_fn=before)


def wait_until(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def catches(pid, number):
    """Whether a process has a handler for a signal (proc(5), SigCgt)."""
    with open(f"/proc/{pid}/status") as file:
        caught = next(line.split()[1] for line in file if line.startswith("SigCgt"))
    return int(caught, 16) >> (number - 1) & 1


def marked(word):
    """Processes that dtrun has started with this word on their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ") as environment, open(f"/proc/{pid}/cmdline") as words:
                if MARK in environment.read().split("\0") and word in words.read().split("\0"):
                    found.append(int(pid))
        except OSError:
            continue
    return found


def check_early_signal():
    """Before there is a job: a hostfile that does not come."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        dtrun = start("--hostfile", "-", "true", stdin=subprocess.PIPE)
        wait_until(lambda: catches(dtrun.pid, number))
        dtrun.send_signal(number)
        dtrun.wait(LIMIT_S)
        assert dtrun.returncode == 128 + number, dtrun.returncode
        assert dtrun.stderr.read() == f"dtrun: ended by signal {number:d} ({number.name})\n"


def check_wrapper(script, *, ends, code, interrupt=False):
    """`script` stands for a program that leads to a host, and never does."""
    limit = "1" if code == 201 else "50"  # nobody else is to come to the time limit, on a busy machine either
    dtrun = start("--ssh-command", f"sh -c '{script}'", "-H", "n01,n02", "--connect-timeout", limit, "true")
    wait_until(lambda: len(marked(ends)) == 2 or dtrun.poll() is not None)
    if interrupt:
        dtrun.send_signal(signal.SIGINT)
    out, err = dtrun.communicate(timeout=LIMIT_S)
    assert dtrun.returncode == code, (script, dtrun.returncode, out, err)
    wait_until(lambda: not marked(ends))  # the kernel ends it after kill() has returned


def check_deaf_caller():
    """Whatever signals dtrun, or an agent, was started to be deaf to: ends of children are told, and it can be ended."""
    deaf = "sh -c 'exec env --block-signal=CHLD --block-signal=TERM sh -c \"$1\"'"
    gone = "sh -c 'trap \"\" CHLD; exec sh -c \"$1\"'"
    for words in (["sh", "-c", "exit 3"], ["--ssh-command", deaf, "-H", "n01", "sh", "-c", "exit 3"],
                  ["--ssh-command", gone, "-H", "n01", "sh", "-c", "exit 3"]):
        dtrun = start(*words, before=hear_nothing)
        out, err = dtrun.communicate(timeout=LIMIT_S)
        assert dtrun.returncode == 3, (words, dtrun.returncode, out, err)
    dtrun = start("-d", "/nosuch/program", before=hear_nothing)
    out, err = dtrun.communicate(timeout=LIMIT_S)
    assert dtrun.returncode == 127, (dtrun.returncode, out, err)
    dtrun = start("-np", "1", "sh", "-c", "grep -E '^Sig(Blk|Ign)' /proc/self/status; exec sleep 775", before=hear_nothing)
    assert [dtrun.stdout.readline().split()[1] for _ in range(2)] == ["0" * 16] * 2
    dtrun.send_signal(signal.SIGTERM)
    dtrun.communicate(timeout=LIMIT_S)
    assert dtrun.returncode == 143, dtrun.returncode
    wait_until(lambda: not marked("775"))


def check_inner_launcher():
    """Ranks within which another launcher has sent torch to an address where nobody serves it."""
    dtrun = start("-np", "2", "sh", "-c", "MASTER_PORT=24001 sh -c 'trap \"\" INT; echo there; sleep 4; :'; :")
    for _ in range(2):
        assert "there" in dtrun.stdout.readline()
    dtrun.send_signal(signal.SIGINT)
    out, err = dtrun.communicate(timeout=LIMIT_S)
    assert dtrun.returncode == 130, (dtrun.returncode, out, err)
    assert "ranks 0-1: torch's store at " in err and ":24001" in err and "--store rank0" in err, err


# Rank 1 ends by a signal, and rank 0 exits as soon as its connection to it does.
CHAIN = """import os, signal, socket, sys, time
place = "\\0" + os.environ["DTRUN_JOB"]
peer = socket.socket(socket.AF_UNIX)
if os.environ["RANK"] == "0":
    peer.bind(place)
    peer.listen()
    peer = peer.accept()[0]
    peer.send(b"x")
    peer.recv(1)
    os._exit(1)
while peer.connect_ex(place) != 0:
    time.sleep(0.01)
peer.recv(1)
os.kill(os.getpid(), int(sys.argv[1]))
"""


def check_chain():
    """The cause is the rank that was killed, or has crashed, however late it can be waited for."""
    for number in (signal.SIGKILL, signal.SIGSEGV):
        for _ in range(10):
            dtrun = start("-np", "2", "/usr/bin/python3", "-S", "-c", CHAIN, str(int(number)))
            out, err = dtrun.communicate(timeout=LIMIT_S)
            assert dtrun.returncode == 128 + number and "dtrun: rank 1 on " in err, (number, dtrun.returncode, out, err)


def main():
    check_early_signal()
    check_chain()
    check_deaf_caller()
    check_inner_launcher()
    check_wrapper("exec sleep 771", ends="771", code=201)
    check_wrapper("exec sleep 772", ends="772", code=130, interrupt=True)
    check_wrapper("trap \"\" TERM; sleep 773; :", ends="773", code=130, interrupt=True)
    check_wrapper("sleep 774 >&- 2>&- & exit 1", ends="774", code=203)


main()
