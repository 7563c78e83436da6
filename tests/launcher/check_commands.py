"""The table of commands in main.cpp: whatever is in it can be called, is listed and is explained."""

import os
import re
import subprocess
import sys
import tempfile

DTRUN = sys.argv[1]
COMMANDS = ["run", "bench", "hosts", "serve", "join", "status", "store", "stacks", "attach", "torchrun", "deepspeed", "contracts", "help"]
TOPICS = ["environment", "man"]


def dtrun(*words, name=DTRUN):
    return subprocess.run([name, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def printed(*words, name=DTRUN):
    done = dtrun(*words, name=name)
    assert done.returncode == 0, (words, done)
    assert done.stderr == "", (words, done.stderr)
    return done.stdout


def main():
    unknown = dtrun("help", "serv")
    assert unknown.returncode == 200, unknown
    names = ", ".join([*COMMANDS, *TOPICS[:-1]]) + " and " + TOPICS[-1]
    wanted = f"dtrun: no help on 'serv'; did you mean serve?; there is help on {names}\n"
    assert unknown.stderr == wanted, unknown.stderr

    help_text = printed("--help")
    assert printed("help") == printed("run", "--help") == help_text
    manual = printed("help", "man")
    for command in COMMANDS:
        text = printed("help", command)
        assert all(len(line) <= 80 for line in text.splitlines()), command
        if command != "help":
            assert printed(command, "--help") == text, command
        if command not in ("run", "help"):
            assert f"\n  dtrun {command} " in help_text, command
            assert f".SH DTRUN {command.upper()}\n" in manual, command
    assert "\n  dtrun help environment " in help_text
    assert printed("help", "environment").startswith("What a rank finds in its environment")
    assert re.match(r"\d+\.\d+\.\d+\n$", printed("--version"))
    assert printed("--check-build").startswith("dtrun v")

    # A topic is no command, and a word that is none is a program.
    for word in ("environment", "no-such-program"):
        assert dtrun("--transport", "local", word).returncode == 127, word
    # Called by the name of another launcher, dtrun is that launcher.
    with tempfile.TemporaryDirectory() as folder:
        for name in ("torchrun", "deepspeed"):
            link = os.path.join(folder, name)
            os.symlink(os.path.abspath(DTRUN), link)
            assert printed("--help", name=link) == printed("help", name)
    # Where standard output takes nothing, that is not hidden.
    with open("/dev/full", "w", encoding="utf-8") as full:
        assert subprocess.run([DTRUN, "--help"], stdout=full, check=False).returncode == 210


main()
