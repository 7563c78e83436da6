#!/usr/bin/python3
"""Every variable DTRUN_... or LIBDTRUN_... that the sources know is in docs/ENVIRONMENT.md, and every one of that page in the
sources; and what ranks read of their user's environment is handed on to them by dtrun."""

import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import pages  # noqa: E402

FOLDERS = ("base", "collectives", "contracts", "hostfiles", "lab", "launcher", "rendezvous", "worker")
# A whole text, or the begin of one with its value.
NAME = re.compile(r"""["']((?:LIB)?DTRUN_[A-Z0-9_]+)(?:["']|=)""")
# Between an agent and a process that it has started itself; no program sees it.
INSIDE = {"DTRUN_STANDBY_FD"}
# Ranks read these, and dtrun or its commands set them.
SET_BY_US = {"DTRUN_STEPS_FILE"}


def names_in(*folders):
    listed = subprocess.run(["git", "-C", pages.ROOT, "ls-files", "-z", *folders], check=True, stdout=subprocess.PIPE, text=True)
    found = set()
    for name in listed.stdout.split("\0"):
        if name.endswith((".cpp", ".h", ".def", ".py")):
            found.update(NAME.findall((pages.ROOT / name).read_text(encoding="utf-8")))
    return found


def main():
    page = (pages.ROOT / "docs/ENVIRONMENT.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`((?:LIB)?DTRUN_[A-Z0-9_]+)`", page))
    known = names_in(*FOLDERS) - INSIDE
    plan = (pages.ROOT / "launcher/plan/environment.cpp").read_text(encoding="utf-8")
    handed_on = set(re.findall(r"DTRUN_\w+", re.search(r"kForPrograms =(.*?);", plan, re.DOTALL).group(1)))
    of_contracts = names_in("contracts")
    of_ranks = {name for name in names_in("collectives", "worker/python", "worker/agent_bundle") if name.startswith("DTRUN_")}
    wrong = [f"{name}: not in docs/ENVIRONMENT.md" for name in sorted(known - told)]
    wrong += [f"{name}: in docs/ENVIRONMENT.md, and in no source" for name in sorted(told - known)]
    wrong += [f"{name}: ranks read it, and dtrun does not hand it on (kForPrograms)"
              for name in sorted(of_ranks - handed_on - of_contracts - SET_BY_US)]
    assert len(known) > 40 and len(of_ranks) > 10, (known, of_ranks)
    print("\n".join(wrong) or f"{len(known)} variables")
    return 1 if wrong else 0


sys.exit(main())
