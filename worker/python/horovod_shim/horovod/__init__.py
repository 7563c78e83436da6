"""Horovod's name for dtrun.torch, put in front by `dtrun --horovod-shim`; see docs/TORCH.md."""

from typing import Any, NoReturn

#: The version of Horovod whose interface this is.
__version__ = "0.28.1"


def run(*_: Any, **__: Any) -> NoReturn:
    """Horovod's launcher for functions, which dtrun is not."""
    raise NotImplementedError("horovod.run() is not there: start the program by dtrun -np N --horovod-shim")
