"""Messages between two ranks, of which none has to wait for those of other ranks."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..collectives import Communicator
from . import _tensors as t

#: In larger groups each rank would have too many communicators, which have a thread and sockets each.
PAIRED_RANKS_MAX = 16


class _Way:
    """A communicator for messages that are sent and received in the order in which they are asked for."""

    def __init__(self, comm: Communicator, name: str) -> None:
        self.comm = t.TensorCommunicator(comm)
        self._name = name
        self._making = threading.Lock()
        self._thread: Optional[t.InOrder] = None  # most ranks never send each other a message

    def start(self, job: Callable[[], Any]) -> t.Started:
        with self._making:
            if self._thread is None:
                self._thread = t.InOrder(self._name)
        return self._thread.start(job)

    def close(self) -> None:
        with self._making:
            if self._thread is not None:
                self._thread.close()
        self.comm.comm.close()


class Messages:
    """The ways of a group.

    Everything of one communicator has one order. Therefore two ranks have two communicators for themselves, one
    for each direction: a message waits only for those that the same rank has sent to the same one before. In
    groups of more than PAIRED_RANKS_MAX ranks there is one for all messages to higher ranks, and one for others.
    """

    def __init__(self, comm: Communicator) -> None:
        """All ranks of the communicator make it."""
        self._rank = comm.rank
        self._ways: Dict[Tuple[int, bool], _Way] = {}  # of a peer, and whether messages go to the higher rank
        self._all: List[_Way] = []
        if comm.size > PAIRED_RANKS_MAX:
            self._all = [_Way(comm.split(0, comm.rank), f"dtrun-messages-{way}") for way in ("down", "up")]
            return
        # In turn, each rank meets each other one: that whose number differs from its own in the same bits.
        for bits in range(1, 1 << (comm.size - 1).bit_length()):
            peer = self._rank ^ bits
            for is_up in (False, True):
                pair = comm.split(min(self._rank, peer) if peer < comm.size else -1, self._rank)
                if pair is not None:
                    self._ways[peer, is_up] = _Way(pair, f"dtrun-messages-{'up' if is_up else 'down'}-{peer}")

    def way(self, source: int, to: int) -> Tuple[_Way, int]:
        """For messages from one rank to another, of which one is this: and the other one's number in it."""
        peer = to if source == self._rank else source
        if self._all:
            return self._all[source < to], peer
        return self._ways[peer, source < to], int(self._rank < peer)

    def close(self) -> None:
        """Waits for what is under way."""
        for way in (*self._ways.values(), *self._all):
            way.close()
