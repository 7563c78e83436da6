"""Two clean hosts with a cable between them, and the job that is run on them with a dtrun that was installed."""
import glob
import os
import re
import time

import roots

# What a rank does: it meets the others in dtrun's store and adds numbers up with them.
RANK = """
import array, os, dtrun
from dtrun.collectives import Communicator
with dtrun.Worker() as worker, Communicator(worker) as comm:
    values = array.array("f", [1.0, float(worker.rank)])
    comm.allreduce(values, op="sum")
    print("rank", worker.rank, "on", os.uname().nodename, "adds up to", values.tolist())
"""
USER = "user"
HOME = f"/home/{USER}"


class Pair:
    """`first`, where dtrun is to be installed, and `second`, which has nothing but an sshd and python3."""

    def __init__(self, suite, dist, tools=None, packages=()):
        self.suite, self.dist = suite, os.path.abspath(dist)
        binds = {"/dist": self.dist, **({"/tools": tools} if tools else {})}
        self.first = roots.Root(suite, [*roots.HOST_PACKAGES, *packages], name="first", binds=binds)
        self.second = roots.Root(suite, [*roots.HOST_PACKAGES, *packages], name="second", binds=binds)
        self.began = self.path = None

    def __enter__(self):
        roots.connect(self.first, self.second)
        for root in (self.first, self.second):
            root.add_user(USER)
        roots.let_in(self.first, self.second, USER)
        return self

    def __exit__(self, *_):
        self.first.close()
        self.second.close()

    def file(self, pattern):
        """The one file of the distribution that the pattern is for, as hosts see it."""
        found = glob.glob(f"{self.dist}/{pattern}")
        assert len(found) == 1, f"{len(found)} files are like {pattern} in {self.dist}, where ./dev package leaves one"
        self.path = found[0]
        return f"/dist/{os.path.basename(found[0])}"

    def version(self):
        return re.search(r"\d+\.\d+\.\d+", os.path.basename(self.path))[0]

    # ---- the job
    def start_clock(self):
        self.began = time.monotonic()

    def check_job(self, form, dtrun, environment=None, carried=True, where=(), rank_python="python3"):
        """The job on both hosts, as an ordinary user.

        form         for the line of figures
        carried      whether the second host has to be given the agent
        where        files that belong to the installation, to tell its size
        rank_python  for ranks of the first host, on a PATH of `environment`
        """
        def run(*words):
            return self.first.run(dtrun, *words, user=USER, environment=environment)

        ranks = re.findall(r"rank (\d+)$", run("-np", "16", "sh", "-c", 'echo "rank $DTRUN_RANK"'), re.MULTILINE)
        assert sorted(map(int, ranks)) == list(range(16)), ranks
        if self.began:
            took = time.monotonic() - self.began
            kib = int(self.first.run("du", "-sck", *where).split()[-2]) if where else 0
            print(f"MEASURED {form} on {self.suite}: {took:.1f} s from its file to the first 16 ranks; "
                  f"{os.path.getsize(self.path) / 1e6:.1f} MB, installed {kib / 1000:.1f} MB", flush=True)
            self.began = None
        assert run("--version").startswith(f"dtrun {self.version()} "), run("--version")
        told = run("-np", "4", "-H", "first:2,second:2", rank_python, "-c", RANK)
        for rank in range(4):
            line = f"rank {rank} on {'first' if rank < 2 else 'second'} adds up to [4.0, 6.0]"
            assert line in told, told
        copies = self.second.shell(f"ls {HOME}/.cache/dtrun 2>/dev/null || true")
        assert ("agent-" in copies) == carried, \
            f"the second host's cache: {copies or 'empty'}; {'it has' if not carried else 'it lacks'} an agent of its own"
        print(f"{form} on {self.suite}: 4 ranks on two hosts, {'agent copied' if carried else 'agent installed'}")
