"""horovod.torch, which is dtrun.torch here; so are its modules that programs import by name."""

import sys

import dtrun.torch
from dtrun.torch import *  # noqa: F401,F403
from dtrun.torch import __all__, compression, elastic, functions, optimizer, sync_batch_norm  # noqa: F401

for _name, _module in {"compression": compression, "elastic": elastic, "functions": functions,
                       "mpi_ops": dtrun.torch, "optimizer": optimizer, "sync_batch_norm": sync_batch_norm}.items():
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = _module
