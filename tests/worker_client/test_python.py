"""Tests of the Python module. FAKE_LAUNCH names the program fake_launch."""

import os
import pickle
import signal
import subprocess
import sys
import time
import unittest

import dtrun

FAKE_LAUNCH = os.environ["FAKE_LAUNCH"]


def launch(ranks: int, program: str) -> str:
    """Runs `program` as that many ranks; returns what they print."""
    done = subprocess.run([FAKE_LAUNCH, str(ranks), sys.executable, "-c", program], timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"status {done.returncode}: {done.stdout}")
    return done.stdout


class WithoutLauncher(unittest.TestCase):
    def test_a_process_alone_is_rank_0_of_1(self):
        with dtrun.Worker() as worker:
            self.assertEqual((worker.rank, worker.world_size, worker.local_rank), (0, 1, 0))
            self.assertEqual(worker.launcher, "none")
            self.assertEqual(worker.fence("f", "mine"), [b"mine"])
            worker.barrier("b")
            with self.assertRaises(dtrun.Error) as caught:
                worker.set("a", "b")
            self.assertEqual(caught.exception.code, dtrun.Code.NO_LAUNCHER)
            self.assertIn("dtrun serve", str(caught.exception))

    def test_a_closed_worker_says_so(self):
        worker = dtrun.Worker()
        worker.close()
        worker.close()
        with self.assertRaisesRegex(dtrun.Error, "closed"):
            worker.rank

    def test_facts_that_the_launcher_does_not_tell_are_none(self):
        os.environ.update(RANK="1", WORLD_SIZE="2")
        try:
            with dtrun.Worker() as worker:
                self.assertEqual((worker.launcher, worker.rank), ("torchrun", 1))
                self.assertIsNone(worker.local_rank)
        finally:
            del os.environ["RANK"], os.environ["WORLD_SIZE"]

    def test_what_is_not_text_or_does_not_fit_is_refused(self):
        with dtrun.Worker() as worker:
            self.assertEqual(worker.size, 1)
            for value in (5, [1, 2, 3], None, 1.5, 10**9):
                with self.assertRaisesRegex(TypeError, "str or bytes are wanted"):
                    worker.set("k", value)
                with self.assertRaises(TypeError):
                    worker.get(value)
            for call in (lambda: worker.add("n", 1 << 64), lambda: worker.progress(-1),
                         lambda: worker.list_keys(limit=0), lambda: worker.watch("k", -1),
                         lambda: worker.get("k", float("nan"))):
                with self.assertRaises(ValueError):
                    call()
            with self.assertRaises(TypeError):
                worker.add("n", 1.5)
        self.assertEqual([dtrun._ms(t) for t in (None, float("inf"), 0, -1, float("-inf"), 0.0001, 0.3)],
                         [-1, -1, 0, 0, 0, 1, 300])

    def test_errors_come_whole_from_other_processes(self):
        change = dtrun.Change(1, 2, 3, 4.0, dtrun.ChangeReason.LOST)
        late, changed = (pickle.loads(pickle.dumps(error))
                         for error in (dtrun.TimedOut(dtrun.Code.TIMED_OUT, "late"), dtrun.Changed(change)))
        self.assertEqual((type(late), late.code, str(late)), (dtrun.TimedOut, dtrun.Code.TIMED_OUT, "late"))
        self.assertEqual(changed.change, change)

    def test_a_wrong_variable_is_named(self):
        os.environ["RANK"] = "1"
        try:
            with self.assertRaisesRegex(dtrun.Error, "WORLD_SIZE is not set"):
                dtrun.Worker()
        finally:
            del os.environ["RANK"]


class Ranks(unittest.TestCase):
    def test_ranks_meet_at_fences_and_in_the_store(self):
        said = launch(3, """if True:
            import dtrun, sys
            with dtrun.Worker() as w:
                assert w.fence("f", f"bytes of {w.rank}", 10) == [
                    b"bytes of 0", b"bytes of 1", b"bytes of 2"]
                w.set(f"key{w.rank}", b"\\0\\xff")
                w.barrier("b", timeout=10)
                assert w.multi_get(["key0", "key2"]) == [b"\\0\\xff"] * 2
                w.progress(3)
                sys.stdout.write(f"{w.add('n', 1)}\\n")
            """)
        self.assertEqual(sorted(said.split()), ["1", "2", "3"])

    def test_an_exception_of_a_signal_handler_loses_no_item(self):
        launch(1, """if True:
            import dtrun, signal, threading
            class Interrupted(Exception): pass
            def interrupt(number, frame): raise Interrupted
            signal.signal(signal.SIGALRM, interrupt)
            with dtrun.Worker() as w:
                count, got, item = 300, [], None
                pushes = threading.Thread(target=lambda: [w.push("q", str(i)) for i in range(count)])
                pushes.start()
                while len(got) < count:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0.0007)
                        item = w.pop("q", 5)
                        signal.setitimer(signal.ITIMER_REAL, 0)
                        got.append(item)
                        item = None
                    except Interrupted:
                        if item is not None: got.append(item)
                        item = None
                pushes.join()
                assert sorted(map(int, got)) == list(range(count)), got
            """)

    def test_an_item_that_is_left_is_given_back_and_only_in_its_own_generation(self):
        launch(1, """if True:
            import collections, dtrun, os
            with dtrun.Worker() as w:
                for generation, taken in ((w.generation, b"left"), (w.generation + 1, None)):
                    w._left = {b"q": collections.deque([b"left"])}
                    w._left_of = (os.getpid(), generation)
                    assert w._take_left(b"q") == taken
                for generation, length in ((w.generation + 1, 0), (w.generation, 1)):
                    w._left = {b"q": collections.deque([b"left"])}
                    w._left_of = (os.getpid(), generation)
                    w._give_back()
                    assert w.length("q") == length, generation
            """)

    def test_every_operation_has_its_python_form(self):
        launch(1, """if True:
            import dtrun
            with dtrun.Worker() as w:
                w.set("a", bytearray(b"1"))
                assert (w.get("a"), w.find("a"), w.find("missing")) == (b"1", b"1", None)
                w.wait(["a"], 1)
                assert w.compare_set("c", None, "x") == (True, b"x")
                assert w.compare_set("c", "y", "z") == (False, b"x")
                assert w.compare_set("none", "y", "z") == (False, None)
                assert w.append("c", "yz") == 3
                assert w.all_exist(["a", "c"]) and not w.all_exist(["a", "none"])
                w.multi_set({"m1": "one", "m2": b""})
                assert w.multi_get(["m2", "m1"]) == [b"", b"one"]
                assert w.list_keys("m", limit=1) == ([b"m1"], True)
                assert w.list_keys("m", after="m1") == ([b"m2"], False)
                assert (w.push("q", "1"), w.push("q", "2"), w.length("q")) == (1, 2, 2)
                assert (w.pop("q"), w.pop("q")) == (b"1", b"2")
                revision, value = w.watch("a", 0)
                assert revision > 0 and value == b"1"
                assert w.delete("a") and not w.erase("a")
                assert w.watch("a", revision)[1] is None
                assert w.exists("c") and w.count() == 3
                token = w.lock("l", "me", 1)
                assert w.get("l") == b"me" and w.transact(if_=[("revision", "l", token)]) == (True, None)
                assert w.transact(if_=[("exists", "c"), ("missing", "c")], then=[("delete", "c")]) == (False, 1)
                assert token.release() and not token.release()
                with w.elect("l") as later:
                    assert later > token
                    try:
                        w.lock("l", timeout=0.02)
                        assert False
                    except TimeoutError as error:
                        assert error.code == dtrun.Code.TIMED_OUT
                assert not w.exists("l")
                try:
                    with w.lock("l"):
                        w.delete("l")
                    assert False
                except dtrun.Error as error:
                    assert "was lost" in str(error)
                for item in "12":
                    w.push("q", item)
                with w.claim("q", 1) as claim:
                    assert claim.value == b"1" and w.length("q") == 1
                assert not claim.acknowledge()
                try:
                    with w.claim("q"):
                        raise KeyError
                except KeyError:
                    pass
                claim = w.claim("q", 0)
                assert claim.value == b"2" and claim.give_back() and w.pop("q") == b"2"
                w.put("p/mine", "x", ephemeral=True)
                w.put("p/brief", "x", ttl=1)
                revision, is_complete, changes = w.key_changes("p/")
                assert is_complete and [change.key for change in changes] == [b"p/brief", b"p/mine"]
                changes = w.watch_prefix("p/", timeout=0.05)
                assert {next(changes).key, next(changes).key} == {b"p/brief", b"p/mine"}
                for _ in range(3):  # one may be the end of p/brief
                    try:
                        next(changes)
                    except TimeoutError as error:
                        assert error.code == dtrun.Code.TIMED_OUT
                w.put("p/brief", "x", ttl=1)
                changes = w.watch_prefix("p/", timeout=30)
                assert {next(changes).key, next(changes).key} == {b"p/brief", b"p/mine"}
                gone = next(changes)
                assert gone.key == b"p/brief" and gone.is_deleted and not gone.is_queue
                with w.prefix("p/") as p:
                    p.set("new", "1")
                    assert next(changes)[1:] == (b"p/new", b"1", False)
                    with p.prefix("deep/") as deep:
                        deep.push("q", "1")
                    assert next(changes).is_queue and p.list_keys()[0] == [b"deep/q", b"mine", b"new"]
                    assert p.erase_prefix("deep/") == 1
                assert w.transact(then=[("add", "n", 7), ("push", "q", "1"), ("set", "p/new", "2")]).done
                assert w.get("n") == b"7" and w.erase_prefix("p/") == 2 and w.delete("n") and w.delete("q")
                for wrong in ({"if_": [("exits", "c")]}, {"then": [("add", "c", 1 << 63)]}):
                    try:
                        w.transact(**wrong)
                        assert False
                    except ValueError:
                        pass
                assert w.next_event(0) is None and w.event_fd() > 2
                for call in (lambda: w.get("never", 0.02), lambda: w.pop("never", 0.02)):
                    try:
                        call()
                        assert False
                    except TimeoutError as error:
                        assert error.code == dtrun.Code.TIMED_OUT
                for _ in range(3):
                    assert not w.prefix("left open/").exists("key")
                assert not w._users
                try:
                    w.rejoin()
                    assert False
                except dtrun.Error as error:
                    assert error.code == dtrun.Code.REFUSED
            """)

    def test_a_loop_over_generations_ends_with_the_program_and_not_with_what_breaks_it_off(self):
        out = launch(1, """if True:
            import dtrun
            with dtrun.Worker(elastic=True) as worker:
                assert not worker.can_rejoin, "the agent's job is not elastic"
                assert worker.change() is None and worker.token == 1
                job = worker.elastic()
                assert job.next()
                with job:
                    job.check(3)
                    with worker.section("all", 60):
                        worker.beat()
                assert not job.next()
                job = worker.elastic()
                job.next()
                with job:
                    raise dtrun.Error(dtrun.Code.PEER_LOST, "gone")
                try:
                    job.next()
                except dtrun.Error as error:
                    assert error.code == dtrun.Code.REFUSED, error
                    print("asked for the next one")
                job = worker.elastic()
                try:
                    with job:
                        raise ValueError("the program's own")
                except ValueError:
                    print("passed on")
        """)
        self.assertEqual(out, "asked for the next one\npassed on\n")

    def test_a_thread_that_waits_lets_others_run(self):
        launch(1, """if True:
            import dtrun, threading
            with dtrun.Worker() as w:
                got = []
                thread = threading.Thread(target=lambda: got.append(w.get("late")))
                thread.start()
                for i in range(100):
                    w.set("key", str(i))
                w.set("late", "value")
                thread.join(10)
                assert got == [b"value"]
            """)

    def test_a_forked_child_uses_the_store_and_leaves_the_fences_alone(self):
        launch(1, """if True:
            import dtrun, os
            with dtrun.Worker() as w:
                child = os.fork()
                if child == 0:
                    code = None
                    try:
                        w.barrier("b")
                    except dtrun.Error as error:
                        code = error.code
                    w.set("child", "alive")
                    w.close()
                    os._exit(code != dtrun.Code.FORKED)
                assert w.get("child", 10) == b"alive"
                assert os.waitpid(child, 0)[1] == 0
            """)


class Asyncio(unittest.TestCase):
    def test_every_operation_has_its_awaitable_form(self):
        launch(1, """if True:
            import asyncio, dtrun
            async def main(w):
                a = w.aio
                await a.set("a", "1")
                assert (await a.get("a"), await a.find("a"), await a.find("missing")) == (b"1", b"1", None)
                await a.wait(["a"], 1)
                assert await a.compare_set("c", None, "x") == (True, b"x")
                assert await a.compare_set("c", "y", "z") == (False, b"x")
                assert await a.compare_set("none", "y", "z") == (False, None)
                assert await a.append("c", "yz") == 3 and await a.add("n", -2) == -2
                assert await a.all_exist(["a", "c"]) and not await a.all_exist(["a", "none"])
                await a.multi_set({"m1": "one", "m2": b""})
                assert await a.multi_get(["m2", "m1"]) == [b"", b"one"]
                assert await a.list_keys("m", limit=1) == ([b"m1"], True)
                assert await a.list_keys("m", after="m1") == ([b"m2"], False)
                assert (await a.push("q", "1"), await a.length("q"), await a.pop("q")) == (1, 1, b"1")
                revision, value = await a.watch("a", 0)
                assert value == b"1" and await a.delete("a") and await a.watch("a", revision) == (0, None)
                assert await a.count() == 4
                await a.put("mine", "x", ephemeral=True)
                token = await a.lock("leader", "me")
                done = await a.transact([("revision", "leader", token)], [("set", "state", "new")])
                assert done == (True, None) and await a.get("state") == b"new"
                assert (await a.transact([("missing", "leader")])).failed == 0
                waits = asyncio.ensure_future(a.lock("leader"))
                await asyncio.sleep(0.01)
                waits.cancel()
                assert await a.unlock("leader", token) and not await a.unlock("leader", token)
                await a.push("work", "item")
                item, number = await a.claim("work")
                assert item == b"item" and await a.give_back("work", number)
                assert await a.acknowledge("work", (await a.claim("work"))[1])
                revision, is_complete, changes = await a.key_changes("sta")
                assert is_complete and [(c.key, c.value) for c in changes] == [(b"state", b"new")]
                assert await a.erase_prefix("sta") == 1
                later, is_complete, changes = await a.key_changes("sta", revision)
                assert not is_complete and changes[0].is_deleted and later > revision
                try:
                    await a.key_changes("sta", later, 0.02)
                    assert False
                except dtrun.TimedOut:
                    pass
                try:
                    await a.get("never", 0.02)
                    assert False
                except TimeoutError as error:
                    assert error.code == dtrun.Code.TIMED_OUT and "never" in str(error)
            with dtrun.Worker() as w:
                asyncio.run(main(w))
            """)

    def test_thousands_are_in_flight_from_one_thread(self):
        launch(1, """if True:
            import asyncio, dtrun, threading
            async def main(w):
                before = threading.active_count()
                gets = [w.aio.get(f"k{i}") for i in range(3000)]
                await asyncio.gather(*(w.aio.set(f"k{i}", str(i)) for i in range(3000)))
                assert await asyncio.gather(*gets) == [str(i).encode() for i in range(3000)]
                assert threading.active_count() == before
            with dtrun.Worker() as w:
                for _ in range(2):  # in one loop after another
                    asyncio.run(main(w))
            """)

    def test_a_cancelled_task_cancels_its_request_and_loses_no_item(self):
        launch(1, """if True:
            import asyncio, dtrun
            async def pop(w, got):
                got.append(await w.aio.pop("q"))
            async def main(w):
                got = []
                for i in range(200):
                    task = asyncio.ensure_future(pop(w, got))
                    await asyncio.sleep(0)
                    pushed = w.aio.push("q", str(i))
                    if i % 3 == 0:
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(task, pushed, return_exceptions=True)
                try:
                    await asyncio.wait_for(w.aio.get("never"), 0.05)
                    assert False
                except asyncio.TimeoutError:
                    pass
                await asyncio.sleep(0.05)  # what was cancelled is answered
                while len(got) < 200:
                    got.append(await w.aio.pop("q", 1))
                assert sorted(map(int, got)) == list(range(200)), got
            with dtrun.Worker() as w:
                asyncio.run(main(w))
            """)

    def test_an_item_for_a_loop_that_has_ended_is_not_lost(self):
        launch(2, """if True:
            import asyncio, dtrun
            async def begin(w, queue):
                task = asyncio.ensure_future(w.aio.pop(queue))
                await asyncio.sleep(0.05)
                return task
            def pop_in_a_loop_that_ends(w, queue):
                loop = asyncio.new_event_loop()
                task = loop.run_until_complete(begin(w, queue))
                loop.close()
                w.push(queue, "an item")
                return task
            async def something_else(w):
                await w.aio.count()
                await asyncio.sleep(0.05)
            async def pop(w, queue):
                return await w.aio.pop(queue, 5)
            with dtrun.Worker() as w:
                if w.rank == 0:
                    kept = pop_in_a_loop_that_ends(w, "mine")
                    asyncio.run(something_else(w))
                    assert asyncio.run(pop(w, "mine")) == b"an item"
                    w.get("popped", 10)
                    assert w.pop("other's", 10) == b"an item"
                else:
                    kept = pop_in_a_loop_that_ends(w, "other's")
                    w.set("popped", "")
            """)

    def test_closing_ends_what_is_awaited(self):
        launch(1, """if True:
            import asyncio, dtrun, threading
            async def main(w):
                closes = threading.Timer(0.1, w.close)
                closes.start()
                async def events():
                    async for event in w.aio.events():
                        print(event)
                ends = await asyncio.gather(w.aio.get("never"), events(), return_exceptions=True)
                assert [end.code for end in ends] == [dtrun.Code.CLOSED] * 2, ends
                closes.join()
                try:
                    w.aio
                    assert False
                except dtrun.Error as error:
                    assert error.code == dtrun.Code.CLOSED
            asyncio.run(main(dtrun.Worker()))
            """)


class Interrupts(unittest.TestCase):
    WAITS = {
        "get": 'w.get("never")',
        "fence": 'w.fence("never", "x")',
        "event": "w.next_event()",
        "a follower": 'threading.Thread(target=lambda: w.get("never"), daemon=True).start(); '
                      'time.sleep(0.1); w.get("never too")',
    }

    def test_ctrl_c_ends_every_wait(self):
        for name, wait in self.WAITS.items():
            with self.subTest(name):
                program = f"""if True:
                    import dtrun, os, threading, time
                    w = dtrun.Worker()
                    if w.rank == 1:  # never comes to the fence
                        w.get("interrupted", 60)
                        os._exit(0)
                    try:
                        print(os.getpid(), flush=True)
                        {wait}
                    except KeyboardInterrupt:
                        print("interrupted", flush=True)
                    w.set("interrupted", "")
                    os._exit(0)
                    """
                ranks = subprocess.Popen([FAKE_LAUNCH, "2", sys.executable, "-c", program],
                                         stdout=subprocess.PIPE, text=True)
                pid = int(ranks.stdout.readline())
                time.sleep(0.3)
                before = time.monotonic()
                os.kill(pid, signal.SIGINT)
                said, _ = ranks.communicate(timeout=60)
                self.assertEqual(said, "interrupted\n")
                self.assertLess(time.monotonic() - before, 30)

    def test_a_handler_that_returns_does_not_end_the_wait(self):
        launch(1, """if True:
            import dtrun, os, signal, threading
            with dtrun.Worker() as w:
                seen = []
                signal.signal(signal.SIGUSR1, lambda *_: seen.append(w.add("signals", 1)))
                def later():
                    os.kill(os.getpid(), signal.SIGUSR1)
                    while not seen:
                        pass
                    w.set("late", "value")
                threading.Timer(0.1, later).start()
                assert w.get("late", 10) == b"value"
                assert seen == [1]
            """)


if __name__ == "__main__":
    unittest.main()
