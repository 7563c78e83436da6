"""Real clients of PMI against pmi_here.

    pmi_programs_test.py raw PMI_HERE
    pmi_programs_test.py mpich PMI_HERE DIRECTORY_OF_MPI_PROGRAMS
    pmi_programs_test.py two PMI_HERE PMI_TWO

A machine that lacks the client says SKIPPED; where everything must be there (CI), that is a failure.
"""

import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


class Run:
    def __init__(self, *words):
        started = time.monotonic()
        done = subprocess.run([sys.argv[2], *words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", timeout=60, check=False)
        self.seconds = time.monotonic() - started
        self.words, self.code, self.err = words, done.returncode, done.stderr
        lines = done.stdout.splitlines()
        self.events = [line[5:] for line in lines if line.startswith("mpi: ")]
        self.out = [line for line in lines if not line.startswith("mpi: ")]

    def check(self, condition, what):
        if condition:
            return self
        print(f"{' '.join(self.words)}: {what}\nexit status {self.code} after {self.seconds:.1f} s")
        print("\n".join([*self.out, *self.events]), self.err, sep="\n")
        sys.exit(1)

    def succeeds(self, ranks):
        self.check(self.code == 0, "failed")
        for event in ("initialized", "finalized"):
            count = sum(line.endswith(f" {event}") for line in self.events)
            self.check(count >= ranks and count % ranks == 0, f"{count} times {event}")
        return self

    def says(self, line, times):
        return self.check(self.out.count(line) == times, f"not {times} times: {line}")

    def tells(self, pattern, times=1):
        count = sum(bool(re.fullmatch(pattern, event)) for event in self.events)
        return self.check(count == times, f"{count} times: {pattern}")


def raw():
    client = [sys.executable, os.path.join(HERE, "pmi_one.py")]
    for sizes in (["1"], ["2", "1", "3"]):
        ranks = sum(map(int, sizes))
        run = Run(*sizes, "--", *client).succeeds(ranks)
        for thing in ("values", "places", "names", "spawn"):
            run.says(f"ok {thing}", 2 * ranks)
        run.tells(".* initialized", 2 * ranks)
        run.tells(".* was refused MPI_Comm_spawn", len(sizes))
    Run("2", "2", "--", *client, "at-once").succeeds(4).says("ok at once", 4)


def mpich():
    programs = sys.argv[3]
    if not os.path.exists(os.path.join(programs, "hello")):
        skip("no MPI programs for MPICH (libmpich-dev)")

    def program(*words):
        return ["--", os.path.join(programs, words[0]), *words[1:]]

    # That all ranks are in one MPI_COMM_TYPE_SHARED shows that the mapping is used.
    run = Run("4", *program("hello")).succeeds(4)
    for rank in range(4):
        line = f"rank {rank} of 4 on .*, {rank} of 4 there"
        run.check(any(re.fullmatch(line, text) for text in run.out), line)
    run = Run("--mode", "pmi1", "4", *program("works")).succeeds(4)
    for thing in ("collectives", "alltoall", "intercommunicator", "shared memory", "one-sided"):
        run.says(f"ok {thing}", 4)
    run = Run("3", *program("names")).succeeds(3).says("ok after names", 3)
    run.says("publish: worked", 1).says("lookup: worked", 1).says("unpublish: worked", 1)
    run.check(any(line.startswith("lookup again: Invalid service name") for line in run.out),
              "a name is there after it was taken back")
    Run("2", *program("spawn")).succeeds(2).says("ok after spawn", 2)

    run = Run("3", *program("goes_wrong", "abort", "1"))
    run.check(run.code == 7, "MPI_Abort(7)").tells("1 aborted 7")
    # The others of that host wait for it, those of the other host learn it from the fence, and fail.
    run = Run("--seconds", "15", "2", "1", *program("goes_wrong", "dies", "2"))
    run.check(run.code == 137, "not the rank that was killed").tells("[01] initialized", 2)
    run.tells("[01] ended [1-9].*", 2)
    run.check(2.9 < run.seconds < 14, "ranks in MPI_Init were not let go in time")
    for mode, option in (("pmix", "pmi1"), ("pmi2", "pmi1")):
        run = Run("--mode", mode, "2", *program("hello"))
        run.check(run.code not in (0, 124) and not run.out, "was not refused")
        run.tells(f"[01] refused: .*MPICH.*--mpi {mode} .*use --mpi auto or --mpi {option}", 2)


def two():
    client = sys.argv[3]
    if not os.path.exists(client):
        skip("no pmi_two (libpmi2-0-dev)")
    for sizes in (["1"], ["3", "1", "2"]):
        ranks = sum(map(int, sizes))
        run = Run("--mode", "pmi2", *sizes, "--", client).succeeds(ranks)
        for thing in ("values", "node attributes", "job attributes", "names", "ring", "refused"):
            run.says(f"ok {thing}", ranks)
    run = Run("2", "1", "--", client, "abort")
    run.check(run.code == 1, "PMI2_Abort").tells("1 aborted 1")
    run = Run("--mode", "pmi1", "2", "--", client)
    run.check(run.code == 15, "was not refused")
    run.tells("[01] refused: .*PMI-2.*use --mpi auto or --mpi pmi2", 2)


{"raw": raw, "mpich": mpich, "two": two}[sys.argv[1]]()
