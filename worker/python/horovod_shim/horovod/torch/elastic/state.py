"""horovod.torch.elastic.state, which is dtrun.torch's here."""

from dtrun.torch import allgather_object, broadcast_optimizer_state, broadcast_parameters, rank  # noqa: F401
from dtrun.torch.elastic import *  # noqa: F401,F403
