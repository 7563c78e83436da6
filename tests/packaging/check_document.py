#!/usr/bin/python3
"""check_document.py INSTALL.md [DIST TOOLS]: runs each fenced block of docs/INSTALL.md where the document says that it
works, in the document's order. A block that no row of BLOCKS knows fails the test, and so does a row without a block, which is all that is looked at without DIST.

TOOLS is the folder of programs from Python's index, among them uv (packaging/tools).
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, f"{HERE}/../support"]
import containers  # noqa: E402
import roots  # noqa: E402
from pair import HOME, USER  # noqa: E402
from skip import skip  # noqa: E402

SUITE = "bookworm"
PACKAGES = (*roots.HOST_PACKAGES, *containers.PACKAGES)
# Nothing here is started by systemd, which the root's first process is not; what is enabled, is.
SYSTEMCTL = """#!/bin/bash
exec env SYSTEMD_OFFLINE=1 /usr/bin/systemctl "${@/#--now/--quiet}"
"""
NO_SUCH_SYSTEM = "no mirror of that distribution can be counted on; packages_rpm, _arch and _apk run the files"


class Place:
    """A fresh root, and a user in it with the files of the distribution in the current folder."""

    def __init__(self, name, user, dist, tools, environment=None):
        self.name, self.user, self.environment = name, user, environment or {}
        self.root = roots.Root(SUITE, PACKAGES, name=name, binds={"/dist": dist, "/tools": tools})
        self.root.add_user(USER)
        self.folder = "/root/files" if user == "root" else f"{HOME}/files"
        self.shell("mkdir files; cp /dist/* files 2>/dev/null || true", folder=os.path.dirname(self.folder))

    def shell(self, script, folder=None):
        return self.root.shell(script, user=self.user, folder=folder or self.folder, environment=self.environment)


def make_places(dist, tools):
    path = f"{HOME}/.local/bin:/tools:{roots.PATH}"
    with_pipx = {"PATH": f"{HOME}/.local/bin:{roots.PATH}", "PIP_NO_INDEX": "1"}
    places = {place.name: place for place in (
        Place("person", USER, dist, tools),
        Place("uv", USER, dist, tools, {"PATH": path, "UV_OFFLINE": "1"}),
        Place("pipx", USER, dist, tools, with_pipx),
        Place("admin", "root", dist, tools),
        Place("shared", "root", dist, tools),
        Place("container", "root", dist, tools))}
    places["admin"].root.write("/usr/local/bin/systemctl", SYSTEMCTL, "755")
    containers.prepare(places["container"].root)
    return places


# ---------------------------------------------------------------------------------------------- after a block
def two_ranks(place, told):
    assert told.count(place.name) >= 2, told


def starts(path):
    return lambda place, _: two_ranks(place, place.shell(f"{path} -np 2 hostname"))


def has(path):
    return lambda place, _: place.root.run("test", "-e", path)


def lacks(path):
    return lambda place, _: place.root.run("test", "!", "-e", path)


def is_enabled(place, _):
    has("/etc/systemd/system/sockets.target.wants/dtrun-serve.socket")(place, _)
    place.shell("systemd-analyze verify --man=no dtrun-serve.service dtrun-serve.socket")


def is_gone(place, _):
    lacks("/usr/bin/dtrun")(place, _)
    place.shell("test ! -L /etc/systemd/system/sockets.target.wants/dtrun-serve.socket")


def image_of_ones_own(place, _):
    place.shell("podman run --rm --entrypoint dtrun localhost/mine -np 2 hostname")
    place.shell("podman run --rm --entrypoint dtrun-agent localhost/mine --build-id")


# What is in the block, where it runs, and what is true afterwards; or why it runs nowhere here.
BLOCKS = [
    ("sha256sum --check", "person", None),
    ("python3 -m venv ~/dtrun-venv", "person", two_ranks),
    ("uv tool install", "uv", two_ranks),
    ("pipx install", "pipx", starts("dtrun")),
    ("tar -xzf dtrun-*-linux-x86_64.tar.gz\n./dtrun-", "person", two_ranks),
    ("dtrun install-links", "uv", lacks(f"{HOME}/.local/bin/torchrun")),
    ("apt-get install", "admin", starts("dtrun")),
    ("dnf install", None, NO_SUCH_SYSTEM),
    ("systemctl enable", "admin", is_enabled),
    ("mkdir -p /opt/dtrun", "shared", starts("dtrun")),
    ("apk add", None, NO_SUCH_SYSTEM),
    ("podman load", "container", two_ranks),
    ("FROM your/image", "container", image_of_ones_own),
    ("pip install --no-index", "person", starts("~/dtrun-venv/bin/dtrun")),
    ("mkdir -p -m 700 /var/tmp", "person", None),
    ("./dev build", None, "all other tests run on what it builds"),
    ("./dev portable", None, "has made what is installed here"),
    ("pip uninstall", "person", lacks(f"{HOME}/dtrun-venv/bin/dtrun")),
    ("uv tool uninstall", "uv", lacks(f"{HOME}/.local/bin/dtrun")),
    ("apt-get purge", "admin", is_gone),
    ("rm -rf ~/.cache/dtrun", "person", lacks(f"{HOME}/.cache/dtrun")),
]


def blocks_of(document):
    """(line, language, text) of each fenced block."""
    with open(document, encoding="utf-8") as file:
        text = file.read()
    return [(text.count("\n", 0, found.start()) + 1, found[1], found[2])
            for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def match(blocks):
    """Each block with its row. SystemExit: one has none, or more than one, or a row no block."""
    pairs, wrong = [], []
    for line, language, text in blocks:
        rows = [row for row in BLOCKS if row[0] in text]
        if len(rows) == 1:
            pairs.append((line, language, text, rows[0]))
        else:
            wrong.append(f"line {line}: {len(rows)} rows of BLOCKS are for: {text.splitlines()[0]}")
    used = [row for *_, row in pairs]
    wrong += [f"no block, or two, has: {row[0]}" for row in BLOCKS if used.count(row) != 1]
    if wrong:
        sys.exit("\n".join(["check_document:", *wrong]))
    return pairs


def main(document, dist=None, tools=None):
    pairs = match(blocks_of(document))
    if not dist:
        return
    dist = os.path.abspath(dist)
    if why := roots.missing():
        skip(why)
    places = make_places(dist, tools)
    for line, language, text, (_, name, after) in pairs:
        if name is None:
            print(f"line {line}: not run: {after}", flush=True)
            continue
        place = places[name]
        if language == "dockerfile":
            place.root.write(f"{place.folder}/Dockerfile", text)
            text = "podman tag localhost/dtrun:0.1.0 localhost/your/image; podman build --tag localhost/mine ."
        told = place.shell(text)
        if after:
            after(place, told)
        print(f"line {line}: run in {name}", flush=True)
    for place in places.values():
        place.root.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
