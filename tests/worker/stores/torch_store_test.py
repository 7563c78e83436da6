"""torch's own clients, of whatever version runs this, against our server of their store.

    torch_store_test.py TCP_STORE_HERE [--relayed]
"""
import datetime
import os
import subprocess
import sys
import threading
import time
import unittest

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # it shows stacks of errors that are expected
import torch.distributed as dist  # noqa: E402

SERVER = []
LONG = datetime.timedelta(seconds=60)
SHORT = datetime.timedelta(milliseconds=300)
MODERN = hasattr(dist.Store, "multi_get")  # torch 2.1 and later


class Server:
    """tcp_store_here, with a store of its own."""

    def __init__(self, *more):
        self.process = subprocess.Popen([*SERVER, *more], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def waits(self):
        """[rank, pid, hopeless, waited_ms, what] of everybody who waits."""
        self.tell("waits")
        found = []
        while (line := self.process.stdout.readline().strip()):
            rank, pid, hopeless, waited, what = line.split(" ", 4)
            found.append([int(rank), int(pid), hopeless == "true", int(waited), what])
        return found

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait_for_waiters(self, count):
        """The server has no event for this, and a client that waits cannot tell."""
        end = time.monotonic() + 60
        while len(found := self.waits()) != count:
            assert time.monotonic() < end, found
        return found

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        assert code == 0, f"the server ended with {code}"


class StoreTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)

    def client(self, timeout=LONG):
        return dist.TCPStore("127.0.0.1", self.server.port, None, False, timeout=timeout,
                             wait_for_workers=False)

    def needs(self, name):
        if not hasattr(dist.TCPStore, name) and not hasattr(dist.Store, name):
            self.skipTest(f"this torch has no {name}")

    def in_thread(self, call, *arguments):
        """Each thread has a client of its own: a client is locked while it waits."""
        box = {}

        def run():
            try:
                box["result"] = call(*arguments)
            except Exception as error:  # shown by the test
                box["error"] = error
        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def result():
            thread.join(60)
            self.assertFalse(thread.is_alive(), "it still waits")
            if "error" in box:
                raise box["error"]
            return box["result"]
        return result

    def test_what_is_set_can_be_got(self):
        a, b = self.client(), self.client()
        for i in range(50):
            a.set(f"key{i}", f"value{i}")
        a.set("empty", "")
        a.set("", "the empty key")
        for i in range(50):
            self.assertEqual(b.get(f"key{i}"), f"value{i}".encode())
        self.assertEqual(b.get("empty"), b"")
        self.assertEqual(b.get(""), b"the empty key")
        a.set("key1", "again")
        self.assertEqual(a.get("key1"), b"again")

    def test_add_counts_and_keeps_decimal_text(self):
        store = self.client()
        self.assertEqual(store.add("n", 1), 1)
        self.assertEqual(store.add("n", 0), 1)
        self.assertEqual(store.add("n", 1 << 40), 1 + (1 << 40))
        self.assertEqual(store.add("n", -(1 << 41)), 1 - (1 << 40))
        self.assertEqual(store.get("n"), str(1 - (1 << 40)).encode())
        store.set("set", "41")
        self.assertEqual(store.add("set", 1), 42)

    def test_compare_set(self):
        store = self.client()
        self.assertEqual(store.compare_set("cas", "wrong", "new"), b"wrong")
        self.assertFalse(self.exists(store, "cas"))
        self.assertEqual(store.compare_set("cas", "", "first"), b"first")
        self.assertEqual(store.compare_set("cas", "", "second"), b"first")
        self.assertEqual(store.compare_set("cas", "first", "second"), b"second")
        self.assertEqual(store.compare_set("cas", "first", "third"), b"second")
        store.set("empty", "")
        self.assertEqual(store.compare_set("empty", "", "filled"), b"filled")
        self.assertEqual(store.get("empty"), b"filled")

    def exists(self, store, key):
        return store.check([key]) if hasattr(store, "check") else self.waits_in_vain(store, key)

    def waits_in_vain(self, store, key):
        try:
            store.wait([key], SHORT)
            return True
        except RuntimeError:
            return False

    def test_keys_are_counted_and_deleted(self):
        store = self.client()
        self.assertEqual(store.num_keys(), 0)
        store.set("a", "1")
        store.add("b", 1)
        self.assertEqual(store.num_keys(), 2)
        self.assertTrue(store.delete_key("a"))
        self.assertFalse(store.delete_key("a"))
        self.assertEqual(store.num_keys(), 1)
        store.set("a", "2")
        self.assertEqual(store.get("a"), b"2")

    def test_a_wait_ends_when_the_last_key_is_there(self):
        a, b = self.client(), self.client()
        done = self.in_thread(a.wait, ["x", "y", "z", "x"])
        self.server.wait_for_waiters(1)
        b.set("y", "")
        b.add("x", 1)
        self.assertEqual(len(self.server.waits()), 1)
        b.set("z", "")
        done()
        self.assertEqual(self.server.waits(), [])
        a.wait(["x", "y"])

    def test_get_waits_for_the_key(self):
        a, b = self.client(), self.client()
        value = self.in_thread(a.get, "later")
        waits = self.server.wait_for_waiters(1)
        self.assertEqual(waits[0][4], "torch's store: key later")
        self.assertEqual(waits[0][1], os.getpid() if MODERN else 0)
        b.set("later", "now")
        self.assertEqual(value(), b"now")

    def test_a_wait_times_out_and_the_client_can_go_on(self):
        store = self.client()
        for _ in range(3):
            with self.assertRaises(RuntimeError):
                store.wait(["never"], SHORT)
            store.set("k", "v")
            self.assertEqual(store.get("k"), b"v")
            self.assertEqual(store.add("n", 0), 0)
        store.set_timeout(SHORT)
        with self.assertRaises(RuntimeError):
            store.get("never")
        store.set_timeout(LONG)
        store.set("never", "at last")
        self.assertEqual(store.get("never"), b"at last")
        self.assertEqual(self.server.waits(), [])

    def test_who_hangs_up_does_not_wait(self):
        program = ("import torch.distributed as d, datetime as t\n"
                   f"d.TCPStore('127.0.0.1', {self.server.port}, None, False, "
                   "wait_for_workers=False).wait(['never'], t.timedelta(seconds=100))")
        waiter = subprocess.Popen([sys.executable, "-c", program])
        waits = self.server.wait_for_waiters(1)
        if MODERN:
            self.assertEqual(waits[0][1], waiter.pid)
        waiter.kill()
        waiter.wait()
        self.server.wait_for_waiters(0)

    def test_large_values(self):
        a, b = self.client(), self.client()
        for megabytes in (1, 8, 15):
            value = os.urandom(megabytes << 19).hex()
            a.set("large", value)
            a.num_keys()  # a set has no answer, this has
            self.assertEqual(b.get("large"), value.encode())

    def test_what_is_too_large_ends_the_connection_and_nothing_else(self):
        store, other = self.client(), self.client()
        with self.assertRaises(RuntimeError):
            store.set("large", "x" * (16 << 20))
            store.get("small")
        other.set("small", "fits")
        self.assertEqual(other.get("small"), b"fits")

    def test_prefixes(self):
        store = self.client()
        one, two = dist.PrefixStore("one", store), dist.PrefixStore("two", store)
        one.set("k", "1")
        two.set("k", "2")
        self.assertEqual((one.get("k"), two.get("k"), store.get("one/k")), (b"1", b"2", b"1"))

    def test_many_clients(self):
        clients = [self.client() for _ in range(40)]

        def work(number):
            store = clients[number]
            for i in range(20):
                store.set(f"{number}/{i}", str(i))
                store.add("sum", 1)
            for i in range(20):
                other = (number + i) % len(clients)
                self.assertEqual(store.get(f"{other}/{i}"), str(i).encode())
            return store.add("sum", 0)
        results = [self.in_thread(work, i) for i in range(len(clients))]
        self.assertLessEqual(max(result() for result in results), 800)
        self.assertEqual(clients[0].add("sum", 0), 800)

    def test_a_new_generation_closes_connections_and_has_an_empty_store(self):
        store = self.client()
        store.set("old", "1")
        self.assertEqual(store.get("old"), b"1")
        waiting = self.in_thread(self.client().wait, ["never"])
        self.server.wait_for_waiters(1)
        self.server.tell("begin")
        with self.assertRaises(RuntimeError):
            waiting()
        self.assertEqual(self.server.waits(), [])
        with self.assertRaises(RuntimeError):
            store.get("old")
        self.assertEqual(self.client().num_keys(), 0)

    def test_workers_are_counted_as_torch_does(self):
        store = dist.TCPStore("127.0.0.1", self.server.port, 1, False)
        self.assertEqual(store.num_keys(), 1)

    def test_append(self):
        self.needs("append")
        store = self.client()
        store.append("a", "one")
        store.append("a", "two")
        store.append("a", "")
        self.assertEqual(store.get("a"), b"onetwo")

    def test_multi_get_and_multi_set(self):
        self.needs("multi_get")
        store = self.client()
        store.multi_set(["a", "b", "c"], ["1", "", "3"])
        self.assertEqual(store.multi_get(["c", "a", "b", "a"]), [b"3", b"1", b"", b"1"])
        keys = [f"k{i}" for i in range(5000)]
        store.multi_set(keys, keys)
        self.assertEqual(store.multi_get(keys), [key.encode() for key in keys])

    def test_more_than_fits_into_one_reply(self):
        self.needs("multi_get")
        store = self.client()
        values = [os.urandom(5 << 20) for _ in range(6)]
        store.multi_set([f"k{i}" for i in range(6)], values)
        self.assertEqual(store.multi_get([f"k{i}" for i in range(6)]), values)

    def test_check(self):
        self.needs("check")
        store = self.client()
        store.multi_set(["a", "b"], ["1", "2"])
        self.assertTrue(store.check(["a", "b"]))
        self.assertFalse(store.check(["a", "c"]))
        self.assertTrue(store.check([]))

    def test_queues(self):
        self.needs("queue_push")
        store, other = self.client(), self.client()
        self.assertEqual(store.queue_len("q"), 0)
        with self.assertRaises(Exception):
            store.queue_pop("q", False)
        store.queue_push("q", "1")
        store.queue_push("q", "2")
        self.assertEqual(other.queue_len("q"), 2)
        self.assertEqual(other.queue_pop("q"), b"1")
        self.assertEqual(store.queue_pop("q", False), b"2")
        self.assertFalse(store.check(["q"]))

    def test_every_blocking_pop_gets_an_item(self):
        self.needs("queue_push")
        poppers = [self.in_thread(self.client().queue_pop, "q") for _ in range(12)]
        self.server.wait_for_waiters(12)
        store = self.client()
        for i in range(12):
            store.queue_push("q", str(i))
        self.assertEqual(sorted(int(pop()) for pop in poppers), list(range(12)))
        self.assertEqual(store.queue_len("q"), 0)

    def test_list_keys(self):
        self.needs("list_keys")
        store = self.client()
        store.multi_set(["b", "a"], ["", ""])
        self.assertEqual(sorted(key.lstrip("/") for key in store.list_keys()), ["a", "b"])

    def test_barrier(self):
        self.needs("barrier")
        stores = [self.client() for _ in range(5)]
        early = [self.in_thread(lambda s=s: s.barrier("b", 5, LONG)) for s in stores[:4]]
        waits = self.server.wait_for_waiters(4)
        self.assertEqual(waits[0][4], "torch's store: barrier b")
        stores[4].barrier("b", 5, LONG)
        for done in early:
            done()
        self.assertEqual(stores[0].num_keys(), 1)
        self.assertTrue(stores[0].delete_key("b"))
        with self.assertRaises(RuntimeError):
            stores[0].barrier("b", 2, SHORT)
        stores[1].barrier("b", 2, LONG)


class HopelessTest(unittest.TestCase):
    def test_who_waits_for_a_rank_that_the_job_does_not_have(self):
        server = Server("--world-size", "2")
        self.addCleanup(server.close)
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(server.port),
                   WORLD_SIZE="3", TORCHELASTIC_USE_AGENT_STORE="True",
                   TORCHELASTIC_RESTART_COUNT="0")
        program = "import torch.distributed as d\nd.init_process_group('gloo')"
        ranks = [subprocess.Popen([sys.executable, "-c", program], env=dict(env, RANK=str(rank)))
                 for rank in range(2)]
        end = time.monotonic() + 60
        while sum(wait[2] for wait in server.waits()) < 2:
            self.assertLess(time.monotonic(), end, server.waits())
        for rank, pid, hopeless, _, what in sorted(server.waits()):
            self.assertEqual(pid, ranks[rank].pid if MODERN else 0)
            self.assertTrue(hopeless)
            self.assertRegex(what, "^torch's store: key default_pg/0/.*0/2$")
        for process in ranks:
            process.kill()
            process.wait()


if __name__ == "__main__":
    SERVER = [word for word in sys.argv[1:] if word == "--relayed" or "/" in word]
    unittest.main(argv=[sys.argv[0]] + [w for w in sys.argv[1:] if w not in SERVER], verbosity=2)
