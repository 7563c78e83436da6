"""Bases for loaders of data, as Horovod has them: a subclass has _iterate(), and __len__()."""

import queue
import threading
from typing import Any, Iterator, Optional


class BaseDataLoader:
    def __len__(self) -> int:
        """Number of batches."""
        raise NotImplementedError(f"{type(self).__name__} has to say how many batches it has: __len__()")

    def _iterate(self) -> Iterator[Any]:
        """The batches of one pass."""
        raise NotImplementedError(f"{type(self).__name__} has to have _iterate(), which yields batches")

    def _process_batch(self, batch: Any) -> Any:
        """What becomes of a batch in the thread that takes it."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)


class _End:
    """Comes after the last batch. :param error: what has ended the pass early"""

    def __init__(self, error: Optional[BaseException] = None) -> None:
        self.error = error


class AsyncDataLoaderMixin:
    """Has a thread read batches ahead; it is the first base, before the loader.

    :param async_loader_queue_size: how many; 0: there is no thread
    """

    def __init__(self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any,
                 **kwargs: Any) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._stop: Optional[threading.Event] = None
        self._thread: Optional[threading.Thread] = None
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Ends a pass that is under way."""
        thread, self._thread = self._thread, None
        if thread is not None and self._stop is not None:
            self._stop.set()
            thread.join()

    def _read_ahead(self, batches: "queue.Queue[Any]", stop: threading.Event) -> None:
        def put(thing: Any) -> bool:
            while not stop.is_set():
                try:
                    batches.put(thing, timeout=0.1)
                    return True
                except queue.Full:
                    pass
            return False

        try:
            for batch in self._iterate():  # type: ignore[attr-defined]
                if not put(batch):
                    return
            put(_End())
        except BaseException as error:  # which is the reader's
            put(_End(error))

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        self.close_async_loader()
        batches: "queue.Queue[Any]" = queue.Queue(self.async_loader_queue_size)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read_ahead, args=(batches, self._stop), daemon=True)
        self._thread.start()
        try:
            while True:
                batch = batches.get()
                if isinstance(batch, _End):
                    if batch.error is not None:
                        raise batch.error
                    return
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            self.close_async_loader()
