"""What Horovod raises, which are dtrun.torch's exceptions here."""

from dtrun.torch import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401
