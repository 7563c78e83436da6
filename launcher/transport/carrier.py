"""Receives the agent on a host that lacks it, and passes on what has come while the rest is still coming.

The start script (agent_script.h) runs this where there is a python3, by `-c`: dtrun has sent its text. When it has
begun, it leaves the process that was started, which has a time limit, says at which port others may fetch, reads a line
which tells from whom the bytes come ("PORT ADDRESS", or nothing: by standard input, behind that line), and receives
them. Then it goes on giving them (docs/decisions/047-cut-through.md).

Arguments: the file to make, its bytes, their SHA-256, the word that others say, seconds without a byte or a connection,
and the process with which to end. Standard error has lines "carrier: WORD": "taken", bytes of standard input may be gone
from here on; and, as the last one, "all" is there, "unreached", who was to give it, "again", who gave it has failed, or
"failed WHY", it cannot be stored. Without any of these nothing was done, as by a Python that is too old, or that had not begun in time.
"""
import errno
import hashlib
import os
import select
import socket
import sys
import time

PIECE = 1 << 18
TAKERS_MAX = 16
WORD_LIMIT_S = 5
STAND_STILL_LIMIT_S = 20  # for a taker that takes nothing
IDLE_LIMIT_S = 60
BYTES_PER_S_MIN = 1 << 16  # of another host: who is slower is left


class Taker:
    def __init__(self, connection):
        connection.setblocking(False)
        self.connection = connection
        self.said = b""
        self.at = 0
        self.moved = time.monotonic()

    def fileno(self):
        return self.connection.fileno()


class Carrier:
    """The file, what of it has come, and who takes it."""

    def __init__(self, path, size, word):
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.size = size
        self.come = 0
        self.sum = hashlib.sha256()
        self.word = word.encode() + b"\n"
        self.listener = listen_anywhere()
        self.takers = []
        self.came = self.gave = time.monotonic()  # when something did last

    def serve(self, source, wait_s):
        """Waits for something to do, and does it. `source` is a descriptor, or None. Returns whether it has ended."""
        now = time.monotonic()
        reads = [taker for taker in self.takers if taker.said != self.word]
        writes = [taker for taker in self.takers if taker.said == self.word and taker.at < self.come]
        if self.listener and len(self.takers) < TAKERS_MAX:
            reads.append(self.listener)
        if source is not None:
            reads.append(source)
        readable, writable, _ = select.select(reads, writes, [], wait_s)
        ended = source in readable and not self.receive(source)
        if self.listener in readable:
            self.accept()
        for taker in list(self.takers):
            limit = WORD_LIMIT_S if taker.said != self.word else STAND_STILL_LIMIT_S
            if taker.at == self.come:
                taker.moved = now
            is_stuck = now - taker.moved > limit
            if is_stuck or not self.give(taker, taker in readable, taker in writable):
                taker.connection.close()
                self.takers.remove(taker)
        return ended

    def receive(self, source):
        """Returns whether there was something."""
        piece = os.read(source, min(PIECE, self.size - self.come))
        self.sum.update(piece)
        self.come += len(piece)
        self.came = time.monotonic()
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(self.file, rest):]
        return len(piece) > 0

    def accept(self):
        try:
            self.takers.append(Taker(self.listener.accept()[0]))
        except OSError:
            pass  # it is gone already

    def give(self, taker, readable, writable):
        """Returns whether more is to come."""
        try:
            if readable:
                piece = taker.connection.recv(len(self.word) - len(taker.said))
                taker.said += piece
                return len(piece) > 0 and self.word.startswith(taker.said)
            if writable:
                count = min(self.come - taker.at, 4 * PIECE)
                taker.at += os.sendfile(taker.fileno(), self.file, taker.at, count)
                taker.moved = self.gave = time.monotonic()
        except BlockingIOError:
            pass
        except OSError:
            return False
        return taker.at < self.size


def listen_anywhere():
    """At a port of every address that this host has; None where there is none."""
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            listener = socket.socket(family)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind(("", 0))
            listener.listen(TAKERS_MAX)
            listener.setblocking(False)
            return listener
        except OSError:
            pass
    return None


def say(line):
    os.write(1, line.encode() + b"\n")


def conclude(word):
    os.write(2, b"carrier: " + word.encode() + b"\n")


def receive_all(carrier, source, limit_s):
    """Says once a second that it is at it. Returns why it is in vain, or None."""
    began = said = carrier.came = time.monotonic()
    while carrier.come < carrier.size:
        if carrier.serve(source, 1.0):
            return "the rest does not come"
        now = time.monotonic()
        if now - carrier.came > limit_s:
            return "nothing comes"
        if limit_s < float("inf") and carrier.come < (now - began - limit_s) * BYTES_PER_S_MIN:
            return "it comes too slowly"
        if now - said > 1.0:
            said = now
            say("dtrun-agent-comes")
    return None


def read_line():
    """Of standard input, and no byte more."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            sys.exit(1)  # dtrun is gone
        line += piece
    return line.decode().split()


def connect(port, address, word, limit_s):
    """To who gives it; the descriptor."""
    # Who gives it listens already; a firewall that drops packets among hosts is not to be waited for at each of them.
    source = socket.create_connection((address, int(port)), min(limit_s, 2))
    source.settimeout(limit_s)
    source.sendall(word.encode() + b"\n")
    source.setblocking(True)
    return source.detach()


def is_there(process):
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def hand_on(carrier, process):
    """Until the process has ended, or nobody has asked for a minute."""
    carrier.gave = time.monotonic()
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    while is_there(process) and (carrier.takers or time.monotonic() - carrier.gave < IDLE_LIMIT_S):
        carrier.serve(None, 1.0)


def be_apart():
    """In a process of its own, which the limit of the start does not reach, and for whose end nobody waits."""
    if os.fork() > 0:
        os._exit(0)
    os.setsid()
    for other in map(int, os.listdir("/proc/self/fd")):
        if other > 2:
            try:
                os.close(other)
            except OSError:
                pass  # that of the list
    with open("/proc/self/comm", "w") as comm:
        comm.write("dtrun-hand-on")


def main(path, size, digest, word, limit_s, process):
    be_apart()
    limit_s = int(limit_s)
    try:
        carrier = Carrier(path, int(size), word)
    except OSError as error:
        return conclude("failed %s" % error)
    say("dtrun-agent-receives %d" % (carrier.listener.getsockname()[1] if carrier.listener else 0))
    giver = read_line()
    is_full = False
    try:
        if giver:
            try:
                source = connect(*giver, word, limit_s)
            except OSError as error:
                return conclude("unreached: %s" % error)
            why = receive_all(carrier, source, limit_s)
        else:
            conclude("taken")
            say("dtrun-agent-send")
            why = receive_all(carrier, 0, float("inf"))
    except OSError as error:
        why = str(error)
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if not why and carrier.sum.hexdigest() != digest:
        why = "it was damaged on its way"
    if why:
        return conclude(("again: " if giver and not is_full else "failed ") + why)
    if giver:
        say("dtrun-agent-fetched")
    conclude("all")
    if carrier.listener:
        hand_on(carrier, int(process))


if __name__ == "__main__":
    main(*sys.argv[1:])
