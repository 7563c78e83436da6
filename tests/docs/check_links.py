#!/usr/bin/python3
"""check_links.py [FILE...]: every relative link of the documentation leads to a file, and its anchor to a heading there;
every page of the guide is in docs/index.md and begins with a command. All Markdown that git knows is looked at, or these files."""

import os
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import pages  # noqa: E402

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^(```.*?^```|    .*?$)|``.*?``|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def anchors(text):
    """What a git host calls the headings of a page."""
    found = []
    for title in re.findall(r"^#+ +(.*?)\s*$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return found


def broken(path):
    text = path.read_text(encoding="utf-8")
    for target in LINK.findall(CODE.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        to = pathlib.Path(os.path.normpath(path.parent / name)) if name else path
        if not to.exists():
            yield f"{path.relative_to(pages.ROOT)}: ({target}): there is no {to}"
        elif anchor and anchor not in anchors(to.read_text(encoding="utf-8")):
            yield f"{path.relative_to(pages.ROOT)}: ({target}): {to.name} has no such heading"


def main(*names):
    listed = subprocess.run(["git", "-C", pages.ROOT, "ls-files", "*.md"], capture_output=True, text=True, check=False).stdout
    files = [pathlib.Path(name).resolve() for name in names] or [pages.ROOT / name for name in listed.split()]
    files = files or pages.documents()  # sources without git
    wrong = [line for path in files for line in broken(path)]
    index = (pages.ROOT / "docs/index.md").read_text(encoding="utf-8")
    wrong += [f"docs/index.md has no link to guide/{page.path.name}" for page in pages.guide()
              if f"(guide/{page.path.name})" not in index]
    wrong += [f"guide/{page.path.name} does not begin with a command" for page in pages.guide()
              if not re.match(r"(<!--.*?-->\s*)*# [^\n]*\n\s*(<!--.*?-->\s*)*```console", page.text)]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
