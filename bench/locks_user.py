"""A process that wants a lock, for `./dev bench locks`.

    locks_user.py SYSTEM hold NAME              prints "held" once it has it, and keeps it
    locks_user.py SYSTEM contend NAME SECONDS   takes it and lets it go for that long, and prints how often

SYSTEM is `dtrun`, whose daemon the environment names, or `redis PORT token` or `redis PORT lock`: a list with one element,
which is popped and pushed back, and redis-py's Lock, a key that it asks for again and again.
"""
import contextlib
import signal
import sys
import time


@contextlib.contextmanager
def dtrun_locks():
    import dtrun
    with dtrun.Worker() as worker:
        yield worker.lock


@contextlib.contextmanager
def redis_locks(port, kind):
    import redis
    server = redis.Redis(port=int(port))

    @contextlib.contextmanager
    def token(name):
        server.blpop(name)
        try:
            yield
        finally:
            server.lpush(name, "")

    yield token if kind == "token" else lambda name: server.lock(name, timeout=3)


def main():
    words = sys.argv[1:]
    locks = redis_locks(words.pop(1), words.pop(1)) if words[0] == "redis" else dtrun_locks()
    with locks as lock:
        if words[1] == "hold":
            with lock(words[2]):
                print("held", flush=True)
                signal.pause()
        print("ready", flush=True)
        sys.stdin.readline()
        count, end = 0, time.monotonic() + float(words[3])
        while time.monotonic() < end:
            with lock(words[2]):
                count += 1
        print(count, flush=True)


main()
