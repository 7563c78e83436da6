"""Real Horovod programs on the store that dtrun serves on each host's loopback.

usage: horovod_test.py STORE PYTHON [NAME...]

STORE is the built horovod_store_here, PYTHON an interpreter that has Horovod. All hosts are this
machine; that they are several, Horovod learns from its variables.
"""
import os
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
STORE, PYTHON = sys.argv[1:3]


class Hosts:
    """The store of each host, with that many ranks on each."""

    def __init__(self, *ranks):
        self.ranks = ranks
        self.said = None
        self.store = subprocess.Popen([STORE, *map(str, ranks)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ports = self.store.stdout.readline().split()
        assert len(self.ports) == len(ranks), self.store.stderr.read()

    def ask(self, line):
        self.store.stdin.write(line + "\n")
        self.store.stdin.flush()
        return self.store.stdout.readline().strip()

    def waits(self):
        line, waits = self.ask("waits"), []
        while line != "end":
            rank, ms, what = line.split(" ", 2)
            waits.append((rank, int(ms), what))
            line = self.store.stdout.readline().strip()
        return waits

    def url(self, path, host=0):
        return f"http://127.0.0.1:{self.ports[host]}/{path}"

    def places(self):
        """Host and local rank of each rank."""
        return [(host, local) for host, n in enumerate(self.ranks) for local in range(n)]

    def start(self, rank, *argv, **more):
        places = self.places()
        host, local = places[rank]
        alike = [h for h, l in places if l == local]
        variables = {
            "RANK": rank, "SIZE": len(places), "LOCAL_RANK": local,
            "LOCAL_SIZE": self.ranks[host], "CROSS_RANK": alike.index(host),
            "CROSS_SIZE": len(alike), "HOSTNAME": f"fake{host}", "CONTROLLER": "gloo",
            "CPU_OPERATIONS": "gloo", "GLOO_IFACE": "lo", "GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "GLOO_RENDEZVOUS_PORT": self.ports[host], "DYNAMIC_PROCESS_SETS": 1, **more}
        env = {**os.environ, "OMP_NUM_THREADS": "1",
               **{f"HOROVOD_{name}": str(value) for name, value in variables.items()}}
        return subprocess.Popen([PYTHON, os.path.join(HERE, "horovod_program.py"),
                                 *map(str, argv)], env=env, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def run(self, *argv, **more):
        """Everybody's output, by rank; that all of them end with 0 is checked."""
        ranks = [self.start(rank, *argv, **more) for rank in range(sum(self.ranks))]
        return [end_of(process) for process in ranks]

    def close(self):
        """What the store had to say to a person."""
        if self.said is None:
            self.said = self.store.communicate(timeout=60)[1]
            assert self.store.returncode == 0, self.said
        return self.said


def end_of(process, status=0, timeout=60):
    try:
        out = process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError("still running: " + process.communicate()[0])
    assert process.returncode == status, f"status {process.returncode}: {out}"
    return out


class HorovodTest(unittest.TestCase):
    def hosts(self, *ranks):
        hosts = Hosts(*ranks)
        self.addCleanup(hosts.close)
        return hosts

    def wait_for(self, what, seconds=60):
        end = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)

    def test_programs_with_process_sets_work_and_leave_nothing_in_the_store(self):
        hosts = self.hosts(4, 4)
        for out in hosts.run("works"):
            self.assertIn("worked 6 times", out)
        # Of the last start; however many there were.
        self.assertLessEqual(int(hosts.ask("size").split()[0]), 2)
        self.assertEqual(hosts.waits(), [])
        self.assertEqual(hosts.close(), "")

    def test_hosts_may_have_different_numbers_of_ranks(self):
        for out in self.hosts(1, 3, 2).run("works"):
            self.assertIn("worked 6 times", out)

    def test_a_rank_that_comes_late_aborts_nobody(self):
        hosts = self.hosts(2, 1)
        limit = 10  # in which Gloo has to connect once all are there, too
        early = [hosts.start(rank, "meets", GLOO_TIMEOUT_SECONDS=limit) for rank in (0, 2)]
        self.wait_for(lambda: len(hosts.waits()) == 2)
        self.assertEqual(sorted((rank, what) for rank, _, what in hosts.waits()),
                         [("0", "all ranks to call hvd.init()"),
                          ("2", "all ranks to call hvd.init()")])
        self.wait_for(lambda: min(ms for _, ms, _ in hosts.waits()) > 1_000 * limit + 1_000)
        late = hosts.start(1, "meets", GLOO_TIMEOUT_SECONDS=limit)
        for process in (*early, late):
            self.assertIn("met after", end_of(process))

    def test_another_world_size_ends_at_once_with_the_reason(self):
        for size in (3, 5):
            hosts = self.hosts(2, 2)
            right = [hosts.start(rank, "meets") for rank in (0, 1, 3)]
            wrong = hosts.start(2, "meets", SIZE=size)
            self.assertIn("HTTP", end_of(wrong, status=-6))
            for process in right:
                process.kill()
                process.communicate()
            said = hosts.close()
            self.assertEqual(said.count("HOROVOD_SIZE"), 1, said)

    def test_a_rank_of_another_host_or_of_none_is_refused(self):
        for rank, why in ((2, "runs on another host"), (7, "has 3 ranks")):
            hosts = self.hosts(2, 1)
            process = hosts.start(0, "meets", RANK=rank, SIZE=8 if rank == 7 else 3)
            self.assertIn("HTTP", end_of(process, status=-6))
            said = hosts.close()
            self.assertEqual(said.count(why), 1, said)

    def test_a_program_for_elastic_jobs_runs_in_a_job_that_is_not(self):
        for out in self.hosts(1, 1).run("elastic"):
            self.assertIn("trained", out)

    def test_horovods_own_python_client_is_served(self):
        hosts = self.hosts(1, 1)
        program = """
import sys
from horovod.runner.http.http_client import put_data_into_kvstore, read_data_from_kvstore
put_data_into_kvstore("127.0.0.1", int(sys.argv[1]), "runfunc", "func", {"a": [1, 2]})
value = read_data_from_kvstore("127.0.0.1", int(sys.argv[2]), "runfunc", "func")
assert value == {"a": [1, 2]}, value
"""
        subprocess.run([PYTHON, "-c", program, *hosts.ports], check=True, timeout=60)

    def test_bytes_are_kept_as_they_are(self):
        hosts = self.hosts(1, 1)
        value = bytes(range(256)) * 4096
        put = urllib.request.Request(hosts.url("a%20scope/k?x=1"),
                                     data=value, method="PUT")
        self.assertEqual(urllib.request.urlopen(put, timeout=60).status, 200)
        got = urllib.request.urlopen(hosts.url("a%20scope/k?x=1", host=1), timeout=60)
        self.assertEqual(got.read(), value)
        gone = urllib.request.Request(hosts.url("a%20scope/k?x=1"), method="DELETE")
        self.assertEqual(urllib.request.urlopen(gone, timeout=60).status, 200)
        with self.assertRaises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(hosts.url("a%20scope/k?x=1", host=1), timeout=60)
        self.assertEqual(missing.exception.code, 404)


if __name__ == "__main__":
    if not os.access(PYTHON, os.X_OK):
        skip(f"{PYTHON} is not there; tests/frameworks/setup makes it")
    os.environ["no_proxy"] = "127.0.0.1"
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
