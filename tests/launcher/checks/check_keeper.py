"""check_keeper.py DTRUN: what a log-in that is kept runs for jobs (dtrun-agent --keep), without ssh and without a holder."""
import os
import signal
import struct
import subprocess
import sys
import time

AGENT = os.path.join(os.path.dirname(os.path.realpath(sys.argv[1])), "dtrun-agent")
LIMIT_S = 60
WARM_STREAM = 73  # rendezvous/wire/messages.def
OPEN, INPUT, INPUT_END, OUTPUT, ERRORS, OUTPUT_END, EXITED, ALIVE = range(8)  # warm_messages.h
PIECE = b"\0" * (1 << 20)
UNREAD_PIECES_MAX = 32  # that a keeper keeps for an agent which does not read


def text(value):
    return b"\xda" + struct.pack(">H", len(value)) + value.encode()


def frame(stream, event, data=b""):
    payload = (b"\x83" + text("stream") + b"\xce" + struct.pack(">I", stream) + text("event") + bytes([event]) +
               text("bytes") + b"\xdb" + struct.pack(">I", len(data)) + data)
    return struct.pack(">IB3x", len(payload), WARM_STREAM) + payload


def unpack(data, at=0):
    """One value of msgpack, as messages have them, and where the next begins."""
    kind = data[at]
    at += 1
    if kind < 0x80:
        return kind, at
    if kind & 0xF0 == 0x80:
        entries = {}
        for _ in range(kind & 0xF):
            key, at = unpack(data, at)
            entries[key.decode()], at = unpack(data, at)
        return entries, at
    if 0xCC <= kind <= 0xCE:
        size = 1 << (kind - 0xCC)
        return int.from_bytes(data[at:at + size], "big"), at + size
    size = kind & 0x1F
    if kind >= 0xD9:
        length = 1 << (kind - 0xD9)
        size = int.from_bytes(data[at:at + length], "big")
        at += length
    return data[at:at + size], at + size


class Keeper:
    def __init__(self):
        self.process = subprocess.Popen([AGENT, "--keep"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline().startswith(b"dtrun-agent ")

    def say(self, *words):
        self.process.stdin.write(frame(*words))
        self.process.stdin.flush()

    def hear(self):
        header = self.process.stdout.read(8)
        assert len(header) == 8, "the keeper has ended"
        said, _ = unpack(self.process.stdout.read(struct.unpack(">I", header[:4])[0]))
        return said

    def hear_of(self, stream, event):
        """What comes before is of no interest."""
        while True:
            said = self.hear()
            if (said["stream"], said["event"]) == (stream, event):
                return said["bytes"]

    def open(self, stream):
        self.say(stream, OPEN)
        assert self.hear_of(stream, OUTPUT).startswith(b"dtrun-agent ")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(word) for word in file.read().split()]


def named(pids, name):
    for pid in pids:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            if file.read().strip() == name:
                return pid
    return None


def wait_until(is_so):
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_gone(pid):
    return not os.path.exists(f"/proc/{pid}")


def agents_of(keeper):
    """Agents, below the guards that the keeper has started."""
    found = [named(children(guard), "dtrun-agent") for guard in children(keeper.process.pid)]
    return [pid for pid in found if pid]


def descriptors_of(keeper):
    return len(os.listdir(f"/proc/{keeper.process.pid}/fd"))


def has_taken_all(keeper):
    keeper.say(0, ALIVE)
    keeper.hear_of(0, ALIVE)


def check_an_agent_that_does_not_read():
    """Its lifeline is cut before what it leaves unread fills the keeper, and another job's agent hears nothing of that."""
    keeper = Keeper()
    keeper.open(1)
    wait_until(lambda: len(agents_of(keeper)) == 1)
    stopped = agents_of(keeper)[0]
    os.kill(stopped, signal.SIGSTOP)
    keeper.open(2)
    keeper.open(3)
    opened = descriptors_of(keeper)
    for _ in range(UNREAD_PIECES_MAX - 2):
        keeper.say(1, INPUT, PIECE)
    has_taken_all(keeper)
    assert descriptors_of(keeper) == opened
    for _ in range(4):
        keeper.say(1, INPUT, PIECE)
    has_taken_all(keeper)
    assert descriptors_of(keeper) == opened - 1
    os.kill(stopped, signal.SIGCONT)
    keeper.hear_of(1, EXITED)
    keeper.say(2, INPUT_END)
    keeper.hear_of(2, EXITED)
    left = agents_of(keeper)
    assert len(left) == 1, left
    keeper.process.stdin.close()
    keeper.process.wait(LIMIT_S)
    wait_until(lambda: is_gone(left[0]))


def check_a_sign_of_life():
    keeper = Keeper()
    keeper.say(0, ALIVE)
    assert keeper.hear()["event"] == ALIVE
    keeper.say(0, INPUT_END)
    keeper.process.wait(LIMIT_S)


check_an_agent_that_does_not_read()
check_a_sign_of_life()
