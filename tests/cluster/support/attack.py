"""attack.py ADDRESS PORT: plays a hostile network at a rendezvous server.

Garbage, truncated and oversized records, a wrong secret, and 10,000 connections that say nothing.
"""
import os
import random
import resource
import socket
import struct
import sys

ADDRESS = (sys.argv[1], int(sys.argv[2]))
HELLO = struct.pack(">4sHH16s32s", b"dtrn", 3, 0, bytes(16), bytes(32))


def play(data, read=0):
    with socket.create_connection(ADDRESS, timeout=20) as connection:
        try:
            connection.sendall(data)
            if read:
                connection.recv(read)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:
            pass  # the server has cut us off, as it should


def garbage():
    seed = int(os.environ.get("DTRUN_SEED") or random.randrange(1 << 32))
    print(f"seed {seed}")
    source = random.Random(seed)
    for _ in range(100):
        play(source.randbytes(source.randrange(1, 4096)))
    for length in range(1, len(HELLO), 5):
        play(HELLO[:length])
    for version in (0, 1, 2, 65535):
        play(struct.pack(">4sHH16s32s", b"dtrn", version, 0, bytes(16), os.urandom(32)))


def wrong_secret():
    for _ in range(50):
        with socket.create_connection(ADDRESS, timeout=20) as connection:
            connection.sendall(HELLO[:24] + os.urandom(32))
            answer = connection.recv(72)
            assert len(answer) == 40, "a stranger gets a nonce, and no proof to try secrets on"
            connection.sendall(os.urandom(32))
            answer = connection.recv(33, socket.MSG_WAITALL)
            assert answer == bytes(32), "the server hides that it does not know us"


def flood(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
    crowd = []
    for _ in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        try:
            connection.connect(ADDRESS)
        except BlockingIOError:
            pass
        crowd.append(connection)
    return crowd


garbage()
wrong_secret()
held = flood(10_000)
garbage()
for half_open in held:
    half_open.close()
