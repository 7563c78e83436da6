"""horovod.torch, which is dtrun.torch here."""

from dtrun.torch import *  # noqa: F401,F403
from dtrun.torch import __all__  # noqa: F401
