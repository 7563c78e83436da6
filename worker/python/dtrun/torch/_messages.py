"""Messages between two ranks of a group of torch.distributed: each waits only for those that the same rank has sent to
the same one before, and is received by its tag, from one rank or from anybody.

What goes from one rank to another has a communicator of its own, a *way*, which is made with its first message. In
front of each message goes a header, by which the receiver knows which of the tensors that wait gets it.
"""

from __future__ import annotations

import collections
import struct
import threading
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple, Union

import torch

from .. import Code, Error, Worker
from ..collectives import Communicator
from . import _tensors as t
from ._work import Flat

#: Elements, tag, and torch's name of their type.
_HEADER = struct.Struct("<QqQ16s")
#: What a rank that ends finds instead of the first message of another one.
_CLOSED = b"closed"


class Members(NamedTuple):
    """A group that exchanges messages, as this process sees it."""

    worker: Worker
    name: str  # the same on all its ranks, and no other group's
    ranks: List[int]  # of the job, by rank of the group
    rank: int
    backend: str
    timeout: float  # seconds until the other rank has come to the first message

    def way(self, source: int, to: int) -> Tuple[str, List[int]]:
        """The name of a way, and its two ranks in the job."""
        return f"{self.name}/{source} to {to}", [self.ranks[source], self.ranks[to]]

    def connect(self, source: int, to: int) -> t.TensorCommunicator:
        name, ranks = self.way(source, to)
        return t.TensorCommunicator(
            Communicator(self.worker, self.backend, timeout=self.timeout, ranks=ranks, name=name, stall_after=0))


class _Header(NamedTuple):
    elements: int
    tag: int
    dtype: str
    bytes: int

    @classmethod
    def of(cls, flat: Flat, tag: int) -> "_Header":
        return cls(flat.given.numel(), tag, str(flat.given.dtype).rpartition(".")[2],
                   flat.flat.numel() * flat.flat.element_size())

    def packed(self) -> torch.Tensor:
        words = _HEADER.pack(self.elements, self.tag, self.bytes, self.dtype.encode())
        return torch.frombuffer(bytearray(words), dtype=torch.uint8)

    @classmethod
    def unpacked(cls, packed: torch.Tensor) -> "_Header":
        elements, tag, size, dtype = _HEADER.unpack(bytes(packed.tolist()))
        return cls(elements, tag, dtype.rstrip(b"\0").decode(), size)


class _Outbox:
    """Messages to one rank, in the order in which they are sent."""

    def __init__(self, members: Members, to: int) -> None:
        self._members, self._to = members, to
        self._comm: Optional[t.TensorCommunicator] = None
        self._thread = t.InOrder(f"dtrun-messages-to-{to}")

    def send(self, flat: Flat, tag: int, value: Any) -> t.Started:
        header = _Header.of(flat, tag)

        def job() -> Any:
            if self._comm is None:
                self._members.worker.set(self._members.way(self._members.rank, self._to)[0], b"sends")
                self._comm = self._members.connect(self._members.rank, self._to)
            self._comm.send(header.packed(), 1)
            if header.bytes:
                self._comm.send(_as_bytes(flat.flat), 1)
            return value
        return self._thread.start(job)

    def abort(self, why: str) -> None:
        """Ends the message that is under way, and this way with it."""
        if self._comm is not None:
            _abort(self._comm, why)

    def close(self, timeout: Optional[float]) -> None:
        self._thread.close(timeout)
        if self._comm is not None:
            self._comm.comm.close()


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


class Receive:
    """A tensor that waits for a message."""

    def __init__(self, flat: Flat, source: Optional[int], tag: int, value: Any) -> None:
        """:param source: None: anybody; :param value: of the future"""
        self.flat, self.tag, self.value = flat, tag, value
        self.wanted = source
        self.source = -1 if source is None else source  #: the rank that has sent it, once it is there
        self.started: Optional[t.Started] = None

    def takes(self, source: int, tag: int) -> bool:
        return self.wanted in (None, source) and self.tag == tag


class Messages:
    """All messages of a group."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._changed = threading.Condition()  # guards what follows
        self._outboxes: Dict[int, _Outbox] = {}
        self._inboxes: Dict[int, _Inbox] = {}
        self._waiting: List[Receive] = []
        self._is_closed = False
        t.end_with_program(self)

    def send(self, flat: Flat, to: int, tag: int, value: Any) -> Tuple[t.Started, Callable[[str], None]]:
        """:return: also what ends it before it is done"""
        with self._changed:
            if to not in self._outboxes:
                self._outboxes[to] = _Outbox(self._members, to)
            outbox = self._outboxes[to]
        return outbox.send(flat, tag, value), outbox.abort

    def receive(self, wish: Receive) -> Tuple[t.Started, Callable[[str], None]]:
        """:return: also what ends the wait"""
        sources = range(len(self._members.ranks)) if wish.wanted is None else [wish.wanted]
        with self._changed:
            for source in sources:
                if source not in self._inboxes and source != self._members.rank:
                    self._inboxes[source] = _Inbox(self._members, source, self)
            inboxes = [self._inboxes[source] for source in sources if source != self._members.rank]
            wish.started = t.Started(lambda: wish.value, inboxes[0].thread if len(inboxes) == 1 else None)
            answer = next(filter(None, (inbox.answer(wish) for inbox in inboxes)), None)
            if self._is_closed:
                answer = closed_error()
            if answer is None:
                self._waiting.append(wish)
                self._changed.notify_all()
        if isinstance(answer, Exception):
            wish.started.fail(answer)
        elif answer is not None:
            finish(wish, *answer)
        return wish.started, lambda why: self._give_up(wish, why)

    def _give_up(self, wish: Receive, why: str) -> None:
        with self._changed:
            if wish not in self._waiting:
                return
            self._waiting.remove(wish)
        assert wish.started is not None
        wish.started.fail(Error(Code.TIMED_OUT, why))

    # ---- for inboxes ----

    def is_awaited(self, source: int) -> bool:
        """Whether some tensor may get the next message of that rank. With the lock."""
        return any(wish.wanted in (None, source) for wish in self._waiting)

    def wait_until_awaited(self, source: int) -> bool:
        """:return: False: the group has ended"""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self.is_awaited(source))
            return not self._is_closed

    def match(self, source: int, header: _Header) -> Optional[Receive]:
        """The first that waits for such a message, which nobody else gets; None: none does."""
        with self._changed:
            for wish in self._waiting:
                if wish.takes(source, header.tag):
                    self._waiting.remove(wish)
                    wish.source = source
                    return wish
        return None

    def keep(self, kept: Deque[Tuple[_Header, torch.Tensor]], source: int, header: _Header,
             message: torch.Tensor) -> None:
        """Keeps a message that has come before somebody has asked for it, unless somebody has now."""
        with self._changed:
            wish = self.match(source, header)
            if wish is None:
                kept.append((header, message))
                return
        finish(wish, header, message)

    def fail(self, inbox: "_Inbox", source: int, error: Exception) -> None:
        """No more messages of that rank will come."""
        with self._changed:
            inbox.error = error
            lost = [wish for wish in self._waiting if wish.wanted in (None, source)]
            for wish in lost:
                self._waiting.remove(wish)
        for wish in lost:
            assert wish.started is not None
            wish.started.fail(error)

    def close(self, timeout: Optional[float] = None) -> None:
        """Waits until what was sent has arrived; what still waits for a message fails. May be called again."""
        for outbox in list(self._outboxes.values()):
            outbox.close(timeout)
        with self._changed:
            self._is_closed = True
            lost, self._waiting = self._waiting, []
            self._changed.notify_all()
        for wish in lost:
            assert wish.started is not None
            wish.started.fail(closed_error())
        for inbox in list(self._inboxes.values()):
            inbox.close(timeout)


def closed_error() -> Error:
    return Error(Code.CLOSED, "the communicator is closed: destroy_process_group() or close() was called before")


def finish(wish: Receive, header: _Header, message: torch.Tensor) -> None:
    """Gives a message that is there to the tensor that waits for it."""
    assert wish.started is not None
    error = difference(wish, header)
    if error is not None:
        wish.started.fail(error)
        return
    _as_bytes(wish.flat.flat).copy_(message)
    wish.flat.put_back()
    wish.started.run()


def difference(wish: Receive, header: _Header) -> Optional[Error]:
    own = _Header.of(wish.flat, wish.tag)
    if (own.elements, own.dtype) == (header.elements, header.dtype):
        return None
    return Error(Code.INVALID, f"ranks disagree: rank {wish.source} sends {header.elements} elements of "
                 f"{header.dtype}, and the tensor that gets them has {own.elements} of {own.dtype}")


class _Inbox:
    """Messages of one rank. Its thread reads as long as somebody waits for one."""

    def __init__(self, members: Members, source: int, messages: Messages) -> None:
        self._members, self._source, self._messages = members, source, messages
        self._comm: Optional[t.TensorCommunicator] = None
        self._kept: Deque[Tuple[_Header, torch.Tensor]] = collections.deque()
        self.error: Optional[Exception] = None  #: why no more come
        self.thread = threading.Thread(target=self._run, name=f"dtrun-messages-from-{source}", daemon=True)
        self.thread.start()

    def answer(self, wish: Receive) -> Union[None, Exception, Tuple[_Header, torch.Tensor]]:
        """The first such message that has come already, or the reason why none comes. With the group's lock."""
        for place, (header, message) in enumerate(self._kept):
            if wish.takes(self._source, header.tag):
                del self._kept[place]
                wish.source = self._source
                return header, message
        return self.error

    def _run(self) -> None:
        try:
            if self._messages.wait_until_awaited(self._source) and self._connect():
                while self._messages.wait_until_awaited(self._source):
                    self._read()
        except Exception as error:  # who waits for a message gets it
            self._messages.fail(self, self._source, error)

    def _connect(self) -> bool:
        members = self._members
        first = members.worker.get(members.way(self._source, members.rank)[0], timeout=None)
        if first == _CLOSED:
            return False
        self._comm = members.connect(self._source, members.rank)
        return True

    def _read(self) -> None:
        assert self._comm is not None
        packed = torch.empty(_HEADER.size, dtype=torch.uint8)
        self._comm.recv(packed, 0)
        header = _Header.unpacked(packed)
        if not self._messages.wait_until_awaited(self._source):
            return
        wish = self._messages.match(self._source, header)
        if wish is not None and difference(wish, header) is None:
            self._receive(wish, header)
            return
        message = torch.empty(header.bytes, dtype=torch.uint8)
        if header.bytes:
            self._comm.recv(message, 0)
        if wish is not None:
            finish(wish, header, message)
        else:
            self._messages.keep(self._kept, self._source, header, message)

    def _receive(self, wish: Receive, header: _Header) -> None:
        """A message goes where it belongs without a copy."""
        assert self._comm is not None and wish.started is not None
        try:
            if header.bytes:
                self._comm.recv(_as_bytes(wish.flat.flat), 0)
            wish.flat.put_back()
        except Exception as error:
            wish.started.fail(error)
            raise
        wish.started.run()

    def close(self, timeout: Optional[float]) -> None:
        try:
            if self._comm is not None and self.thread.is_alive():
                _abort(self._comm, "the group has ended")
            elif self.thread.is_alive():
                self._members.worker.set(self._members.way(self._source, self._members.rank)[0], _CLOSED)
        except Error:  # the job is over, and so is the wait
            pass
        self.thread.join(timeout)
        if self._comm is not None and not self.thread.is_alive():
            self._comm.comm.close()


def _abort(comm: t.TensorCommunicator, why: str) -> None:
    if comm.comm.backend != "mpi":  # which would end all ranks
        comm.comm.abort(why)
