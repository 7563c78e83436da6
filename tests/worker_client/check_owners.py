"""check_owners.py DTRUN: leaders behind a real daemon: one that is killed is replaced within the heartbeat's time, one
that stands still cannot write when another has its lock; and a daemon that dies, or stands still, takes nothing from
those who are there. And the example of docs/CLIENT.md of who is there."""
import os
import signal
import subprocess
import sys
import tempfile
import time

DTRUN = sys.argv[1]
SLACK = 10  # of a machine with much else to do

scratch = tempfile.TemporaryDirectory(prefix="dtrun-test-")
SECRET = f"{scratch.name}/secret"
with open(os.open(SECRET, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
    file.write("0123456789abcdef" * 4)
env = {**os.environ, "DTRUN_SECRET_FILE": SECRET, "DTRUN_JOB_NAME": "job", "RANK": "0", "WORLD_SIZE": "1"}
for name in ("DTRUN_SOCKET", "SLURM_STEP_ID"):
    env.pop(name, None)
without_sanitizer = {key: value for key, value in env.items() if key != "LD_PRELOAD"}


class Daemon:
    def __init__(self):
        self.port = 0
        self.start("3")
        env["DTRUN_SERVE"] = f"127.0.0.1:{self.port}"

    def start(self, timeout):
        self.process = subprocess.Popen(
            [DTRUN, "serve", "--listen", f"127.0.0.1:{self.port}", "--state", f"{scratch.name}/state",
             "--heartbeat-timeout", timeout], stderr=subprocess.PIPE, text=True, env=without_sanitizer)
        told = []
        while "serving on port" not in (told or [""])[-1]:
            told.append(self.process.stderr.readline())
            assert told[-1], told
        self.port = int(told[-1].split()[-1])

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


PROGRAM = """
import dtrun, sys
def say(*words): print(*words, flush=True)
with dtrun.Worker() as w:
    say("there")
    for line in sys.stdin:
        words = line.split()
        if words[0] == "lock":
            token = w.lock("leader", sys.argv[1])
            say("leads", int(token))
        if words[0] == "write":
            say(w.transact(if_=[("revision", "leader", token)], then=[("set", "state", sys.argv[1])]).done)
        if words[0] == "unlock":
            say(token.release())
        if words[0] == "who":
            say(w.get("leader", 0).decode())
        if words[0] == "join":
            w.put("members/" + sys.argv[1], "here", ephemeral=True)
            say("joined")
        if words[0] == "watch":
            for change in w.watch_prefix("members/"):
                say(change.key.decode(), "gone" if change.is_deleted else change.value.decode())
"""


class Program:
    def __init__(self, name):
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, name], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=env)
        assert self.hears() == "there"

    def tell(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def hears(self):
        return self.process.stdout.readline().strip()

    def asks(self, words):
        self.tell(words)
        return self.hears()

    def end(self):
        self.process.kill()
        self.process.wait()


def token_of(words):
    assert words.startswith("leads "), words
    return int(words.split()[1])


daemon = Daemon()
programs = [Program(name) for name in ("anna", "bert", "cleo")]
anna, bert, cleo = programs
try:
    # A leader that is killed is replaced.
    first = token_of(anna.asks("lock"))
    assert anna.asks("write") == "True"
    bert.tell("lock")
    began = time.monotonic()
    anna.process.kill()
    second = token_of(bert.hears())
    assert time.monotonic() - began < 3 + SLACK, time.monotonic() - began
    assert second > first and cleo.asks("who") == "bert"

    # A daemon that is killed, and one that stands still, take no lock from who is there.
    daemon.kill()
    daemon.start("1")
    assert bert.asks("write") == "True"
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(5)
    daemon.process.send_signal(signal.SIGCONT)
    assert bert.asks("write") == "True"

    # A leader that stands still is replaced, and cannot write when it goes on. Its machine answers, so it is given
    # four times the heartbeat's time.
    bert.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    third = token_of(cleo.asks("lock"))
    assert time.monotonic() - began < 4 + SLACK, time.monotonic() - began
    assert third > second and cleo.asks("write") == "True"
    bert.process.send_signal(signal.SIGCONT)
    assert bert.asks("write") == "False"
    assert bert.asks("unlock") == "False"
    assert cleo.asks("write") == "True"
    assert cleo.asks("unlock") == "True"

    # Who is there.
    assert bert.asks("join") == "joined"
    cleo.tell("watch")
    assert cleo.hears() == "members/bert here"
    programs.append(Program("dora"))
    assert programs[-1].asks("join") == "joined"
    assert cleo.hears() == "members/dora here"
    bert.end()
    assert cleo.hears() == "members/bert gone"
finally:
    for program in programs:
        program.end()
    daemon.kill()
