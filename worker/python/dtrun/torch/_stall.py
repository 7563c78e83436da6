"""Tells of operations of a group of torch.distributed that some of its ranks do not come to."""

from __future__ import annotations

import sys
import threading
import time
from typing import List, Optional, Tuple

from .. import Error, Worker
from . import _tensors as t

#: Ranks that wait have said so within this many seconds of each other.
_APART_SECONDS = 2.0
_NAMED_MAX = 8
_TELL_AGAIN_MAX = 3600.0


def _ranks(ranks: List[int], one: str, more: str) -> str:
    """"rank 3 has", "ranks 0, 2 have"."""
    named = ", ".join(str(rank) for rank in ranks[:_NAMED_MAX])
    if len(ranks) > _NAMED_MAX:
        named += f" and {len(ranks) - _NAMED_MAX} more"
    return f"rank {named} {one}" if len(ranks) == 1 else f"ranks {named} {more}"


class StallWatch:
    """Looks at the operation that a group's thread is in, and if it takes long asks the job's store for the others."""

    def __init__(self, worker: Worker, name: str, ranks: List[int], rank: int, seconds: float) -> None:
        """
        :param name: of the group, that no other one has
        :param ranks: of the job, by rank of the group
        :param seconds: until an operation is told; 0 or less: never
        """
        self._worker, self._name, self._ranks, self._rank, self._seconds = worker, name, ranks, rank, seconds
        self._number = 0
        self._under_way: Optional[Tuple[int, str, float]] = None
        self._reported = ""  # what the job's launcher knows this rank to wait for
        self._is_closed = threading.Event()
        self._thread: Optional[threading.Thread] = None
        if seconds > 0 and len(ranks) > 1:
            self._thread = threading.Thread(target=self._run, name="dtrun-stalls", daemon=True)
            self._thread.start()
            t.end_with_program(self)

    def begin(self, what: str) -> None:
        """The group's thread comes to its next operation."""
        self._number += 1
        self._under_way = self._number, what, time.monotonic()

    def end(self) -> None:
        self._under_way = None
        if self._reported:
            self._report_end()

    def close(self, timeout: Optional[float] = None) -> None:
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        told, again = 0, self._seconds  # the operation that was told, and after how long it is told next
        pause = self._seconds
        while not self._is_closed.wait(pause):
            now = self._under_way
            if now is None or now[0] != told:
                told, again = 0, self._seconds
            waited = 0.0 if now is None else time.monotonic() - now[2]
            pause = self._seconds if now is None else max(again - waited, 0.01)
            if now is None or waited < again:
                continue
            told, again = now[0], waited + min(waited, _TELL_AGAIN_MAX)
            pause = again - waited
            try:
                self._tell(now)
            except Error:  # the job ends, and nobody waits any more
                return

    def _report_end(self) -> None:
        what, self._reported = self._reported, ""
        try:
            if what:
                self._worker.stall_end(what)
        except Error:  # the job ends
            pass

    def _key(self, rank: int) -> str:
        return f"{self._name}/stalled/{rank}"

    def _tell(self, now: Tuple[int, str, float]) -> None:
        """The first of the ranks that wait speaks for all to the user; to the launcher each says it for itself."""
        number, what, since = now
        self._worker.set(self._key(self._rank), str(number))
        if self._is_closed.wait(_APART_SECONDS) or self._under_way != now:
            return
        waiting, missing = [], []
        for place, rank in enumerate(self._ranks):
            at = self._worker.find(self._key(place))
            (waiting if at is not None and int(at) >= number else missing).append(rank)
        if not missing:
            return
        operation = f"{what}, operation {number} of a group of {len(self._ranks)} ranks"
        absent = f"{_ranks(missing, 'has', 'have')} not come"
        waited = time.monotonic() - since
        if waiting[0] == self._ranks[self._rank]:
            print(f"dtrun: {operation}: {_ranks(waiting, 'has', 'have')} waited for {waited:.0f} s; {absent}",
                  file=sys.stderr, flush=True)
        if not self._reported:
            self._worker.stall(f"{operation}; {absent}", waited)
            self._reported = f"{operation}; {absent}"
            if self._under_way != now:  # it has ended meanwhile
                self._report_end()
