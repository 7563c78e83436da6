"""What Horovod raises, which are dtrun.torch's exceptions here."""

from typing import Optional

from dtrun.torch import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401


def get_version_mismatch_message(name: str, version: str, installed_version: Optional[str]) -> str:
    return f"{name} {version} is there, and what was built was built with {installed_version}"


class HorovodVersionMismatchError(ImportError):
    """Nothing here raises it, since nothing is compiled; for programs that catch it."""

    def __init__(self, name: str, version: str, installed_version: Optional[str]) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name, self.version, self.installed_version = name, version, installed_version
