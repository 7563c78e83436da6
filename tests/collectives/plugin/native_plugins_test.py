"""Plug-ins that were built on a host, and a library from elsewhere that finds them there:

    native_plugins_test.py DTRUN LIBRARIES PYTHON [SOURCE]

With SOURCE plug-ins are built of it as `./dev backends` does; else those beside LIBRARIES are copied.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

DTRUN, LIBRARIES, PYTHON, *SOURCE = sys.argv[1:]
RANK = """
import array, dtrun
from dtrun.collectives import Communicator
with dtrun.Worker() as worker, Communicator(worker, backend="gloo") as comm:
    values = array.array("f", [worker.rank + 1])
    comm.allreduce(values)
    print("sum", values[0])
"""
failed = []


def build(home):
    folder = home + "/build"
    for words in (["-S", SOURCE[0], "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DDTRUN_BACKENDS=ONLY"],
                  ["--build", folder, "--target", "dtrun_backends"],
                  ["--install", folder, "--component", "backends", "--prefix", home + "/.local"]):
        subprocess.run(["cmake", *words], check=True, stdout=subprocess.DEVNULL)
    return glob.glob(home + "/.local/lib*/dtrun/backends")[0]


def copy(home):
    backends = home + "/.local/lib/dtrun/backends"
    shutil.copytree(LIBRARIES + "/dtrun/backends", backends, ignore=lambda _, names: [
        name for name in names if not name.startswith(("libdtrun_backend_gloo", "libdtrun_backend_mpi"))])
    return backends


def check(name, home, code, *texts, backends=None):
    """Two ranks with a library that has no plug-in beside it, of a user whose home this is."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DTRUN_", "SLURM"))}
    kept |= {"HOME": home, "PYTHONPATH": PYTHON, "PYTHONDONTWRITEBYTECODE": "1", "LIBDTRUN_PATH": home + "/lib/libdtrun.so.0",
             "LIBDTRUN_COLLECTIVES_PATH": home + "/lib/libdtrun_collectives.so.0"}
    if backends:
        kept["DTRUN_BACKEND_DIR"] = backends
    done = subprocess.run([DTRUN, "-np", "2", "/usr/bin/python3", "-c", RANK], env=kept, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    missing = [text for text in texts if text not in done.stdout]
    good = (done.returncode == 0) == (code == 0) and not missing
    print("ok" if good else "FAILED", name, flush=True)
    if not good:
        failed.append(name)
        print(f"exit status {done.returncode}, without {missing}\n{done.stdout}", flush=True)


if not os.path.exists(LIBRARIES + "/dtrun/backends/libdtrun_backend_gloo.so"):
    skip("no plug-in for gloo")
if any(glob.glob(f"/usr{folder}/dtrun/backends/libdtrun_backend_gloo.so")
       for folder in ("/lib*", "/lib/*", "/local/lib*", "/local/lib/*")):
    skip("this machine has a plug-in for gloo, which would be found")
os.umask(0o022)
with tempfile.TemporaryDirectory() as home:
    os.mkdir(home + "/lib")
    for library in ("libdtrun.so.0", "libdtrun_collectives.so.0"):
        shutil.copy(f"{LIBRARIES}/{library}", home + "/lib")
    beside = home + "/lib/dtrun/backends"
    check("without a plug-in", home, 1, f"no libdtrun_backend_gloo.so in {beside}", "`./dev backends`")
    backends = (build if SOURCE else copy)(home)
    check("in ~/.local", home, 0, "sum 3.0")
    os.chmod(backends, 0o777)
    check("in a folder that others can write to", home, 1, f"others can write to {backends}: chmod go-w {backends}")
    check("in a folder that somebody names", home, 0, "sum 3.0", backends="/nowhere:" + backends)
    os.chmod(backends, 0o755)
    if os.geteuid() == 0:
        os.chmod(backends, 0o775)
        check("in a folder that one's own group can write to", home, 0, "sum 3.0")
    if os.geteuid() == 0:
        os.chown(backends, 12345, 12345)
        check("in somebody else's folder", home, 1, f"{backends} belongs to somebody else, user 12345")
if failed:
    sys.exit("failed: " + ", ".join(failed))
