"""check_script.py DTRUN: `dtrun bench -- PROGRAM` on this machine, with the real rank program.

The programs sleep as long as a step is to take, half of it with two ranks.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

DTRUN = os.path.abspath(sys.argv[1])

TELLS = """import time, dtrun
with dtrun.Worker() as worker:
    for step in range(12):
        time.sleep(0.06 / worker.world_size)
        worker.progress(step)
"""
# Rank 1 prints no steps; bars of progress end with a carriage return, on either output.
PRINTS = """import os, sys, time
ranks = int(os.environ["WORLD_SIZE"])
print("backend", sys.argv[1], "is", os.environ.get("DTRUN_BACKEND"))
for step in range(8):
    if os.environ["RANK"] == "0":
        print(f"{step}/8, {1000 * ranks} img/s", end="\\r", file=(sys.stdout, sys.stderr)[step % 2])
print('{"type":"train","accuracy":0.75,"loss":0.5}')
"""
FAILS = """import os, sys
print("about to begin", flush=True)
if os.environ["RANK"] == os.environ.get("BAD", "0"):
    raise ValueError("no such layer: conv9")
import time; time.sleep(30)
"""
# What Horovod's example prints: samples of this rank, of so many, and the accuracy at the end of an epoch.
COUNTS = """import os, sys, time
ranks, rank = int(os.environ["WORLD_SIZE"]), os.environ["RANK"]
for epoch in (1, 2):
    for batch in range(8):
        print(f"Train Epoch: {epoch} [{batch * 32}/{512 // ranks} (0%)]\\tLoss: 0.1 {sys.argv[1:]}")
        time.sleep(0.02 if "--fast" in sys.argv else 0.04)
    if rank == "0":
        print(f"Test set: Average loss: 0.1, Accuracy: {90 + epoch}.00%")
"""
# Bars as tqdm draws them: of training with an accuracy of its own, and of tests.
BARS = """import sys, time
def bar(name, steps, word):
    for step in range(steps + 1):
        part = step / steps
        print(f"{name}: {100 * part:3.0f}%|{'#' * step}| {step}/{steps} [00:00<00:00, {word}={90 + part}]",
              end="\\r" if step < steps else "\\n", file=sys.stderr)
        time.sleep(0.01)
for epoch in (1, 2):
    bar(f"Epoch {epoch}", 10, "acc")
    bar(f"Validate Epoch #{epoch}", 4, "accuracy")
"""
APART = """import os, dtrun
with dtrun.Worker() as worker:
    for step in range(10 + 90 * worker.rank):
        worker.progress(step)
"""


def bench(*words, **more):
    done = subprocess.run([DTRUN, "bench", "--json", "r.json", *words], capture_output=True, text=True, timeout=100,
                          stdin=subprocess.DEVNULL, env={**os.environ, **more})
    report = None
    if os.path.exists("r.json") and os.path.getsize("r.json"):
        with open("r.json") as file:
            report = json.load(file)
        os.remove("r.json")
    return done.returncode, report, done.stdout, done.stderr


def tells_of_its_steps():
    code, report, text, errors = bench("--slots", "1,2", "--global-batch", "60", "--html", "r.html", "--csv", "r.csv",
                                       "--", "python3", "tells.py")
    assert (code, errors) == (0, ""), (code, text, errors)
    runs = {run["ranks"]: run for run in report["train"]}
    assert set(runs) == {1, 2}, text
    for ranks, run in runs.items():
        assert 60 / ranks <= run["step_ms"] < 4 * 60 / ranks, run  # at most: on a busy machine
        assert abs(run["samples_per_s"] - 60e3 / run["step_ms"]) < 1e-3, run
        assert (run["backend"], run["model"], run["accuracy"]) == (
            "none" if ranks == 1 else "own", "python3 tells.py", None), run
        assert run["algorithm"] == ("serial" if ranks == 1 else "parallel"), run
    for part in ("\n# python3 tells.py, 60 samples a step, seed 1\n", "\nScaling\n", "speed-up"):
        assert part in text, (part, text)
    with open("r.html") as page, open("r.csv") as table:
        assert "Speed-up of a training step" in page.read()
        assert table.read().count("\ntrain,") == 2


def prints_its_steps():
    """Backends and seeds reach it, and what it prints as a record is kept."""
    code, report, text, errors = bench(
        "--slots", "2", "--backends", "gloo,dtrun", "--seeds", "2", "--step-regex", r"(?<samples_per_s>[\d.]+) img/s",
        "--verbose", "--", "python3", "prints.py", "{backend}-{seed}")
    assert code == 0, (code, text, errors)
    assert [(run["backend"], run["seed"], run["samples_per_s"], run["accuracy"]) for run in report["train"]] == [
        ("gloo", 1, 2000, 0.75), ("dtrun", 1, 2000, 0.75), ("gloo", 2, 2000, 0.75), ("dtrun", 2, 2000, 0.75)], text
    for part in ("backend gloo-1 is gloo\n", "backend dtrun-2 is dtrun\n", "6/8, 2000 img/s\n", "7/8, 2000 img/s"):
        assert part in errors, (part, errors)


def counts_its_samples():
    """Throughput and accuracy are found in what the usual examples print, and words make another algorithm."""
    code, report, text, errors = bench("--slots", "1,2", "--algorithms", "parallel,fast=--fast", "--", "python3",
                                       "counts.py")
    assert (code, errors) == (0, ""), (code, text, errors)
    runs = {(run["algorithm"], run["ranks"]): run for run in report["train"]}
    assert list(runs) == [("serial", 1), ("parallel", 2), ("fast", 2)], text
    for (algorithm, ranks), run in runs.items():
        at_most = ranks * 32 / (0.02 if algorithm == "fast" else 0.04)
        assert 0 < run["samples_per_s"] < at_most * 1.05, run
        assert run["accuracy"] == 0.92 and [epoch["accuracy"] for epoch in run["by_epoch"]] == [0.91, 0.92], run
    code, report, text, errors = bench("--slots", "2", "--algorithms", "int8", "--", "python3", "counts.py")
    assert code == 1 and "were not sent as int8" in errors and "script int8, own" in errors, (text, errors)


def draws_bars():
    """A bar of training tells of steps, one of tests how accurate the network is at its end."""
    code, report, text, errors = bench("--slots", "1", "--", "python3", "bars.py")
    assert (code, errors) == (0, ""), (code, text, errors)
    [run] = report["train"]
    assert 10 <= run["step_ms"] < 100 and [epoch["accuracy"] for epoch in run["by_epoch"]] == [0.91, 0.91], run


def failures():
    """What a program says when it fails is shown, whichever rank it is; other shapes are measured."""
    code, report, text, errors = bench("--slots", "2", "--", "python3", "fails.py", BAD="1")
    assert code == 1 and report["train"] == [], (code, text)
    for part in ("about to begin", "ValueError: no such layer: conv9", "script, own, 1 host x 2 ranks"):
        assert part in errors, (part, errors)
    assert report["failures"][0]["exit_code"] == 1, report["failures"]
    for words, expected in (
            (("--", "true"), "it told of no two steps: call Worker.progress(step) in each"),
            (("--", "true"), "; it printed nothing"),
            (("--step-regex", "took ([0-9.]+)", "--", "echo", "it takes 5"),
             "--step-regex 'took ([0-9.]+)' is found in none of the 2 lines"),
            (("--step-regex", "took ([0-9.]+)", "--", "echo", "it takes 5"), "Its last lines:\n  it takes 5\n"),
            (("--", "python3", "apart.py"), "its ranks do not agree: rank 1 told of 99 steps, and rank 0 of 9"),
            (("--", "./no-such-program"), "./no-such-program: ")):
        code, _, text, errors = bench("--slots", "2", *words)
        assert code == 1 and expected in errors, (words, code, text, errors)


def wait_for(path):
    deadline = time.monotonic() + 60
    while not (os.path.exists(path) and open(path).read().endswith("\n")):
        assert time.monotonic() < deadline, path
        time.sleep(0.02)
    with open(path) as file:
        return int(file.read())


def ended():
    """Ctrl-C, and a program that says nothing, leave nothing behind; a program may take its time to end."""
    words = ("--slots", "2", "--", "sh", "-c", 'trap "sleep 0.2; echo ended >> ends; exit 3" TERM INT; '
             'echo $$ > pid$RANK; while :; do sleep 0.1; done')
    with subprocess.Popen([DTRUN, "bench", *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as interrupted:
        pids = [wait_for(f"pid{rank}") for rank in range(2)]
        interrupted.send_signal(signal.SIGINT)
        _, errors = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130, (interrupted.returncode, errors)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids), pids
    assert open("ends").read() == "ended\n" * 2, open("ends").read()
    code, _, _, errors = bench("--timeout", "1", "--slots", "1", "--", "sleep", "60")
    assert code == 1 and "said nothing for 1 s (--timeout)" in errors, errors


def mistakes():
    for words, expected in (((), "which program? it stands behind --"),
                            (("--step-regex", "[0-9]+", "--", "true"), "has no group"),
                            (("--train", "--", "true"), "a program is measured alone"),
                            (("--data", "d", "--", "true"), "--data is for training; add --train"),
                            (("--scaling", "strong,weak", "--", "true"), "say which"),
                            (("--", "true", "{backend}"), "is one of --backends; name them")):
        code, _, text, errors = bench(*(words or ("--",)))
        assert (code, text) == (200, "") and expected in errors, (words, code, errors)
    code, _, _, errors = bench("train.py")
    assert code == 200 and "a program to measure stands behind --: dtrun bench -- train.py" in errors, errors


with tempfile.TemporaryDirectory() as directory:
    os.chdir(directory)
    for name, program in (("tells", TELLS), ("prints", PRINTS), ("fails", FAILS), ("apart", APART), ("counts", COUNTS), ("bars", BARS)):
        with open(f"{name}.py", "w") as file:
            file.write(program)
    for part in (tells_of_its_steps, prints_its_steps, counts_its_samples, draws_bars, failures, ended, mistakes):
        part()
