"""horovod.torch.functions, which is dtrun.torch's here."""

from dtrun.torch import DistributedOptimizer, ProcessSet, global_process_set, rank, size  # noqa: F401
from dtrun.torch.functions import *  # noqa: F401,F403
