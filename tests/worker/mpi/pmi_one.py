"""A client of PMI-1, for ranks on several hosts: values, barriers, names. Prints "ok NAME" for each
thing that worked.

    pmi_one.py              all of them
    pmi_one.py at-once      sends all its requests before it reads an answer
"""

import os
import sys

FD = int(os.environ["PMI_FD"])
RANK = int(os.environ["PMI_RANK"])
SIZE = int(os.environ["PMI_SIZE"])
LINES = os.fdopen(os.dup(FD), "rb")


def send(line):
    os.write(FD, line.encode() + b"\n")


def answer(command):
    line = LINES.readline().decode()
    values = dict(word.split("=", 1) for word in line.split())
    assert values.pop("cmd") == command, line
    return values


def ask(line, command):
    send(line)
    return answer(command)


def ok(what):
    os.write(1, f"ok {what}\n".encode())  # whole lines, whoever else writes


def put(table, key, value):
    assert ask(f"cmd=put kvsname={table} key={key} value={value}", "put_result")["rc"] == "0"


def get(table, key):
    found = ask(f"cmd=get kvsname={table} key={key}", "get_result")
    return found["value"] if found["rc"] == "0" else None


def barrier():
    ask("cmd=barrier_in", "barrier_out")


def initialize():
    found = ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")
    assert found == {"pmi_version": "1", "pmi_subversion": "1", "rc": "0"}, found
    assert int(ask("cmd=get_universe_size", "universe_size")["size"]) == SIZE
    return ask("cmd=get_my_kvsname", "my_kvsname")["kvsname"]


def rounds(table):
    """Every rank finds, behind a barrier, what each has put before it; the last value counts."""
    for number in range(20):
        value = f"{RANK}-{number}-" + "v" * (1000 - 10 * number)
        put(table, f"again-{RANK}", value)
        put(table, f"new-{number}-{RANK}", value)
        barrier()
        for other in range(SIZE):
            expected = f"{other}-{number}-" + "v" * (1000 - 10 * number)
            assert get(table, f"again-{other}") == expected
            assert get(table, f"new-{number}-{other}") == expected
        assert get(table, "missing") is None
        barrier()


def places(table):
    mapping = get(table, "PMI_process_mapping")
    assert mapping.startswith("(vector,(0,"), mapping
    send("cmd=get_ranks2hosts")
    word, length, hosts = LINES.readline().decode().split()
    line = LINES.readline().decode()
    assert word == "put_ranks2hosts" and int(length) == len(line) + 1, line
    words = line.split()
    assert len(words) == 3 * int(hosts), line
    assert all(int(words[i]) == len(words[i + 1]) for i in range(0, len(words), 3))
    ranks = [int(rank) for ranks in words[2::3] for rank in ranks.rstrip(",").split(",")]
    assert sorted(ranks) == list(range(SIZE)), line


def names():
    if RANK == 0:
        assert ask("cmd=publish_name service=s port=p=0", "publish_result")["rc"] == "0"
        assert ask("cmd=publish_name service=s port=p=1", "publish_result")["rc"] != "0"
    barrier()
    assert ask("cmd=lookup_name service=s", "lookup_result")["port"] == "p=0"
    barrier()
    if RANK == SIZE - 1:
        assert ask("cmd=unpublish_name service=s", "unpublish_result")["rc"] == "0"
    barrier()
    assert ask("cmd=lookup_name service=s", "lookup_result")["rc"] != "0"


def spawn():
    for number in (1, 2):
        send(f"mcmd=spawn\nnprocs=1\nexecname=a b=c\ntotspawns=2\nspawnssofar={number}\nendcmd")
    assert answer("spawn_result")["rc"] == "-1"


def at_once():
    """Byte by byte, and nothing is read before all is sent."""
    requests = b"cmd=init pmi_version=1 pmi_subversion=1\n"
    for number in range(50):
        requests += f"cmd=put key=k{RANK} value=v{number}\ncmd=barrier_in\n".encode()
        requests += f"cmd=get key=k{(RANK + 1) % SIZE}\ncmd=barrier_in\n".encode()
    requests += b"cmd=finalize\n"
    for byte in requests:
        os.write(FD, bytes([byte]))
    answer("response_to_init")
    for number in range(50):
        answer("put_result")
        answer("barrier_out")
        assert answer("get_result")["value"] == f"v{number}"
        answer("barrier_out")
    answer("finalize_ack")


def main():
    if sys.argv[1:] == ["at-once"]:
        at_once()
        ok("at once")
        return
    for _ in range(2):  # as two programs one after the other would
        table = initialize()
        rounds(table)
        ok("values")
        places(table)
        ok("places")
        names()
        ok("names")
        spawn()
        ok("spawn")
        ask("cmd=finalize", "finalize_ack")


main()
