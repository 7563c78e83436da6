"""check_detach.py DTRUN: jobs that outlive their terminal: -d, logs, attach, records of all jobs, names, --again."""

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from waiting import wait_for  # noqa: E402

DTRUN = os.path.abspath(sys.argv[1])
SECONDS = 60
FOLDER = tempfile.mkdtemp(prefix="dtrun-detach-")
STATE = os.path.join(FOLDER, "state")
RECORDS = os.path.join(STATE, "dtrun/jobs")
# Other jobs of this user may run here, and hold names.
TRAIN, ONE = f"train-{os.getpid()}", f"one-{os.getpid()}"
ENV = dict(os.environ, XDG_RUNTIME_DIR=FOLDER, XDG_STATE_HOME=STATE, HOME=FOLDER)
ENV.pop("DTRUN_OPTIONS", None)
# A job that does not start.
SLOW = ["--ssh-command", "sh -c 'sleep 60'", "-H", "192.0.2.1:1", "--connect-timeout", "50", "true"]


def path(name):
    return os.path.join(FOLDER, name)


def dtrun(*words, env=ENV, **options):
    return subprocess.run(
        [DTRUN, *words], capture_output=True, text=True, timeout=SECONDS, check=False, env=env,
        **{"stdin": subprocess.DEVNULL, **options}
    )


@contextlib.contextmanager
def detached(*words, **options):
    """A job that runs on; it is ended if it still does. Yields its id."""
    started = dtrun("-d", *words, **options)
    assert started.returncode == 0 and re.fullmatch(r"[0-9a-f]{32}\n", started.stdout), started
    job = started.stdout.strip()
    try:
        yield job
    finally:
        dtrun("end", "--now", job)


def first_line(stream):
    """Takes no more than that, unlike readline(): communicate() knows nothing of what that has kept."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(stream.fileno(), 1)
        assert byte, line
        line += byte
    return line.decode()


def records():
    return json.loads(dtrun("jobs", "--all", "--json").stdout)["records"]


def record(job, env=ENV):
    found = dtrun("jobs", "--all", job, "--json", env=env)
    assert found.returncode == 0, found
    return json.loads(found.stdout)


def ended(job):
    return wait_for(lambda: record(job)["state"] == "ended" and record(job), "the end")


def pid_of(job):
    return record(job)["dtrun"]["pid"]


def check_start():
    """The id comes on standard output, the hint on standard error, and nothing of the caller is held."""
    program = ["sh", "-c", f"echo out $RANK; echo err $RANK >&2; until [ -e {path('go')} ]; do sleep 0.05; done; exit $RANK"]
    started = dtrun("-d", "-np", "2", "--name", TRAIN, *program, stdin=subprocess.PIPE)
    job = started.stdout.strip()
    assert started.returncode == 0 and re.fullmatch(r"[0-9a-f]{32}", job), started
    assert started.stderr == (
        f"dtrun: the job runs on without this terminal; its output: dtrun attach {TRAIN}; its end: dtrun end {TRAIN}\n"
    ), started
    pid = pid_of(job)
    assert os.getsid(pid) == pid and os.path.realpath(f"/proc/{pid}/fd/0") == "/dev/null", pid
    for stream in (1, 2):
        assert os.readlink(f"/proc/{pid}/fd/{stream}") == "/dev/null", stream
    assert not os.path.exists(path("dtrun")), "its socket goes away with the session"
    assert re.search(rf"^{job[:12]} +{pid} running .* {TRAIN}: sh$", dtrun("jobs").stdout, re.M), dtrun("jobs")
    # Two look at once, one of them from the begin.
    wait_for(lambda: dtrun("logs", TRAIN).stdout.count(":out") == 2, "output of both")
    first, second = (
        subprocess.Popen([DTRUN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)
        for words in (("attach", TRAIN), ("logs", "-f", job[:6], "1"))
    )
    begun = [first_line(first.stderr), first_line(second.stdout)]
    with open(path("go"), "w", encoding="utf-8"):
        pass
    out, err = first.communicate(timeout=SECONDS)
    assert sorted(out.splitlines()) == ["[0]<stdout>:out 0", "[1]<stdout>:out 1"], out
    err = begun[0] + err
    assert err.startswith(f"dtrun: job {TRAIN}; Ctrl-C leaves it running, dtrun end {TRAIN} ends it\n"), err
    assert "[1]<stderr>:err 1\n" in err and "dtrun: rank 1 " in err and first.returncode == 1, (err, first.returncode)
    out, err = second.communicate(timeout=SECONDS)
    out = begun[1] + out
    assert (out, err, second.returncode) == ("out 1\n", "err 1\n", 0), (out, err)
    known = ended(job)
    assert (known["exit_code"], known["cause"], known["name"]) == (1, "rank_failed", TRAIN), known
    assert "rank 1" in known["report"], known
    # The same when it has ended, as often as one likes.
    again = dtrun("attach", job)
    assert again.returncode == 1 and sorted(again.stdout.splitlines())[1] == "[1]<stdout>:out 1", again
    assert len(dtrun("logs", "--tail", "1", job, "0").stdout.splitlines()) <= 1
    stamped = dtrun("logs", "-t", job, "0").stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} \[0@\S+ stdout\] out 0\n", stamped), stamped
    details = dtrun("jobs", "--all", TRAIN).stdout
    assert "exit 1, rank_failed" in details and f"dtrun -d -np 2 --name {TRAIN} sh -c" in details, details
    for place in (RECORDS, *(os.path.join(RECORDS, name) for name in os.listdir(RECORDS))):
        assert stat.S_IMODE(os.stat(place).st_mode) & 0o077 == 0, place


def check_caller():
    """Whoever waits for the start, or has its files, holds nothing up, and is not held."""
    read, write = os.pipe()
    with open(path("hosts"), "w", encoding="utf-8") as file:
        file.write("localhost slots=2\n")
    hosts = os.open(path("hosts"), os.O_RDONLY)
    with detached("--hostfile", f"/dev/fd/{hosts}", "-np", "2", "sleep", "60", pass_fds=[write, hosts]) as job:
        os.close(write)
        assert os.read(read, 1) == b"", "the caller's pipe is held"
        assert record(job)["ranks"] == 2, job
    os.close(read)
    os.close(hosts)
    # Nobody reads what it says.
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    done = subprocess.run(
        [DTRUN, "-d", "--verbose", "-np", "2", "true"], stdout=subprocess.PIPE, stderr=write, text=True, timeout=SECONDS,
        check=False, env=ENV,
    )
    assert done.returncode == 0 and ended(done.stdout.strip())["exit_code"] == 0, done
    # Nor its id, and it is interrupted.
    words = [DTRUN, "-d", *SLOW]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE, text=True, env=ENV) as waiting:
        wait_for(lambda: [each for each in records() if each["state"] == "running"], "a job")
        waiting.send_signal(signal.SIGINT)
        wait_for(lambda: not [each for each in records() if each["state"] == "running"], "its end")
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(SECONDS) in (130, -signal.SIGINT), waiting.returncode
    os.close(read)
    os.close(write)


def check_join():
    """A member returns when its ranks run, which is when the others have come."""
    env = dict(ENV, DTRUN_SECRET_FILE=path("secret"))
    with open(os.open(path("secret"), os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        file.write("0123456789abcdef" * 4)
    serve = [DTRUN, "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(serve, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as daemon:
        while "serving on port" not in (said := daemon.stderr.readline()):
            assert said
        at = "127.0.0.1:" + said.split()[-1]
        words = ["join", at, "--job", "two", "-d", "--min-np", "2", "sleep", "60"]
        first = subprocess.Popen([DTRUN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        ids = [first.stdout.readline().strip()]
        time.sleep(0.3)
        assert first.poll() is None, first.communicate()
        second = dtrun(*words, env=env)
        ids.append(second.stdout.strip())
        assert first.wait(SECONDS) == 0 and second.returncode == 0, (first.communicate(), second)
        for job in ids:
            assert record(job)["state"] == "running", job
        assert dtrun("end", "--now", ids[0]).returncode == 0
        assert ended(ids[1])["exit_code"] != 0
        daemon.terminate()


def check_within_rank():
    """What a rank leaves behind ends with its job, and whoever leaves it is told."""
    within = dtrun("-np", "1", "sh", "-c", f"{DTRUN} -d --name inner sleep 600; {DTRUN} hold -H nosuch.invalid; true")
    said = re.findall(r"^dtrun: this is within rank 0 of job [0-9a-f]{12}: (.*) ends with that job$", within.stderr, re.M)
    assert within.returncode == 0 and said == ["the detached job", "what is held"], within
    wait_for(lambda: "inner" not in dtrun("jobs").stdout, "the end of the inner job")
    alone = dtrun("-d", "true")
    assert alone.returncode == 0 and "ends with that job" not in alone.stderr, alone
    ended(alone.stdout.strip())


def check_no_start():
    """A job that cannot start says why at once, with its exit code, and leaves nothing."""
    failed = dtrun("-d", "-np", "2", "no-such-program")
    assert failed.returncode == 127 and "no-such-program" in failed.stderr, failed
    wrong = dtrun("-d", "-np", "2", "--output-dir", "/proc/none/x", "true")
    assert wrong.returncode in (200, 210) and "/proc/none" in wrong.stderr and wrong.stdout == "", wrong
    usage = dtrun("-d", "-np", "0", "true")
    assert usage.returncode == 200 and usage.stderr, usage
    nowhere = dtrun("-d", "-H", "no-such-host.invalid:1", "true")
    assert nowhere.returncode == 201 and "no-such-host.invalid" in nowhere.stderr, nowhere
    for known in records():
        assert known["state"] == "ended", known


def check_terminal():
    """The end of the terminal ends no job that is detached, and the job has no terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(DTRUN, [DTRUN, "-d", "sh", "-c", "echo begun; exec sleep 60"], ENV)
    shown = b""
    with contextlib.suppress(OSError):  # the end of the terminal
        while b"dtrun end" not in shown:
            shown += os.read(terminal, 4096)
    os.close(terminal)  # SIGHUP to all that have it
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (0, -signal.SIGHUP, 129), shown
    job = re.search(rb"[0-9a-f]{32}", shown).group().decode()
    head = pid_of(job)
    wait_for(lambda: dtrun("logs", job).stdout == "begun\n", "output")
    with open(f"/proc/{head}/stat", encoding="utf-8") as file:
        assert file.read().rsplit(") ", 1)[1].split()[4] == "0", "it has a terminal"
    # Ctrl-C leaves the job alone.
    looker = subprocess.Popen([DTRUN, "attach", job], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)
    assert looker.stdout.readline() == "begun\n"
    looker.send_signal(signal.SIGINT)
    _, err = looker.communicate(timeout=SECONDS)
    assert looker.returncode == 130 and "Ctrl-C leaves it running" in err, (looker.returncode, err)
    assert record(job)["state"] == "running"
    assert dtrun("end", job).returncode == 0
    assert ended(job)["cause"] == "interrupted"


def check_interrupt():
    """Ctrl-C before the job has started ends it."""
    waiting = subprocess.Popen([DTRUN, "-d", *SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)
    job = waiting.stdout.readline().strip()
    head = pid_of(job)
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=SECONDS)
    assert waiting.returncode == 130, (waiting.returncode, err)
    assert not os.path.exists(f"/proc/{head}"), err


def check_records():
    """Every job leaves a record; one whose dtrun was killed has ended without saying how."""
    plain = dtrun("-np", "2", "-x", "HF_TOKEN=very-secret", "sh", "-c", "exit $RANK")
    assert plain.returncode == 1, plain
    listed = dtrun("jobs", "--all").stdout
    assert re.search(r"^[0-9a-f]{12} \d{4}-\d\d-\d\d \d\d:\d\d .* exit 1, rank_failed +sh$", listed, re.M), listed
    newest = records()[0]
    assert newest["exit_code"] == 1 and newest["directory"] == os.getcwd(), newest
    for name in os.listdir(RECORDS):
        with open(os.path.join(RECORDS, name), "rb") as file:
            assert b"very-secret" not in file.read(), name
    before = len(os.listdir(RECORDS))
    assert dtrun("--no-record", "true").returncode == 0 and len(os.listdir(RECORDS)) == before
    not_kept = dtrun("logs", newest["job"])
    assert not_kept.returncode == 200 and "is not kept: it was started without -d" in not_kept.stderr, not_kept
    with detached("sleep", "60") as job:
        head = pid_of(job)
        os.kill(head, signal.SIGKILL)
        wait_for(lambda: record(job)["state"] == "lost", "its end")
        assert "without saying how" in dtrun("jobs", "--all", job).stdout
        attached = dtrun("attach", job)
        assert attached.returncode == 210 and "without saying how" in attached.stderr, attached
    # What others leave there disturbs nobody.
    for name, text in (("20260101-000000.000-aa.job", "\0\0{"), ("20260101-000000.001-bb.job", ""), ("x.job", "y")):
        with open(os.path.join(RECORDS, name), "w", encoding="utf-8") as file:
            file.write(text)
    os.mkfifo(os.path.join(RECORDS, "20260101-000000.002-cc.job"))
    assert dtrun("jobs", "--all").returncode == 0
    os.unlink(os.path.join(RECORDS, "20260101-000000.002-cc.job"))


def check_names():
    """A name is one job's at a time; commands take it for the id."""
    with detached("--name", ONE, "sleep", "60") as job:
        taken = dtrun("-d", "--name", ONE, "true")
        assert taken.returncode == 200 and f"a job named {ONE} runs here: {job}" in taken.stderr, taken
        assert taken.stdout == "", taken
        assert dtrun("--name", ONE, "true").returncode == 200
        assert json.loads(dtrun("top", ONE, "--json").stdout)["name"] == ONE
        assert dtrun("end", ONE).stdout == f"job {job} has ended\n"
    assert dtrun("--name", ONE, "true").returncode == 0
    assert dtrun("end", ONE).returncode == 200


def check_again():
    """A job runs again by its words, in its directory, with the environment of now."""
    place = path("place")
    os.mkdir(place)
    words = ["-np", "1", "-x", "MY_TOKEN=old", "--name", "once", "sh", "-c", 'pwd; echo "$MY_TOKEN $1"', "sh", "a  b"]
    assert dtrun(*words, cwd=place).stdout == f"{place}\nold a  b\n"
    refused = dtrun("--again", "once")
    assert refused.returncode == 200 and "export MY_TOKEN=..." in refused.stderr, refused
    for again in (["--again"], ["run", "--again", "once"], ["--again=once"]):
        done = dtrun(*again, env=dict(ENV, MY_TOKEN="new"))
        assert done.returncode == 0 and done.stdout == f"{place}\nnew a  b\n", done
        assert f"dtrun: again, in {place}: dtrun -np 1 -x MY_TOKEN=... --name once sh -c" in done.stderr, done
    assert dtrun("--again", "once", "x").returncode == 200
    assert dtrun("--again", "nobody").returncode == 200
    shutil.rmtree(place)
    gone = dtrun("--again", "once", env=dict(ENV, MY_TOKEN="new"))
    assert gone.returncode == 200 and place in gone.stderr, gone


def check_much_output():
    """What a job prints is bounded on the disk, and what is not kept any more is told."""
    with detached("-np", "1", "sh", "-c", "head -c 150000000 /dev/zero | tr '\\0' '0' | fold -w 99; echo last") as job:
        known = ended(job)
        assert known["exit_code"] == 0, known
        kept = sum(os.path.getsize(os.path.join(RECORDS, name)) for name in os.listdir(RECORDS) if job in name)
        assert 32 << 20 <= kept <= 66 << 20, kept
        shown = dtrun("logs", job)
        assert shown.stdout.endswith("0last\n") and len(shown.stdout) > 20 << 20, len(shown.stdout)
        assert shown.stderr == (
            "dtrun: the begin of the output is not kept any more, only the last 32 MiB\n"
        ), shown.stderr[:500]
        last = dtrun("logs", "--tail", "2", job)
        assert len(last.stdout.splitlines()) == 2 and last.stdout.endswith("last\n") and not last.stderr, last
        # Nobody reads: a signal ends it nevertheless.
        looker = subprocess.Popen([DTRUN, "attach", job], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENV)
        looker.stdout.read(10)
        time.sleep(0.2)
        looker.send_signal(signal.SIGINT)
        assert looker.wait(SECONDS) == 130, looker.returncode
        looker.stdout.close()
        with subprocess.Popen([DTRUN, "logs", job], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENV) as cut:
            cut.stdout.read(10)
            cut.stdout.close()
            assert cut.wait(SECONDS) == 141, cut.returncode


def check_own_log():
    """With --log the output is there, also after that of other jobs."""
    log = path("own.log")
    for word in ("first", "second", "third"):
        assert dtrun("--log", log, "--name", word, "echo", word).returncode == 0
    assert dtrun("logs", "second").stdout == "second\n", dtrun("logs", "second")
    assert dtrun("logs").stdout == "third\n"
    # Its begin is gone.
    cut = path("cut.log")
    assert dtrun("--log", cut, "--log-max", "2K", "--log-keep", "1", "--name", "long", "seq", "1000").returncode == 0
    shown = dtrun("logs", "long")
    assert shown.stdout.endswith("\n1000\n") and "begin of the output is not kept" in shown.stderr, shown


def check_no_home():
    """Where nothing can be kept the job runs, and -d says so, once."""
    for env in (dict(ENV, XDG_STATE_HOME="/proc/none"), {key: ENV[key] for key in ENV if key not in ("HOME", "XDG_STATE_HOME")}):
        plain = dtrun("echo", "x", env=env)
        assert (plain.returncode, plain.stdout, plain.stderr) == (0, "x\n", ""), plain
        kept = dtrun("-d", "sleep", "60", env=env)
        assert kept.returncode == 0 and kept.stderr.count("output is not kept") == 1, kept
        assert dtrun("end", "--now", kept.stdout.strip(), env=env).returncode == 0
        assert dtrun("jobs", "--all", env=env).returncode == 0
        assert dtrun("logs", env=env).returncode == 200


def check_help():
    """Completion knows jobs that have ended; words without a meaning are answered."""
    offered = dtrun("completion", "bash-words", "dtrun logs on").stdout
    assert offered.startswith("jobs\nonce\t") or f"\n{ONE}" in offered, offered
    for wrong in (["logs", "a", "b"], ["logs", "a", "1", "2"], ["logs", "nobody"], ["attach", ""], ["logs", "--tail", "x"]):
        assert dtrun(*wrong).returncode == 200, wrong


def main():
    try:
        for check in (
            check_start, check_caller, check_join, check_within_rank, check_no_start, check_terminal, check_interrupt, check_records, check_names, check_again,
            check_much_output, check_own_log, check_no_home, check_help,
        ):
            begun = time.monotonic()
            check()
            print(f"{check.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    finally:
        shutil.rmtree(FOLDER)


main()
