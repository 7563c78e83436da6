"""The plug-in for one MPI library, in ranks on this machine:

    mpi_backend_test.py openmpi|mpich DTRUN MPI_RANKS PLUGINS PLUGINS_WITH_SMALL_CHUNKS

A machine that lacks the library says SKIPPED; where everything must be there (CI), that is a failure.
"""

import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

LIBRARY, DTRUN, RANKS, PLUGINS, SMALL = sys.argv[1:]
OTHER = {"openmpi": "mpich", "mpich": "openmpi"}[LIBRARY]
TITLE = {"openmpi": "Open MPI", "mpich": "MPICH"}
failed = []


def plugin(library=LIBRARY, folder=PLUGINS, suffix=""):
    return os.path.join(folder, f"libdtrun_backend_mpi_{library}{suffix}.so")


def environment():
    outer = ("SLURM", "PMI", "OMPI_", "HYDRA", "DTRUN_", "MPI", "UCX_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    # Ranks share processors, and must not wait in loops. MPI libraries unload their plug-ins, so that
    # LeakSanitizer cannot tell whose is what they keep.
    return kept | {
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMP_NUM_THREADS": "1",
        "ASAN_OPTIONS": "detect_leaks=0",
    }


def run(ranks, test, *plugins, code=0, has=(), lacks=(), options=(), within=60.0):
    """`has` and `lacks`: patterns of lines. Ranks 0: one, without dtrun."""
    launch = [DTRUN, "--tag", "none", "-np", str(ranks), *options] if ranks else []
    begin = time.monotonic()
    with subprocess.Popen([*launch, RANKS, test, *(plugins or [plugin()])], env=environment(),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as job:
        try:
            out = job.communicate(timeout=within)[0]
        except subprocess.TimeoutExpired:
            job.terminate()
            out = job.communicate()[0]
    took = time.monotonic() - begin
    lines = out.splitlines()
    wrong = [f"exit status {job.returncode}, not {code}"] if job.returncode != code else []
    if code == 0 and lines.count("ok") != max(ranks, 1):
        wrong.append(f"{lines.count('ok')} times ok")
    wrong += [f"no {text!r}" for text in has if not any(re.search(text, line) for line in lines)]
    wrong += [f"{text!r}" for text in lacks if any(re.search(text, line) for line in lines)]
    if took >= within:
        wrong.append(f"not within {within} s")
    name = f"{LIBRARY}: {test} with {ranks} ranks"
    print(f"{'FAILED' if wrong else 'ok'} {name} ({took:.2f} s)", flush=True)
    if wrong:
        failed.append(name)
        print("; ".join(wrong) + "\n" + out, flush=True)


def works():
    # MPICH's ranks wait in loops, and each step of four on two processors takes them 10 ms.
    run(1, "few", has=[f"^version: {TITLE[LIBRARY]} [0-9.]+$",
                         f"^transport: chosen by {TITLE[LIBRARY]}", "^CUDA-aware: (yes|no|unknown)",
                         "^threads: any number", "^begun by: dtrun"])
    run(2, "check")
    run(4, "chunks" if LIBRARY == "openmpi" else "few")
    run(2 if LIBRARY == "mpich" else 3, "chunks", plugin(folder=SMALL, suffix="_chunks"))
    run(2, "wraps")
    run(2, "threads")
    run(2, "begun", has=["^threads: one at a time, for MPI has begun with", "^begun by: the program",
                         "MPI_Finalize has been called", "it has called MPI_Finalize"])
    run(2, "interfaces", has=["^said: .*no network interface or address none0; its interfaces are ",
                              "^interfaces: .*UCX_NET_DEVICES=lo"])


def errors():
    run(2, "mixed", plugin(), plugin(OTHER),
        has=[f"^said: rank 0 uses {TITLE[LIBRARY]} and rank 1 {TITLE[OTHER]}: .*DTRUN_MPI_LIBRARY"])
    run(2, "generations", has=["^said: .*begun before the membership changed.* gloo$"])
    run(2, "truncated", has=["^said: MPI_Wait: .*[Tt]runcate"])
    run(0, "alone", has=["^said: .* sees 1 rank: the program was not started by dtrun with MPI"])
    with tempfile.TemporaryDirectory() as folder:
        # Open MPI fails where two processes that do not know of each other make its folder at the same moment.
        apart = f'TMPDIR={folder}/$DTRUN_RANK; export TMPDIR; mkdir "$TMPDIR" && exec "$@"'
        run(2, "alone", options=["--mpi", "none", "sh", "-c", apart, "sh"], has=["^said: .* sees 1 rank"])


def ends():
    run(3, "exit0", code=0)
    run(3, "exit3", code=3, within=40)
    run(3, "throw", code=134, has=["thrown by rank 1"], within=40)
    run(3, "abort", code=1, has=["called MPI_Abort"], within=40)


if not os.path.exists(plugin()):
    skip(f"no plug-in for {LIBRARY} (no mpicc.{LIBRARY})")
works()
if os.path.exists(plugin(OTHER)):
    errors()
ends()
if failed:
    sys.exit("failed: " + ", ".join(failed))
