"""What every package says of dtrun, and the time that it bears; read from the sources, of which each has one place."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = "starts a program on many machines at once, for training and MPI, and leaves nothing behind"
# Who publishes packages says so; nobody does yet.
MAINTAINER = os.environ.get("DTRUN_MAINTAINER", "dtrun developers <dtrun@users.noreply.github.com>")
URL = os.environ.get("DTRUN_URL", "")


class Refused(Exception):
    """What cannot be done, and what to do about it; a whole sentence for whoever typed the command."""


def version():
    found = re.search(r"project\(dtrun VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    return found.group(1)


def changes(of_version):
    """The lines of that version's section of CHANGELOG.md, None if it has none."""
    section = None
    for line in (ROOT / "CHANGELOG.md").read_text().splitlines():
        if line.startswith("## "):
            if section is not None:
                break
            section = [] if re.split(r"[ ,]", line[3:])[0] == of_version else None
        elif section is not None:
            section.append(line)
    return section


def change_items(of_version):
    """The same, an item each, without line breaks and the headings of groups."""
    text = "\n".join(line for line in changes(of_version) or [] if not line.startswith("#"))
    return [" ".join(item.split()) for item in re.split(r"^- ", text, flags=re.MULTILINE)[1:]]


def epoch():
    """The time of the commit, which all files in packages have, so that the same commit gives the same bytes."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    try:
        asked = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True,
                               check=True)
        return int(asked.stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        raise Refused(f"git does not tell the time of {ROOT}'s commit; SOURCE_DATE_EPOCH=SECONDS says it") from None
