"""./dev bench agents: jobs of hundreds and thousands of real agents on this machine.

A program that dtrun takes for ssh runs what it is asked to here, with a home of its own for each host. So all of a job is
real but the log-in: dtrun, an agent and its guard for each host, their connections, with a tree, and a rank each, which
writes a line. What is shown is that jobs end well, what they cost, and that no process is left.
"""
import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = f"{ROOT}/build/release/bin"
# ssh OPTIONS -- HOST COMMAND: what dtrun asks for is the last word, and the host the one before.
SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
HOME=%s/homes/$1
export HOME
mkdir -p "$HOME" && cd && exec /bin/sh -c "$2"
"""


def is_of_job(process, mark):
    """Whether the process has the mark in its environment, as all have that a log-in of the job has started."""
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return mark in file.read()
    except OSError:  # it has ended
        return False


def left_behind(mark):
    return [process for process in os.listdir("/proc") if process.isdigit() and is_of_job(process, mark)]


def run_job(hosts, directory, limit):
    mark = f"BENCH_AGENTS={directory}"
    name, value = mark.split("=")
    # Agents are found on PATH: with a copy for each home this would be a benchmark of a disk.
    environment = {name: value, "HOME": directory, "PATH": f"{BIN}:{os.environ['PATH']}", "XDG_STATE_HOME": directory,
                   "XDG_RUNTIME_DIR": directory}
    command = [f"{BIN}/dtrun", "--transport", "ssh", "--ssh-command", f"{directory}/ssh", "--oversubscribe", "--connect-timeout",
               str(limit), "-H", f"n[1-{hosts}]:1", "echo", "here"]
    began = time.monotonic()
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          cwd=directory, timeout=limit, check=False)
    wall = time.monotonic() - began
    most_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    lines = done.stdout.count(b"here\n")
    left = left_behind(mark.encode())
    is_well = done.returncode == 0 and lines == hosts and not left
    if not is_well:
        print(f"agents: {hosts} hosts: dtrun ended with {done.returncode}, {lines} lines, processes left: {left}\n"
              f"{done.stderr.decode()[-2000:]}", file=sys.stderr)
    return dict(hosts=hosts, wall=wall, most_mb=most_kb / 1024, is_well=is_well)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[500, 1_000, 2_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=300, help="seconds for a job")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = [["hosts", "ended well", "wall s", "most MB of a process"]]
    ended_well = True
    for hosts in options.hosts:
        runs = []
        for _ in range(options.runs):
            directory = tempfile.mkdtemp(dir="/var/tmp")
            try:
                with open(f"{directory}/ssh", "w", encoding="ascii") as file:
                    file.write(SSH % directory)
                os.chmod(f"{directory}/ssh", 0o755)
                runs.append(run_job(hosts, directory, options.limit))
            finally:
                shutil.rmtree(directory, ignore_errors=True)
        well = sum(run["is_well"] for run in runs)
        ended_well = ended_well and well == len(runs)
        rows.append([f"{hosts:,}", f"{well} of {len(runs)}", *(f"{table.median([run[key] for run in runs]):.1f}" for key in ("wall", "most_mb"))])
    print("\n".join(table.columns(rows)))
    sys.exit(0 if ended_well else 1)


main()
