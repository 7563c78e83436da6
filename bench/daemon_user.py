"""A rank of another launcher, for `./dev bench daemon`: uses the store of a daemon until the file `stop` is there.

    daemon_user.py DIRECTORY NAME THREADS

It writes down what it was told, and what cannot be: a count of its own that is not its last one plus one has lost a
change or done one twice. DIRECTORY/NAME.json: `operations`; `sum`, what it has added to the number that all share;
`pushed` and `popped`, items of the queue that all share; `slowest`, the longest that one took; `refused`, operations that
the daemon says it has not done, and `why`; `wrong`, what contradicts another answer.

Operations that may wait are given all the time that the disk needs: without a timeout they end after two seconds, and nobody
knows then whether a pop has taken its item. So nobody looks for a value before it has put one there, nor takes more items
than it has put there, and nobody waits for what does not come.
"""
import json
import os
import random
import sys
import threading
import time

import dtrun

WAIT_S = 60  # longer than the disk stands still
DIRECTORY, NAME, THREADS = sys.argv[1], sys.argv[2], int(sys.argv[3])


class User:
    def __init__(self, worker, number):
        self.worker = worker
        self.who = f"{NAME}.{number}"
        self.told = {"operations": 0, "sum": 0, "pushed": [], "popped": [], "slowest": 0.0, "refused": 0,
                     "why": "", "wrong": []}
        self.count = 0
        self.value = None

    def add_own(self):
        self.expect("count", self.worker.add(f"count.{self.who}", 1), self.count + 1)
        self.count += 1

    def add_shared(self):
        self.worker.add("sum", 3)
        self.told["sum"] += 3

    def put(self):
        value = f"{self.who}={self.told['operations']}"
        self.worker.set(f"value.{self.who}", value)
        self.value = value.encode()

    def look(self):
        if self.value is None:
            return self.put()
        self.expect("value", self.worker.get(f"value.{self.who}", WAIT_S), self.value)

    def push(self):
        item = f"{self.who}#{len(self.told['pushed'])}"
        self.worker.push("queue", item)
        self.told["pushed"].append(item)

    def pop(self):
        if len(self.told["popped"]) == len(self.told["pushed"]):
            return self.push()
        self.told["popped"].append(self.worker.pop("queue", WAIT_S).decode())

    def expect(self, what, found, expected):
        if found != expected:
            self.told["wrong"].append(f"{self.who}: its {what} is {found!r}, and should be {expected!r}")

    def run(self):
        while not os.path.exists(f"{DIRECTORY}/stop"):
            began = time.monotonic()
            try:
                random.choice((self.add_own, self.add_shared, self.put, self.look, self.push, self.pop))()
                self.told["operations"] += 1
            except dtrun.Error as error:
                if "disk is full" not in str(error):
                    self.told["wrong"].append(f"{self.who}: {error}")
                    return
                self.told["refused"] += 1
                self.told["why"] = str(error)
                time.sleep(0.05)
            self.told["slowest"] = max(self.told["slowest"], time.monotonic() - began)


def main():
    with dtrun.Worker() as worker:
        users = [User(worker, number) for number in range(THREADS)]
        threads = [threading.Thread(target=user.run) for user in users]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        told = [user.told for user in users]
        with open(f"{DIRECTORY}/{NAME}.json", "w", encoding="utf-8") as file:
            json.dump(told, file)
        if NAME == "0":  # reads what is left once all have ended
            while sum(name.endswith(".json") for name in os.listdir(DIRECTORY)) < worker.world_size:
                time.sleep(0.02)
            left = []
            while worker.length("queue"):
                left.append(worker.pop("queue", 0).decode())
            with open(f"{DIRECTORY}/left", "w", encoding="utf-8") as file:
                json.dump({"sum": int(worker.find("sum") or 0), "items": left}, file)


main()
