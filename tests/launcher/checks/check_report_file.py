"""check_report_file.py DTRUN: --report leaves a JSON document of every end of a job, whole or not at all, and
docs/JOBS.md lists what is in it."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from waiting import wait_for  # noqa: E402

DTRUN = os.path.abspath(sys.argv[1])
DOCS = pathlib.Path(__file__).parents[3] / "docs"
SECONDS = 60
FOLDER = tempfile.mkdtemp(prefix="dtrun-report-")
FILE = os.path.join(FOLDER, "end.json")
ENV = dict(os.environ, XDG_RUNTIME_DIR=FOLDER, XDG_STATE_HOME=FOLDER + "/state", HOME=FOLDER)
ENV.pop("DTRUN_OPTIONS", None)
# Hosts that are this machine, and one that is not there.
ANY = "sh -c 'case $0 in no*) echo \"ssh: connect to host $0 port 22: No route to host\" >&2; exit 255;; esac; exec sh -c \"$1\"'"


def run(*words, env=ENV, **options):
    return subprocess.run([DTRUN, *words], capture_output=True, text=True, timeout=SECONDS, check=False, env=env,
                          **{"cwd": FOLDER, "stdin": subprocess.DEVNULL, **options})


SEEN = []


def read(path=FILE):
    """The document, which is the only file that is left."""
    assert not [name for name in os.listdir(os.path.dirname(path)) if name.startswith(".dtrun")]
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    os.unlink(path)
    SEEN.append(document)
    for name in ("schema", "version", "exit_code", "cause", "ended", "report", "typed", "typed_in", "state"):
        assert name in document, (name, document)
    assert document["schema"] == 1 and document["state"] == "ended", document
    return document


def report(*words, **options):
    """What a job with these words leaves, and how dtrun has ended."""
    done = run("--report", FILE, *words, **options)
    document = read()
    assert document["exit_code"] == done.returncode, (document, done)
    return document, done


def check_success():
    document, _ = report("-np", "2", "--name", "well", "true", "an argument")
    assert document["exit_code"] == 0 and document["cause"] == "success" and document["report"] == ""
    assert document["name"] == "well" and document["command"] == ["true", "an argument"]
    assert document["typed"]["words"] == ["--report", FILE, "-np", "2", "--name", "well", "true", "an argument"]
    assert re.fullmatch(r"[0-9a-f]{32}", document["job"]) and document["started"] < document["ended"]
    assert document["failures"] == [] and document["failed_hosts"] == []
    (host,) = document["hosts"]
    assert host["slots"] == 2 and host["address"] == "127.0.0.1", host
    assert [rank["local_rank"] for rank in document["ranks"]] == [0, 1]
    for rank in document["ranks"]:
        assert rank["state"] == "ended_well" and rank["code"] == 0 and rank["pid"] > 0 and rank["ran_s"] >= 0, rank
        assert rank["memory_max_bytes"] > 1 << 19 and rank["host"] == host["host"], rank


def check_failure():
    script = "[ $RANK = 1 ] && { echo before; printf '\\033[31mVector: command not found\\n' >&2; exit 127; }; sleep 60"
    document, done = report("-np", "3", "sh", "-c", script)
    assert document["exit_code"] == 127 and document["cause"] == "rank_failed" and document["cause_rank"] == 1
    assert document["report"] == done.stderr.split("[1]<stderr>:")[-1].split("\n", 1)[1], (document, done)
    first, *later = document["failures"]
    assert first["rank"] == 1 and first["code"] == 127 and not later and document["failures_more"] == 0, first
    assert first["last_lines"] == ["Vector: command not found"] and first["cure"]["name"], first
    assert document["ended_by_dtrun"] == 2 and document["killed"] == 0
    states = [rank["state"] for rank in document["ranks"]]
    assert states == ["ended_by_dtrun", "failed", "ended_by_dtrun"], states
    assert document["ranks"][0]["signal"] == "SIGTERM"
    document, _ = report("-np", "2", "/nosuch/program")
    assert document["cause"] == "cannot_start" and document["exit_code"] == 127
    (host,) = document["failed_hosts"]
    assert host["class"] == "program_missing" and "/nosuch/program" in host["why"], host


def check_restarts():
    """The last life of each rank, and who failed before."""
    document, _ = report("-np", "2", "--max-restarts", "1", "sh", "-c", "[ $RANK = 0 ] && exec sleep 60; exit 3")
    assert document["restarts"] == 1 and document["exit_code"] == 3 and document["failures"][0]["code"] == 3
    events = [event["event"] for event in document["events"]]
    assert events == ["world_started", "rank_exited", "restart", "world_started", "rank_exited"], document["events"]
    assert document["events"][1]["code"] == 3 and document["events"][1]["rank"] == 1
    document, _ = report("-np", "2", "--min-np", "1", "--failure-limit", "1", "sh", "-c", "exit 4")
    assert document["cause"] == "cannot_go_on" and document["exit_code"] == 207 and document["generation"] == 2
    assert "--failure-limit" in document["why"]
    failed = [event for event in document["events"] if event["event"] == "rank_exited"]
    assert len(failed) >= 2 and {event["code"] for event in failed} == {4}, document["events"]


def check_hosts():
    document, done = report("--ssh-command", ANY, "-H", "h1,no1,no2,no3,no4,no5", "true")
    assert document["cause"] == "cannot_start" and document["exit_code"] == 201, done
    assert "  no[1-5] (5): ssh: port 22: No route to host\n" in document["report"], document["report"]
    assert [failed["host"] for failed in document["failed_hosts"]] == ["no1", "no2", "no3", "no4", "no5"]
    assert {failed["class"] for failed in document["failed_hosts"]} == {"unreachable"}
    assert [host["state"] for host in document["hosts"]][1:] == ["failed"] * 5 and len(document["ranks"]) == 6
    assert document["hosts"][2]["why"] == "ssh: connect to host no2 port 22: No route to host"


@contextlib.contextmanager
def running(*words, **options):
    """A job whose ranks have begun."""
    job = subprocess.Popen([DTRUN, *words, "sh", "-c", "echo begun; sleep 60"], stdin=subprocess.DEVNULL, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV, cwd=FOLDER, **options)
    try:
        assert job.stdout.readline().endswith("begun\n")
        yield job
    finally:
        job.kill()
        job.communicate()


def check_interrupted():
    with running("--report", "end.json", "-np", "2") as job:
        assert not os.path.exists(FILE)
        job.send_signal(signal.SIGINT)
        assert job.wait(SECONDS) == 130
    document = read()
    assert document["cause"] == "interrupted" and document["ended_by"] == "SIGINT" and document["exit_code"] == 130
    with open(FILE, "w", encoding="utf-8") as file:
        file.write("of yesterday")
    with running("--report", "end.json", "-np", "2") as job:
        with open(FILE, encoding="utf-8") as file:
            assert file.read() == "of yesterday"
        job.send_signal(signal.SIGTERM)
        job.send_signal(signal.SIGTERM)
        job.wait(SECONDS)
    assert read()["cause"] == "interrupted"
    document, _ = report("--timeout", "0.5", "sleep", "60")
    assert document["cause"] == "time_limit" and document["exit_code"] == 205


def check_refused():
    """What can be seen before there is a job leaves a document, too."""
    document, done = report("--hostfile", "nosuch", "true")
    assert document["cause"] == "cannot_start" and document["exit_code"] == 200 and document["report"] == done.stderr, done
    with running("--name", "taken"):
        document, done = report("--name", "taken", "true")
        assert document["exit_code"] == 200 and document["report"] == done.stderr, done
    assert run("--report", FILE, "--nosuch", "true").returncode == 200 and not os.path.exists(FILE)
    assert run("--report", FILE, "--plan", "true").returncode == 0 and not os.path.exists(FILE)


def check_place():
    """Where it cannot be written is told before anything runs."""
    os.mkfifo(FOLDER + "/pipe")
    os.mkdir(FOLDER + "/shut", 0o500)
    os.symlink("there.json", FOLDER + "/link.json")
    refused = {"-": "'-' is no file", "nosuch/end.json": "No such file or directory", ".": "Is a directory", "shut/": "Is a directory",
               "pipe": "no file that can be replaced", "/dev/null": "no file that can be replaced", "/dev/stdout": "no file that can be replaced",
               "x" * 300: "File name too long", "%x": "'%x' stands for nothing"}
    if os.geteuid() != 0:
        refused["shut/end.json"] = "Permission denied"
    for name, why in refused.items():
        done = run("--report", name, "sh", "-c", "echo it has run")
        assert done.returncode == 200 and why in done.stderr and "--report" in done.stderr and done.stdout == "", (name, done)
        assert done.stderr.count("--report") == 1, done
    assert run("--report", "link.json", "true").returncode == 0
    assert os.path.islink(FOLDER + "/link.json") and read(FOLDER + "/there.json")["cause"] == "success"
    # Its folder is removed meanwhile.
    os.mkdir(FOLDER + "/gone")
    done = run("--report", "gone/end.json", "rmdir", "gone")
    assert done.returncode == 210 and "--report: gone/end.json: No such file" in done.stderr, done
    done = run("--report", "all/%j.json", "true")
    assert done.returncode == 200, done
    os.mkdir(FOLDER + "/all")
    for _ in range(2):
        assert run("--report", "all/%j.json", "true").returncode == 0
    names = os.listdir(FOLDER + "/all")
    assert len(names) == 2, names
    for name in names:
        assert read(f"{FOLDER}/all/{name}")["job"].startswith(name.removesuffix(".json"))


def check_secrets():
    """As in the record of the job: no value of a variable whose name looks like that of a secret."""
    variables = dict(ENV, WANDB_API_KEY="hidden-1")
    for words in (["-x", "HF_TOKEN=hidden-2"], ["DB_PASSWORD=hidden-3"], ["-x", "WANDB_API_KEY"]):
        run("--report", FILE, *words, "true", env=variables)
        with open(FILE, encoding="utf-8") as file:
            text = file.read()
        assert "hidden-" not in text and read()["exit_code"] == 0, text
    document, _ = report("--web", "true")
    assert "page" not in document


def check_joined():
    """Each member tells of its own ranks, and by whose failure they were ended."""
    daemon = subprocess.Popen([DTRUN, "serve", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True, env=ENV)
    try:
        port = re.search(r"port (\d+)", daemon.stderr.readline())[1]
        words = ["join", f"127.0.0.1:{port}", "--job", "j", "-np", "1", "--min-np", "2", "--max-np", "2", "--elastic-timeout", str(SECONDS)]
        with subprocess.Popen([DTRUN, *words, "--report", "other.json", "sh", "-c", ": >runs; exec sleep 60"], env=ENV, cwd=FOLDER, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
            done = run(*words, "--report", FILE, "sh", "-c", f"until [ -e {FOLDER}/runs ]; do sleep 0.02; done; exit 8")
            assert done.returncode == 8, done
            assert other.wait(SECONDS) == 204
        document = read()
        assert document["cause"] == "rank_failed" and document["exit_code"] == 8 and len(document["ranks"]) == 1, document
        document = read(FOLDER + "/other.json")
        assert document["cause"] == "ended_elsewhere" and "exited with code 8" in document["why"], document
        assert [rank["state"] for rank in document["ranks"]] == ["ended_by_dtrun"], document
    finally:
        daemon.terminate()
        daemon.communicate()


def check_everywhere():
    """Of detached jobs, of other launchers' command lines, and of one of a daemon."""
    started = run("-d", "--report", "end.json", "sh", "-c", "sleep 0.5; exit 5")
    assert started.returncode == 0, started
    wait_for(lambda: os.path.exists(FILE), SECONDS)
    document = read()
    assert document["job"] == started.stdout.strip() and document["exit_code"] == 5
    for front in (["mpirun", "-np", "2"], ["torchrun", "--nproc-per-node", "2", "--no-python"],
                  ["deepspeed", "--num_gpus", "2", "--no_python", "--no_local_rank"]):
        done = run(*front, "--report", FILE, "sh", "-c", "exit 6")
        document = read()
        assert done.returncode == 6 and document["exit_code"] == 6 and document["typed"]["words"][0] == front[0], done
    check_joined()
    done = run("--mpi", "mpirun", "--report", FILE, "true")
    assert done.returncode == 200 and "--report" in done.stderr, done


def check_documentation():
    """Each member that any of these documents has is in docs/JOBS.md, or in the view of docs/EVENTS.md."""
    listed = set()
    for page, title in (("JOBS.md", "## `--report FILE`"), ("EVENTS.md", "## The view of a job"), ("EVENTS.md", "## Events")):
        text = (DOCS / page).read_text(encoding="utf-8").split(title)[1].split("\n## ")[0]
        listed.update(re.findall(r"`([a-z_]+)`", text.replace("`, `", "` `")))
        listed.update(word for found in re.findall(r"`([a-z_, ]+)`", text) for word in found.split(", "))
    used = set()
    for document in SEEN:
        used.update(document)
        for name in ("hosts", "ranks", "failed_hosts", "failures", "events"):
            for item in document.get(name, []):
                used.update(item)
                used.update(item.get("cure", {}))
    assert used <= listed, used - listed


try:
    for check in (check_success, check_failure, check_restarts, check_hosts, check_interrupted, check_refused, check_place,
                  check_secrets, check_everywhere, check_documentation):
        check()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
