"""What functions of this package give and raise."""

from __future__ import annotations

import enum
from typing import NamedTuple, Optional


class Code(enum.IntEnum):
    """Why a call has failed; values are those of dtrun_code in <dtrun.h>."""

    NOT_FOUND = 1
    TIMED_OUT = 2
    STALE = 3
    CANCELLED = 4
    REFUSED = 5
    WRONG_TYPE = 6
    CLOSED = 7
    INVALID = 8
    NO_LAUNCHER = 9
    FORKED = 10
    INTERNAL = 11
    PEER_LOST = 12


class Error(Exception):
    """What every function here raises."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code  #: what a program can react to

    def __reduce__(self) -> tuple:
        return type(self), (self.code, str(self))


class TimedOut(Error, TimeoutError):
    """The timeout of the call has passed."""


class EventKind(enum.IntEnum):
    MEMBERSHIP = 1  #: a new generation is coming
    SHUTDOWN = 2  #: the job is being ended


class Event(NamedTuple):
    """Something that a rank may want to know."""

    kind: int  #: an EventKind; ignore others
    generation: int  #: that is coming, or that ends
    grace: float  #: seconds until the process is killed; 0: not known
    why: str


class ChangeReason(enum.IntEnum):
    JOINED = 1  #: more slots are there
    LEFT = 2  #: slots are to be given up
    LOST = 3  #: a rank or a host is lost: nobody can finish this generation
    RESTARTED = 4  #: all ranks are being ended, to start again


class Change(NamedTuple):
    """What is known of the end of this generation."""

    generation: int  #: of this process
    next: int  #: that is coming
    stop_step: int  #: leave before this step, as all others do; 0: none is agreed, leave now
    deadline: float  #: until which ranks may go on, as time.time() counts; 0: not known
    reason: int  #: a ChangeReason; 0: not known


class KeyChange(NamedTuple):
    """A change of a key under a prefix."""

    revision: int
    key: bytes
    value: Optional[bytes]  #: None: it was deleted, or is a queue
    is_queue: bool

    @property
    def is_deleted(self) -> bool:
        return self.value is None and not self.is_queue


class Transacted(NamedTuple):
    """How a transaction ended."""

    done: bool
    failed: Optional[int]  #: index of the first condition that does not hold


class Changed(Exception):
    """Raised by Elastic.check(): this generation ends here."""

    def __init__(self, change: Change) -> None:
        super().__init__(f"generation {change.next} is coming")
        self.change = change

    def __reduce__(self) -> tuple:
        return type(self), (self.change,)
