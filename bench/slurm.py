"""./dev bench slurm: `true` on the four nodes of one Slurm allocation, by dtrun and its peers. Needs root.

The nodes are network namespaces on this machine. Launchers take turns, so that all see the same load.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLUSTER = f"{ROOT}/tests/cluster/cluster"
DTRUN = f"{ROOT}/build/release/bin/dtrun"
LAUNCHERS = {
    "dtrun, one srun": [DTRUN, "true"],
    "dtrun, ssh": [DTRUN, "--transport", "ssh", "true"],
    "srun": ["srun", "true"],
    "Open MPI's mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe", "true"],
}


def inside(runs):
    """In the allocation: prints the table."""
    times = {name: [] for name, words in LAUNCHERS.items() if shutil.which(words[0])}
    for turn in range(runs + 1):
        for name, seconds in times.items():
            start = time.monotonic()
            subprocess.run(LAUNCHERS[name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           timeout=60, check=True)
            if turn > 0:  # the first copies and caches
                seconds.append(time.monotonic() - start)
    for name, seconds in times.items():
        print(f"{name:20} {statistics.median(seconds) * 1e3:6.0f} ms, at best "
              f"{min(seconds) * 1e3:.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options.runs)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        os.chmod(directory, 0o1777)
        environment = dict(os.environ, CLUSTER_STATE=f"{directory}/cluster")
        subprocess.run([CLUSTER, "up", "4", "--share", ROOT, "--owner", str(os.getpid())],
                       env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            subprocess.run([f"{ROOT}/tests/cluster/support/slurm.py", "up"], env=environment,
                           check=True, stdout=subprocess.DEVNULL)
            print(f"{options.ranks} ranks of `true` on 4 nodes, wall time, median of "
                  f"{options.runs} runs:", flush=True)
            subprocess.run([CLUSTER, "exec", "head", "salloc", "-Q", "-N4", f"-n{options.ranks}",
                            sys.executable, os.path.abspath(__file__), "--inside", "--runs",
                            str(options.runs)], env=environment, check=True, timeout=600)
        finally:
            subprocess.run([CLUSTER, "down"], env=environment, check=False,
                           stdout=subprocess.DEVNULL)
    return None


main()
