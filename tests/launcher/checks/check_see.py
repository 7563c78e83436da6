"""check_see.py DTRUN LIBRARY-FOLDER PYTHON-FOLDER: jobs of this machine as others see them: jobs, top, end, the log of
events, commands for events, metrics and pages."""

import contextlib
import fcntl
import http.client
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
from browser import Browser  # noqa: E402
from skip import in_ci  # noqa: E402
from waiting import wait_for  # noqa: E402

DTRUN = os.path.abspath(sys.argv[1])
PYTHON = "/usr/bin/python3"
SECONDS = 60
FOLDER = tempfile.mkdtemp(prefix="dtrun-see-")
LIBRARY, PACKAGE = (os.path.abspath(folder) for folder in sys.argv[2:4])
ENV = dict(os.environ, XDG_RUNTIME_DIR=FOLDER, LD_LIBRARY_PATH=LIBRARY, PYTHONPATH=PACKAGE)
# Ranks that tell of their steps, the last one slowly, until a file is there; then rank 1 fails.
STEPS = """
import os, sys, time
import dtrun
worker = dtrun.Worker()
for step in range(100000):
    worker.progress(step)
    print("step", step, flush=True)
    if os.path.exists(sys.argv[1]):
        if worker.rank == 1:
            sys.exit("<b id=evil>rank 1 has had enough</b>")
        time.sleep(60)
    time.sleep(0.02 * (1 + 4 * (worker.rank == int(os.environ["WORLD_SIZE"]) - 1)))
"""


def path(name):
    return os.path.join(FOLDER, name)


def write(name, text, mode=0o644):
    with open(path(name), "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path(name), mode)
    return path(name)


def dtrun(*words, **options):
    return subprocess.run(
        [DTRUN, *words], capture_output=True, text=True, timeout=SECONDS, check=False, **{"env": ENV, **options}
    )


@contextlib.contextmanager
def running(*words, env=ENV, output=subprocess.PIPE):
    """A job that runs; it is ended if it still does."""
    job = subprocess.Popen(
        [DTRUN, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True, env=env
    )
    try:
        yield job
    finally:
        job.terminate()
        job.communicate(timeout=SECONDS)


def views():
    found = dtrun("jobs", "--json")
    assert found.returncode == 0, found
    return json.loads(found.stdout)["jobs"]


def view_of(job):
    return next((view for view in views() if view["dtrun_pid"] == job.pid), None)


def has_running(job, ranks):
    view = view_of(job)
    return view and [rank["state"] for rank in view["ranks"]].count("running") == ranks and view


def check_jobs():
    """All jobs of this user are listed, whatever one of them does; nobody else sees them."""
    # Somebody else's commands, as jobs of other tests may run beside.
    as_nobody = {"user": "nobody", "env": {"XDG_RUNTIME_DIR": FOLDER, "PATH": os.environ["PATH"]}}
    none = dtrun("jobs", **as_nobody)
    assert (none.returncode, none.stdout) == (0, "no job of yours runs here\n"), none
    with running("-np", "3", "sleep", "60") as one, running("-np", "1", "sh", "-c", "exec sleep 61") as two:
        view = wait_for(lambda: has_running(one, 3), "three ranks")
        wait_for(lambda: has_running(two, 1), "one rank")
        assert view["state"] == "running" and view["command"] == ["sleep", "60"], view
        assert view["hosts"][0]["state"] == "joined" and view["ranks"][2]["rank"] == 2, view
        listed = dtrun("jobs").stdout
        assert re.search(rf"^{view['job'][:12]} +{one.pid} running +3 of 3 +1 +\S+ s  sleep$", listed, re.M), listed
        assert all(len(line) <= 80 for line in listed.splitlines()), listed
        none = dtrun("jobs", **as_nobody)
        assert none.stdout == "no job of yours runs here\n", none
        # One that does not answer is named, and holds nobody up for long.
        os.kill(two.pid, signal.SIGSTOP)
        begun = time.monotonic()
        found = dtrun("jobs")
        os.kill(two.pid, signal.SIGCONT)
        assert str(one.pid) in found.stdout and "is it stopped?" in found.stderr, found
        assert time.monotonic() - begun < 30, found


def check_end():
    """A job ends by its id or the pid of its dtrun, and nothing of it is left."""
    assert dtrun("end").returncode == 200 and dtrun("end", "").returncode == 200
    nobody = dtrun("end", "1")
    assert nobody.returncode == 200 and "no job" in nobody.stderr, nobody
    with running("-np", "2", "sleep", "60") as job:
        view = wait_for(lambda: has_running(job, 2), "two ranks")
        ended = dtrun("end", view["job"][:9])
        assert (ended.returncode, ended.stdout) == (0, f"job {view['job']} has ended\n"), ended
        assert job.wait(SECONDS) == 143, job.returncode
        for rank in view["ranks"]:
            assert not os.path.exists(f"/proc/{rank['pid']}"), rank
    with running("-np", "1", "sh", "-c", "trap '' TERM; echo up; sleep 60 & wait; wait") as job:
        assert job.stdout.readline().endswith("up\n")
        ended = dtrun("end", "--now", str(job.pid))
        assert ended.returncode == 0 and job.wait(SECONDS) == 137, (ended, job.returncode)


def check_q(job):
    """`q` is enough, and the terminal is as it was before."""

    def own_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    before = termios.tcgetattr(theirs)
    live = subprocess.Popen(
        [DTRUN, "top", str(job.pid)], stdin=theirs, stdout=theirs, stderr=theirs, env=ENV, preexec_fn=own_terminal
    )
    screen = b""
    while b"BEHIND" not in screen:
        assert select.select([terminal], [], [], SECONDS)[0], screen
        screen += os.read(terminal, 1 << 16)
    assert termios.tcgetattr(theirs) != before
    os.write(terminal, b"xq")
    assert live.wait(SECONDS) == 0, screen
    assert termios.tcgetattr(theirs) == before
    os.close(terminal)
    os.close(theirs)


def check_top():
    """Ranks, what they use, their steps, GPUs; live on a terminal until the job ends."""
    stop = path("top-stop")
    tools = path("tools")
    os.mkdir(tools)
    write(
        "tools/nvidia-smi",
        '#!/bin/sh\ncase "$1" in *gpu=*) echo "0, GPU-x, Tesla, 42, 100, 1000";; '
        f'*) echo "GPU-x, 1"; echo "GPU-x, $(pgrep -f "^/usr/bin/python3 {path("steps.py")}" | head -n 1)";; esac\n',
        0o755,
    )
    script = write("steps.py", STEPS)
    env = dict(ENV, PATH=f"{tools}:{ENV['PATH']}")
    with running("-np", "3", "--tag", "none", PYTHON, script, stop, env=env) as job:
        for _ in range(180):  # until the last is behind by more than a second
            job.stdout.readline()
        top, rows = None, []

        def last_comes_first():
            """A busy machine may make another rank late for a moment."""
            nonlocal top, rows
            top = dtrun("top", str(job.pid), "--once")
            assert top.returncode == 0, (top, job.poll() and job.stderr.read())
            rows = [line.split() for line in top.stdout.split("RANK HOST")[1].splitlines()[1:]]
            return [row[0] for row in rows] == ["2", "0", "1"] and float(rows[1][7]) > 2 * float(rows[0][7])

        wait_for(last_comes_first, "the slow rank on top")
        assert sorted(row[:3] for row in rows) == [[str(rank), "localhost", "running"] for rank in range(3)], top.stdout
        # The last rank is slow: it comes first.
        assert [row[0] for row in rows] == ["2", "0", "1"], top.stdout
        steps = [int(row[6]) for row in rows]
        assert steps[1] > steps[0] and rows[0][8] == str(max(steps) - steps[0]), top.stdout
        assert float(rows[1][7]) > 2 * float(rows[0][7]), top.stdout
        assert re.search(r"^rank 2 on localhost is \d+ steps behind \([\d.]+ against [\d.]+ steps/s\)$", top.stdout, re.M), top.stdout
        assert re.search(r"GPU 0  Tesla +42% memory +100M of 1.0G  rank \d, 1 stranger", top.stdout), top.stdout
        view = json.loads(dtrun("top", str(job.pid), "--json").stdout)
        assert all(rank["memory_bytes"] > 1 << 20 and rank["cpu_s"] > 0 for rank in view["ranks"]), view
        terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        live = subprocess.Popen([DTRUN, "top", str(job.pid), "--interval", "0.2"], stdin=theirs, stdout=theirs, stderr=theirs, env=ENV)
        os.close(theirs)
        check_q(job)
        screen = b""
        while screen.count(b"STEPS/S") < 3:
            assert select.select([terminal], [], [], SECONDS)[0], screen
            screen += os.read(terminal, 1 << 16)
        assert screen.startswith(b"\x1b[?1049h"), screen
        write("top-stop", "")
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(terminal, 1 << 16):
                screen += piece
        assert live.wait(SECONDS) == 0, screen
        assert b"\x1b[33m    2 localhost" in screen and b"\x1b[?1049l" in screen, screen
        assert re.search(rb"dtrun: job \w{12} ended with exit code 1 after \d.*: rank 1 on localhost failed: exit code 1", screen), screen[-300:]
        os.close(terminal)
        assert job.wait(SECONDS) == 1


def events_of(file):
    with open(file, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def check_log():
    """Each event is a line; a second job appends; what cannot be written is said before anything runs."""
    file = path("events.json")
    for _ in range(2):
        done = dtrun("-np", "2", "--log-json", file, "sh", "-c", "exit $((RANK * 3))")
        assert done.returncode == 3, done
    events = events_of(file)
    jobs = {event["job"] for event in events}
    assert len(jobs) == 2 and {event["schema"] for event in events} == {1}, events
    own = [event for event in events if event["job"] == events[0]["job"]]
    assert [event["number"] for event in own] == list(range(1, len(own) + 1)), own
    kinds = [event["event"] for event in own]
    assert kinds[:3] == ["job_started", "host_joined", "world_started"], kinds
    assert kinds.count("rank_started") == kinds.count("rank_exited") == 2 and kinds[-1] == "job_ended", kinds
    assert (own[-1]["exit_code"], own[-1]["cause"]) == (3, "rank_failed"), own[-1]
    assert "exited with code 3" in own[-1]["report"], own[-1]
    failed = next(event for event in own if event["event"] == "rank_exited" and event["rank"] == 1)
    assert failed["code"] == 3 and not failed["by_dtrun"] and failed["host"] == "localhost", failed
    nowhere = dtrun("--log-json", "/nowhere/log", "touch", path("started"))
    assert nowhere.returncode == 200 and "--log-json: /nowhere/log: No such file" in nowhere.stderr, nowhere
    assert not os.path.exists(path("started"))


def check_commands():
    """Commands get their event, one after the other; one that fails is told, and does not make the job fail."""
    done = dtrun(
        "-np", "1",
        "--on-event", f'echo "$DTRUN_EVENT $(cat)" >> {path("told")}',
        "--on-event", "job_ended,rank_started:echo trouble >&2; exit 4",
        "true",
    )  # fmt: skip
    assert done.returncode == 0, done
    with open(path("told"), encoding="utf-8") as told:
        lines = [line.split(" ", 1) for line in told]
    assert [name for name, _ in lines] == ["job_started", "job_ended"], lines
    assert all(json.loads(event)["event"] == name for name, event in lines), lines
    assert done.stderr.count("exit status 4: trouble") == 2, done.stderr
    wrong = dtrun("--on-event", "job_end:true", "true")
    assert wrong.returncode == 200 and "did you mean job_ended" in wrong.stderr, wrong


def get(place, target, key="", method="GET"):
    connection = http.client.HTTPConnection(place, timeout=SECONDS)
    connection.request(method, target, headers={"Authorization": f"Bearer {key}"} if key else {})
    reply = connection.getresponse()
    body = reply.read().decode()
    connection.close()
    return reply.status, body


def check_metrics():
    """Numbers for Prometheus are on the loopback, and only where they are asked for."""
    with running("-np", "2", "--verbose", "--metrics", "0", "sh", "-c", "exec sleep 60", "secret-argument") as job:
        for line in job.stderr:
            if match := re.search(r"metrics at http://(127\.0\.0\.1:\d+)/metrics", line):
                break
        wait_for(lambda: has_running(job, 2), "two ranks")
        status, text = get(match[1], "/metrics")
        assert status == 200 and re.search(r'^dtrun_ranks\{.*state="running"\} 2$', text, re.M), text
        assert "secret-argument" not in text and re.search(r"^dtrun_rank_memory_bytes\{.*\} \d+$", text, re.M), text
        assert get(match[1], "/")[0] == 404 and get(match[1], "/metrics", method="POST")[0] == 405
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    refused = dtrun("--metrics", str(port), "true")
    assert refused.returncode == 200 and f"--metrics: 127.0.0.1 port {port}: Address already in use" in refused.stderr
    taken.close()


def page_of(job):
    """The page's address, which is told, and its key, which is not where others may read it."""
    for line in job.stderr:
        if match := re.search(r"the job's page: http://(127\.0\.0\.1:\d+)/#KEY, which", line):
            page = wait_for(lambda: view_of(job), "the job")["page"]
            return match[1], re.fullmatch(rf"http://{match[1]}/#(\w{{32}})", page)[1]
    raise AssertionError("no page is told of")


def check_page_needs_its_key():
    kept = ("--log", f"{FOLDER}/page.log", "--output-dir", f"{FOLDER}/page")
    with running("-np", "1", "--web", *kept, "sleep", "60") as job:
        place, key = page_of(job)
        # Where all of its output is.
        detail = json.loads(get(place, "/api/rank?rank=0", key)[1])
        assert re.fullmatch(r"dtrun logs [0-9a-f]{12} 0", detail["log"]) and detail["files"] == f"{FOLDER}/page", detail
        status, text = get(place, "/")
        assert status == 200 and key not in text and "http:" not in text and "https:" not in text
        for target in ("/api/view", "/api/rank?rank=0", "/api/curves"):
            assert get(place, target)[0] == 401 and get(place, target, key[:-1] + "x")[0] == 401
            assert get(place, target, key)[0] == 200
        status, text = get(place, "/api/stacks", key)
        assert status == 200 and isinstance(json.loads(text)["lines"], list), text
        assert get(place, "/api/rank?rank=x", key)[0] == 400 and get(place, "/api/other", key)[0] == 404
        # Whoever sends nothing, or too much, does not disturb the others.
        silent = socket.create_connection(tuple(place.split(":")))
        loud = socket.create_connection(tuple(place.split(":")))
        with contextlib.suppress(OSError):
            loud.sendall(b"GET /" + b"x" * (1 << 20))
        assert get(place, "/api/view", key)[0] == 200
        silent.close()
        loud.close()


def check_page():
    """A page shows a job live, in the dark and on a phone too, and keeps how it was when a rank has died."""
    if shutil.which("chromium") is None:
        print("left out: without chromium")
        assert not in_ci()
        return
    stop = path("page-stop")
    script = write("steps.py", STEPS)
    with running("-np", "4", "--tag", "none", "--web", PYTHON, script, stop, output=subprocess.DEVNULL) as job:
        place, key = page_of(job)
        with Browser() as wide, Browser(390, 844, dark=True) as phone:
            for browser in (wide, phone):
                browser.open(f"http://{place}/#{key}")
                browser.wait_for("document.querySelectorAll('button.rank.running').length === 4")
                browser.wait_for("document.body.innerText.includes('steps/s')")
            wide.evaluate("document.querySelectorAll('button.rank')[2].click()")
            wide.wait_for("/step \\d+/.test(document.querySelector('pre.output').textContent)")
            step = "Number(/step\\s+(\\d+)/.exec(document.getElementById('detail').innerText)[1])"
            first = wide.evaluate(step)
            wide.wait_for(f"{step} > {first}")
            background = phone.evaluate("getComputedStyle(document.body).backgroundColor")
            assert background == "rgb(16, 19, 23)", background
            assert phone.evaluate("document.documentElement.scrollWidth") <= 390
            write("page-stop", "")
            for browser in (wide, phone):
                browser.wait_for("document.body.innerText.includes('The job has ended')")
                assert browser.evaluate("document.querySelectorAll('button.rank.failed').length") == 1, browser.text()
                assert browser.evaluate("document.querySelectorAll('button.rank.ended_by_dtrun').length") == 3
                assert "ended with exit code 1" in browser.text() and "rank 1 on localhost" in browser.text()
                assert browser.errors == [], browser.errors
                elsewhere = [url for url in browser.requests if not url.startswith((f"http://{place}/", "data:"))]
                assert elsewhere == [] and not any(key in url for url in browser.requests), browser.requests
            # Who failed is shown with what it has printed, as text.
            wide.evaluate("document.querySelector('button.rank.failed').click()")
            wide.wait_for("/Rank 1 on/.test(document.getElementById('detail').innerText)")
            for browser, box in ((wide, "pre.output"), (wide, "pre.report"), (phone, "pre.report")):
                shown = browser.evaluate(f"document.querySelector('{box}').textContent")
                assert "<b id=evil>rank 1 has had enough</b>" in shown, shown
                assert browser.evaluate("document.getElementById('evil') === null")
            for browser in (wide, phone):
                assert re.search(r"rank 1 on localhost failed: exit code 1 at step \d+", browser.text()), browser.text()
            if "SCREENSHOTS" in os.environ:
                wide.screenshot(os.environ["SCREENSHOTS"] + "/wide.png")
                phone.screenshot(os.environ["SCREENSHOTS"] + "/phone.png")
        assert job.wait(SECONDS) == 1


def check_daemon():
    """A daemon's jobs have a page, too, whose key is not in its log; `dtrun jobs` lists them."""
    secret = write("secret", "0123456789abcdef" * 4 + "\n", 0o600)
    words = ["--secret-file", secret]
    with running("serve", "--listen", "127.0.0.1:0", "--web", *words) as daemon:
        port = re.search(r"serving on port (\d+)", daemon.stderr.readline())[1]
        place = re.search(r"its page: http://(127\.0\.0\.1:\d+)/#KEY", daemon.stderr.readline())[1]
        key = dtrun("status", "--page-key", *words).stdout.strip()
        address = f"127.0.0.1:{port}"
        with running("join", address, "--job", "train", *words, "-np", "2", "sleep", "60") as member:
            wait_for(lambda: has_running(member, 2), "two ranks")
            listed = dtrun("jobs", address, *words)
            assert listed.returncode == 0 and re.search(r"^train +running", listed.stdout, re.M), listed
            assert get(place, "/api/view")[0] == 401
            status, text = get(place, "/api/view", key)
            view = json.loads(text)["jobs"][0]
            assert status == 200 and (view["job"], view["state"], view["hosts"][0]["states"]) == ("train", "running", "rr"), view
            assert get(place, "/metrics")[0] == 401
            status, text = get(place, "/metrics", key)
            assert status == 200 and 'dtrun_serve_job_ranks{job="train"} 2\n' in text, text
            if shutil.which("chromium") is not None:
                with Browser() as browser:
                    browser.open(f"http://{place}/#{key}")
                    browser.wait_for("document.querySelectorAll('button.rank.running').length === 2")
                    assert browser.errors == [], browser.errors


try:
    for check in (
        check_jobs, check_end, check_top, check_log, check_commands, check_metrics, check_page_needs_its_key,
        check_page, check_daemon,
    ):  # fmt: skip
        check()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
