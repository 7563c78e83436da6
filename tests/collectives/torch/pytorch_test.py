"""PyTorch's own distributed tests with the backend dtrun in place of gloo:

    pytorch_test.py DTRUN PYTHON                       what pytorch_cases.txt names, which is in torch itself
    pytorch_test.py DTRUN PYTHON FOLDER [PATTERN...]   files below FOLDER, which is PyTorch's test/distributed

The latter prints a table: what gloo passes is what dtrun is asked to. The ranks of a case meet by a daemon that this
starts; see pytorch_cases.py.
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
    """:return: names by outcome"""
    done = subprocess.run([PYTHON, f"{HERE}/pytorch_cases.py", backend, *options, module], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env=dict(os.environ, OMP_NUM_THREADS="1", HOROVOD_STALL_CHECK_DISABLE="1", **meet))
    outcomes = {"ok": [], "FAILED": [], "skipped": []}
    for outcome, name, _ in (line.split() for line in done.stdout.splitlines()):
        outcomes[outcome].append(name)
    if outcomes["FAILED"] or done.returncode != 0:
        print(done.stderr[-20000:], file=sys.stderr, flush=True)
    return outcomes


def chosen(meet):
    with open(f"{HERE}/pytorch_cases.txt", encoding="utf-8") as file:
        names = {line.strip() for line in file if not line.startswith("#")}
    outcomes = run("dtrun", "distributed_test", meet, "--only", file.name)
    missing = names.difference(outcomes["ok"])
    print(f"{len(outcomes['ok'])} of {len(names)} of PyTorch's own cases pass", flush=True)
    if missing:
        sys.exit("failed, skipped or not there: " + ", ".join(sorted(missing)))


def table(meet, folder, patterns):
    modules = sorted({path for pattern in patterns for path in glob.glob(f"{folder}/{pattern}", recursive=True)})
    print("| file | gloo | dtrun | not |\n|---|---|---|---|", flush=True)
    for module in ["distributed_test", *modules]:
        options = () if module == "distributed_test" else ("--on-cpu",)
        passed = run("gloo", module, meet, *options)["ok"]
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write("\n".join(passed) or "none")
            file.flush()
            outcomes = run("dtrun", module, meet, *options, "--only", file.name)
        print(f"| {os.path.relpath(module, folder) if options else module} | {len(passed)} | {len(outcomes['ok'])} | "
              f"{', '.join(sorted(set(passed).difference(outcomes['ok'])))} |", flush=True)


if subprocess.run([PYTHON, "-c", "import torch, expecttest"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
    skip(f"{PYTHON} has no torch, or no expecttest, which torch's tests need")
with tempfile.TemporaryDirectory() as scratch, daemon(scratch) as where:
    if WANTED:
        table(where, WANTED[0], WANTED[1:] or ["**/test_*.py"])
    else:
        chosen(where)
