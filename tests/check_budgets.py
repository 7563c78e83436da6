#!/usr/bin/python3
"""check_budgets.py RESULTS BUILD_SECONDS TEST_SECONDS: what the builds and each label of tests took, next to
tests/budgets.txt.

RESULTS is what `ctest --output-junit` wrote. In CI the exit status is 1 when something
took longer than its budget, has no budget, or was skipped that no GPU is needed for.
"""
import collections
import pathlib
import sys
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).parent / "support"))
from skip import in_ci

NOT_BUDGETS = {"gpu"}


def budgets():
    lines = (pathlib.Path(__file__).parent / "budgets.txt").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: float(seconds) for name, seconds in words}


def labels(case):
    values = [item.get("value") for item in case.iter("property") if item.get("name") == "cmake_labels"]
    return values[0].split(";") if values else []


def main(results, build_seconds, test_seconds):
    took = collections.Counter({"build": float(build_seconds), "tests": float(test_seconds)})
    wrong = []
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        own = labels(case)
        for label in set(own) - NOT_BUDGETS or {"no label"}:
            took[label] += float(case.get("time"))
        if case.find("skipped") is not None and "gpu" not in own:
            wrong.append(f"{case.get('name')} was skipped")
    allowed = budgets()
    for name, seconds in took.items():
        print(f"{name:12}{seconds:7.0f} s of {allowed.get(name, 0):5.0f}")
        if seconds > allowed.get(name, 0):
            wrong.append(f"{name} took {seconds:.0f} s, more than {allowed.get(name, 0):.0f} in tests/budgets.txt")
    for line in wrong:
        print(f"dev: {line}", file=sys.stderr)
    return 1 if wrong and in_ci() else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
