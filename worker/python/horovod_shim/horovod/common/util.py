"""What programs ask to find out which Horovod there is: here dtrun.torch, which is for torch, and has nothing compiled.

What it says was built is what ranks can use: see dtrun.torch.basics.
"""

import contextlib
import importlib.util
import os
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

from dtrun.torch import basics, operations

from .exceptions import HorovodVersionMismatchError, get_version_mismatch_message  # noqa: F401

EXTENSIONS = ["tensorflow", "torch", "mxnet"]


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether there is a horovod.NAME, and the framework that it is for."""
    return ext_base_name == "torch" and importlib.util.find_spec("torch") is not None


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """:raises ImportError: there is no such module of Horovod"""
    name = ext_name.rsplit(".", maxsplit=1)[-1]
    if not extension_available(name):
        raise ImportError(f"{ext_name} is not there: this is dtrun.torch in Horovod's name, which is for torch alone")


def get_ext_suffix() -> str:
    """:raises ImportError: always"""
    raise ImportError("there is no compiled extension: this is dtrun.torch in Horovod's name")


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """:raises ImportError: always"""
    return get_ext_suffix()


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether tensors of GPUs are reduced there: they go by the host."""
    return False


def mpi_built(verbose: bool = False) -> bool:
    return bool(basics.mpi_built())


def gloo_built(verbose: bool = False) -> bool:
    return bool(basics.gloo_built())


def nccl_built(verbose: bool = False) -> bool:
    return bool(basics.nccl_built())


def ddl_built(verbose: bool = False) -> bool:
    return bool(basics.ddl_built())


def ccl_built(verbose: bool = False) -> bool:
    return bool(basics.ccl_built())


@contextlib.contextmanager
def env(**kwargs: Optional[str]) -> Iterator[None]:
    """Environment variables that are set meanwhile; those that are None stay as they are."""
    given = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[..., int]:
    """A function that says which reduction two parameters mean."""
    def handle_average_backwards_compatibility(op: Optional[int], average: Optional[bool]) -> int:
        return operations.operation_of(average, op)

    return handle_average_backwards_compatibility


def num_rank_is_power_2(num_rank: int) -> bool:
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[Any], n: int) -> List[Sequence[Any]]:  # noqa: E741  # Horovod's name for it
    """n parts, of which the first ones have one element more if they do not divide."""
    least, more = divmod(len(l), n)
    ends = [(i + 1) * least + min(i + 1, more) for i in range(n)]
    return [l[begin:end] for begin, end in zip([0, *ends], ends)]


def check_installed_version(name: str, version: str, exception: Optional[BaseException] = None) -> None:
    """Nothing was compiled against any version of a framework, so every one will do."""


def is_iterable(x: Any) -> bool:
    try:
        iter(x)
    except TypeError:
        return False
    return True


def _numbers(version: str) -> Tuple[int, ...]:
    numbers = []
    for part in version.split("+", maxsplit=1)[0].split("."):
        digits = part[:len(part) - len(part.lstrip("0123456789"))]
        numbers.append(int(digits or 0))
    return tuple(numbers)


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """:param target: as "1.13.0\""""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions are strings, not {ver!r} and {target!r}")
    if target.count(".") != 2:
        raise ValueError(f"target is MAJOR.MINOR.PATCH, not {target}")
    return _numbers(ver) >= _numbers(target)
