"""The wheel: a tree in the layout that pip and uv put where a prefix would have it."""

import base64
import hashlib
import re
import stat
import time
import zipfile

import project

TAGS = "manylinux_2_28"  # by PEP 600: any distribution with glibc 2.28 or newer
PYTHON = "lib/dtrun/python/dtrun/"
# A wheel has no links: libraries go by the names that programs ask for, and nobody links against them there.
LINKED_BY = re.compile(r"lib/(libdtrun(?:_collectives)?\.so\.0)$")
DATA = re.compile(r"libexec/|lib/dtrun/backends/|share/(man|bash-completion|zsh|fish|doc/dtrun/(docs|examples))/")
CLASSIFIERS = [
    "Development Status :: 4 - Beta", "Environment :: Console", "Environment :: GPU :: NVIDIA CUDA",
    "Intended Audience :: Developers", "Intended Audience :: Science/Research",
    "Intended Audience :: System Administrators", "Operating System :: POSIX :: Linux", "Programming Language :: C++",
    "Programming Language :: Python :: 3", "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Topic :: System :: Clustering", "Topic :: System :: Distributed Computing", "Typing :: Typed"]


def description():
    """README.md without links to files beside it, which an index page has not."""
    text = (project.ROOT / "README.md").read_text()

    def link(match):
        words, target = match.groups()
        if "://" in target:
            return match.group(0)
        if project.URL:
            return f"[{words}]({project.URL}/blob/v{project.version()}/{target})"
        return f"`{target}`" if words == target else f"{words} (`{target}`)"
    return re.sub(r"\[([^]]+)\]\(([^)]+)\)", link, text)


def metadata(licences):
    lines = ["Metadata-Version: 2.4", "Name: dtrun", f"Version: {project.version()}", f"Summary: {project.SUMMARY}",
             f"License-Expression: {licences}", "License-File: LICENSE", "License-File: THIRD-PARTY-LICENCES.txt",
             "Author: the authors of dtrun",
             "Keywords: distributed,training,launcher,rendezvous,mpi,horovod,torchrun,deepspeed,slurm,ssh,elastic",
             "Requires-Python: >=3.8"]
    lines += [f"Classifier: {classifier}" for classifier in CLASSIFIERS]
    if project.URL:
        lines += [f"Project-URL: Source, {project.URL}",
                  f"Project-URL: Changelog, {project.URL}/blob/v{project.version()}/CHANGELOG.md"]
    return "\n".join(lines + ["Description-Content-Type: text/markdown", "", description()])


def layout(files, third_party, licences, tag):
    """Names in the archive, each with bytes and mode; RECORD is not among them."""
    name = f"dtrun-{project.version()}"
    info, data = f"{name}.dist-info/", f"{name}.data/data/"
    placed = {}
    for path, file in files.items():
        if path == "bin/dtrun":
            placed[f"{name}.data/scripts/dtrun"] = (file.data, file.mode)
        elif path.startswith(PYTHON):
            placed["dtrun/" + path[len(PYTHON):]] = (file.data, file.mode)
        elif LINKED_BY.match(path):
            whole = files["lib/" + file.link] if file.link else file
            placed[data + path] = (whole.data, whole.mode)
        elif DATA.match(path):
            placed[data + path] = (file.data, file.mode)
    placed[info + "METADATA"] = (metadata(licences).encode(), 0o644)
    # Python's files are pure and belong where each distribution has those; the binaries are data, and make the tag.
    wheel = f"Wheel-Version: 1.0\nGenerator: dtrun ({project.version()})\nRoot-Is-Purelib: true\nTag: {tag}\n"
    placed[info + "WHEEL"] = (wheel.encode(), 0o644)
    placed[info + "licenses/LICENSE"] = (files["share/doc/dtrun/LICENSE"].data, 0o644)
    placed[info + "licenses/THIRD-PARTY-LICENCES.txt"] = (third_party.encode(), 0o644)
    return placed, info + "RECORD"


def record(placed, own_name):
    rows = []
    for name, (data, _) in placed.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join(rows) + f"{own_name},,\n"


def write_wheel(files, cpu, folder, third_party, licences, native=False):
    tag = f"py3-none-{'linux' if native else TAGS}_{cpu}"
    placed, record_name = layout(files, third_party, licences, tag)
    placed[record_name] = (record(placed, record_name).encode(), 0o644)
    path = folder / f"dtrun-{project.version()}-{tag}.whl"
    when = time.gmtime(project.epoch())[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for name, (data, mode) in placed.items():
            member = zipfile.ZipInfo(name, when)
            member.create_system = 3  # Unix, so that the mode counts
            member.external_attr = (stat.S_IFREG | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data, compresslevel=9)
    return path
