"""horovod.torch.elastic, which is dtrun.torch's here."""

from dtrun.torch import init, shutdown  # noqa: F401
from dtrun.torch.elastic import *  # noqa: F401,F403

from ...common.elastic import run_fn  # noqa: F401
from . import sampler, state  # noqa: F401
