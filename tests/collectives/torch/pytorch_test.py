"""PyTorch's own distributed tests with the backend dtrun in place of gloo:

    pytorch_test.py DTRUN PYTHON
        what pytorch_cases.txt names, which is in torch itself
    pytorch_test.py DTRUN PYTHON [--ranks NUMBER] [--limit SECONDS] FOLDER [PATTERN...]
        files below FOLDER, which is PyTorch's test/distributed, and distributed_test, which is in torch

The latter prints a table: what gloo passes is what dtrun is asked to. Cases that make no group, or skip themselves, are
not in it. The ranks of a case meet by a daemon that this starts; see pytorch_cases.py.
"""

import contextlib
import glob
import os
import re
import secrets
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

DTRUN, PYTHON, *WANTED = sys.argv[1:]
HERE = os.path.dirname(os.path.abspath(__file__))


@contextlib.contextmanager
def daemon(folder):
    """:return: what processes need to meet there"""
    with open(f"{folder}/secret", "w", encoding="ascii") as file:
        os.chmod(file.name, 0o600)
        file.write(secrets.token_hex(32))
    serve = subprocess.Popen([DTRUN, "serve", "--listen", "127.0.0.1:0", "--secret-file", file.name],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        port = re.search(r"serving on port (\d+)", serve.stderr.readline())[1]
        yield {"DTRUN_SERVE": f"127.0.0.1:{port}", "DTRUN_SECRET_FILE": file.name}
    finally:
        serve.kill()
        serve.communicate()


def run(backend, module, meet, *options):
    """:return: names by outcome. They are told on standard error as they come, and what was said of those that failed"""
    outcomes = {"ok": [], "FAILED": [], "skipped": [], "alone": []}
    environment = dict(os.environ, OMP_NUM_THREADS="1", HOROVOD_STALL_CHECK_DISABLE="1", **meet)
    with subprocess.Popen([PYTHON, f"{HERE}/pytorch_cases.py", backend, *options, module], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, env=environment) as cases:
        for line in cases.stdout:
            print(f"{backend} {line}", end="", file=sys.stderr, flush=True)
            outcome, name, _ = line.split()
            outcomes[outcome].append(name)
    if cases.returncode != 0:
        outcomes["FAILED"].append("the file itself")
    return outcomes


def chosen(meet):
    with open(f"{HERE}/pytorch_cases.txt", encoding="utf-8") as file:
        names = {line.strip() for line in file if not line.startswith("#")}
    outcomes = run("dtrun", "distributed_test", meet, "--only", file.name)
    missing = names.difference(outcomes["ok"])
    print(f"{len(outcomes['ok'])} of {len(names)} of PyTorch's own cases pass", flush=True)
    if missing:
        sys.exit("failed, skipped or not there: " + ", ".join(sorted(missing)))


def table(meet, folder, patterns, options):
    modules = sorted({path for pattern in patterns for path in glob.glob(f"{folder}/{pattern}", recursive=True)})
    if "distributed_test" in patterns:
        modules.insert(0, "distributed_test")
    print("| file | cases | gloo | dtrun | not |\n|---|---|---|---|---|", flush=True)
    for module in modules:
        is_file = module != "distributed_test"
        given = [*options, *(("--on-cpu",) if is_file else ())]
        with_gloo = run("gloo", module, meet, *given)
        passed = with_gloo["ok"]
        outcomes = {"ok": []}
        if passed:
            with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
                file.write("\n".join(passed))
                file.flush()
                outcomes = run("dtrun", module, meet, *given, "--only", file.name)
        print(f"| {os.path.relpath(module, folder) if is_file else module} | {len(passed) + len(with_gloo['FAILED'])} | "
              f"{len(passed)} | {len(outcomes['ok'])} | {', '.join(sorted(set(passed).difference(outcomes['ok'])))} |",
              flush=True)


if subprocess.run([PYTHON, "-c", "import torch, expecttest"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
    skip(f"{PYTHON} has no torch, or no expecttest, which torch's tests need")
with tempfile.TemporaryDirectory() as scratch, daemon(scratch) as where:
    if WANTED:
        first = next(place for place in range(0, len(WANTED), 2) if not WANTED[place].startswith("--"))
        table(where, WANTED[first], WANTED[first + 1:] or ["distributed_test", "**/test_*.py"], WANTED[:first])
    else:
        chosen(where)
