"""check_state.py DTRUN: a daemon on a small disk takes what fits, and what makes room; one whose state is removed
says so."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

DTRUN = sys.argv[1]
MOUNT = 'mount -t tmpfs -o size=6m none "$0" && exec "$@"'

if os.geteuid() != 0:
    skip("only root can have a disk of 6 MB")
scratch = tempfile.TemporaryDirectory(prefix="dtrun-test-")
disk, secret = f"{scratch.name}/disk", f"{scratch.name}/secret"
os.mkdir(disk)
with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
    file.write("0123456789abcdef" * 4)
env = {**os.environ, "DTRUN_SECRET_FILE": secret, "DTRUN_JOB_NAME": "job"}
env.pop("DTRUN_SOCKET", None)
# The disk is there for the daemon alone, and goes with it.
daemon = subprocess.Popen(["unshare", "-m", "sh", "-c", MOUNT, disk, DTRUN, "serve", "--listen", "127.0.0.1:0",
                           "--state", f"{disk}/state"], stderr=subprocess.PIPE, text=True, env=env)


def wait_for(text):
    told = [""]
    while text not in told[-1]:
        told.append(daemon.stderr.readline())
        assert told[-1], told
    return told[-1]


def store(*words, **options):
    return subprocess.run([DTRUN, "store", *words, "--timeout", "5"], capture_output=True, env=env, timeout=60,
                          **options)


try:
    env["DTRUN_SERVE"] = "127.0.0.1:" + wait_for("serving on port").split()[-1]
    taken = 0
    while (done := store("set", f"key{taken}", "-", input=b"v" * 400_000)).returncode == 0:
        taken += 1
        assert taken < 15
    assert done.returncode == 4 and b"the daemon's disk is full" in done.stderr, done
    assert taken >= 3, taken
    for key in range(taken):
        done = store("rm", f"key{key}")
        assert done.returncode == 0, (key, taken, done)
    done = store("set", "key", "-", input=b"v" * 400_000)
    assert done.returncode == 0, done  # what was removed has made room

    shutil.rmtree(f"/proc/{daemon.pid}/root{disk}/state")
    wait_for("its state.db was removed")
    for words in (["set", "other", "value"], ["rm", "key"]):
        done = store(*words)
        assert done.returncode == 3 and b"the daemon's state was removed" in done.stderr, done
    assert len(store("get", "key").stdout) == 400_000
finally:
    daemon.kill()
