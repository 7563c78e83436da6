"""Sources and trees of a few bytes, by which packing is tested without compiling and without a network."""

import hashlib
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINES = {"x86_64": 62, "aarch64": 183}


def elf(machine, glibc="2.28"):
    """What looks enough like a program that needs this glibc."""
    return b"\x7fELF" + bytes(14) + struct.pack("<H", machine) + f"\0GLIBC_{glibc}\0".encode()


def make_tree(folder, cpu):
    """An install prefix, folder/CPU/tree, with a file of each kind."""
    other, = set(MACHINES) - {cpu}
    library = elf(MACHINES[cpu])
    for name, data in {
            "bin/dtrun": library, "libexec/dtrun/dtrun-agent": library, "libexec/dtrun/dtrun-bench-rank": library,
            f"libexec/dtrun/dtrun-agent-{other}": elf(MACHINES[other]), "libexec/dtrun/dtrun-package.tar.gz": b"archive",
            "lib/libdtrun.so.0.1.0": library, "lib/dtrun/backends/libdtrun_backend_nccl.so": library,
            "lib/dtrun/python/dtrun/__init__.py": b"", "lib/dtrun/python/dtrun/torch/README.md": b"",
            "lib/dtrun/python/dtrun/__pycache__/x.pyc": b"", "lib/pkgconfig/dtrun.pc": b"libdir=${prefix}/lib\n",
            "lib/cmake/dtrun/dtrunTargets-release.cmake": b'"${_IMPORT_PREFIX}/lib/libdtrun.so.0.1.0"\n',
            "lib/systemd/system/dtrun-serve.service": b"ExecStart=/somewhere/bin/dtrun serve\n", "include/dtrun.h": b"",
            "share/man/man1/dtrun.1": b".TH", "share/doc/dtrun/docs/index.md": b"# dtrun", "share/doc/dtrun/html/index.html": b"<p>",
            "share/doc/dtrun/examples/hello.sh": b"#!/bin/sh\n",
            "share/bash-completion/completions/dtrun": b""}.items():
        path = folder / cpu / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    os.symlink("libdtrun.so.0.1.0", folder / cpu / "tree/lib/libdtrun.so.0")
    os.symlink("libdtrun.so.0", folder / cpu / "tree/lib/libdtrun.so")


def make_package(path, cpu):
    """A package of Debian's with the names that an image takes, and some that it does not."""
    name = path.name.split("_")[0]
    triplet = f"{cpu}-linux-gnu"
    files = [f"usr/share/doc/{name}/copyright"]
    if name == "libc6":
        files += [f"lib/{triplet}/libc.so.6", f"usr/lib/{triplet}/gconv/UTF-16.so",
                  {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}[cpu]]
    else:
        files.append("bin/busybox")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for file in files:
            placed = pathlib.Path(folder, file)
            placed.parent.mkdir(parents=True, exist_ok=True)
            placed.write_text(file)
        control = pathlib.Path(folder, "DEBIAN/control")
        control.parent.mkdir()
        control.write_text(f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n")
        subprocess.run(["dpkg-deb", "--build", "-Znone", folder, path], check=True, stdout=subprocess.DEVNULL)


def make_sources(folder):
    """The sources, as far as packing needs them, with packages for images that are fetched already."""
    for name in ("packaging", "launcher/systemd"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("CMakeLists.txt", "CHANGELOG.md", "LICENSE", "README.md", "docs/INSTALL.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    archives = folder / "build/archives"
    archives.mkdir(parents=True)
    table = folder / "packaging/image.txt"
    text = table.read_text()
    for digest, path in re.findall(r"^ +([0-9a-f]{64})  (\S+)$", text, re.MULTILINE):
        package = archives / path.rsplit("/", 1)[1]
        make_package(package, "x86_64" if package.name.endswith("_amd64.deb") else "aarch64")
        text = text.replace(digest, hashlib.sha256(package.read_bytes()).hexdigest())
    table.write_text(text)
