"""Process sets, which are dtrun.torch's."""

from dtrun.torch import ProcessSet, add_process_set, global_process_set, remove_process_set  # noqa: F401

from .basics import HorovodBasics  # noqa: F401
from .util import is_iterable  # noqa: F401
