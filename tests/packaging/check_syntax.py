#!/usr/bin/python3
"""Compiles what a configured build folder would, as far as errors and warnings go: no code is made, nothing linked.

usage: check_syntax.py BUILD [PATTERN]     PATTERN: a regular expression that an output's path has to match

That is a fifth of a compilation, and finds what differs between distributions: a library's functions, what headers
bring along, a compiler's opinion. Exit status: 1 if one was refused.
"""
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def check(entry):
    """What the compiler said of one file, or None if it said nothing. Precompiled headers are made."""
    words = shlex.split(entry["command"])
    if os.path.basename(words[0]) == "ccache":
        words = words[1:]
    if not is_header(entry):
        at = words.index("-o")
        words = [word for word in words[:at] + words[at + 2:] if word != "-c"] + ["-fsyntax-only"]
    done = subprocess.run(words, cwd=entry["directory"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return done.stdout or (f"exit status {done.returncode}" if done.returncode != 0 else None)


def is_header(entry):
    return entry["output"].endswith(".gch")


def main(build, pattern="."):
    with open(f"{build}/compile_commands.json", encoding="utf-8") as file:
        entries = json.load(file)
    # What a build generates is not there, nor what assembler files (.S) put into a program.
    sources = [entry for entry in entries if re.search(pattern, entry["output"]) and not is_header(entry)
               and not entry["file"].endswith(".S") and os.path.exists(os.path.join(entry["directory"], entry["file"]))]
    if not sources:
        sys.exit(f"check_syntax.py: nothing of {build} is called '{pattern}'")
    included = {word for entry in sources for word in shlex.split(entry["command"])}
    headers = [entry for entry in entries
               if is_header(entry) and f"{entry['directory']}/{entry['output'].removesuffix('.gch')}" in included]
    complaints = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as compilers:
        for batch in (headers, sources):
            for entry, said in zip(batch, compilers.map(check, batch)):
                if said:
                    complaints += 1
                    print(f"{entry['output']}:\n{said}", flush=True)
    print(f"{len(sources)} files, {complaints} with complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    sys.exit(main(*sys.argv[1:]))
