"""Who a process is among the ranks, as an object."""

from typing import Any

from dtrun.torch import basics
from dtrun.torch.basics import ProcessSet, global_process_set  # noqa: F401

from . import util  # noqa: F401

_NAMES = ("init", "shutdown", "is_initialized", "start_timeline", "stop_timeline", "size", "local_size", "cross_size",
          "rank", "local_rank", "cross_rank", "is_homogeneous", "mpi_threads_supported", "mpi_enabled", "mpi_built",
          "gloo_enabled", "gloo_built", "nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built")


class HorovodBasics:
    """The functions of dtrun.torch.basics, which are those of the process, whatever it is made with."""

    def __init__(self, pkg_path: Any = None, *args: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name in _NAMES:
            return getattr(basics, name)
        raise AttributeError(f"HorovodBasics has no {name}: this is dtrun.torch in Horovod's name")

    def __dir__(self) -> Any:
        return [*super().__dir__(), *_NAMES]
