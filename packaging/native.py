"""Packages of distributions: a tree in the places of the file system's standard, written by nfpm."""

import datetime
import email.utils
import json
import pathlib
import re
import subprocess
import tempfile

import project
from tarball import gzipped
from tree import PAGES, File, with_bindir

FORMS = {"deb": "deb", "rpm": "rpm", "apk": "apk", "arch": "archlinux"}  # and what nfpm calls them
# Papers in whose place distributions have others.
REPLACED = ["share/doc/dtrun/" + name for name in ("LICENSE", "CHANGELOG.md")]
DESCRIPTION = """starts programs on many machines, for training and MPI
dtrun gives each copy of a program its rank, on this machine or over ssh
on many, shows whole lines of what they print, and ends all when one
fails. It takes the command lines of horovodrun, torchrun, deepspeed and
mpirun, serves their rendezvous, and has a daemon, `dtrun serve`, for
ranks that nobody starts together."""
# Hosts of Alpine have another C library: dtrun itself does not run there, the agent does.
AGENT_DESCRIPTION = """what dtrun starts on a host, so that it need not be copied there
dtrun itself needs glibc and runs on other distributions; its agent is one
static file."""


def packed(files, third_party, copyright_text):
    """The tree with man pages compressed and with the papers that distributions ask for."""
    placed = {}
    for name, file in with_bindir(files, "/usr/bin").items():
        if name.startswith("share/man/"):
            placed[name + ".gz"] = File(gzipped(file.data))
        elif name not in REPLACED:
            placed[name] = file
    placed["share/doc/dtrun/copyright"] = File(copyright_text.encode())
    placed["share/doc/dtrun/THIRD-PARTY-LICENCES.txt"] = File(third_party.encode())
    placed["share/doc/dtrun/changelog.gz"] = File(gzipped(debian_changelog().encode()))
    return placed


def debian_changelog():
    items = project.change_items(project.version()) or ["This version."]
    when = email.utils.formatdate(project.epoch())
    rows = "".join(f"  * {line}\n" for item in items for line in [wrap(item)])
    return (f"dtrun ({project.version()}) unstable; urgency=medium\n\n{rows}\n"
            f" -- {project.MAINTAINER}  {when}\n")


def wrap(text, columns=76):
    """Lines of a changelog's item, the later ones indented."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= columns:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n    ".join(lines)


def for_lib64(files):
    """Fedora's and openSUSE's place of 64-bit libraries, which is where their linker looks, and their mode."""
    moved = {}
    for name, file in files.items():
        if not name.startswith("lib/") or name.startswith("lib/systemd/"):
            moved[name] = file
        elif name.endswith((".cmake", ".pc")):
            text = re.sub(r"(\$\{_IMPORT_PREFIX\}|\$\{prefix\})/lib\b", r"\1/lib64", file.data.decode())
            moved["lib64" + name[3:]] = File(text.encode())
        else:
            moved["lib64" + name[3:]] = File(file.data, file.link, executable=file.is_elf())
    return moved


def agent_alone(files):
    kept = {name: file for name, file in files.items()
            if name.startswith(("libexec/dtrun/dtrun-", "share/doc/dtrun/")) and not PAGES.match(name)}
    kept.pop("libexec/dtrun/dtrun-bench-rank", None)
    kept["bin/dtrun-agent"] = File(link="../libexec/dtrun/dtrun-agent")
    return kept


def overrides():
    return File((project.ROOT / "packaging/lintian-overrides").read_bytes())


def scripts(form):
    """Of a package with systemd units: which of our scripts runs when."""
    script = {name: str(project.ROOT / f"packaging/{name}.sh") for name in ("before-removal", "ldconfig")}
    return {"preremove": script["before-removal"],
            **({"postinstall": script["ldconfig"], "postremove": script["ldconfig"]} if form == "rpm" else {})}


def settings(form, cpu, licences):
    """What nfpm is to write into the package beside files. JSON is what YAML is read from as well."""
    release = {"rpm": "1", "arch": "1"}.get(form, "")
    one = {"name": "dtrun", "arch": {"x86_64": "amd64", "aarch64": "arm64"}[cpu], "platform": "linux",
           "version": project.version(), "version_schema": "none", "release": release, "section": "net",
           "priority": "optional", "maintainer": project.MAINTAINER, "license": licences,
           "description": DESCRIPTION, "umask": 0o022,
           "mtime": datetime.datetime.fromtimestamp(project.epoch(), datetime.timezone.utc).isoformat(),
           "rpm": {"buildhost": "localhost", "summary": "S" + DESCRIPTION.splitlines()[0][1:], "group": "System/Clusters",
                   "packager": project.MAINTAINER, "compression": "zstd"},
           "deb": {"compression": "xz", "triggers": {"activate_noawait": ["ldconfig"]}},
           "archlinux": {"packager": project.MAINTAINER}}
    if project.URL:
        one["homepage"] = project.URL
    if form == "deb":
        one.update(depends=["libc6 (>= 2.28)"], recommends=["openssh-client"])
    elif form == "rpm":
        one.update(depends=["libc.so.6(GLIBC_2.28)(64bit)"], recommends=["openssh-clients"],
                   provides=["libdtrun.so.0()(64bit)", "libdtrun_collectives.so.0()(64bit)"])
    elif form == "arch":
        one.update(depends=["glibc>=2.28"])
    else:
        one.update(name="dtrun-agent", description=AGENT_DESCRIPTION)
    if form != "apk":
        one["scripts"] = scripts(form)
    return one


def placed_for(form, files, third_party, copyright_text):
    placed = packed(files, third_party, copyright_text)
    if form == "deb":
        placed["share/lintian/overrides/dtrun"] = overrides()
    if form == "rpm":
        return for_lib64(placed)
    return agent_alone(placed) if form == "apk" else placed


def own_folders(placed):
    """Folders that are dtrun's alone, which go when the package goes."""
    own = set()
    for name in placed:
        parts = name.split("/")[:-1]
        if "dtrun" in parts:
            first = parts.index("dtrun") + 1
            own.update("/".join(parts[:end]) for end in range(first, len(parts) + 1))
    return sorted(own)


def write_native(form, files, cpu, folder, nfpm, papers):
    """nfpm: its program; papers: third-party licences, Debian's copyright file and SPDX's expression"""
    third_party, copyright_text, licences = papers
    one = settings(form, cpu, licences)
    one["contents"] = []
    placed = placed_for(form, files, third_party, copyright_text)
    with tempfile.TemporaryDirectory() as staging, tempfile.TemporaryDirectory() as made:
        for number, (name, file) in enumerate(placed.items()):
            row = {"dst": "/usr/" + name}
            if file.link is not None:
                row.update(src=file.link, type="symlink")
            else:
                source = pathlib.Path(staging, str(number))
                source.write_bytes(file.data)
                if form == "rpm" and name.startswith(("share/doc/", "share/man/")):
                    row["type"] = "doc"
                row.update(src=str(source), file_info={"mode": file.mode, "owner": "root", "group": "root",
                                                       "mtime": one["mtime"]})
            one["contents"].append(row)
        for own in own_folders(placed):
            one["contents"].append({"dst": "/usr/" + own, "type": "dir",
                                    "file_info": {"mode": 0o755, "mtime": one["mtime"]}})
        one["disable_globbing"] = True
        config = pathlib.Path(staging, "nfpm.yaml")
        config.write_text(json.dumps(one))
        done = subprocess.run([nfpm, "package", "--config", str(config), "--packager", FORMS[form], "--target", made],
                              capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": str(project.epoch())})
        if done.returncode != 0:
            raise project.Refused(f"nfpm, {form}: {done.stderr.strip() or done.stdout.strip()}")
        package, = pathlib.Path(made).iterdir()
        target = folder / package.name
        target.write_bytes(package.read_bytes())
    return target
