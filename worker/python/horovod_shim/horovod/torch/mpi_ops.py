"""horovod.torch.mpi_ops, which is dtrun.torch's here."""

from dtrun.torch.mpi_ops import *  # noqa: F401,F403
from dtrun.torch.mpi_ops import _basics  # noqa: F401

from ..common.util import (check_installed_version, get_average_backwards_compatibility_fun,  # noqa: F401
                           gpu_available, num_rank_is_power_2)
