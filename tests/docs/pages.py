"""Pages of the documentation as tests see them: commands with the output that they promise, files that a reader is told to
make, and all words that are commands."""

import os
import pathlib
import re

ROOT = pathlib.Path(os.path.realpath(__file__)).parents[2]
GUIDE = ROOT / "docs/guide"
FENCE = re.compile(r"```(\S*)\s*$")
NOTE = re.compile(r"<!--\s*(hosts|file|first|before|not run):\s*(.*?)\s*-->\s*$")
ANYTHING = "…"


class Command:
    """A command of a ```console block, and the lines that it shows there."""

    def __init__(self, line, text):
        self.line = line
        self.text = text
        self.shown = []


class Page:
    """What a page is made of. `steps` are ("file", name, text), which are first of all, and then in the page's order
    ("run", Command), ("before", a line of the shell that a reader does not see), and ("first", one that succeeds before the page
    goes on)."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.name = self.path.stem
        self.text = self.path.read_text(encoding="utf-8")
        self.hosts = "cluster"
        self.steps = []
        self._read(self.text.splitlines())
        # Slurm says whether it would take the lines that dtrun's stand beside.
        self.steps += [("before", f"(srun --test-only {words}) >/dev/null")
                       for words in re.findall(r"^\| `srun ([^`]+)` \|", self.text, re.MULTILINE) if self.hosts == "slurm"]
        self.steps.sort(key=lambda step: step[0] != "file")

    def _read(self, lines):
        note, at = None, 0
        while at < len(lines):
            found = NOTE.match(lines[at])
            fence = FENCE.match(lines[at])
            at += 1
            if found:
                note = self._noted(*found.groups())
            elif fence:
                end = next(i for i in range(at, len(lines)) if lines[i].strip() == "```")
                self._fenced(fence.group(1), lines[at:end], at + 1, note)
                note, at = None, end + 1
            elif lines[at - 1].strip():
                note = None

    def _noted(self, kind, words):
        """\\return what the block behind it is to be told"""
        if kind == "hosts":
            self.hosts = words
        elif kind in ("first", "before"):
            self.steps.append((kind, words))
        elif kind == "file" and " = " in words:  # train.py = examples/train.py
            name, source = words.split(" = ")
            self.steps.append(("file", name, (ROOT / source).read_text(encoding="utf-8")))
        else:
            return kind, words
        return None

    def _fenced(self, language, lines, number, note):
        kind = note[0] if note else ""
        if kind == "file":
            self.steps.append(("file", note[1], "\n".join(lines) + "\n"))
        elif language == "console" and kind != "not run":
            self.steps += [("run", command) for command in commands_of(lines, number)]


def commands_of(lines, number):
    """The commands of a ```console block, whose first line has that number. `> ` goes on with the line before it."""
    commands = []
    for line in lines:
        if line.startswith("$ "):
            commands.append(Command(number, line[2:]))
        elif line.startswith("> ") and commands and not commands[-1].shown:
            commands[-1].text += "\n" + line[2:]
        elif commands:
            commands[-1].shown.append(line)
        else:
            raise ValueError(f"line {number}: a ```console block begins with a command, `$ …`")
        number += 1
    return commands


# What differs from run to run where a page need not say so.
VARIES = [(re.compile(pattern), name) for pattern, name in (
    (r"\b\d+\.\d+\b", "#.#"), (r"\bpid \d+", "pid #"), (r"\b[0-9a-f]{12}([0-9a-f]{20})?\b", "JOB"), (r"127\.0\.0\.1:\d+", "127.0.0.1:#"))]


# What dtrun says only on a slow machine, to whoever waits, and when the waiting is over.
MEANWHILE = re.compile(r"dtrun: (\d+/\d+ hosts ready after |.*\bwaiting for |job \S+: all are there$)")


def alike(line):
    line = " ".join(line.split())
    for pattern, name in VARIES:
        line = pattern.sub(name, line)
    return line


def difference(shown, printed):
    """What is wrong with what a command has printed, or None. Lines may come in any order, as those of ranks do; `…` stands
    for any part of a line, or, alone, for any number of lines."""
    left = [alike(line) for line in printed if line.strip() and not MEANWHILE.match(line)]
    wanted = [alike(line) for line in shown if line.strip()]
    for line in wanted:
        if line == ANYTHING:
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.split(ANYTHING)))
        found = next((other for other in left if pattern.fullmatch(other)), None)
        if found is None:
            return f"this line has not come: {line}"
        left.remove(found)
    if left and ANYTHING not in wanted:
        return f"this line is not shown: {left[0]}"
    return None


def guide():
    return [Page(path) for path in sorted(GUIDE.glob("*.md"))]


def documents():
    """All Markdown of docs/, the guide and decisions too, and README.md."""
    return sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
