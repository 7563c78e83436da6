"""libdtrun_collectives over one backend, in ranks on this machine, in C++ and Python:

    comm_test.py dtrun|gloo|mpi DTRUN BIN PLUGINS
"""

import glob
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

BACKEND, DTRUN, BIN, PLUGINS = sys.argv[1:]
HERE = os.path.dirname(os.path.abspath(__file__))
failed = []


def environment(more=()):
    outer = ("SLURM", "PMI", "OMPI_", "HYDRA", "DTRUN_", "MPI", "UCX_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    # Ranks share processors, and must not wait in loops.
    kept |= {"OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1", "DTRUN_MPI_LIBRARY": "openmpi"}
    return kept | dict(more)


def check(name, command, code=0, has=(), oks=None, within=60.0, more=()):
    """`has`: patterns of lines, each with how often, None: at least once; oks: how many ranks print that they are."""
    begin = time.monotonic()
    if BACKEND == "mpi":  # what MPI keeps is its own affair, and unloaded at the end
        more = dict(more) | {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(command, env=environment(more), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, text=True,
                          check=False)
    took = time.monotonic() - begin
    lines = [re.sub(r"^\[\d+\](<\w+>)?: ?", "", line) for line in done.stdout.splitlines()]
    wrong = [f"exit status {done.returncode}, not {code}"] if done.returncode != code else []
    if oks is not None and lines.count("ok") != oks:
        wrong.append(f"{lines.count('ok')} times ok, not {oks}")
    for pattern, times in has:
        found = sum(bool(re.search(pattern, line)) for line in lines)
        if not found or times not in (None, found):
            wrong.append(f"{found} times {pattern!r}, not {times or 'any'}")
    if took > within:
        wrong.append(f"not within {within} s")
    print(f"{'FAILED' if wrong else 'ok'} {name} ({took:.2f} s)", flush=True)
    if wrong:
        failed.append(name)
        print("; ".join(wrong) + "\n" + done.stdout, flush=True)


def run(ranks, mode, *options, **more):
    check(f"{BACKEND}: {mode} with {ranks} ranks",
          [DTRUN, "-np", str(ranks), *options, f"{BIN}/comm_ranks", mode, BACKEND], **more)


def works():
    for ranks in (1, 2, 4):
        run(ranks, "works", oks=ranks)
    preload = os.environ.get("SANITIZERS")
    options = [f"LD_PRELOAD={preload}", "ASAN_OPTIONS=detect_leaks=0"] if preload else []
    check(f"{BACKEND}: Python", [DTRUN, "-np", "3", *options, "/usr/bin/python3", f"{HERE}/comm_works.py",
                                 BACKEND], oks=3)


def chooses():
    check("auto takes dtrun's own", [DTRUN, "-np", "2", f"{BIN}/comm_ranks", "works", "auto"], oks=2,
          has=[(r"over dtrun, the best that every rank has", 1)])
    check("a backend that nobody has is refused with a reason",
          [DTRUN, "-np", "2", f"{BIN}/comm_ranks", "works", "smoke"], code=1,
          has=[(r'^the backend "smoke" is not there: rank 0 on \w+: no libdtrun_backend_smoke\.so in /', None)])


def goes_wrong():
    # The ranks are not ended by dtrun, so that they tell what they are told.
    keep = ["--keep-going"]
    run(4, "killed", *keep, code=137, oks=3, within=30,
        has=[(r"^peer lost: rank 3 on \w+ is gone", 3), ("^then: the communicator is broken", 3)])
    run(4, "leaves", *keep, code=0, oks=4, within=30, has=[(r"^peer lost: rank 3 on \w+ is gone", 3)])
    run(4, "disagrees", *keep, code=0, oks=4, within=30,
        has=[(r"^invalid argument: ranks disagree: .* calls allreduce of 104857[56] f32", 4)])
    run(4, "aborts", *keep, code=0, oks=4, within=30,
        has=[("^cancelled: rank 3 has seen enough", 1),
             (r"^peer lost: rank 3 on \w+ has ended it: rank 3 has seen enough", 3)])

    run(4, "split killed", *keep, code=137, oks=3, within=30, has=[(r"^peer lost: rank 3 on \w+ is gone", 3)])
    run(4, "types", *keep, code=0, oks=4, within=30,
        has=[(r"^invalid argument: ranks disagree: .* calls allgather of 10 i16, .* calls allgather of 10 f16", 4)])
    run(4, "split disagrees", *keep, code=0, oks=4, within=30,
        has=[(r"^invalid argument: ranks disagree: .* calls (split|barrier), .* calls (split|barrier)", 4)])
    run(4, "split aborts", *keep, code=0, oks=4, within=30,
        has=[("^cancelled: rank 3 has seen enough", 1), (r"^peer lost: rank 3 on \w+ has ended it", 3)])


def elastic():
    with tempfile.TemporaryDirectory() as folder:
        secret = f"{folder}/secret"
        with open(secret, "w", encoding="ascii") as file:
            file.write("a secret of the test\n" * 2)
        os.chmod(secret, 0o600)
        daemon = subprocess.Popen([DTRUN, "serve", "--listen", "127.0.0.1:0", "--secret-file", secret],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            line = daemon.stderr.readline()
            address = "127.0.0.1:" + re.search(r"serving on port (\d+)", line)[1]
            member = [f"{BIN}/comm_ranks", "elastic", BACKEND]
            more = {"DTRUN_SERVE": address, "DTRUN_SECRET_FILE": secret, "DTRUN_JOB_NAME": "elastic",
                    "DTRUN_MIN_NP": "2", "DTRUN_MAX_NP": "3"}
            members = [subprocess.Popen(member, env=environment(more), stdout=subprocess.PIPE, text=True)
                       for _ in range(3)]
            said = [process.communicate(timeout=60)[0] for process in members]
            codes = sorted(process.returncode for process in members)
        finally:
            daemon.kill()
            daemon.communicate()
        # Either the connection to it breaks first, or the daemon's news comes first, which names no rank.
        lost = r"^peer lost: (rank 1 on \S+ is gone|.*a rank (of this generation )?is lost)"
        whole = [text for text in said if re.search(lost, text, re.M)
                 and re.search(r"^generation 2: rank \d of 2$", text, re.M) and text.endswith("ok\n")]
        good = codes == [-9, 0, 0] and len(whole) == 2
        print(f"{'ok' if good else 'FAILED'} {BACKEND}: a new communicator after a rank is lost", flush=True)
        if not good:
            failed.append("elastic")
            print(codes, *said, sep="\n", flush=True)


plugins = glob.glob(f"{PLUGINS}/libdtrun_backend_{BACKEND}*.so")
if not plugins and BACKEND != "dtrun":
    skip(f"no plug-in for {BACKEND}")
works()
if BACKEND != "gloo":
    run(2, "messages", code=0, oks=2, has=[("^internal: .*has sent 40 B where this one receives 48", 1)])
if BACKEND == "dtrun":
    chooses()
    goes_wrong()
    run(3, "frees", oks=3, within=30)
if BACKEND != "mpi":
    elastic()
if failed:
    sys.exit("failed: " + ", ".join(failed))
