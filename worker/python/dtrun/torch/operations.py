"""Operations on tensors: those that return a handle at once, and those in place."""

from __future__ import annotations

import warnings
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import torch

from . import _coordinator as c
from ._coordinator import Coordinator, HorovodInternalError, Outcome, Pending, Task
from .basics import ProcessSet, global_process_set

#: Values are Horovod's.
Average, Sum, Adasum, Min, Max, Product = range(6)
_REDUCTIONS = (4, 0, 5, 2, 3, 1)  # values of dtrun_reduce


class Handle:
    """An operation that goes on, for poll() and synchronize()."""

    __slots__ = ("_coordinator", "_pending", "_result", "__weakref__")

    def __init__(self, coordinator: Coordinator, task: Task, keep: Any,
                 result: Callable[[Outcome], Any]) -> None:
        """:param result: makes what synchronize() returns"""
        self._coordinator = coordinator
        self._result = result
        self._pending: Optional[Pending] = coordinator.submit(task, keep)

    def poll(self) -> bool:
        return self._pending is None or self._coordinator.poll(self._pending)

    def wait(self) -> Any:
        if self._pending is None:
            return None  # as Horovod does
        try:
            outcome = self._coordinator.wait(self._pending)
        except HorovodInternalError:
            self._pending = None
            raise
        self._pending = None  # not before: when a signal handler raises, it can be waited for again
        return self._result(outcome)


def poll(handle: Handle) -> bool:
    """Whether the operation is over, so that synchronize() returns at once."""
    return handle.poll()


def synchronize(handle: Optional[Handle]) -> Any:
    """Waits for an operation and returns its result.

    :raises HorovodInternalError: it has failed
    """
    return None if handle is None else handle.wait()


def operation_of(average: Optional[bool], op: Optional[int]) -> int:
    """The reduction that is meant by Horovod's two parameters for it."""
    if op is not None:
        if average is not None:
            raise ValueError("the op parameter supersedes average: give one of them")
        return op
    if average is not None:
        warnings.warn("Parameter `average` has been replaced with `op` and will be removed", DeprecationWarning,
                      stacklevel=3)
    return Sum if average is False else Average


def _reduction(op: int) -> int:
    if op not in range(len(_REDUCTIONS)):
        raise ValueError(f"op is Average, Sum, Adasum, Min, Max or Product, not {op!r}")
    return _REDUCTIONS[op]


def check_tensors(*tensors: Any) -> None:
    """:raises TypeError: one of them is something else"""
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"dtrun.torch sends tensors, not {type(tensor).__name__}: use torch.as_tensor(), or "
                            "broadcast_object() and allgather_object()")


def root_index(root_rank: int, process_set: ProcessSet) -> int:
    """The root's place in a process set. :raises ValueError: it is not there"""
    process_set.coordinator()
    ranks = process_set.ranks or []
    if root_rank not in ranks:
        raise ValueError(f"root_rank {root_rank!r} is not among the ranks {ranks}")
    return ranks.index(root_rank)


def _check_reducible(tensors: Sequence[torch.Tensor], op: int, prescale: float, postscale: float) -> None:
    if all(tensor.dtype != torch.bool for tensor in tensors):
        return
    if op in (Average, Sum):
        raise ValueError("bools have no sum: reduce them with Min (and), Max (or), or convert them first")
    if (prescale, postscale) != (1.0, 1.0):
        raise ValueError("bools cannot be multiplied: leave prescale_factor and postscale_factor out")


def _source(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor one behind the other in host memory: itself, if they are."""
    if tensor.is_sparse:
        raise ValueError("sparse tensors are reduced with sparse_allreduce_async()")
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def _target(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def _placed(result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return result if result.device == like.device else result.to(like.device)


def _submit(task: Task, process_set: ProcessSet, sources: Sequence[torch.Tensor],
            targets: Sequence[Optional[torch.Tensor]], result: Callable[[Outcome], Any]) -> Handle:
    for index, (source, target) in enumerate(zip(sources, targets)):
        task.point(index, source, target)
    return Handle(process_set.coordinator(), task, (task, sources, targets), result)


# ---- allreduce ----

def _allreduce(tensors: Sequence[torch.Tensor], outputs: Optional[Sequence[torch.Tensor]], name: Optional[str],
               op: int, prescale: float, postscale: float, process_set: ProcessSet, format: int = 0) -> Handle:
    """:param outputs: where results go, None: into new tensors"""
    if not tensors:
        raise ValueError("there are no tensors to reduce")
    check_tensors(*tensors)
    _check_reducible(tensors, op, prescale, postscale)
    coordinator = process_set.coordinator()
    sources = [_source(tensor) for tensor in tensors]
    targets = [_target(tensor) for tensor in tensors] if outputs is None else [_source(out) for out in outputs]
    task = Task(coordinator.name("allreduce", name), c.ALLREDUCE, sources, _reduction(op), 0, prescale, postscale,
                format)

    def result(outcome: Outcome) -> List[torch.Tensor]:
        if outputs is None:
            return [_placed(target, tensor) for target, tensor in zip(targets, tensors)]
        for output, target in zip(outputs, targets):
            if output.data_ptr() != target.data_ptr():  # of a GPU, or with gaps between its elements
                output.data.copy_(target)
        return list(outputs)

    return _submit(task, process_set, sources, targets, result)


def _first(handle: Handle) -> Handle:
    """A handle for one tensor, of one for a list of them."""
    result = handle._result
    handle._result = lambda outcome: result(outcome)[0]
    return handle


def allreduce_async(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
                    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set, *, wire_format: int = 0) -> Handle:
    """Starts an allreduce into a new tensor.

    :param name: the same on all ranks; None: ranks call such operations in the same order
    :param op: Average (default), Sum, Adasum, Min, Max, Product
    :param prescale_factor: for what goes in, and postscale_factor for what comes out
    """
    return _first(_allreduce([tensor], None, name, operation_of(average, op), prescale_factor, postscale_factor,
                             process_set, wire_format))


def allreduce_async_(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
                     op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set, *, wire_format: int = 0) -> Handle:
    """allreduce_async() in place."""
    return _first(_allreduce([tensor], [tensor], name, operation_of(average, op), prescale_factor,
                             postscale_factor, process_set, wire_format))


def allreduce_(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
               op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Reduces a tensor in place."""
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                            name: Optional[str] = None, op: Optional[int] = None, prescale_factor: float = 1.0,
                            postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set, *,
                            wire_format: int = 0) -> Handle:
    """allreduce_async() of several tensors, of which none is reduced before all ranks have all of them."""
    return _allreduce(list(tensors), None, name, operation_of(average, op), prescale_factor, postscale_factor,
                      process_set, wire_format)


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                             name: Optional[str] = None, op: Optional[int] = None, prescale_factor: float = 1.0,
                             postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set, *,
                             wire_format: int = 0) -> Handle:
    """grouped_allreduce_async() in place."""
    return _allreduce(list(tensors), list(tensors), name, operation_of(average, op), prescale_factor,
                      postscale_factor, process_set, wire_format)


def grouped_allreduce_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
                       op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """Reduces tensors in place."""
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor,
                                                process_set))


def sparse_allreduce_async(tensor: torch.Tensor, name: str, op: int,
                           process_set: ProcessSet = global_process_set) -> Callable[[], torch.Tensor]:
    """Adds sparse tensors up by gathering them. :return: a function that waits and returns the sum"""
    check_tensors(tensor)
    if op not in (Average, Sum):
        raise ValueError("sparse tensors can be reduced with Average and Sum")
    indices = allgather_async(tensor._indices().transpose(0, 1).contiguous(), f"{name}.indices", process_set)
    values = allgather_async(tensor._values(), f"{name}.values", process_set)

    def finish() -> torch.Tensor:
        all_values = synchronize(values)
        if op == Average:
            all_values = all_values / process_set.size()
        all_indices = synchronize(indices).transpose(0, 1)
        if all_indices.numel() == 0 or all_values.numel() == 0:
            return torch.sparse_coo_tensor(size=tensor.size(), dtype=tensor.dtype, device=tensor.device)
        return torch.sparse_coo_tensor(all_indices, all_values, tensor.size())

    return finish


# ---- allgather ----

def _allgather(tensors: Sequence[torch.Tensor], name: Optional[str], process_set: ProcessSet) -> Handle:
    if not tensors:
        raise ValueError("there are no tensors to gather")
    check_tensors(*tensors)
    coordinator = process_set.coordinator()
    sources = [_source(tensor) for tensor in tensors]
    task = Task(coordinator.name("allgather", name), c.ALLGATHER, sources)

    def result(outcome: Outcome) -> List[torch.Tensor]:
        return [_placed(outcome.tensor(index, coordinator.size, source), tensors[index])
                for index, source in enumerate(sources)]

    return _submit(task, process_set, sources, [None] * len(sources), result)


def allgather_async(tensor: torch.Tensor, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> Handle:
    """Puts all ranks' tensors one behind the other; their first dimensions may differ."""
    return _first(_allgather([tensor], name, process_set))


def grouped_allgather_async(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                            process_set: ProcessSet = global_process_set) -> Handle:
    """allgather_async() of several tensors."""
    return _allgather(list(tensors), name, process_set)


# ---- broadcast ----

def _broadcast(tensor: torch.Tensor, output: Optional[torch.Tensor], root_rank: int, name: Optional[str],
               process_set: ProcessSet) -> Handle:
    check_tensors(tensor)
    coordinator, root = process_set.coordinator(), root_index(root_rank, process_set)
    source = _source(tensor)
    target = _target(tensor) if output is None else source
    task = Task(coordinator.name("broadcast", name), c.BROADCAST, [source], root=root)

    def result(outcome: Outcome) -> torch.Tensor:
        if output is None:
            return _placed(target, tensor)
        if output.data_ptr() != target.data_ptr():
            output.data.copy_(target)
        return output

    return _submit(task, process_set, [source], [target], result)


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> Handle:
    """Starts to send the root's tensor to all. :param root_rank: among all ranks, also in a process set"""
    return _broadcast(tensor, None, root_rank, name, process_set)


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Handle:
    """broadcast_async() in place."""
    return _broadcast(tensor, tensor, root_rank, name, process_set)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Gives all ranks the root's values, in place."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


# ---- all-to-all ----

def alltoall_async(tensor: torch.Tensor, splits: Union[None, torch.Tensor, Sequence[int]] = None,
                   name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Handle:
    """Starts to send parts of the rows to all ranks.

    :param splits: rows for each rank, 32-bit integers; None: the same number for each
    :return: for synchronize(), which returns the rows that have come, and with splits also how many from whom
    """
    check_tensors(tensor)
    coordinator = process_set.coordinator()
    if splits is not None and not isinstance(splits, torch.Tensor):
        splits = torch.tensor(splits, dtype=torch.int32)
    if splits is not None and (splits.dtype != torch.int32 or splits.numel() != coordinator.size):
        raise ValueError(f"splits has to be {coordinator.size} 32-bit integers, one for each rank")
    source = _source(tensor)
    given = None if splits is None else splits.tolist()
    if given is not None and min(given) < 0:
        raise ValueError(f"splits {given} has fewer than 0 rows for rank {given.index(min(given))}")
    task = Task(coordinator.name("alltoall", name), c.ALLTOALL, [source], splits=given)

    def result(outcome: Outcome) -> Any:
        output = _placed(outcome.tensor(0, coordinator.size, source), tensor)
        if splits is None:
            return output
        received = torch.tensor(outcome.rows(0, coordinator.size), dtype=torch.int32)
        return output, _placed(received, splits)

    return _submit(task, process_set, [source], [None], result)


# ---- reduce-scatter ----

def _rows(tensor: torch.Tensor, rank: int, size: int) -> int:
    if tensor.dim() == 0:
        raise ValueError("reducescatter needs tensors with at least one dimension, not a scalar")
    return tensor.shape[0] // size + (1 if rank < tensor.shape[0] % size else 0)


def _reducescatter(tensors: Sequence[torch.Tensor], name: Optional[str], op: int, prescale: float,
                   postscale: float, process_set: ProcessSet) -> Handle:
    if not tensors:
        raise ValueError("there are no tensors to reduce")
    check_tensors(*tensors)
    if op == Adasum:
        raise NotImplementedError("Adasum is for allreduce: reducescatter is for Average, Sum, Min, Max, Product")
    _check_reducible(tensors, op, prescale, postscale)
    coordinator = process_set.coordinator()
    sources = [_source(tensor) for tensor in tensors]
    targets = [torch.empty((_rows(tensor, coordinator.rank, coordinator.size), *tensor.shape[1:]),
                           dtype=tensor.dtype) for tensor in tensors]
    task = Task(coordinator.name("reducescatter", name), c.REDUCE_SCATTER, sources, _reduction(op), 0, prescale,
                postscale)

    def result(outcome: Outcome) -> List[torch.Tensor]:
        return [_placed(target, tensor) for target, tensor in zip(targets, tensors)]

    return _submit(task, process_set, sources, targets, result)


def reducescatter_async(tensor: torch.Tensor, name: Optional[str] = None, op: int = Average,
                        process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                        postscale_factor: float = 1.0) -> Handle:
    """Starts to reduce a tensor, of which each rank gets its part of the rows; the first ranks get one more."""
    return _first(_reducescatter([tensor], name, op, prescale_factor, postscale_factor, process_set))


def grouped_reducescatter_async(tensors: Sequence[torch.Tensor], name: Optional[str] = None, op: int = Average,
                                process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0) -> Handle:
    """reducescatter_async() of several tensors."""
    return _reducescatter(list(tensors), name, op, prescale_factor, postscale_factor, process_set)


# ---- without data ----

def _without_data(operation: int, name: str, process_set: ProcessSet) -> Tuple[Coordinator, Outcome]:
    coordinator = process_set.coordinator()
    return coordinator, coordinator.wait(coordinator.submit(Task(name, operation), None))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once all ranks of the process set have called it."""
    _without_data(c.BARRIER, process_set.coordinator().name("barrier", None), process_set)


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until all ranks have; until then it takes part in their
    allreduces with zeros.

    :param device: is not looked at
    :return: the rank that came last
    """
    coordinator, outcome = _without_data(c.JOIN, "join", global_process_set)
    coordinator.count_anew()  # ranks that joined earlier have called fewer operations
    return outcome.last_joined()
