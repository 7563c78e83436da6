#!/usr/bin/python3
"""check_commands.py DTRUN: what the documentation says of command lines, dtrun itself takes.

- Every line of a code block that begins with `dtrun`, or has it inside (`sbatch --wrap '…'`), is given to this DTRUN with
  `--plan` where it would start a job, and with `--help` behind its options where it would do something else: an unknown word is an error.
- Of tables "old line | new line" of the guide the old line is given to a link of its launcher's name.
- Messages of tables "it says | do" are in the program or its agent.
- Flags in running text (`--like-this`) are dtrun's, or stand in words_of_others.txt.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import pages  # noqa: E402

# Files that lines of the documentation name, so that only their words are looked at.
FILES = {"hosts": "s1 slots=4\ns2 slots=4\n", "hostfile": "s1 slots=2\ns2 slots=2\n", "hundreds.txt": "s1\ns2\n", "train.py": "", "ds.json": "{}",
         "hosts.yaml": "hosts:\n  - {host: s1, slots: 4}\n", "hosts.sh": "#!/bin/sh\necho s1:2\n", "before.json": "{}", "after.json": "{}"}
LINKS = ("horovodrun", "torchrun", "mpirun", "mpiexec", "deepspeed")
JOBS = ("run", "torchrun", "deepspeed", "mpirun", "mpiexec")
# What dtrun says against hosts, jobs and devices that are not here, and not against words.
NOT_HERE = re.compile(r"shows no NVIDIA GPU|is not in the host list|ranks but \d+ slot|no secret: |a job that runs again has its own options")
# In running text a command may be half a line.
HALF = re.compile(r"no (program|script) to run|needs a value")
# Signs that a line is a pattern and no command.
PATTERN = re.compile(r"…|\.\.\.|\[flags\]|\[options\]|\b(COMMAND|HOST|NAME|FILE|DIR|WORDS|JOB|RANK|PREFIX|BACKUP|KEY|SECTION|SCRIPT|ARGS|STREAMS)\b")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def blocks(text):
    """Lines of fenced and of indented blocks, with their numbers. A backslash at its end goes on in the next line."""
    fenced, joined, start = None, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = None if fenced else line
            continue
        if fenced and fenced.startswith("```console"):
            line = line[2:] if line.startswith(("$ ", "> ")) else ""
        elif not fenced:
            line = line[4:] if line.startswith("    ") else ""
        start = start if joined else number
        joined += line.rstrip("\\")
        if not line.endswith("\\"):
            if joined.strip():
                yield start, joined
            joined = ""


def table_lines(text):
    """Both columns of tables that compare launchers."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\| (old line|in the batch script) \| new line \|", line):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and (found := re.findall(r"`([^`]+)`", line)):
            yield from ((number, command) for command in found)


def simple_commands(line):
    """The words of each command of a line of the shell, those in quoted words too."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.wordchars += ":,%{}@~[]\"$!+"
        lexer.commenters = "" if re.search(r"\S#", line) else "#"
        words = list(lexer)
    except ValueError:  # a quote that the block does not close
        return
    command = []
    for word in [*words, ";"]:
        if not re.fullmatch(r"[();<>|&]+", word):
            command.append(word)
            if word.startswith(("dtrun ", "dtrun\n")):
                yield from simple_commands(word)
            continue
        yield command
        command = []
    return


def of_dtrun(command):
    """The words from `dtrun`, or another launcher's name, on; None if it is not called."""
    command = list(command)
    while command and ASSIGNMENT.match(command[0]):
        command.pop(0)
    if command and command[0] in ("sbatch", "salloc", "time", "eval"):
        command = next((command[at:] for at, word in enumerate(command) if word == "dtrun"), [])
    if not command or os.path.basename(command[0]) not in ("dtrun", *LINKS):
        return None
    return [os.path.basename(command[0]), *command[1:]]


class Program:
    """This dtrun, in a folder that has the files which documents talk of."""

    def __init__(self, dtrun, folder):
        self.dtrun, self.folder = dtrun, pathlib.Path(folder)
        for name, text in FILES.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        os.chmod(self.folder / "hosts.sh", 0o755)
        for name in ("dtrun", *LINKS):
            os.symlink(dtrun, self.folder / name)
        self.environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
        listed = self.call(["dtrun", "--help"]).stdout
        self.commands = set(re.findall(r"^  (?:dtrun )?([a-z-]+)  +\S", listed, re.MULTILINE)) | {"run", "mpiexec", "help"}

    def call(self, words):
        return subprocess.run(words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, check=False)

    def refusal(self, words):
        """What dtrun says against a command line, or None."""
        is_command = words[0] == "dtrun" and len(words) > 1 and words[1] in self.commands
        name = words[1] if is_command else "run"
        at = 2 if is_command else 1
        if words[0] != "dtrun" or name in JOBS:
            asked = [*words[:at], "--plan", *words[at:]]
        elif name in ("help", "contracts", "config", "completion", "store"):  # the store's words are its tests'
            return None
        else:
            end = words.index("--") if "--" in words else len(words)
            asked = [*words[:end], "--help", *words[end:]]
        done = self.call(asked)
        return None if done.returncode == 0 or NOT_HERE.search(done.stderr) else f"{' '.join(asked)}\n    {done.stderr.strip() or done.returncode}"

    def flags(self):
        """All flags that any help text has."""
        text = "".join(self.call(["dtrun", "help", *topic.split()]).stdout for topic in [
            "all", "horovod", "words", "environment", "man", *sorted(self.commands - {"run", "help"})])
        return set(FLAG.findall(text))


def command_lines(path):
    """Every call of dtrun on a page: where it stands, and its words."""
    text = path.read_text(encoding="utf-8")
    spans = [(0, span) for span in re.findall(r"`(dtrun [^`\n]+)`", text)]
    for number, line in [*blocks(text), *table_lines(text), *spans]:
        if PATTERN.search(line):
            continue
        for command in simple_commands(line):
            if words := of_dtrun(command):
                yield path.relative_to(pages.ROOT), number, words


def wrong_lines(program, lines):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        refusals = list(pool.map(lambda line: program.refusal(line[2]), lines))
    for (path, number, _), why in zip(lines, refusals):
        if why and not (number == 0 and HALF.search(why)):
            yield f"{path}:{number}: {why}"


def unknown_flags(flags, path):
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`(-[^`\n]+)`", text):
        for flag in FLAG.findall(re.sub(r"'.*?'", "", span)):
            if flag.replace("_", "-") not in flags:
                yield f"{path.relative_to(pages.ROOT)}: `{span}`: {flag} is no flag of dtrun, nor in words_of_others.txt"


def unsaid(program, path):
    """Messages of a page that neither dtrun nor its agent has; `…` stands for what they fill in."""
    said = b"".join(file.read_bytes() for file in (pathlib.Path(program.dtrun), pathlib.Path(program.dtrun).parent / "dtrun-agent"))
    said = re.sub(rb"\n +", b" ", said)  # lines of the script that starts an agent are joined before it is sent
    for row in re.findall(r"^\| it says \|.*?(?=^[^|])", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        for message in re.findall(r"^\| `([^`]+)` \|", row, re.MULTILINE):
            if any(part.strip().encode() not in said for part in message.split("…")):
                yield f"{path.relative_to(pages.ROOT)}: `{message}` is no message of dtrun's"


def missing_pages(program):
    """Pages that `dtrun help docs` names."""
    for page in re.findall(r"^  (\S+\.md)(?: |$)", program.call(["dtrun", "help", "docs"]).stdout, re.MULTILINE):
        if not (pages.ROOT / "docs" / page).is_file():
            yield f"dtrun help docs: there is no docs/{page}"


def main(dtrun):
    with tempfile.TemporaryDirectory() as folder:
        program = Program(os.path.abspath(dtrun), folder)
        listed = (pathlib.Path(__file__).parent / "words_of_others.txt").read_text(encoding="utf-8")
        others = {word for line in listed.splitlines() for word in line.partition("#")[0].split()}
        flags = {flag.replace("_", "-") for flag in program.flags() | others}
        wrong = list(missing_pages(program))
        # Not those of benchmarks, and of what is no more.
        paths = [path for path in pages.documents() if path.parent.name != "decisions" and path.name != "MEASUREMENTS.md"]
        wrong += wrong_lines(program, [line for path in paths for line in command_lines(path)])
        wrong += [line for path in paths for line in [*unknown_flags(flags, path), *unsaid(program, path)]]
    print("\n".join(dict.fromkeys(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
