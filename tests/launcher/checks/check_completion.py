"""check_completion.py DTRUN: completion in real shells, and manual pages as man and mandoc read them."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import in_ci  # noqa: E402

DTRUN = os.path.abspath(sys.argv[1])
SECONDS = 60
FOLDER = tempfile.mkdtemp(prefix="dtrun-completion-")
ENV = dict(os.environ, XDG_RUNTIME_DIR=FOLDER, PATH=f"{os.path.dirname(DTRUN)}:{os.environ['PATH']}", HOME=FOLDER)


def has(tool):
    """Whether the tool is here, which CI must have."""
    if shutil.which(tool):
        return True
    print("left out: without", tool)
    assert not in_ci(), tool
    return False


def run(*words, text=None):
    done = subprocess.run(words, capture_output=True, text=True, input=text, timeout=SECONDS, env=ENV, cwd=FOLDER,
                          check=False)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout


def in_bash(line):
    """What bash offers for a line whose last word is not finished."""
    script = f"""source <({DTRUN} completion bash)
COMP_LINE=$1 COMP_POINT=${{#1}} COMP_WORDS=($1) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
case $1 in *' ') COMP_WORDS+=(''); COMP_CWORD=$((COMP_CWORD + 1)) ;; esac
compopt() {{ echo "compopt $*"; }}
_dtrun
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    return run("bash", "--norc", "-c", script, "bash", line).split("\n")[:-1]


def job_of(pid):
    """The id of the job of this dtrun, once it has one."""
    views = json.loads(run(DTRUN, "jobs", "--json"))["jobs"]
    return next((view["job"] for view in views if view["dtrun_pid"] == pid), None)


def check_bash():
    assert in_bash("dtrun --bind-") == ["--bind-to"], in_bash("dtrun --bind-")
    assert in_bash("dtrun top --sort ") == ["trouble", "rank", "cpu", "memory", "step"]
    assert in_bash("dtrun --hostfile ") == ["compopt -o default", ""]
    assert in_bash("dtrun -np 2 cat --") == ["compopt -o default", ""]
    assert "status" in in_bash("dtrun sta") and "stacks" in in_bash("dtrun sta")
    # A tab does not execute what lies in the current directory.
    with open(f"{FOLDER}/dtrun", "w", encoding="utf-8") as script:
        script.write("#!/bin/sh\n: >executed\n")
    os.chmod(f"{FOLDER}/dtrun", 0o755)
    assert in_bash("./dtrun --bind-") == ["--bind-to"], in_bash("./dtrun --bind-")
    assert not os.path.exists(f"{FOLDER}/executed")
    job = subprocess.Popen([DTRUN, "-np", "1", "sleep", "60"], env=ENV)
    try:
        until = time.monotonic() + SECONDS
        # Jobs of other tests may run beside: it is this one's id that has to be there.
        while not (mine := job_of(job.pid)) or mine not in in_bash("dtrun end "):
            assert time.monotonic() < until, (mine, in_bash("dtrun end "))
            time.sleep(0.1)
    finally:
        job.terminate()
        job.wait(SECONDS)


def check_fish():
    if not has("fish"):
        return
    script = f"{DTRUN} completion fish | source; complete -C $argv[1]"
    assert run("fish", "-N", "-c", script, "dtrun --bind-").split("\t")[0] == "--bind-to"
    words = [line.split("\t")[0] for line in run("fish", "-N", "-c", script, "dtrun top --sort ").splitlines()]
    assert sorted(words) == ["cpu", "memory", "rank", "step", "trouble"], words
    assert run("fish", "-N", "-c", script, "dtrun --on-hang=k").strip() == "--on-hang=kill"


def check_zsh():
    """zsh has no way to ask what it offers, so it is typed to."""
    if not has("zsh"):
        return
    terminal, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=dict(ENV, TERM="dumb", PS1="> "),
        start_new_session=True, cwd=FOLDER,
    )  # fmt: skip
    os.close(theirs)
    said = b""

    def wait_for(text, typed=b""):
        nonlocal said
        said = b""
        os.write(terminal, typed)
        while text not in said:
            assert select.select([terminal], [], [], SECONDS)[0], said
            said += os.read(terminal, 4096)

    wait_for(b"ready", b"autoload -U compinit; compinit -D; source <(dtrun completion zsh); echo rea''dy\n")
    wait_for(b"--bind-to", b"dtrun --bind-\t")
    wait_for(b"--on-hang=kill", b"\x15dtrun --on-hang=k\t")
    os.write(terminal, b"\x15exit\n")
    shell.wait(SECONDS)
    os.close(terminal)


def check_pages():
    """Each command has a page without faults, with every option of its help."""
    pages = os.path.join(FOLDER, "pages")
    os.mkdir(pages)
    run(DTRUN, "help", "man", pages + "/")
    names = sorted(os.listdir(pages))
    assert "dtrun.1" in names and "dtrun-top.1" in names and "dtrun-serve.1" in names, names
    for name in names:
        with open(os.path.join(pages, name), encoding="utf-8") as file:
            text = file.read().replace("\\-", "-")
        command = name[:-2].replace("dtrun-", "").replace("dtrun", "all")
        help_text = run(DTRUN, "help", command)
        for option in re.findall(r"^  (?:-\w+, )*(--[a-z-]+)", help_text, re.M):
            assert option in text, (name, option)
        if has("mandoc"):
            lint = subprocess.run(
                ["mandoc", "-Tlint", "-W", "warning", os.path.join(pages, name)], capture_output=True, text=True, check=False
            )
            assert lint.stdout == "" and lint.returncode == 0, lint
    assert run(DTRUN, "help", "man", "top") == open(os.path.join(pages, "dtrun-top.1"), encoding="utf-8").read()
    wrong = subprocess.run([DTRUN, "help", "man", "nothing"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 200 and "no manual page of 'nothing'" in wrong.stderr, wrong


try:
    for check in (check_bash, check_fish, check_zsh, check_pages):
        check()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
