"""Training that survives ranks and hosts that are lost or come, as horovod.torch.elastic has it.

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            for state.batch, ... in ...:
                ...
                state.commit()

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)
    train(state)

in a job that dtrun has started with --min-np. docs/ELASTIC.md says what survives what.
"""

from __future__ import annotations

import copy
import functools
import math
from typing import Any, Callable, Dict, Iterator, List

import torch

from .. import Code, Error
from . import basics
from ._coordinator import HorovodInternalError
from .functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts have come or are to go: run() takes it, and goes on with the ranks that are there then."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the ranks of the job are changing")
        self.skip_sync = skip_sync


class State:
    """What survives a change: attributes, by name. Subclass it for what cannot be pickled."""

    def __init__(self, **values: Any) -> None:
        self._commits = 0
        self._callbacks: List[Callable[[], None]] = []
        self._names = list(values)
        self.__dict__.update(values)
        self.save()

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Functions that are called when the ranks have changed, to divide data anew or scale a learning rate."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self.reset()
        for callback in self._callbacks:
            callback()

    def reset(self) -> None:
        """For subclasses: the ranks have changed."""

    def commit(self) -> None:
        """Keeps what there is now, to go back to; and ends the generation if all ranks leave it here."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """:raises HostsUpdatedInterrupt: the same time on all ranks"""
        self._commits += 1
        member = basics.worker()
        member.progress(self._commits)
        change = member.change()
        if change is not None and self._commits >= change.stop_step:
            raise HostsUpdatedInterrupt()

    def save(self) -> None:
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._names}

    def restore(self) -> None:
        self.__dict__.update(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Gives all ranks what rank 0 has."""
        values = {name: getattr(self, name) for name in self._names}
        self._commits, values = broadcast_object((self._commits, values), 0, "elastic.state")
        self.__dict__.update(values)
        self.save()


class ObjectState(State):
    """Attributes that can be pickled."""


class TorchState(State):
    """A model, an optimizer, other things that have state_dict(), and attributes that can be pickled.

    :param model: a torch.nn.Module, or None
    :param optimizer: a torch.optim.Optimizer, or None
    :param values: counters, samplers and so on
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **values: Any) -> None:
        named = dict(values)
        named.update({name: value for name, value in (("model", model), ("optimizer", optimizer))
                      if value is not None})
        self._stateful = {name: value for name, value in named.items() if hasattr(value, "load_state_dict")}
        self.__dict__.update(self._stateful)
        super().__init__(**{name: value for name, value in named.items() if name not in self._stateful})

    def save(self) -> None:
        super().save()
        self._states: Dict[str, Any] = {name: copy.deepcopy(value.state_dict())
                                        for name, value in self._stateful.items()}

    def restore(self) -> None:
        super().restore()
        for name, value in self._stateful.items():
            value.load_state_dict(copy.deepcopy(self._states[name]))

    def sync(self) -> None:
        for value in self._stateful.values():
            if isinstance(value, torch.nn.Module):
                broadcast_parameters(value.state_dict(), 0)
            elif isinstance(value, torch.optim.Optimizer):
                broadcast_optimizer_state(value, 0)
            elif isinstance(value, ElasticSampler):
                value.sync()
            else:
                value.load_state_dict(broadcast_object(value.state_dict(), 0, "elastic.stateful"))
        super().sync()

    def reset(self) -> None:
        for value in self._stateful.values():
            if isinstance(value, ElasticSampler):
                value.reset()


class ElasticSampler(torch.utils.data.Sampler):
    """Each rank's share of the samples of an epoch that no rank has had yet.

    :param dataset: has a length
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_indices: set = set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, with all samples."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """This rank has had that batch."""
        self.processed_indices.update(self.indices[batch_idx * batch_size:(batch_idx + 1) * batch_size])

    def record_indices(self, indices: Any) -> None:
        self.processed_indices.update(indices)

    def state_dict(self) -> Dict[str, Any]:
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self.epoch, self.processed_indices = state["epoch"], set(state["processed_indices"])
        self.reset()

    def sync(self) -> None:
        """Puts together what all ranks have had."""
        from .functions import allgather_object
        epoch = broadcast_object(self.epoch, 0, "elastic.epoch")
        everybody = allgather_object((self.epoch, self.processed_indices), "elastic.indices")
        had = set().union(*[indices for other, indices in everybody if other == epoch])
        self.load_state_dict({"epoch": epoch, "processed_indices": had})

    def reset(self) -> None:
        ranks, rank = (basics.size(), basics.rank()) if basics.is_initialized() else (1, 0)
        left = [index for index in range(len(self.dataset)) if index not in self.processed_indices]
        if self.shuffle:
            order = torch.randperm(len(left), generator=torch.Generator().manual_seed(self.seed + self.epoch))
            left = [left[i] for i in order.tolist()]
        self.num_samples = math.ceil(len(left) / ranks)
        missing = self.num_samples * ranks - len(left)
        if missing:  # all ranks have the same number, if need be of samples that others have, too
            left += (left * math.ceil(missing / len(left)))[:missing]
        self.indices = left[rank::ranks]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


def _is_over(error: BaseException) -> bool:
    """Whether others have gone, or the generation is over: no reason to end this process."""
    return isinstance(error, HorovodInternalError) or (
        isinstance(error, Error) and error.code in (Code.STALE, Code.CANCELLED, Code.PEER_LOST))


def _rejoin() -> None:
    member = basics.worker() if basics.is_initialized() else basics.shared_worker()
    basics.shutdown()
    member.rejoin()


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Has function(state, ...) called again whenever the ranks have changed, with the state of the last commit."""

    @functools.wraps(function)
    def train(state: State, *args: Any, **kwargs: Any) -> Any:
        changed = skip_sync = False
        while True:
            try:
                basics.init()
                if changed:
                    state.on_reset()
                if not skip_sync:
                    state.sync()
                return function(state, *args, **kwargs)
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            except (HorovodInternalError, Error) as error:
                if not _is_over(error) or not basics.shared_worker().can_rejoin:
                    raise
                state.restore()
                skip_sync = False
            changed = True
            _rejoin()

    return train
