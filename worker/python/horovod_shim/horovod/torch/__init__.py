"""horovod.torch, which is dtrun.torch here."""

import sys

from dtrun.torch import *  # noqa: F401,F403
from dtrun.torch import __all__, elastic  # noqa: F401

sys.modules[__name__ + ".elastic"] = elastic
