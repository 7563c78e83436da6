"""The plug-in for oneCCL, in ranks on this machine:

    oneccl_backend_test.py DTRUN ONECCL_RANKS PLUGIN LIBRARY

LIBRARY is oneCCL's, unless DTRUN_ONECCL_LIBRARY names another. A machine that lacks it says SKIPPED; where
everything must be there (CI), that is a failure.
"""

import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

DTRUN, RANKS, PLUGIN, LIBRARY = sys.argv[1:]
failed = []


def environment():
    outer = ("SLURM", "PMI", "OMPI_", "HYDRA", "DTRUN_", "MPI", "UCX_", "CCL_", "FI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    # What oneCCL and libfabric keep is their own affair.
    kept |= {"OMP_NUM_THREADS": "1", "ASAN_OPTIONS": "detect_leaks=0"}
    given = os.environ.get("DTRUN_ONECCL_LIBRARY", LIBRARY)
    return kept | ({"DTRUN_ONECCL_LIBRARY": given} if os.path.exists(given) else {})


def run(ranks, test, code=0, oks=None, has=(), options=(), within=60.0):
    """`has`: patterns of lines."""
    begin = time.monotonic()
    command = [DTRUN, "--tag", "none", "-np", str(ranks), *options, RANKS, test, PLUGIN]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        try:
            out = job.communicate(timeout=within)[0]
        except subprocess.TimeoutExpired:
            job.terminate()
            out = job.communicate()[0]
    took = time.monotonic() - begin
    lines = out.splitlines()
    oks = ranks if oks is None else oks
    wrong = [f"exit status {job.returncode}, not {code}"] if job.returncode != code else []
    if lines.count("ok") != oks:
        wrong.append(f"{lines.count('ok')} times ok, not {oks}")
    wrong += [f"no {text!r}" for text in has if not any(re.search(text, line) for line in lines)]
    if took >= within:
        wrong.append(f"not within {within} s")
    name = f"oneccl: {test} with {ranks} ranks"
    print(f"{'FAILED' if wrong else 'ok'} {name} ({took:.2f} s)", flush=True)
    if wrong:
        failed.append(name)
        print("; ".join(wrong) + "\n" + out, flush=True)


def works():
    run(1, "few", has=["^version: oneCCL [0-9.]+$", "^transport: libfabric$"])
    run(2, "check")
    run(4, "few")
    run(2, "wraps")
    run(2, "threads")
    run(2, "interfaces", has=["^said: .*rank 1: .*no network interface or address none0; its",
                              "^settings: .*FI_TCP_IFACE=lo"])


def errors():
    run(3, "absent", has=["^said: .*not all 3 ranks have come within 0.5 s: ranks? (0, )?1(, 2)? missing"])
    over = ["^said: oneccl: .*abort\\(\\) was called$", "^after: .*cannot be used again.* gloo$"]
    run(2, "operation", has=over)
    run(2, "messages", has=over)
    run(2, "killed", code=137, oks=1, has=over, options=["--keep-going"])


probe = subprocess.run([RANKS, "probe", PLUGIN], env=environment(), stdout=subprocess.PIPE, text=True,
                       check=False)
if probe.returncode != 0:
    skip(probe.stdout.strip())
works()
errors()
if failed:
    sys.exit("failed: " + ", ".join(failed))
