"""check_reports.py DTRUN: how the end of a job that fails looks on a terminal and elsewhere, and what it says to do."""
import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

DTRUN = sys.argv[1]
LIMIT_S = 60
PYTHON = "/usr/bin/python3"
# Everybody has printed his traceback before the first one ends.
FAILS = """import atexit, glob, os, time
def meet():
    of_all = os.environ["MEETING"] + "/" + os.environ["DTRUN_JOB"] + "."
    open(of_all + os.environ["RANK"], "w").close()
    while len(glob.glob(of_all + "*")) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.02)
    time.sleep(0.5)
atexit.register(meet)
import nosuch
"""
OF_COLORS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM")
MEETING = tempfile.TemporaryDirectory()
ENV = {**{name: value for name, value in os.environ.items() if name not in OF_COLORS}, "MEETING": MEETING.name}


def elsewhere(*words, **env):
    """Exit code, standard error."""
    done = subprocess.run([DTRUN, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=LIMIT_S, env={**ENV, **env}, check=False)
    return done.returncode, done.stderr


def on_terminal(*words, **env):
    """Exit code, lines of the screen with their colours, without what was erased, as the progress of a slow start."""
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    dtrun = subprocess.Popen([DTRUN, *words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                             env={**ENV, "TERM": "xterm", **env})
    os.close(theirs)
    screen = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while piece := os.read(terminal, 1 << 16):
            screen += piece
    os.close(terminal)
    lines = screen.decode().replace("\r\n", "\n").split("\n")
    return dtrun.wait(LIMIT_S), [line.split("\r\x1b[K")[-1] for line in lines]


def check_elsewhere():
    """A pipe gets all lines, and none that means nothing."""
    code, err = elsewhere("-np", "3", PYTHON, "-c", FAILS)
    assert code == 1 and err.count("Traceback (most recent call last):") >= 4, err
    assert "\x1b" not in err and "\n\n" not in err and " above" not in err, err
    assert re.search(r"\n  hint: /usr/bin/python3 on localhost has no nosuch: [^\n]*\n$", err), err
    code, err = elsewhere("-np", "1", "sh", "-c", "printf 'no end' >&2; exit 3")
    assert code == 3 and err.startswith("no end\ndtrun: rank 0 "), err
    code, err = elsewhere("-np", "2", "--color", "always", "sh", "-c", "exit 3")
    assert re.match(r"\x1b\[1;31mdtrun: rank \d on [^\n]*\x1b\[0m\n  it wrote nothing", err), err
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        assert elsewhere("-np", "2", "sh", "-c", "exit 3", **{name: "1"})[1].startswith("\x1b[1;31mdtrun: rank "), name


def check_folded(lines, ranks):
    """Each rank once: most refer to a traceback that stands whole above. Colours have been taken off."""
    whole, named = set(), []
    for line in lines:
        if (begin := re.match(r"\[(\d+)\]<stderr>:Traceback \(most recent", line)) is not None:
            whole.add(int(begin[1]))
        found = re.match(r"\[([\d, -]+)\]<stderr>:Traceback as of rank (\d+) above: ModuleNotFoundError: No", line)
        if found is None:
            continue
        assert int(found[2]) in whole, lines
        for part in found[1].split(", "):
            first, _, last = part.partition("-")
            named += range(int(first), int(last or first) + 1)
    assert sorted([*whole, *named]) == list(range(ranks)) and len(whole) < ranks, lines


def check_terminal():
    """There a report stands apart, and a traceback is shown once."""
    code, screen = on_terminal("-np", "4", PYTHON, "-c", FAILS)
    plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in screen]
    assert code == 1, screen
    check_folded(plain, 4)
    begin = next(i for i, line in enumerate(plain) if line.startswith("dtrun: rank "))
    assert screen[begin].startswith("\x1b[1;31mdtrun: ") and screen[begin].endswith("\x1b[0m"), screen
    assert screen[begin - 1] == "" and screen[begin - 2] != "", screen
    assert plain[begin + 1] == "  last line of its standard error, which stands above:" or \
        plain[begin + 1].startswith("  last 3 lines"), plain
    assert any(line.startswith("  hint: ") for line in plain[begin:]), plain
    for env in ({"NO_COLOR": "1"}, {"CLICOLOR": "0"}, {"TERM": "dumb"}, {"TERM": ""}):
        _, screen = on_terminal("-np", "2", "sh", "-c", "echo out; sleep 0.2; exit 3", **env)
        begin = next(i for i, line in enumerate(screen) if line.startswith("dtrun: rank "))
        assert screen[begin - 1] == "" and screen[begin - 2].endswith("out"), screen
    code, screen = on_terminal("-np", "2", "sh", "-c", "exit 3")
    assert code == 3 and screen[0].startswith("\x1b[1;31mdtrun: rank "), screen


def check_fold():
    """With --fold a traceback is shown once wherever it goes; the log has all of them."""
    with tempfile.TemporaryDirectory() as folder:
        code, err = elsewhere("-np", "4", "--fold", "--log", folder + "/log", PYTHON, "-c", FAILS)
        shown = err.split("\ndtrun: rank")[0].split("\n")
        assert code == 1 and sum(":ModuleNotFoundError" in line for line in shown) < 4, err
        with open(folder + "/log", encoding="utf-8") as log:
            text = log.read()
        assert text.count("stderr] Traceback (most recent call last):") == 4 and " above" not in text, text


def check_hints():
    """What is true of this job, and not what was done already."""
    _, err = elsewhere("-np", "2", PYTHON, "-c", "import horovod.torch")
    assert err.endswith("  hint: dtrun has Horovod's interface itself: add --horovod-shim before /usr/bin/python3\n"), err
    needs_slurm = [PYTHON, "-c", "import os; os.environ['SLURM_PROCID']"]
    _, err = elsewhere("-np", "2", *needs_slurm)
    assert err.endswith("sets SLURM_PROCID (dtrun contracts slurm)\n"), err
    assert elsewhere("-np", "2", "--contract", "slurm", *needs_slurm) == (0, "")
    _, err = elsewhere("-np", "2", PYTHON, "nosuch.py")
    assert f"  hint: there is no {os.getcwd()}/nosuch.py; ranks run in {os.getcwd()}\n" in err, err
    _, err = elsewhere("-np", "1", "sh", "-c", "kill -KILL $$")
    assert "  hint: nobody has told who sent that" in err, err


def check_debugger():
    """Nobody is invited to a debugger that is not there."""
    found = subprocess.run([PYTHON, "-c", "import debugpy"], capture_output=True, check=False)
    if found.returncode == 0:
        return
    done = elsewhere("-np", "2", "--debug-rank", "1:debugpy", PYTHON, "-c", "")
    assert done == (127, f"dtrun: {PYTHON} has no debugpy: {PYTHON} -m pip install debugpy there, or --debug-rank 1:gdb "
                         "(on localhost)\n"), done


def main():
    check_elsewhere()
    check_terminal()
    check_fold()
    check_hints()
    check_debugger()


main()
