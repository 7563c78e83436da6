"""Bases of what survives a change of the ranks; horovod.torch.elastic has those that programs use."""

from typing import Any, Callable, NoReturn

from dtrun.torch import elastic

from .exceptions import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401


class State(elastic.State):
    """For subclasses that have save(), restore() and sync() of their own.

    :param bcast_object: a function that gives all ranks rank 0's object, for sync()
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **values: Any) -> None:
        self._bcast_object, self._rank = bcast_object, get_rank
        self.save = lambda: None  # type: ignore[method-assign]  # a subclass may not be ready for it yet
        super().__init__(**values)
        del self.save


class ObjectState(State):
    """Attributes that can be pickled. What `bcast_object` is for, dtrun.torch does by itself."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank, **kwargs)
        self.save()


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> NoReturn:
    """Horovod's loop with a reset of the caller's, of which the job here would know nothing."""
    raise NotImplementedError("horovod.common.elastic.run_fn() is not there: use horovod.torch.elastic.run(func), which "
                              "joins the ranks anew by itself")
