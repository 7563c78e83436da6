"""horovod.torch, which is dtrun.torch here; so are its modules that programs import by name."""

import importlib

from dtrun.torch import *  # noqa: F401,F403
from dtrun.torch import __all__  # noqa: F401

from ..common.util import check_extension  # noqa: F401

for _name in ("compression", "mpi_ops", "functions", "optimizer", "sync_batch_norm", "elastic"):
    importlib.import_module(f"{__name__}.{_name}")  # some of these names are modules of dtrun.torch until then
