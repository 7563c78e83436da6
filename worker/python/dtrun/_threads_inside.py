"""Which threads are inside of the library with an object, so that nobody frees it under them."""

from __future__ import annotations

import threading
from time import monotonic
from types import TracebackType
from typing import List, Optional, Type


class ThreadsInside:
    """Each thread says by a `with` statement that it is inside; who wants to free the object waits for them."""

    __slots__ = ("threads", "is_awaited", "_left")

    def __init__(self) -> None:
        self.threads: List[int] = []  # a thread is there twice when a signal handler goes inside, too
        self.is_awaited = False
        self._left = threading.Condition()

    def __enter__(self) -> None:
        self.threads.append(threading.get_ident())

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.threads.remove(threading.get_ident())
        if self.is_awaited:
            self.tell()

    def tell(self) -> None:
        """Wakes who waits for this thread, which has left."""
        with self._left:
            self._left.notify_all()

    def has_others(self) -> bool:
        """Whether a thread other than this one is inside."""
        own = threading.get_ident()
        return any(thread != own for thread in self.threads[:])

    def has_this(self) -> bool:
        """Whether this thread is inside: then a signal handler asks, or a destructor that runs in the middle."""
        return threading.get_ident() in self.threads

    def wait_for_others(self, timeout: Optional[float] = None) -> bool:
        """Waits until all other threads have left. This one may be inside, when a signal handler has called.

        :param timeout: seconds; None: none
        :return: False: the time has passed before
        """
        until = None if timeout is None else monotonic() + timeout
        self.is_awaited = True  # before it looks, as who leaves looks at this after it has left
        with self._left:
            while self.has_others():
                if not self._left.wait(None if until is None else max(0, until - monotonic())):
                    return not self.has_others()
        return True
