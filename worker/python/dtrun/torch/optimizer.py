"""DistributedOptimizer: gradients are averaged over all ranks while the others are still computed."""

from __future__ import annotations

import contextlib
import numbers
import os
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from . import _coordinator as c
from . import operations as o
from ._optimizer_state import keeping_dictionaries
from ._step_marks import mark_step
from .basics import ProcessSet, global_process_set, size
from .compression import Compression, compression_for, wire_format
from .functions import broadcast_object
from .operations import Adasum, Average, Sum, synchronize

#: What is as small is sent in full where others are sent in 8 bits: it would gain nothing, and biases lose.
_EIGHT_BIT_NUMEL_MIN = 1024
_EIGHT_BIT_FORMATS = (Compression.int8.wire_format, Compression.fp8.wire_format)

Names = Dict[torch.Tensor, str]


def _names_of(optimizer: torch.optim.Optimizer, named: Optional[Iterable[Any]]) -> Names:
    """:raises ValueError: a name is used twice, or a parameter has none"""
    if named is None:
        pairs = [(f"noname.{i}.{j}", p) for i, group in enumerate(optimizer.param_groups)
                 for j, p in enumerate(group["params"])]
    else:
        pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), usually produced "
                         "by model.named_parameters()")
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"parameter names in named_parameters must be unique; found twice: {', '.join(twice)}")
    known = {p: name for name, p in pairs}
    unnamed = [p for group in optimizer.param_groups for p in group["params"] if p not in known]
    if unnamed:
        raise ValueError(f"named_parameters does not name {len(unnamed)} of the optimizer's parameters, the first "
                         f"with shape {list(unnamed[0].shape)}: give those of the whole model")
    return known


class _Gradient:
    """How one parameter's gradient is sent: the task is made once and submitted in every step."""

    def __init__(self, name: str, op: int, scales: Tuple[float, float], compression: Any,
                 process_set: ProcessSet) -> None:
        self.name, self.op, self.scales = name, op, scales
        self.compression, self.process_set = compression, process_set
        self._task: Optional[c.Task] = None
        self._made_for: Optional[Tuple[torch.Size, torch.dtype]] = None

    def _format(self, gradient: torch.Tensor) -> int:
        format = wire_format(self.compression, gradient, self.op in (Average, Sum))
        small = gradient.dim() <= 1 or gradient.numel() < _EIGHT_BIT_NUMEL_MIN
        return 0 if format in _EIGHT_BIT_FORMATS and small else format

    def start(self, gradient: torch.Tensor) -> "_Started":
        compressed, ctx = gradient, None
        if wire_format(self.compression, gradient, self.op in (Average, Sum)) == 0:
            compressed, ctx = self.compression.compress(gradient)
        if not compressed.is_contiguous() or compressed.device.type != "cpu" or compressed is not gradient:
            handle = o.allreduce_async_(compressed, name=self.name, op=self.op, prescale_factor=self.scales[0],
                                        postscale_factor=self.scales[1], process_set=self.process_set,
                                        wire_format=self._format(compressed))
            return _Started(lambda: self.compression.decompress(synchronize(handle), ctx))
        coordinator = self.process_set.coordinator()
        if self._task is None or self._made_for != (gradient.shape, gradient.dtype):
            self._made_for = gradient.shape, gradient.dtype
            self._task = c.Task(coordinator.name("allreduce", self.name), c.ALLREDUCE, [gradient],
                                o._reduction(self.op), 0, *self.scales, self._format(gradient))
        self._task.point(0, gradient, gradient)
        pending = coordinator.submit(self._task, gradient)
        return _Started(lambda: coordinator.finish(pending))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Adds to the library's words about a name what they mean for a gradient."""
    try:
        yield
    except ValueError as error:
        if "is pending already" not in str(error):
            raise
        raise ValueError(f"{error}. If a gradient of another DistributedOptimizer has that name, give both optimizers "
                         "named_parameters, with names of their own") from None


class _Started:
    """A gradient that is being reduced; finish() returns what replaces it, None: it was reduced in place."""

    __slots__ = ("finish",)

    def __init__(self, finish: Callable[[], Optional[torch.Tensor]]) -> None:
        self.finish = finish


def _when_accumulated(p: torch.Tensor, call: Callable[..., None], keep: List[Any]) -> None:
    """Has a function called when the gradient of a parameter has been added up."""
    if hasattr(p, "register_post_accumulate_grad_hook"):
        p.register_post_accumulate_grad_hook(call)
        return
    with torch.enable_grad():  # torch 1; step() may be called without
        accumulator = p.expand_as(p).grad_fn.next_functions[0][0]
    accumulator.register_hook(call)
    keep.append(accumulator)


class _Wrapper:
    """What all wrapped optimizers have in front of their class."""

    _parameter_names: Names

    def _name_of(self, p: torch.Tensor, group: int, number: int) -> str:
        """:param group: where it is in the optimizer, by which all ranks know a parameter that came later"""
        return self._parameter_names.setdefault(p, f"noname.{group}.{number}")

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        # The optimizer that was wrapped, and a scheduler that was made for it, have these dictionaries, too.
        with keeping_dictionaries(self):  # type: ignore[arg-type]
            return super().load_state_dict(*args, **kwargs)  # type: ignore[misc]


class _Distributed(_Wrapper):
    """What is put in front of an optimizer's class."""

    def _distribute(self, names: Names, compression: Any, passes: int, op: int, predivide: float, groups: Any,
                    sparse_as_dense: bool, process_set: ProcessSet) -> None:
        self._compression = compression
        self._parameter_names = names
        self.backward_passes_per_step = passes
        self.op = op
        self.gradient_predivide_factor = predivide
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self._delay: Dict[torch.Tensor, int] = {}
        self._scales = (1.0 / predivide, predivide) if op == Average and predivide != 1.0 else (1.0, 1.0)
        self._gradients: Dict[torch.Tensor, _Gradient] = {}  # of those that are reduced
        self._started: Dict[Any, Optional[_Started]] = {}
        self._accumulators: List[Any] = []
        self._group_of: Dict[torch.Tensor, Tuple[torch.Tensor, ...]] = {}
        self._arrived: Dict[Tuple[torch.Tensor, ...], int] = {}
        self._synchronized = False
        self._should_synchronize = True
        self._reduces = process_set.included() and (size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1")
        if self._reduces:
            self._form_groups(groups)
            self._watch_gradients()

    # ---- hooks ----

    def _form_groups(self, groups: Union[None, int, List[List[torch.Tensor]]]) -> None:
        if groups is None or (isinstance(groups, int) and groups == 0):
            return
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        order = broadcast_object([self._parameter_names[p] for p in params], 0 if self.process_set.ranks is None
                                 else self.process_set.ranks[0], "optimizer_groups", self.process_set)
        params.sort(key=lambda p: order.index(self._parameter_names[p]))
        if isinstance(groups, int):
            each = max(1, -(-len(params) // groups))
            formed = [tuple(params[i:i + each]) for i in range(0, len(params), each)]
        else:
            trained = set(params)
            formed = [tuple(p for p in group if p in trained) for group in groups]
            grouped = {p for group in formed for p in group}
            formed += [(p,) for p in params if p not in grouped]
        for group in formed:
            self._arrived[group] = 0
            for p in group:
                self._group_of[p] = group

    def _watch_gradients(self) -> None:
        """Has all parameters reduced that are trained, also those that have come or were frozen before."""
        for i, group in enumerate(self.param_groups):
            for j, p in enumerate(group["params"]):
                if p.requires_grad and p not in self._gradients:
                    self._gradients[p] = _Gradient(self._name_of(p, i, j), self.op, self._scales, self._compression,
                                                   self.process_set)
                    self._delay[p] = self.backward_passes_per_step
                    _when_accumulated(p, self._make_hook(p), self._accumulators)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """For parameters that come later: all ranks add the same, in the same order."""
        super().add_param_group(param_group)  # type: ignore[misc]
        if self._reduces:
            self._watch_gradients()

    def _make_hook(self, p: torch.Tensor) -> Callable[..., None]:
        def hook(*unused: Any) -> None:
            if self._delay[p] <= 0:
                raise AssertionError("Gradients were computed more than backward_passes_per_step times before "
                                     "call to step(). Increase backward_passes_per_step to accumulate gradients "
                                     "locally.")
            self._delay[p] -= 1
            self._started.setdefault(p, None)
            if self._delay[p] == 0:
                self._arrive(p)
        return hook

    def _arrive(self, p: torch.Tensor) -> None:
        group = self._group_of.get(p)
        with _explained():
            if group is None:
                self._started[p] = self._start(p)
                return
            self._arrived[group] += 1
            if self._arrived[group] == len(group):
                self._start_group(group)

    # ---- reduction ----

    def _start(self, p: torch.Tensor) -> _Started:
        if p.grad is None:  # another rank may have computed it
            p.grad = torch.zeros_like(p)
        if not p.grad.is_sparse:
            return self._gradients[p].start(p.grad)
        name = self._parameter_names[p]
        if self.sparse_as_dense:
            dense = p.grad.to_dense()
            started = self._gradients[p].start(dense)
            return _Started(lambda: _or(started.finish(), dense).to_sparse())
        return _Started(o.sparse_allreduce_async(p.grad, name, self.op, self.process_set))

    def _start_group(self, group: Tuple[torch.Tensor, ...]) -> None:
        self._arrived[group] = 0
        members = [p for p in group if self._is_trained(p)]
        if not members:
            return
        for p in members:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        gradient = self._gradients[members[0]]
        formats = {gradient._format(p.grad) for p in members}
        pairs = [self._compression.compress(p.grad) for p in members] if formats == {0} else [
            (p.grad, None) for p in members]
        handle = o.grouped_allreduce_async_([tensor for tensor, _ in pairs], name=gradient.name, op=self.op,
                                            prescale_factor=gradient.scales[0],
                                            postscale_factor=gradient.scales[1], process_set=self.process_set,
                                            wire_format=formats.pop() if len(formats) == 1 else 0)

        def finish() -> None:
            for p, output, (_, ctx) in zip(members, synchronize(handle), pairs):
                _replace(p, self._compression.decompress(output, ctx))

        for p in group:
            self._started.pop(p, None)
        self._started[group] = _Started(finish)

    def _is_trained(self, p: torch.Tensor) -> bool:
        """Not if it was frozen after its optimizer was wrapped."""
        return p.requires_grad or p in self._started

    def _start_missing(self) -> None:
        self._watch_gradients()
        done = set()
        for key in self._started:
            done.update(key if isinstance(key, tuple) else ())
        for p in self._gradients:
            if p in done or self._started.get(p) is not None or not self._is_trained(p):
                continue
            group = self._group_of.get(p)
            if group is None:
                self._started[p] = self._start(p)
            elif group not in self._started:
                self._start_group(group)
                done.update(group)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, for those who look at them before step(), as clipping does."""
        self._synchronized = True
        if not self._reduces:
            return
        self._start_missing()
        started, self._started = self._started, {}
        failure: Optional[BaseException] = None
        for key, gradient in started.items():
            try:
                replacement = gradient.finish() if gradient is not None else None
                if replacement is not None:
                    _replace(key, replacement)
            except c.HorovodInternalError as error:
                failure = failure or error
        for p in self._delay:
            self._delay[p] = self.backward_passes_per_step
        if failure is not None:
            raise failure

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() in this block does not synchronize(), which has been called before."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        is_pending = bool(self._started)
        if self._should_synchronize and (closure is None or is_pending):
            if self._synchronized:
                warnings.warn("optimizer.step() called without optimizer.skip_synchronize() context after "
                              "optimizer.synchronize(). This can cause training slowdown. You may want to "
                              "consider using optimizer.skip_synchronize() context if you use "
                              "optimizer.synchronize() in your code.")
            self.synchronize()
        if closure is not None and self._reduces:
            closure = self._of_all_ranks(closure, self._should_synchronize and not is_pending)
        self._synchronized = False
        result = super().step(closure)  # type: ignore[misc]
        mark_step(self)
        return result

    def _of_all_ranks(self, closure: Callable[[], Any], computes: bool) -> Callable[[], Any]:
        """A closure whose gradients and loss are those of all ranks together.

        :param computes: False: gradients were there before, so that its first call need not compute any
        """
        def reduced() -> Any:
            nonlocal computes
            self._synchronized = False
            loss = closure()
            if self._started or (computes and not self._synchronized):  # it may have done that, to clip them
                self.synchronize()
            self._synchronized, computes = False, True
            return self._reduced_loss(loss)
        return reduced

    def _reduced_loss(self, loss: Any) -> Any:
        """LBFGS and others decide by it, which has to be the same on all ranks. One that has none adds nothing."""
        loss = loss.detach() if torch.is_tensor(loss) else loss
        is_number = isinstance(loss, numbers.Real) or (torch.is_tensor(loss) and loss.numel() == 1)
        value = torch.tensor([float(loss) if is_number else 0.0], dtype=torch.float64)
        synchronize(o.allreduce_async_(value, name="loss of step()", op=Sum if self.op == Sum else Average,
                                       process_set=self.process_set))
        if not is_number:
            return loss
        return torch.full_like(loss, value.item()) if torch.is_tensor(loss) else value.item()

    def zero_grad(self, *args: Any, **kwargs: Any) -> Any:
        if self._started:
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() but before "
                                 "optimizer.step() or optimizer.synchronize(). This is prohibited as it can cause "
                                 "a race condition.")
        return super().zero_grad(*args, **kwargs)  # type: ignore[misc]

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self.begin_anew()
        return super().load_state_dict(*args, **kwargs)

    def begin_anew(self) -> None:
        """Forgets reductions that are under way, as after the loss of a rank."""
        self._started = {}
        self._arrived = {group: 0 for group in self._arrived}
        self._synchronized = False
        self._should_synchronize = True
        self.set_backward_passes_per_step(self.backward_passes_per_step)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How often gradients are added up here before they are reduced."""
        self.backward_passes_per_step = passes
        for p in self._delay:
            self._delay[p] = passes


def _or(value: Optional[torch.Tensor], otherwise: torch.Tensor) -> torch.Tensor:
    return otherwise if value is None else value


def _replace(p: torch.Tensor, gradient: torch.Tensor) -> None:
    if p.grad is gradient or (not gradient.is_sparse and p.grad.data_ptr() == gradient.data_ptr()):
        return
    if p.grad.is_sparse:
        p.grad = gradient if gradient.is_sparse else gradient.to_sparse()
    else:
        p.grad.data.copy_(gradient)


class _DistributedAdasum(_Wrapper):
    """Each rank makes a step of its own; the steps are combined, not the gradients."""

    def _distribute(self, names: Names, compression: Any, passes: int, process_set: ProcessSet) -> None:
        self._compression = compression
        self._parameter_names = names
        self.backward_passes_per_step = passes
        self.process_set = process_set

    def set_backward_passes_per_step(self, passes: int) -> None:
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Does nothing: step() does everything."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        before, names = {}, {}
        for i, group in enumerate(self.param_groups):
            for j, p in enumerate(group["params"]):
                if p.requires_grad:
                    before[p], names[p] = p.detach().clone(), self._name_of(p, i, j)
        loss = super().step(closure)  # type: ignore[misc]
        handles = []
        for p, start in before.items():
            delta, ctx = self._compression.compress(p.detach() - start)
            handle = o.allreduce_async_(delta, name=names[p], op=Adasum,
                                        process_set=self.process_set)
            handles.append((p, start, handle, ctx))
        for p, start, handle, ctx in handles:
            p.data.copy_(start.add_(self._compression.decompress(synchronize(handle), ctx)))
        mark_step(self)
        return loss


def _in_front(mixin: type, optimizer: torch.optim.Optimizer) -> Any:
    """An optimizer with the state of another, and with functions of `mixin` before those of its class."""
    own = type(optimizer)
    wrapped = type(own.__name__, (mixin, own), {"__module__": __name__})
    made = wrapped.__new__(wrapped)
    # A scheduler that was made for the old one has put a step() of its own into it, which stays there.
    made.__dict__.update({name: value for name, value in vars(optimizer).items() if name != "step"})
    return made


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Optional[Iterable[Any]] = None,
                         compression: Any = Compression.none, backward_passes_per_step: int = 1, op: int = Average,
                         gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                         groups: Union[None, int, Sequence[Sequence[torch.Tensor]]] = None,
                         sparse_as_dense: bool = False, process_set: ProcessSet = global_process_set) -> Any:
    """Wraps an optimizer, so that all ranks step with the same gradients.

    A gradient is sent as soon as backward() has computed it, and step() waits for what is still under way.

    :param named_parameters: model.named_parameters(): the same names on all ranks
    :param compression: of Compression; with 8 bits, vectors and what has less than 1,024 values are sent in full
    :param backward_passes_per_step: how often gradients are added up here before they are reduced
    :param op: Average, Sum or Adasum
    :param gradient_predivide_factor: with Average: gradients are divided by it before, and by the rest after
    :param groups: a number of groups of gradients, or lists of parameters, that are reduced as one operation
    :param num_groups: Horovod's older name for a number of groups
    :param sparse_as_dense: reduces sparse gradients as dense ones
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if num_groups != 0:
        warnings.warn("Parameter `num_groups` has been replaced by `groups` and will be removed",
                      DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    names = _names_of(optimizer, named_parameters)
    compression = compression_for(compression)
    if op == Adasum and size() > 1:
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum optimizers are for all ranks: leave process_set out")
        made = _in_front(_DistributedAdasum, optimizer)
        made._distribute(names, compression, backward_passes_per_step, process_set)
        return made
    _check_groups(groups)
    made = _in_front(_Distributed, optimizer)
    made._distribute(names, compression, backward_passes_per_step, op, gradient_predivide_factor, groups,
                     sparse_as_dense, process_set)
    return made


def _check_groups(groups: Any) -> None:
    if groups is None:
        return
    if not isinstance(groups, (list, tuple)):
        if not isinstance(groups, int) or groups < 0:
            raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
        return
    seen = set()
    for p in (p for group in groups for p in group):
        if not isinstance(p, torch.Tensor):
            raise ValueError("groups must consist of torch.Tensor.")
        if p in seen:
            raise ValueError("A parameter can only appear once in groups.")
        seen.add(p)
