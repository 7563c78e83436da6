"""horovod.torch.compression, which is dtrun.torch's here."""

from dtrun.torch.compression import *  # noqa: F401,F403
