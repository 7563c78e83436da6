"""check_output.py DTRUN: the files to which dtrun writes, on disks that do not answer and beside what others have put there."""
import atexit
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from silent_fs import SilentFs  # noqa: E402
from skip import skip  # noqa: E402

DTRUN = sys.argv[1]
LIMIT_S = 60
PRINTS = "while :; do echo a line; sleep 0.01; done"


def heed_signals():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE):
    started = subprocess.Popen([DTRUN, *words], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True,
                               preexec_fn=heed_signals)
    atexit.register(started.kill)
    return started


def run(*words):
    dtrun = start(*words)
    _, err = dtrun.communicate(timeout=LIMIT_S)
    return dtrun.returncode, err


def wait_until(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def check_named_pipe(folder):
    """A pipe that nobody reads is an error, not a wait."""
    pipe = folder + "/pipe"
    os.mkfifo(pipe)
    for flag in ("--log", "--log-json"):
        code, err = run(flag, pipe, "-np", "1", "true")
        assert (code, err) == (200, f"dtrun: {flag}: {pipe}: nobody reads this pipe\n"), (code, err)


def check_gone_reader():
    """`dtrun help all | head -1` ends as other programs do whose reader has gone."""
    for words in (("help", "all"), ("--version",), ("hosts", "-H", "s[1-9]")):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([DTRUN, *words], stdout=write, stderr=subprocess.PIPE, timeout=LIMIT_S)
        os.close(write)
        assert (done.returncode, done.stderr) == (141, b""), (words, done)


def check_one_signal(folder):
    """One signal is enough, as a batch system sends it, though the agent waits for what is not taken."""
    disk = SilentFs(folder)
    dtrun = start("--log", folder + "/log", "-np", "1", "yes", "a line")
    wait_until(lambda: any(b"a line" in node.bytes for node in list(disk.nodes.values())))
    disk.be_silent()
    wait_until(lambda: waits_in_kernel(dtrun.pid))
    dtrun.send_signal(signal.SIGTERM)
    _, err = dtrun.communicate(timeout=LIMIT_S)
    disk.close()
    assert dtrun.returncode == 143 and "does not answer, " in err, (dtrun.returncode, err)


def check_silent_file(folder, flags, to_stdout=False):
    """Signals end a job whose file does not answer, in the middle of it."""
    disk = SilentFs(folder)
    stdout = open(folder + "/out", "w") if to_stdout else subprocess.DEVNULL
    dtrun = start(*flags, "-np", "1", "sh", "-c", PRINTS, stdout=stdout)
    wait_until(lambda: any(b"a line" in node.bytes or b"rank_started" in node.bytes for node in list(disk.nodes.values())))
    disk.be_silent()
    if "--log-json" not in flags:  # there nothing is written before the end
        wait_until(lambda: waits_in_kernel(dtrun.pid))
    dtrun.send_signal(signal.SIGINT)
    assert dtrun.stderr.readline() == "dtrun: ending the job; Ctrl-C again kills it at once\n"
    dtrun.send_signal(signal.SIGINT)
    _, err = dtrun.communicate(timeout=LIMIT_S)
    disk.close()
    if to_stdout:
        stdout.close()
    assert dtrun.returncode == 130, (flags, dtrun.returncode, err)
    assert "does not answer, " in err and "bytes not written" in err, err


def check_lost_bytes(folder):
    """What a job that has ended well could not write makes it fail."""
    disk = SilentFs(folder)
    ends = folder + ".ends"
    dtrun = start("--log", folder + "/log", "-np", "1", "sh", "-c",
                  f"echo first; until test -e {ends}; do sleep 0.01; done; echo last")
    wait_until(lambda: any(b"first" in node.bytes for node in list(disk.nodes.values())))
    disk.be_silent()
    open(ends, "w").close()
    wait_until(lambda: waits_in_kernel(dtrun.pid) and not has_living_child(dtrun.pid))  # only the file is left
    dtrun.send_signal(signal.SIGINT)
    _, err = dtrun.communicate(timeout=LIMIT_S)
    disk.close()
    assert dtrun.returncode == 210, (dtrun.returncode, err)


def check_silent_at_start(folder):
    """A file that cannot even be opened: the first signal ends dtrun."""
    disk = SilentFs(folder)
    disk.be_silent()
    for flag in ("--log", "--output-dir", "--log-json"):
        dtrun = start(flag, folder + "/new", "-np", "1", "true")
        wait_until(lambda: waits_in_kernel(dtrun.pid))
        dtrun.send_signal(signal.SIGTERM)
        dtrun.communicate(timeout=LIMIT_S)
        assert dtrun.returncode == 143, (flag, dtrun.returncode)
    disk.close()


def check_silent_state(folder):
    """The daemon ends in order although its disk does not answer, and says that it is not in order."""
    disk = SilentFs(folder)
    os.mkdir(folder + "/state", 0o700)
    secret = folder + ".secret"
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(os.urandom(32).hex())
    daemon = start("serve", "--listen", "127.0.0.1:0", "--state", folder + "/state", "--secret-file", secret)
    port = daemon.stderr.readline().split()[-1]
    words = ["--server", f"127.0.0.1:{port}", "--secret-file", secret, "--job", "j"]
    assert run("store", "set", "a", "1", *words) == (0, "")
    disk.be_silent()
    client = start("store", "set", "a", "2", *words)  # it is not answered
    wait_until(lambda: daemon.stderr.readline().endswith("answers wait until it is done\n"))
    assert client.poll() is None
    daemon.send_signal(signal.SIGTERM)
    _, err = daemon.communicate(timeout=LIMIT_S)
    client.kill()
    disk.close()
    assert daemon.returncode == 210, (daemon.returncode, err)
    assert "the disk is full or does not answer: changes of which nobody was told are lost" in err, err


def read_of_process(path):
    """A file of a process, or of a thread, which may just have ended."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def has_living_child(pid):
    children = [child for task in os.listdir(f"/proc/{pid}/task")
                for child in read_of_process(f"/proc/{pid}/task/{task}/children").split()]
    states = [read_of_process(f"/proc/{child}/stat").rpartition(")")[2].split() for child in children]
    return any(state and state[0] != "Z" for state in states)


def waits_in_kernel(pid):
    """Whether a thread of it waits for the file system."""
    return any(read_of_process(f"/proc/{pid}/task/{task}/wchan") == "request_wait_answer"
               for task in os.listdir(f"/proc/{pid}/task"))


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_named_pipe(folder)
    check_gone_reader()
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        skip("only root can mount a file system, by /dev/fuse")
    with tempfile.TemporaryDirectory() as folder:
        disk = folder + "/disk"
        os.mkdir(disk)
        for flag in ("--log", "--output-dir", "--log-json"):
            check_silent_file(disk, (flag, f"{disk}/{flag[2:]}"))
        check_silent_file(disk, (), to_stdout=True)
        check_one_signal(disk)
        check_lost_bytes(disk)
        check_silent_at_start(disk)
        check_silent_state(disk)


main()
