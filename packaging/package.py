#!/usr/bin/env python3
"""Packs trees that `./dev portable` has made; see --help."""

import argparse
import datetime
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys

import image
import libraries as inside
import native
import project
import tarball
import tree
import wheel

FORMS = ["wheel", *native.FORMS, "tar", "image", "sbom"]
DIST = project.ROOT / "build/dist"


def arguments():
    parser = argparse.ArgumentParser(
        prog="./dev package", description="Packs what `./dev portable` has made into build/dist. Compiles nothing.")
    parser.add_argument("forms", nargs="*", metavar="FORM", help=f"of {', '.join(FORMS)} (default: all)")
    parser.add_argument("--cpu", action="append", choices=sorted(tree.MACHINES),
                        help="of this CPU; repeatable (default: each that has a tree)")
    parser.add_argument("--trees", type=pathlib.Path, default=project.ROOT / "build/portable", metavar="DIR",
                        help="holds CPU/tree (default: build/portable)")
    parser.add_argument("--out", type=pathlib.Path, default=DIST, metavar="DIR", help="default: build/dist")
    parser.add_argument("--native", action="store_true",
                        help="take trees that need a newer glibc; packages then run on this distribution alone")
    given = parser.parse_args()
    unknown = [form for form in given.forms if form not in FORMS]
    if unknown:
        raise project.Refused(f"{unknown[0]}: forms are {', '.join(FORMS)}")
    given.forms = given.forms or FORMS
    given.cpu = given.cpu or [cpu for cpu in sorted(tree.MACHINES) if (given.trees / cpu / "tree").is_dir()]
    if not given.cpu:
        raise project.Refused(f"{given.trees} has no CPU/tree; `./dev portable` makes them")
    return given


def remove_others(folder):
    """Packages of another version, or for this distribution alone, which SHA256SUMS and people would take for these."""
    for path in folder.iterdir():
        if re.match(r"dtrun(-agent)?[-_]", path.name) and (
                not re.search(rf"[-_]{re.escape(project.version())}(?![0-9])", path.name) or "-linux_" in path.name):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def write_sums(folder):
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())
            if path.is_file() and path.name != "SHA256SUMS"]
    (folder / "SHA256SUMS").write_text("".join(sums))


def pack(given, form, cpu, files, papers, tools):
    """One file of one form. papers: third-party licences, Debian's copyright file and SPDX's expression"""
    third_party, _, licences = papers
    if form == "wheel":
        return wheel.write_wheel(files, cpu, given.out, third_party, licences, given.native)
    if form == "tar":
        return tarball.write_tarball(files, cpu, given.out)
    if form == "image":
        return image.write_image(files, cpu, given.out, inside.licence_expression(inside.read_libraries() + image.others()))
    return native.write_native(form, files, cpu, given.out, tools / "nfpm", papers)


def main():
    given = arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.out == DIST:
        remove_others(given.out)
    libraries = inside.read_libraries()
    papers = (inside.third_party_text(libraries), inside.copyright_file(libraries),
              inside.licence_expression(libraries))
    tools = None
    if set(given.forms) & set(native.FORMS):
        made = subprocess.run([project.ROOT / "packaging/tools"], stdout=subprocess.PIPE, text=True, check=False)
        if made.returncode != 0:
            raise project.Refused("packaging/tools has not made the environment of nfpm; its words are above")
        tools = pathlib.Path(made.stdout.strip())
    for cpu in given.cpu:
        files = tree.read_tree(given.trees / cpu / "tree", cpu, given.native)
        files["share/doc/dtrun/THIRD-PARTY-LICENCES.txt"] = tree.File(papers[0].encode())
        for form in given.forms:
            if form != "sbom":
                path = pack(given, form, cpu, files, papers, tools)
                print(f"{path.stat().st_size / 1e6:6.1f} MB  {path.name}")
    if "sbom" in given.forms:
        time = datetime.datetime.fromtimestamp(project.epoch(), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = given.out / f"dtrun-{project.version()}.cdx.json"
        path.write_text(inside.sbom(libraries, image.others(), project.version(), time))
        print(f"{path.stat().st_size / 1e6:6.1f} MB  {path.name}")
    write_sums(given.out)


if __name__ == "__main__":
    try:
        main()
    except project.Refused as why:
        sys.exit(f"package: {why}")
