"""Horovod's name for dtrun.torch, put in front by `python -m dtrun.torch.shim`; see docs/TORCH.md."""

#: The version of Horovod whose interface this is.
__version__ = "0.28.1"
