"""An installed prefix in memory, as every package wants it: paths, modes and bytes, and nothing of this machine."""

import os
import pathlib
import re
import struct

from project import ROOT, Refused

GLIBC_MAX = 28  # of manylinux_2_28
MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine
LEFT_OUT = re.compile(r"libexec/dtrun/package/|share/doc/dtrun/html/|.*__pycache__/|.*\.pyc$|lib/dtrun/python/.*README\.md$")
PROGRAMS = re.compile(r"bin/|libexec/dtrun/dtrun-(agent|bench-rank)|share/doc/dtrun/examples/.*(\.sh|/run_all)$")
# Pages and examples; what else lies there a package has to have.
PAGES = re.compile(r"share/doc/dtrun/(docs|examples)/")


class File:
    """A file, or a link if `link` is set."""

    def __init__(self, data=b"", link=None, executable=False):
        self.data = data
        self.link = link
        self.mode = 0o755 if executable else 0o644

    def is_elf(self):
        return self.data[:4] == b"\x7fELF"


def read_tree(folder, cpu, native=False):
    """The files of a prefix, by their paths in it, and what belongs in the documentation of each package.

    native: built by this machine's compiler, so that any glibc will do
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise Refused(f"{folder} is not there; `./dev portable {cpu}` makes it")
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if LEFT_OUT.match(name):
            continue
        if path.is_symlink():
            files[name] = File(link=os.readlink(path))
        elif path.is_file():
            files[name] = File(path.read_bytes(), executable=PROGRAMS.match(name) is not None)
    check(folder, files, cpu, native)
    for name in ("LICENSE", "CHANGELOG.md", "README.md"):
        files["share/doc/dtrun/" + name] = File((ROOT / name).read_bytes())
    return dict(sorted(files.items()))


def check(folder, files, cpu, native):
    for name in ("bin/dtrun", "libexec/dtrun/dtrun-agent", "libexec/dtrun/dtrun-package.tar.gz",
                 "lib/dtrun/python/dtrun/__init__.py"):
        if name not in files:
            raise Refused(f"{folder} has no {name}; `./dev portable {cpu}` makes a whole tree")
    for name in ("bin/dtrun", "libexec/dtrun/dtrun-agent"):
        machine, = struct.unpack_from("<H", files[name].data, 18)
        if machine != MACHINES[cpu]:
            raise Refused(f"{folder}/{name} is not for {cpu}")
    if native:
        return
    for name, file in files.items():
        if name.startswith(("bin/", "lib/")) and file.is_elf() and glibc_of(file.data) > GLIBC_MAX:
            raise Refused(f"{folder}/{name} needs glibc 2.{glibc_of(file.data)}, packages promise 2.{GLIBC_MAX}: "
                          f"`./dev portable {cpu}` makes such a tree; --native packs for this distribution alone")


def glibc_of(data):
    """The minor number of the newest version of glibc that an ELF file's tables name."""
    return max((int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", data)), default=0)


def with_bindir(files, bindir):
    """The tree with systemd's unit for a place that is known, as that of the build is not the user's."""
    moved = dict(files)
    template = (ROOT / "launcher/systemd/dtrun-serve.service.in").read_text()
    unit = template.replace("@bindir@", bindir)
    moved["lib/systemd/system/dtrun-serve.service"] = File(unit.encode())
    return moved
