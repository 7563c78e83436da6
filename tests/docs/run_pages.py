#!/usr/bin/python3
"""run_pages.py DTRUN [PAGE...]: runs every command of docs/guide/*.md and of README.md, and compares what it prints with
what the page shows. docs/README.md says how a page is written.

Pages run one after the other on one cluster of tests/cluster, each in a folder of its own which all hosts see. Without root
they are all skipped.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "support")]
import pages  # noqa: E402
from skip import in_ci, skip  # noqa: E402

CLUSTER = pages.ROOT / "tests/cluster/cluster"
SLURM = pages.ROOT / "tests/cluster/support/slurm.py"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PAGE_SECONDS = 180
FIRST_SECONDS = 60
# A page's last command has ended, and nothing of it may be left; a new user's home is empty.
CLEAN = "rm -rf ~/.config/dtrun ~/bin /run/user/0/dtrun ~/.local/state/dtrun"
MARK = "\036"
# Slurm frees nodes a moment after a job has ended; until then the next one gets others.
ALONE = "while squeue -h | grep -q .; do sleep 0.1; done"


def script_of(page):
    """The page as a program of bash: a mark with the number of the step before each, and one with the exit code behind."""
    lines = ["exec </dev/null 2>&1", "S=0"]
    for number, (kind, *what) in enumerate(page.steps):
        if page.hosts == "slurm":
            lines.append(ALONE)
        lines.append(f"printf '\\n{MARK}begin {number}\\n'")
        if kind == "file":
            name, text = what
            mode = "755" if text.startswith("#!") else "644"
            lines += [f"mkdir -p \"$(dirname '{name}')\"", f"cat >'{name}' <<'END OF {number}'", text + f"END OF {number}",
                      f"chmod {mode} '{name}'", "S=$?"]
        elif kind == "first":
            wait = what[0].replace("'", "'\\''")
            lines += [f"timeout {FIRST_SECONDS} bash -c 'until {wait}; do sleep 0.1; done'; S=$?"]
        else:
            lines += ["(exit $S)", what[0].text if kind == "run" else what[0], "S=$?"]
        lines.append(f"printf '\\n{MARK}end {number} %s\\n' $S")
    return "\n".join(lines) + "\n"


def outcomes(told):
    """Exit code and lines of each step that has ended, by its number."""
    found = {}
    for number, text, code in re.findall(rf"{MARK}begin (\d+)\n(.*?)\n{MARK}end \1 (\d+)\n", told, re.DOTALL):
        found[int(number)] = int(code), text.split("\n")
    return found


def mistakes(page, told):
    """What a reader of the page would be surprised at."""
    found = outcomes(told)
    for number, (kind, *what) in enumerate(page.steps):
        title = f"{page.path.name}:{what[0].line}: $ {what[0].text}" if kind == "run" else f"{page.path.name}: {what[0]}"
        if number not in found:
            begun = told.rpartition(f"{MARK}begin {number}\n")[2][-2000:]
            yield f"{title}\n  did not end; it has printed:\n{begun}"
            return
        code, printed = found[number]
        after = page.steps[number + 1] if number + 1 < len(page.steps) else None
        may_fail = after is not None and after[0] == "run" and after[1].text.startswith("echo $?")
        if code != 0 and not may_fail:
            yield f"{title}\n  exit code {code}; it has printed:\n" + "\n".join(printed)
        elif kind == "run" and (problem := pages.difference(what[0].shown, printed)):
            yield f"{title}\n  {problem}\n  it has printed:\n" + "\n".join(printed)


class Place:
    """A cluster with dtrun in PATH, and a folder that all its hosts see."""

    def __init__(self, dtrun):
        up = subprocess.run([CLUSTER, "up", "4", "--share", str(pages.ROOT), "--owner", str(os.getpid())],
                            capture_output=True, text=True, check=False)
        if up.returncode == 77:
            skip(up.stderr.strip())
        if up.returncode != 0:
            raise SystemExit(up.stderr)
        self.state = up.stdout.strip().partition("=")[2]
        self.environment = {**os.environ, "CLUSTER_STATE": self.state}
        self.path = f"{os.path.dirname(dtrun)}:/root/bin:{SYSTEM_PATH}"
        self.has_slurm = False

    def call(self, *words):
        return subprocess.run([str(word) for word in words], env=self.environment, capture_output=True, text=True, check=True)

    def prepare(self, page):
        """\\return the page's folder, or why it cannot be run here"""
        if page.hosts == "slurm" and not self.has_slurm:
            done = subprocess.run([SLURM, "up"], env=self.environment, capture_output=True, text=True, check=False)
            if done.returncode == 77:
                return None, done.stderr.strip()
            if done.returncode != 0:
                raise SystemExit(done.stderr)
            self.has_slurm = True
        if page.name == "README":
            return str(pages.ROOT), ""
        folder = f"{self.state}/scratch/{page.name}"
        os.makedirs(folder, exist_ok=True)
        os.chmod(f"{self.state}/scratch", 0o755)
        return folder, ""

    def run(self, page, folder):
        script = pathlib.Path(self.state, "scratch", f"{page.name}.sh")
        script.write_text(CLEAN + "\n" + script_of(page), encoding="utf-8")
        words = [CLUSTER, "exec", "head", "env", f"PATH={self.path}", "/bin/bash", script]
        with subprocess.Popen([str(word) for word in words], cwd=folder, env=self.environment, start_new_session=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as running:
            try:
                told, _ = running.communicate(timeout=PAGE_SECONDS)
            except subprocess.TimeoutExpired as late:
                told = (late.stdout or b"").decode(errors="replace")
                self.call(CLUSTER, "reset")
        return told

    def down(self):
        self.call(CLUSTER, "down")


def main(dtrun, *names):
    chosen = [page for page in [*pages.guide(), pages.Page(pages.ROOT / "README.md")] if not names or page.name in names]
    place = Place(os.path.abspath(dtrun))
    wrong = []
    try:
        for page in chosen:
            if page.hosts.startswith("not run") or not any(step[0] == "run" for step in page.steps):
                continue
            began = time.monotonic()
            folder, why_not = place.prepare(page)
            if folder is None:
                print(f"{page.name}: SKIPPED: {why_not}")
                wrong += [f"{page.name}: CI has all that a page needs"] if in_ci() else []
                continue
            found = list(mistakes(page, place.run(page, folder)))
            place.call(CLUSTER, "reset")
            count = sum(step[0] == "run" for step in page.steps)
            print(f"{page.name}: {count} commands, {time.monotonic() - began:.1f} s, {len(found)} wrong", flush=True)
            wrong += found
    finally:
        place.down()
    print("\n\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
