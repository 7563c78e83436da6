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
import hashlib
import io
import itertools
import math
import pickle
import random
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import torch

from .. import Code, Error
from . import basics
from ._coordinator import HorovodInternalError
from ._optimizer_state import copy_into, load_others, put_state, state_of
from .functions import (allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters,
                        pickler_of)
from .optimizer import _Distributed


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


class ElasticSampler(torch.utils.data.Sampler):
    """Each rank's share of the samples of an epoch that no rank has had yet.

    With the same seed it gives the samples of Horovod's, and reads its checkpoints.

    :param dataset: has a length
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, with all samples."""
        self._begin(epoch, set(), 0)

    def _begin(self, epoch: int, processed: Set[int], number: int) -> None:
        self.epoch = epoch
        self.processed_indices = processed
        self.processed_num = number
        self._recorded: Set[int] = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """All ranks have had their next batch.

        :param batch_idx: is not looked at: programs count from the begin of the epoch, or from the last change of ranks
        """
        step = batch_size * self.num_replicas
        self.processed_indices.update(self._shared[self._done:self._done + step])
        self._done += step
        self.processed_num += step

    def record_indices(self, indices: Iterable[int]) -> None:
        """This rank has had these samples, of which others know after sync()."""
        indices = set(indices)
        self._recorded |= indices
        self.processed_indices |= indices
        self.processed_num += len(indices)

    def state_dict(self) -> Dict[str, Any]:
        return {"epoch": self.epoch, "processed_num": self.processed_num,
                "processed_indices": set(self.processed_indices), "recorded_indices": set(self._recorded)}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """:param state: of this class; or of Horovod's, which has the number of samples alone"""
        if "processed_indices" in state:
            processed = set(state["processed_indices"])
            number = state.get("processed_num", len(processed))
        else:
            number = state["processed_num"]
            processed = set(self._order(state["epoch"])[:number])
        self._begin(state["epoch"], processed, number)
        self._recorded = set(state.get("recorded_indices", ()))

    def sync(self) -> None:
        """All ranks go on with what rank 0 has had, and with what each of them has recorded for itself."""
        state = broadcast_object(self.state_dict(), 0, "elastic.sampler")
        everybody = allgather_object((self.epoch, self._recorded), "elastic.indices")
        recorded = set().union(*[indices for epoch, indices in everybody if epoch == state["epoch"]])
        new = recorded - state["processed_indices"]
        self._begin(state["epoch"], state["processed_indices"] | new, state["processed_num"] + len(new))

    def _order(self, epoch: int) -> List[int]:
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + epoch).shuffle(order)
        return order

    def reset(self) -> None:
        """Divides what is left among the ranks that there are now."""
        self._is_divided = basics.is_initialized()
        self.num_replicas, self.rank = (basics.size(), basics.rank()) if self._is_divided else (1, 0)
        self.remaining_indices = [index for index in self._order(self.epoch) if index not in self.processed_indices]
        left = self.remaining_indices
        self.num_samples = math.ceil(len(left) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        # All ranks have the same number, if need be of samples that others have, too.
        self._shared = list(itertools.islice(itertools.cycle(left), self.total_size))
        self._done = 0  # of these, by all ranks
        self.indices = self._shared[self.rank::self.num_replicas]

    def _divide_late(self) -> None:
        """If this was made before init()."""
        if not self._is_divided and basics.is_initialized():
            self.reset()

    def __iter__(self) -> Iterator[int]:
        self._divide_late()
        return iter(self.indices)

    def __len__(self) -> int:
        self._divide_late()
        return self.num_samples


class StateHandler:
    """How one attribute of a TorchState is kept, and given to other ranks. Subclass it for types of your own, and
    put them with it into the list of get_handler_registry()."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was saved."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks what rank 0 has."""
        raise NotImplementedError

    def outline(self) -> str:
        """Ranks sync() only if this is the same on all of them: for what their operations depend on."""
        return ""

    def set_value(self, value: Any) -> None:
        """Another object takes the place of the old one."""
        self.value = value
        self.save()


class _StateDictHandler(StateHandler):
    """Of what has state_dict() and load_state_dict()."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        # All ranks load it, the root too: whatever this replaces is replaced everywhere.
        self.value.load_state_dict(copy.deepcopy(broadcast_object(self.value.state_dict(), 0, "elastic.stateful")))


class ModelStateHandler(_StateDictHandler):
    """Of a torch.nn.Module."""

    def outline(self) -> str:
        state = self.value.state_dict()
        names = repr(sorted((name, torch.is_tensor(value)) for name, value in state.items()))
        return f"{len(state)} values {hashlib.sha256(names.encode()).hexdigest()[:16]}"

    def sync(self) -> None:
        state = self.value.state_dict()
        broadcast_parameters({name: value for name, value in state.items() if torch.is_tensor(value)}, 0)
        others = {name: value for name, value in state.items() if not torch.is_tensor(value)}
        if others:  # of modules with get_extra_state()
            self.value.load_state_dict({**state, **broadcast_object(others, 0, "elastic.model")})


class OptimizerStateHandler(_StateDictHandler):
    """Of a torch.optim.Optimizer, whose dictionaries and tensors stay: schedulers hold them."""

    def save(self) -> None:
        self._saved = copy.deepcopy(state_of(self.value))

    def restore(self) -> None:
        self._begin_anew()
        load_others(self.value, put_state(self.value, self._saved, copy_into))

    def sync(self) -> None:
        self._begin_anew()
        broadcast_optimizer_state(self.value, 0)

    def _begin_anew(self) -> None:
        if isinstance(self.value, _Distributed):
            self.value.begin_anew()


class SamplerStateHandler(_StateDictHandler):
    """Of an ElasticSampler."""

    def sync(self) -> None:
        self.value.sync()


_registry: List[Tuple[type, Callable[[Any], StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> List[Tuple[type, Callable[[Any], StateHandler]]]:
    """Which handler an attribute of a TorchState gets, by its type; the first that fits."""
    return _registry


def set_handler_registry(registry: Iterable[Tuple[type, Callable[[Any], StateHandler]]]) -> None:
    _registry[:] = registry


def _handler_for(value: Any) -> Optional[Callable[[Any], StateHandler]]:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler
    return _StateDictHandler if hasattr(value, "load_state_dict") else None


class TorchState(State):
    """A model, an optimizer, other things that have state_dict(), and attributes that can be pickled.

    Another object may be assigned to each of them, which is what is kept and given to others from then on. Where only
    some ranks have assigned one, sync() goes by rank 0's: ranks that have no such object get a copy of it.

    :param model: a torch.nn.Module, or None
    :param optimizer: a torch.optim.Optimizer, or None
    :param values: counters, samplers and so on
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **values: Any) -> None:
        self._handlers: Dict[str, StateHandler] = {}
        self._names: List[str] = []
        named = dict(values, model=model, optimizer=optimizer)
        super().__init__(**{name: value for name, value in named.items() if _handler_for(value) is None})
        for name, value in named.items():
            self._track(name, value)

    def _track(self, name: str, value: Any) -> None:
        """Has an attribute kept as its value needs it, and keeps what it has now."""
        kind, handler = _handler_for(value), self._handlers.get(name)
        if kind is None:
            self._handlers.pop(name, None)
            if name not in self._names:
                self._names.append(name)
                self._saved[name] = copy.deepcopy(value)
        elif handler is not None and isinstance(kind, type) and isinstance(handler, kind):
            handler.set_value(value)
        else:
            self._handlers[name] = kind(value)
            if name in self._names:
                self._names.remove(name)
                del self._saved[name]
        self.__dict__[name] = value

    def __setattr__(self, name: str, value: Any) -> None:
        known = self.__dict__
        if name in known.get("_handlers", ()) or name in known.get("_names", ()):
            self._track(name, value)
        else:
            super().__setattr__(name, value)

    def save(self) -> None:
        super().save()
        for handler in self._handlers.values():
            handler.save()

    def restore(self) -> None:
        super().restore()
        for handler in self._handlers.values():
            handler.restore()

    def sync(self) -> None:
        """Gives all ranks what rank 0 has.

        :raises ValueError: on all ranks: they have things of different kinds, and rank 0's cannot be sent
        """
        handled = self._agree()
        for name in handled:
            self._handlers[name].sync()
        super().sync()

    def _kinds(self) -> Dict[str, Optional[str]]:
        """What there is under each name, so that ranks with the same make the same operations; None: an object."""
        kinds: Dict[str, Optional[str]] = {name: None for name in self._names}
        for name, handler in self._handlers.items():
            kinds[name] = f"{type(handler).__qualname__} {handler.outline()}".rstrip()
        return kinds

    def _agree(self) -> List[str]:
        """Has each rank keep what rank 0 keeps, as it does. :return: what handlers sync, in the same order"""
        everybody = allgather_object(self._kinds(), "elastic.kinds")
        kinds = everybody[0]
        for name, kind in kinds.items():
            if kind is None and name not in self._names:
                self._track(name, None)  # until its value comes
        handled = sorted(name for name, kind in kinds.items() if kind is not None)
        missing = []
        for name in handled:
            for rank, other in enumerate(everybody):
                if other.get(name) not in (None, kinds[name]):
                    raise ValueError(f"state.{name} is of {kinds[name]} on rank 0, and of {other[name]} on rank "
                                     f"{rank}: assign the same kind of object on all ranks")
            if any(other.get(name) is None for other in everybody):
                missing.append(name)
        if missing:
            self._adopt(missing, [name for name in handled if name not in missing])
        return handled

    def _adopt(self, names: List[str], common: List[str]) -> None:
        """Gives copies of rank 0's objects to the ranks that have none.

        :param common: what all ranks have, to which those objects may refer
        """
        shared = [thing for name in common for thing in _parts(self._handlers[name].value)]
        data = failure = None
        if basics.rank() == 0:
            try:
                data = _pickled({name: self._handlers[name].value for name in names}, shared)
            except Exception as error:  # whatever a class of the program raises
                failure = str(error)
        data, failure = broadcast_object((data, failure), 0, "elastic.adopted")
        if failure is None:
            try:
                adopted = _unpickled(data, shared)
                for name in names:
                    if name not in self._handlers:
                        self._track(name, adopted[name])
            except Exception as error:
                failure = str(error)
        failures = [failure for failure in allgather_object(failure, "elastic.adoption") if failure is not None]
        if failures:
            raise ValueError(f"some ranks have no {', '.join('state.' + name for name in names)} and cannot get rank "
                             f"0's: {failures[0]}. Make and assign it on all ranks before sync(), best where the "
                             "state is made")

    def reset(self) -> None:
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()


def _parts(value: Any) -> List[Any]:
    """An object and its parameters, in the same order on all ranks."""
    if isinstance(value, torch.nn.Module):
        return [value, *value.parameters()]
    if isinstance(value, torch.optim.Optimizer):
        return [value, *(p for group in value.param_groups for p in group["params"])]
    return [value]


def _pickled(value: Any, shared: List[Any]) -> bytes:
    """:param shared: what the other side has, too, so that its own takes the place of it"""
    numbers = {id(thing): number for number, thing in enumerate(shared)}

    class Pickler(pickler_of()):
        def persistent_id(self, thing: Any) -> Optional[int]:
            number = numbers.get(id(thing))
            if number is None and isinstance(thing, torch.optim.Optimizer):
                raise ValueError("it is, or belongs to, an optimizer that is not an attribute of the state on all "
                                 "ranks, and a copy of that would not train their models")
            return number

    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def _unpickled(data: bytes, shared: List[Any]) -> Any:
    class Unpickler(pickle.Unpickler):
        def persistent_load(self, number: int) -> Any:
            return shared[number]

    return Unpickler(io.BytesIO(data)).load()


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
