"""dtrun.torch in ranks on this machine:

    torch_test.py DTRUN PYTHON BACKEND
"""

import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

DTRUN, PYTHON, BACKEND = sys.argv[1:]
HERE = os.path.dirname(os.path.abspath(__file__))
failed = []


def environment():
    outer = ("SLURM", "PMI", "OMPI_", "HYDRA", "DTRUN_", "MPI", "UCX_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    return dict(kept, OMP_NUM_THREADS="1", DTRUN_BACKEND=BACKEND, DTRUN_COMPRESS="always")


def check(name, ranks, program, options=(), code=0, oks=None, has=""):
    begin = time.monotonic()
    done = subprocess.run([DTRUN, "-np", str(ranks), *options, PYTHON, *program], env=environment(),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=150,
                          text=True, check=False)
    found = len(re.findall(r"^(?:\[\d+\]<\w+>: ?)?ok$", done.stdout, re.M))
    good = done.returncode == code and found in ([ranks] if oks is None else oks) and re.search(has, done.stdout)
    print(f"{'ok' if good else 'FAILED'} {name} ({time.monotonic() - begin:.1f} s)", flush=True)
    if not good:
        failed.append(name)
        print(f"exit status {done.returncode}, {found} times ok\n{done.stdout}", flush=True)


def check_stall(name, ranks, program, options, what, waiting, **more):
    """As check(); and the job's events tell that these ranks wait for that, and that they go on."""
    with tempfile.TemporaryDirectory() as folder:
        check(name, ranks, [*program, f"{folder}/events"], [*options, "--log-json", f"{folder}/events"], **more)
        with open(f"{folder}/events", encoding="utf-8") as lines:
            told = [event for event in map(json.loads, lines) if event["event"] in ("stalled", "stall_ended")]
    told = [(event["event"], event["ranks"]) for event in told if re.fullmatch(what, event["what"])]
    good = bool(told) and told[0][0] == "stalled" and told[-1][0] == "stall_ended" and all(
        re.fullmatch(waiting, ranks) for _, ranks in told)
    print(f"{'ok' if good else 'FAILED'} it is an event, and so is its end", flush=True)
    if not good:
        failed.append(f"events: {name}")
        print(told, flush=True)


def rank(mode, *arguments):
    return [f"{HERE}/torch_ranks.py", mode, *arguments]


def check_backend():
    def backend_rank(*arguments):
        return [f"{HERE}/backend_ranks.py", *arguments]

    check("the backend dtrun of torch.distributed does what a program asks of it", 3, backend_rank("works"))
    check("meshes of two dimensions spread tensors and models", 4, backend_rank("meshes"))
    check_stall("a rank that does not come to an operation of a group is named", 3, backend_rank("stalls"),
                ["-x", "HOROVOD_STALL_CHECK_TIME_SECONDS=0.5"],
                r"allreduce of 3 f32 \(sum\), operation 1 of 2 ranks; rank 2 on \S+ has not come.*", "rank 0",
                has=r"allreduce of 3 f32 \(sum\), operation 1 of 2 ranks: rank 0 has waited for [0-9]+ s; rank 2 on "
                    r"\S+ has not come\n(?s:.*)who has not come may only be busy")
    check("the backend raises on all ranks what they disagree about", 2, backend_rank("disagrees"))
    check("a time limit of one operation, or of a group, ends it on all ranks", 2, backend_rank("late"))
    check(f"a time limit of one operation ends it at whichever moment it passes (seed {SEED})", 3,
          backend_rank("limits", SEED))
    check("the backend names a rank that is killed", 3, backend_rank("killed"), ["--keep-going"], 137, [2])


probe = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, text=True, check=False)
if probe.returncode != 0:
    skip(f"{PYTHON} has no torch")
for number in (1, 2, 4):
    check(f"operations give on {number} ranks what Horovod's give", number, rank("operations"))
for number in (1, 3):
    check(f"{number} ranks with DistributedOptimizer train as one process does", number, rank("optimizer"))
check("schedulers, later parameters, closures and elastic states train as one process does", 2,
      [f"{HERE}/training_ranks.py", "training"])
SEED = os.environ.get("DTRUN_SEED") or str(random.randrange(1 << 32))
for number, cases in ((2, 25), (3, 12)):
    check(f"{cases} drawn programs train on {number} ranks as one process does (seed {SEED})", number,
          [f"{HERE}/reference_ranks.py", SEED, str(cases)])
for horovod in glob.glob(f"{os.path.dirname(PYTHON)}/../lib/python3*/site-packages/horovod"):
    for number, cases in ((2, 12), (4, 4)):
        check(f"{cases} drawn programs train on {number} ranks as by Horovod's own Python (seed {SEED})", number,
              [f"{HERE}/reference_ranks.py", SEED, str(cases), horovod], ["--horovod-shim"])
if int(probe.stdout.split(".", maxsplit=1)[0]) >= 2:
    check(f"drawn programs find each of the faults that were there once (seed {SEED})", 2,
          [f"{HERE}/reference_ranks.py", SEED, "mutants"])
check("ranks that disagree are told both wishes, and go on", 2, rank("disagrees"))
check("a signal handler that raises loses no operation, and others run while one waits", 2, rank("interrupts"))
check("a program ends well while a thread is in an operation and results are in use", 2, rank("ends"))
check("a rank that raises with an operation under way does not wait for the others", 2, rank("fails"), code=1,
      oks=[0])
check("a rank that is killed is named to the others", 3, rank("killed"), ["--keep-going"], 137, [2])
check_stall("who has not asked for an operation is told to those that wait, and it goes on", 3, rank("stalls"),
            ["-x", "HOROVOD_STALL_CHECK_TIME_SECONDS=0.3"],
            r'"allreduce\.a" and "allreduce\.b"; rank 1 has not asked for them', "ranks? (0|2|0, 2)")
check("an operation that a rank never asks for fails on all ranks after the shutdown time", 2,
      rank("stalls_for_good"), ["-x", "HOROVOD_STALL_CHECK_TIME_SECONDS=0.2", "-x",
                                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=0.4",
                                "-x", "HOROVOD_STALL_CHECK_DISABLE=true"])
with tempfile.TemporaryDirectory() as folder:
    check("an elastic job goes on at its last commit", 3, rank("elastic", f"{folder}/died"),
          ["--min-np", "1", "-H", "localhost:3"], oks=[2, 3])
check("a script that imports horovod.torch runs unchanged", 2, ["-m", "dtrun.torch.shim", f"{HERE}/shim_ranks.py"])
check("it also does with --horovod-shim", 2, [f"{HERE}/shim_ranks.py"], ["--horovod-shim"])
for format in ("none", "fp16", "bf16", "int8", "e4m3"):
    check(f"DDP with the hook {format} keeps all ranks alike", 2, rank("hooks", format))
check("a hook names a rank that is killed", 3, rank("loses", "int8"), ["--keep-going"], 137, [2])
check("DDP with the hook int8 resumes as if it had not been interrupted", 2, rank("resumes", "int8"))
if int(probe.stdout.split(".", maxsplit=1)[0]) >= 2:
    check_backend()
if failed:
    sys.exit("failed: " + ", ".join(failed))
