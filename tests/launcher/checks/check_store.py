"""check_store.py DTRUN: `dtrun store` loses nothing without saying so, ends at its time limit, and goes on over a
restart of the daemon; inside a rank it tells nothing to a socket that somebody else has opened."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

DTRUN = sys.argv[1]
NOBODY = 65534
VALUE_BYTES_MAX = (16 << 20) - (256 << 10)

scratch = tempfile.TemporaryDirectory(prefix="dtrun-test-")
SECRET = f"{scratch.name}/secret"
with open(os.open(SECRET, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
    file.write("0123456789abcdef" * 4)
env = {**os.environ, "DTRUN_SECRET_FILE": SECRET, "DTRUN_JOB_NAME": "job"}
env.pop("DTRUN_SOCKET", None)


class Daemon:
    """`dtrun serve`, which keeps its port and its state over a restart."""

    def __init__(self, *words):
        self.port = 0
        self.words = words
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [DTRUN, "serve", "--listen", f"127.0.0.1:{self.port}", *self.words],
            stderr=subprocess.PIPE, text=True, env=env)
        self.told = []
        while "serving on port" not in (self.told or [""])[-1]:
            self.told.append(self.process.stderr.readline())
            assert self.told[-1], self.told
        self.port = int(self.told[-1].split()[-1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.told += self.process.stderr.readlines()
        assert self.process.wait(60) == 0, self.told


def store(*words, code=0, **options):
    done = subprocess.run([DTRUN, "store", *words], stderr=subprocess.PIPE, env=env, timeout=60,
                          **{"stdout": subprocess.PIPE, **options})
    assert done.returncode == code, (words, done)
    return done


def begin(*words, **variables):
    """The command prints "held" once it runs."""
    process = subprocess.Popen([DTRUN, "store", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**env, **variables})
    assert process.stdout.readline() == b"held\n"
    return process


daemon = Daemon("--state", f"{scratch.name}/state")
env["DTRUN_SERVE"] = f"127.0.0.1:{daemon.port}"
try:
    # What standard output does not take is an error.
    store("--job", "job", "set", "key", "value")
    with open("/dev/full", "w") as full:
        for words in (["get", "key"], ["ls"], ["add", "n", "1"], ["watch", "key"]):
            done = store(*words, code=210, stdout=full)
            assert b"standard output: " in done.stderr and b"No space left" in done.stderr, done
    gone, closed = os.pipe()
    os.close(gone)
    store("get", "key", code=141, stdout=closed)
    os.close(closed)

    # A value that cannot be read whole is not set.
    with open("/dev/zero") as endless:
        done = store("set", "key", "-", code=200, stdin=endless)
    assert f"more than {VALUE_BYTES_MAX} bytes".encode() in done.stderr, done
    directory = os.open("/", os.O_RDONLY)
    done = store("set", "key", "-", code=200, stdin=directory)
    assert b"standard input: Is a directory" in done.stderr, done
    os.close(directory)
    done = subprocess.run(["sh", "-c", '"$0" store set key - <&-', DTRUN], env=env, capture_output=True, timeout=60)
    assert done.returncode == 200 and b"standard input is closed" in done.stderr, done
    assert store("get", "key").stdout == b"value"
    store("set", "empty", "-", stdin=subprocess.DEVNULL)
    assert store("get", "empty").stdout == b""

    # Exit codes tell what is wrong.
    store("get", "missing", code=1)
    os.chmod(SECRET, 0o640)
    store("get", "key", code=200)
    os.chmod(SECRET, 0o600)
    store("rm", "missing", code=1)
    store("wait", "missing", "--timeout", "0", code=1)
    store("add", "key", "1", code=2)
    store("set", "k" * (65 << 10), "v", code=3)
    assert store("ls", "-0").stdout == b"empty\0key\0n\0"
    assert store("count").stdout == b"3\n"

    # What scripts make locks and queues of.
    store("create", "lock", "mine")
    assert store("create", "lock", "yours", code=1).stdout == b"mine"
    assert store("compare-set", "lock", "yours", "stolen", code=1).stdout == b"mine"
    store("compare-set", "lock", "mine", "-", input=b"a\0b")
    assert store("get", "lock").stdout == b"a\0b"
    assert store("compare-set", "missing", "a", "b", code=1).stdout == b""
    store("rm", "lock")
    assert store("append", "text", "abc").stdout == b"3\n"
    assert store("append", "text", "de").stdout == b"5\n"
    store("pop", "work", code=1)
    assert [store("push", "work", item).stdout for item in ("one", "two")] == [b"1\n", b"2\n"]
    assert store("length", "work").stdout == b"2\n"
    assert [store("pop", "work", "--timeout", "5").stdout for _ in range(2)] == [b"one", b"two"]
    assert store("length", "work").stdout == b"0\n"
    store("push", "text", "x", code=2)
    store("length", "text", code=2)
    store("pop", "work", "--timeout", "0.1", code=1)
    store("push", "work", "stays")
    for verb in ("pop", "get"):
        closed = subprocess.run(["sh", "-c", f'exec "$0" store {verb} work >&-', DTRUN], env=env, timeout=60,
                                stderr=subprocess.PIPE)
        assert closed.returncode == 210 and b"standard output: it is closed" in closed.stderr, closed
    assert store("pop", "work").stdout == b"stays"

    # A lock is held while its command runs, which knows the token.
    script = 'echo $DTRUN_LOCK; echo $DTRUN_LOCK_TOKEN; "$0" store get "$DTRUN_LOCK"; exit 7'
    name, token, value = store("lock", "--value", "me", "one", "sh", "-c", script, DTRUN, code=7).stdout.split(b"\n")
    assert (name, value) == (b"one", b"me")
    store("get", "one", code=1)
    holder = begin("lock", "one", "sh", "-c", "echo held; exec cat")
    done = store("lock", "one", "--timeout", "0.1", "true", code=205)
    assert f"it is held by {socket.gethostname()}:{holder.pid}".encode() in done.stderr, done
    waits = subprocess.Popen([DTRUN, "store", "lock", "one", "--timeout", "1000", "--", "sh", "-c", "echo $DTRUN_LOCK_TOKEN"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    early = subprocess.Popen([DTRUN, "store", "wait", "early", "later"], stderr=subprocess.PIPE, env=env)
    # Who waits is told for what, and until when.
    told = waits.stderr.readline()
    assert re.fullmatch(rb"dtrun: waiting for the lock one \(until \d\d:\d\d, --timeout\)\n", told), told
    told = early.stderr.readline()
    assert told == b"dtrun: waiting for early and later\n", told
    for key in ("early", "later"):
        store("set", key, "here")
    assert early.wait(60) == 0
    for key in ("early", "later"):
        store("rm", key)
    holder.communicate(timeout=60)
    assert holder.returncode == 0
    assert int(waits.communicate(timeout=60)[0]) > int(token) and waits.returncode == 0
    store("lock", "one", f"{scratch.name}/nothing", code=127)
    store("lock", "one", scratch.name, code=126)
    store("lock", "one", f"{SECRET}/below", code=126)
    # Also where whoever has started us wants to hear nothing of children.
    deaf = subprocess.run(["sh", "-c", "trap '' CHLD; exec \"$0\" store lock one -- sh -c 'exit 7'", DTRUN], env=env, timeout=60)
    assert deaf.returncode == 7, deaf
    holder = begin("lock", "one", "sh", "-c", "trap 'exit 9' TERM; echo held; while :; do sleep 0.1; done")
    holder.send_signal(signal.SIGTERM)
    holder.communicate(timeout=60)
    assert holder.returncode == 9
    holder = begin("lock", "one", "sh", "-c", "echo held; sleep 60; echo not this")
    store("rm", "one")
    out, told = holder.communicate(timeout=60)
    assert holder.returncode == 204 and out == b"" and b"one: the lock was lost, and sh is ended: " in told, told

    # A key may be there for a while only; many are removed, and watched, as one.
    store("set", "brief", "v", "--ttl", "0.2")
    while subprocess.run([DTRUN, "store", "get", "brief"], env=env, capture_output=True, timeout=60).returncode == 0:
        pass
    store("set", "p/a", "1")
    changes = subprocess.Popen([DTRUN, "store", "watch", "-0", "--prefix", "p/"], stdout=subprocess.PIPE, env=env)
    rows = subprocess.Popen([DTRUN, "store", "watch", "--prefix", "p/"], stdout=subprocess.PIPE, env=env)
    assert changes.stdout.read(7) == b"p/a\0=1\0"
    assert rows.stdout.readline() == b"p/a\t=1\n"
    store("push", "p/q", "item")
    store("rm", "p/a")
    assert changes.stdout.read(12) == b"p/q\0*\0p/a\0-\0"
    assert [rows.stdout.readline() for _ in range(2)] == [b"p/q\t*\n", b"p/a\t-\n"]
    store("rm", "p/q")
    store("set", "p/b", "2")
    assert changes.stdout.read(13) == b"p/q\0-\0p/b\0=2\0"
    assert [rows.stdout.readline() for _ in range(2)] == [b"p/q\t-\n", b"p/b\t=2\n"]
    store("watch", "--prefix", "p/", "--timeout", "0.1", code=1)

    # A watch sees values, their ends and removals, and goes on over a restart of the daemon, orderly or not.
    watch = subprocess.Popen([DTRUN, "store", "watch", "-0", "key"], stdout=subprocess.PIPE, env=env)
    lines = subprocess.Popen([DTRUN, "store", "watch", "key"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert watch.stdout.read(7) == b"=value\0"
    assert lines.stdout.readline() == b"value\n"
    store("set", "key", "two\nlines")
    assert watch.stdout.read(11) == b"=two\nlines\0"
    assert [lines.stdout.readline() for _ in range(2)] == [b"two\n", b"lines\n"]
    store("rm", "key")
    assert watch.stdout.read(2) == b"-\0"
    assert lines.stderr.readline() == b"dtrun: key: removed\n"
    holder = begin("lock", "one", "sh", "-c", "echo held; exec cat")
    daemon.stop()
    short = [line for line in daemon.told if "connection from" in line]
    assert not short, short  # who comes and goes is no news
    daemon.start()
    store("set", "key", "after")
    assert watch.stdout.read(7) == b"=after\0"
    daemon.process.kill()
    daemon.process.wait()
    daemon.start()
    store("set", "key", "again")
    assert watch.stdout.read(7) == b"=again\0"
    # So does a lock; and who watches many learns what has gone, and nothing twice.
    assert holder.poll() is None
    store("lock", "one", "--timeout", "0", "true", code=205)
    holder.communicate(timeout=60)
    assert holder.returncode == 0
    assert store("rm", "--prefix", "p/").stdout == b"1\n"
    assert store("rm", "--prefix", "p/", code=1).stdout == b"0\n"
    assert changes.stdout.read(6) == b"p/b\0-\0"
    assert rows.stdout.readline() == b"p/b\t-\n"
    for process in (watch, lines, changes, rows):
        process.kill()
        process.communicate()

    # The state is copied while it is used.
    for words in ([f"--backup={scratch.name}/backup", "--state", f"{scratch.name}/state"],
                  [f"--restore={scratch.name}/backup", "--state", f"{scratch.name}/other"]):
        done = subprocess.run([DTRUN, "serve", *words], stderr=subprocess.PIPE, env=env, timeout=60)
        assert done.returncode == 0, done
    assert b"other has 1 job" in done.stderr, done
    for words, code in ((["--restore", f"{scratch.name}/backup", "--state", f"{scratch.name}/other"], 200),
                        (["--restore", f"{scratch.name}/backup", "--state", f"{scratch.name}/state", "--replace"], 200),
                        (["--backup", f"{scratch.name}/nowhere/backup", "--state", f"{scratch.name}/state"], 200),
                        (["--backup", "file"], 200)):
        done = subprocess.run([DTRUN, "serve", *words], stderr=subprocess.PIPE, env=env, timeout=60)
        assert done.returncode == code, done

    # A job is dropped as a whole.
    store("drop")
    done = store("drop", code=1)
    assert b'no job "job"' in done.stderr, done
    store("get", "key", code=1)

    # What is full is told from what is wrong.
    small = Daemon("--store-limit", "1M")
    store("set", "k", "-", "--server", f"127.0.0.1:{small.port}", code=4, input=b"v" * (1 << 20))
    small.stop()

    # A port that is taken is a matter of --listen.
    done = subprocess.run([DTRUN, "serve", "--listen", f"127.0.0.1:{daemon.port}"], stderr=subprocess.PIPE, env=env,
                          timeout=60)
    assert done.returncode == 200 and b"write --listen ADDRESS:PORT" in done.stderr, done

    # A daemon that does not answer any more ends nobody's time.
    holder = begin("lock", "one", "sh", "-c", "echo held; sleep 60", DTRUN_SERVER_TIMEOUT="1")
    ends = begin("lock", "three", "sh", "-c", "echo held; exec cat")
    waits = subprocess.Popen([DTRUN, "store", "wait", "key", "--timeout", "5"], stderr=subprocess.PIPE, env=env)
    waiting = 0
    while not waiting:
        status = subprocess.run([DTRUN, "status", "--json"], env=env, stdout=subprocess.PIPE, timeout=60)
        waiting = sum(job["waiting"] for job in json.loads(status.stdout or '{"jobs":[]}')["jobs"])
        assert waits.poll() is None
    daemon.process.send_signal(signal.SIGSTOP)
    store("get", "key", "--timeout", "1", code=201)
    store("lock", "other", "--timeout", "1", "true", code=201)
    told = waits.communicate(timeout=60)[1]
    assert waits.returncode == 201 and b"has not answered for " in told, (waits.returncode, told)
    told = holder.communicate(timeout=60)[1]
    assert holder.returncode == 204 and b"it did not come back in time" in told, (holder.returncode, told)
    # A command may end while its daemon is looked for.
    ends.stdin.close()
    time.sleep(0.5)
    daemon.process.send_signal(signal.SIGCONT)
    ends.stdin = None
    told = ends.communicate(timeout=60)[1]
    assert ends.returncode == 0, (ends.returncode, told)
    store("lock", "three", "--timeout", "0", "true")
    daemon.stop()
finally:
    daemon.process.kill()

# Where dtrun is not installed ranks have `dtrun store` of the agent, and are told that they have no more.
SCRIPT = """
case $(command -v dtrun) in /dev/shm/*|/tmp/*) ;; *) exit 77;; esac
printf 'a b' | dtrun store set from/$DTRUN_RANK - && dtrun store --timeout 50 wait from/0 from/1
[ "$(dtrun store get from/1)" = 'a b' ] && [ "$(dtrun store ls | wc -l)" = 2 ] || exit 78
dtrun store get nothing 2>/dev/null; [ $? = 1 ] || exit 79
dtrun store --help | grep -q 'the agent of the job' || exit 80
dtrun -np 2 true; [ $? = 200 ] || exit 81
env -u DTRUN_SOCKET dtrun store ls; [ $? = 200 ] || exit 82
"""
done = subprocess.run([DTRUN, "-np", "2", "sh", "-c", SCRIPT], capture_output=True, text=True, timeout=60,
                      env={**os.environ, "PATH": "/usr/bin:/bin"})
assert done.returncode == 0, done
assert done.stderr.count("dtrun is not installed on this host: ") == 2, done
assert done.stderr.count("DTRUN_SOCKET is not set here") == 2, done

if os.geteuid() != 0:
    skip("only root can be somebody else")
name = f"dtrun-test-{os.getpid()}"
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
os.seteuid(NOBODY)
listener.bind(f"\0{name}")
listener.listen()
os.seteuid(0)
done = subprocess.run([DTRUN, "store", "set", "password", "sesame"], capture_output=True, text=True,
                      env={**os.environ, "DTRUN_SOCKET": f"@{name}"}, timeout=60)
assert done.returncode == 202 and f"belongs to user {NOBODY}" in done.stderr, done
connection, _ = listener.accept()
assert connection.recv(100) == b""
