"""The table of commands in main.cpp: whatever is in it can be called, is listed and is explained."""

import os
import re
import subprocess
import sys
import tempfile

DTRUN = sys.argv[1]
COMMANDS = ["run", "demo", "bench", "hosts", "hold", "release", "doctor", "info", "serve", "join", "status", "store", "jobs", "top", "end",
            "stacks", "attach", "logs", "torchrun", "deepspeed", "mpirun", "contracts", "config", "completion", "install-links", "help", "version"]
TOPICS = ["all", "horovod", "words", "environment", "exit-codes", "docs", "man"]


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
    names = ", ".join([*COMMANDS, *TOPICS[:-1]]).replace("mpirun", "mpirun, mpiexec") + " and " + TOPICS[-1]
    wanted = f"dtrun: no help on 'serv'; did you mean serve?; there is help on {names}\n"
    assert unknown.stderr == wanted, unknown.stderr

    help_text = printed("--help")
    assert printed("help") == printed("run", "--help") == help_text
    manual = printed("help", "man")
    for command in COMMANDS:
        text = printed("help", command)
        assert all(len(line) <= 80 for line in text.splitlines()), command
        if command not in ("help", "version"):
            assert printed(command, "--help") == text, command
        if command not in ("run", "help", "version"):
            assert f"\n  dtrun {command} " in help_text, command
            assert ".BR dtrun\\-" + command.replace("-", "\\-") + " (1)" in manual, command
    for topic in TOPICS[:-1]:
        assert f"\n  dtrun help {topic} " in help_text, topic
    assert printed("help", "environment").startswith("What a rank finds in its environment")
    version = printed("--version")
    assert re.match(r"dtrun \d+\.\d+\.\d+ \(.*, \w+\)\n$", version), version
    for command in COMMANDS[:-2]:
        assert printed(command, "--version") == version, command
    assert printed("version") == version == printed("-V")
    assert printed("help", "--help") == help_text
    assert len(help_text.splitlines()) <= 108, len(help_text.splitlines())
    built = printed("--check-build")
    assert built == printed("-cb") and built.startswith("dtrun v"), built
    for heading in ("Frameworks", "Controllers", "Tensor Operations"):
        assert f"\nAvailable {heading}:\n    [" in built, built
    assert "    [X] Gloo " in built and "    [X] dtrun " in built, built

    # A topic is no command, and a word that is none is a program.
    for word in ("environment", "no-such-program"):
        assert dtrun("--transport", "local", word).returncode == 127, word
    misspelt = dtrun("stauts")
    assert misspelt.returncode == 127 and misspelt.stderr.endswith("; did you mean dtrun status?\n"), misspelt
    for word, hint in {"benhc": "did you mean dtrun bench?", "stop": "dtrun end is that here",
                       "log": "dtrun logs is that here"}.items():
        wrong = dtrun(word)
        assert wrong.returncode == 127 and wrong.stderr.endswith(f"; {hint}\n"), wrong
    unknown = dtrun("help", "rnu").stderr
    assert "did you mean run?" in unknown, unknown
    assert printed("mpiexec", "--help") == printed("help", "mpirun")
    # Called by the name of another launcher, dtrun is that launcher.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        links = {"torchrun": "torchrun", "deepspeed": "deepspeed", "mpirun": "mpirun", "mpiexec": "mpirun",
                 "horovodrun": "run"}
        for name, command in links.items():
            link = os.path.join(folder, name)
            assert printed("install-links", "--dir", folder, name) == f"{link} leads to {os.path.realpath(DTRUN)}\n"
            assert printed("--help", name=link) == printed("help", command)
        assert dtrun("install-links", "--dir", folder, "torchrnu").returncode == 200
        # --mpi mpirun is not the link that leads back to dtrun.
        environment = {**os.environ, "PATH": folder}
        alone = subprocess.run([DTRUN, "--mpi", "mpirun", "true"], capture_output=True, text=True, env=environment)
        assert alone.returncode == 200 and "PATH has neither mpirun nor mpiexec" in alone.stderr, alone
        printed("install-links", "--dir", folder, "--remove")
        assert os.listdir(folder) == []
    # Where standard output takes nothing, that is not hidden.
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([DTRUN, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 210 and "standard output: No space left" in done.stderr, done


main()
