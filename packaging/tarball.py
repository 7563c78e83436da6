"""Tar archives with the same bytes for the same files, and the relocatable one that people unpack anywhere."""

import io
import tarfile
import zlib

import project
from tree import File, with_bindir

README = """\
dtrun {version} for Linux on {cpu}, glibc 2.28 or newer. Put this folder anywhere, and its bin into PATH:

    ./bin/dtrun -np 2 hostname

bin/dtrun finds libexec/ and lib/ beside bin/, so they stay together. share/doc/dtrun/docs/index.md says more.
"""


def member(name, when, file=None, kind=tarfile.REGTYPE, mode=0o755):
    """A row of an archive; nobody's, since root unpacks it as root's."""
    info = tarfile.TarInfo(name)
    info.mtime, info.uid, info.gid, info.uname, info.gname = when, 0, 0, "root", "root"
    info.type, info.mode = kind, mode
    if file is not None and file.link is not None:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, file.link, 0o777
    elif file is not None:
        info.size, info.mode = len(file.data), file.mode
    return info


def tar_bytes(files, folders=None):
    """A tar archive of files and all folders above them. folders: modes of those that are not 0755"""
    when = project.epoch()
    modes = {}
    for name in files:
        parts = name.split("/")[:-1]
        for end in range(1, len(parts) + 1):
            modes["/".join(parts[:end])] = 0o755
    modes.update(folders or {})
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted({**modes, **files}):
            if name in files:
                archive.addfile(member(name, when, files[name]), io.BytesIO(files[name].data))
            else:
                archive.addfile(member(name, when, kind=tarfile.DIRTYPE, mode=modes[name]))
    return buffer.getvalue()


def gzipped(data):
    """With neither a time nor a name in it; of zlib itself, as versions of Python's gzip differ in its first bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def write_tarball(files, cpu, folder):
    top = f"dtrun-{project.version()}-linux-{cpu}"
    placed = {f"{top}/{name}": file for name, file in with_bindir(files, "/usr/local/bin").items()}
    placed[f"{top}/README"] = File(README.format(version=project.version(), cpu=cpu).encode())
    path = folder / (top + ".tar.gz")
    path.write_bytes(gzipped(tar_bytes(placed)))
    return path
