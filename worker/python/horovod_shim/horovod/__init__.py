"""Horovod's name for dtrun.torch, put in front by `dtrun --horovod-shim`; see docs/TORCH.md."""

from .runner import run  # noqa: F401

#: The version of Horovod whose interface this is.
__version__ = "0.28.1"
