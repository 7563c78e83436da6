"""check_look.py DTRUN: looking into ranks of this machine."""

import os
import subprocess
import sys

DTRUN = os.path.abspath(sys.argv[1])


def dtrun(*words, **options):
    return subprocess.run(
        [DTRUN, *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
        **options,
    )


def check_wrap():
    """The wrapped ranks run by the wrapper, with their own macros, and words stay words."""
    done = dtrun(
        "-np", "3", "--tag", "rank", "--wrap", "1-2:env 'WRAPPED=%q{RANK} of {host}'",
        "sh", "-c", 'echo "$WRAPPED:$1"', "sh", "a  'b'",
    )  # fmt: skip
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == [
        "[0] :a  'b'",
        "[1] 1 of localhost:a  'b'",
        "[2] 2 of localhost:a  'b'",
    ], done.stdout
    lacks = dtrun("--wrap", "no-such-perf record", "echo", "started")
    assert lacks.returncode == 127 and lacks.stdout == "", lacks
    assert "no-such-perf: not found on PATH" in lacks.stderr, lacks.stderr
    absent = dtrun("-np", "2", "--wrap", "2:env", "true")
    assert absent.returncode == 200, absent
    assert "--wrap: rank 2 does not exist, the ranks are 0..1" in absent.stderr, absent.stderr
    plan = dtrun("-np", "2", "--plan", "--wrap", "1:env A=1", "true")
    assert "wrapped by: 1:env A=1\n" in plan.stdout, plan.stdout


def main():
    check_wrap()


main()
