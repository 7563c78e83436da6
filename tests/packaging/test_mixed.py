#!/usr/bin/python3
"""Jobs of hosts with two CPUs: one of x86_64, and one whose programs are all of aarch64, which qemu runs.

usage: test_mixed.py TREES     what ./dev portable has made, build/portable
"""
import os
import signal
import sys
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, f"{HERE}/../support"]
import emulated  # noqa: E402
import roots  # noqa: E402
from machine import wait_until  # noqa: E402
from skip import skip  # noqa: E402

TREES = {cpu: f"{sys.argv[1]}/{cpu}/tree" for cpu in ("x86_64", "aarch64")}
DTRUN = "/opt/dtrun/bin/dtrun"
# An emulated sshd needs seconds for what takes a real one milliseconds, and more on a busy machine.
PATIENT = ("--connect-timeout", "120")
OTHER = {"intel": "arm", "arm": "intel"}
RANK = """
import array, hashlib, platform, subprocess
import dtrun
from dtrun.collectives import Communicator
def store(*words):
    return subprocess.run(["dtrun", "store", *words], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
with dtrun.Worker() as worker, Communicator(worker) as comm:
    rank = worker.rank
    store("set", "cpu/%d" % rank, platform.machine())
    store("wait", *("cpu/%d" % other for other in range(4)))
    seen = [store("get", "cpu/%d" % other) for other in range(4)]
    sums = hashlib.sha256()
    for compression in (None, "fp16", "int8"):
        for count in (1000, 300000):
            values = array.array("f", [(i * 7919 % 10007 - 5000) / (rank + 3.0) for i in range(count)])
            values[5] = float("nan") if rank == 1 else 1.0
            comm.allreduce(values, op="average", compression=compression)
            sums.update(values.tobytes())
    doubles = array.array("d", [1.0 / (i + rank + 1) for i in range(1000)])
    comm.allreduce(doubles)
    sums.update(doubles.tobytes())
    adasum = array.array("f", [1.0 / (i * rank + 3) for i in range(1000)])
    comm.allreduce(adasum, op="adasum")
    sums.update(adasum.tobytes())
print("rank", rank, platform.machine(), "of", ",".join(seen), sums.hexdigest(), dtrun.__file__)
"""


def make_hosts():
    """A host of each CPU, with the dtrun of its CPU in /opt/dtrun, where only a head looks for it."""
    hosts = {"intel": roots.Root(emulated.SUITE, name="intel", binds={"/opt/dtrun": TREES["x86_64"]}),
             "arm": emulated.Arm(binds={"/opt/dtrun": TREES["aarch64"]})}
    roots.connect(hosts["intel"], hosts["arm"])
    for name, other in OTHER.items():
        roots.let_in(hosts[name], hosts[other])
        hosts[name].write("/root/rank.py", RANK)
    return hosts


class Mixed(unittest.TestCase):
    hosts = {}

    def job(self, head, *words, code=0):
        """Two ranks on the head, and two on the other host."""
        return self.hosts[head].run(DTRUN, *PATIENT, "-H", f"localhost:2,{OTHER[head]}:2", "--tag", "none", *words,
                                    code=code)

    def forget(self, name):
        self.hosts[name].run("rm", "-rf", "/root/.cache")

    def processes(self, name):
        """Of the host's processes, those of a job; a process without a command line is one that has ended."""
        told = self.hosts[name].shell("for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done")
        return [line for line in told.splitlines() if "dtrun" in line or "sleep 1000" in line]

    def assert_gone(self):
        for name in self.hosts:
            self.assertTrue(wait_until(lambda host=name: not self.processes(host), 30), self.processes(name))

    def test_ranks_of_both_cpus_meet_and_get_the_same_bits(self):
        for head in OTHER:
            self.forget(OTHER[head])
            with self.subTest(head=head):
                script = self.hosts[head].run("cat", "/root/rank.py")
                told = self.job(head, "/usr/bin/python3", "-c", script)
                lines = sorted(line.split() for line in told.splitlines() if line.startswith("rank "))
                self.assertEqual(4, len(lines), told)
                first, other = ("x86_64", "aarch64") if head == "intel" else ("aarch64", "x86_64")
                self.assertEqual([first, first, other, other], [words[2] for words in lines], told)
                self.assertEqual({",".join([first, first, other, other])}, {words[4] for words in lines}, told)
                self.assertEqual(1, len({words[5] for words in lines}), f"not the same bits:\n{told}")
                self.assertIn("/root/.cache/dtrun/package-", lines[3][6])  # what the agent has brought
        self.assert_gone()

    def test_an_agent_that_was_copied_is_used_again(self):
        self.forget("arm")
        self.job("intel", "true")
        listed = "ls -i /root/.cache/dtrun"
        before = self.hosts["arm"].shell(listed)
        self.assertIn(" agent-", before)
        self.job("intel", "true")
        self.assertEqual(before, self.hosts["arm"].shell(listed))

    def test_the_exit_code_of_a_rank_of_the_other_cpu_is_the_job_s(self):
        told = self.job("intel", "sh", "-c", '[ "$(uname -m)" = x86_64 ] && exec sleep 1000; exit 7', code=7)
        self.assertRegex(told, r"rank [23] .*arm.* 7")
        self.assert_gone()

    def test_ctrl_c_ends_the_ranks_of_both(self):
        host = self.hosts["intel"]
        with host.start(DTRUN, *PATIENT, "-H", "localhost:2,arm:2", "--tag", "none", "sh", "-c",
                        "echo started; exec sleep 1000", stdout=-1, stderr=-1) as head:
            for _ in range(4):
                self.assertEqual("started\n", head.stdout.readline())
            host.run("pkill", "-INT", "-x", "dtrun")
            head.communicate(timeout=60)
            self.assertEqual(128 + signal.SIGINT, head.returncode)
        self.assert_gone()

    def test_a_head_without_the_agent_of_that_cpu_says_so(self):
        host = self.hosts["intel"]
        host.shell("mkdir -p /root/only/bin /root/only/libexec/dtrun; cp /opt/dtrun/bin/dtrun /root/only/bin;"
                   "cp /opt/dtrun/libexec/dtrun/dtrun-agent /root/only/libexec/dtrun")
        self.forget("arm")
        told = host.run("/root/only/bin/dtrun", *PATIENT, "-H", "arm:1", "true", code=203)
        self.assertIn("arm: its CPU is aarch64, and this dtrun has no agent for that: looked for ", told)
        self.assertIn("/root/only/libexec/dtrun/dtrun-agent-aarch64", told)
        self.assertIn("install dtrun of the same version on that host", told)

    def test_a_cpu_that_dtrun_does_not_know_is_told(self):
        """By a uname that says another machine; it is found before the system's own."""
        for machine, why in (("armv7l", "dtrun needs a 64-bit kernel"), ("i686", "dtrun needs a 64-bit kernel"),
                             ("riscv64", "Releases have those of x86_64 and aarch64 only")):
            with self.subTest(machine=machine):
                self.hosts["arm"].run("mkdir", "-p", "/usr/local/bin")
                self.hosts["arm"].write("/usr/local/bin/uname", f"#!/bin/sh\necho arm {machine}\n", "755")
                told = self.hosts["intel"].run(DTRUN, *PATIENT, "-H", "arm:1", "true", code=203)
                self.hosts["arm"].run("rm", "/usr/local/bin/uname")
                self.assertIn(f"arm: its CPU is {machine}, and this dtrun has no agent for that", told)
                self.assertIn(why, told)


def main():
    if why := emulated.missing():
        skip(why)
    for cpu, tree in TREES.items():
        if not os.access(f"{tree}/bin/dtrun", os.X_OK):
            skip(f"no {tree}; ./dev portable {cpu}")
    del sys.argv[1:2]
    Mixed.hosts = make_hosts()
    unittest.main()


if __name__ == "__main__":
    main()
