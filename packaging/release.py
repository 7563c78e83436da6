#!/usr/bin/env python3
"""Makes everything that a release consists of; see --help."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import package
import project

NEXT = """
{folder} has version {version}. Nothing is signed or published yet:

    ./dev test -L packages                                  # installs what is there into clean systems
    gpg --armor --detach-sign {folder}/SHA256SUMS           # or: minisign -Sm {folder}/SHA256SUMS
    git tag --sign v{version} --message 'dtrun {version}' {commit}
    git push origin v{version}
    twine upload {folder}/*.whl                             # then all files, with RELEASE-NOTES.md, where releases are
"""
HOW_TO_CHECK = """
## Files

`sha256sum --check --ignore-missing SHA256SUMS` says whether a file is whole. Who has the sources of commit {commit}
gets the same bytes by `./dev portable` and `./dev package`. docs/INSTALL.md says which file is for whom.
"""


def git(*words):
    asked = subprocess.run(["git", "-C", str(project.ROOT), *words], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise project.Refused(f"git {words[0]}: {asked.stderr.strip()}")
    return asked.stdout.strip()


def check(version):
    """Refuses what must not be released."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise project.Refused(f"{version} is no version such as {project.version()}")
    if version != project.version():
        raise project.Refused(f"CMakeLists.txt has version {project.version()}, not {version}; change it there, as "
                              "nothing else says it")
    changed = git("status", "--porcelain")
    if changed:
        raise project.Refused(f"what is released is a commit, and these files are in none:\n{changed}")
    if not project.change_items(version):
        raise project.Refused(f"CHANGELOG.md has no section '## {version}' with items")
    title, = (line for line in (project.ROOT / "CHANGELOG.md").read_text().splitlines()
              if re.match(rf"## {re.escape(version)}\b", line))
    if not re.search(r"\d{4}-\d\d-\d\d$", title):
        raise project.Refused(f"CHANGELOG.md says '{title}'; write '## {version}, YEAR-MONTH-DAY' and commit it")
    if git("tag", "--list", f"v{version}"):
        raise project.Refused(f"there is a tag v{version}; a version is released once")


def make(root, out):
    """Builds and packs the sources in `root`."""
    for words in ([str(root / "packaging/portable")],
                  [sys.executable, str(root / "packaging/package.py"), "--out", str(out)]):
        if subprocess.run(words, check=False).returncode != 0:
            raise project.Refused(f"{words[-1] if len(words) == 1 else words[1]} failed; its words are above")


def make_again(out):
    """Builds in a clone somewhere else, and compares. What was fetched goes along, as it is known by its hash."""
    with tempfile.TemporaryDirectory(prefix="dtrun-release-") as folder:
        clone = pathlib.Path(folder, "clone")
        git("clone", "--quiet", "--no-hardlinks", str(project.ROOT), str(clone))
        for fetched in ("build/archives", "build/portable/downloads"):
            if (project.ROOT / fetched).is_dir():
                shutil.copytree(project.ROOT / fetched, clone / fetched)
        (clone / "build").mkdir(exist_ok=True)
        (clone / "build/tools").symlink_to((project.ROOT / "build/tools").resolve())
        make(clone, clone / "build/dist")
        first, second = ((where / "SHA256SUMS").read_text().splitlines() for where in (out, clone / "build/dist"))
    different = sorted({line.split("  ")[1] for line in set(first) ^ set(second)})
    if different:
        raise project.Refused(f"built again in another folder, these are different: {', '.join(different)}")
    print(f"built again in another folder: the same bytes in {len(first)} files")


def write_notes(version, commit, out):
    section = "\n".join(project.changes(version)).strip()
    (out / "RELEASE-NOTES.md").write_text(f"# dtrun {version}\n\n{section}\n{HOW_TO_CHECK.format(commit=commit)}")


def main():
    parser = argparse.ArgumentParser(
        prog="./dev release", description="Makes every package of a version in build/dist, with checksums and notes, of "
        "a clean clone; says what is left to do by hand.")
    parser.add_argument("version", help="as in CMakeLists.txt and CHANGELOG.md")
    parser.add_argument("--twice", action="store_true", help="build again in another folder, and compare all bytes")
    given = parser.parse_args()
    check(given.version)
    commit = git("rev-parse", "HEAD")
    shutil.rmtree(package.DIST, ignore_errors=True)
    make(project.ROOT, package.DIST)
    if given.twice:
        make_again(package.DIST)
    write_notes(given.version, commit, package.DIST)
    package.write_sums(package.DIST)
    print(NEXT.format(folder=package.DIST.relative_to(project.ROOT), version=given.version, commit=commit[:12]))


if __name__ == "__main__":
    try:
        main()
    except project.Refused as why:
        sys.exit(f"release: {why}")
