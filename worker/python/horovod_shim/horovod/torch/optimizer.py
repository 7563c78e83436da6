"""horovod.torch.optimizer, which is dtrun.torch's here."""

from dtrun.torch import (allreduce_async_, grouped_allreduce_async_, rocm_built,  # noqa: F401
                         sparse_allreduce_async)
from dtrun.torch.optimizer import *  # noqa: F401,F403
from dtrun.torch.optimizer import _Distributed as _DistributedOptimizer  # noqa: F401
from dtrun.torch.optimizer import _DistributedAdasum as _DistributedAdasumOptimizer  # noqa: F401

from ..common.util import split_list  # noqa: F401
