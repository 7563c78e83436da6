"""./dev bench death: from a rank's death to SIGTERM at all others, 1,000 ranks on 20 hosts. Needs root.

The hosts are network namespaces on this machine, so the figure includes that all ranks are scheduled on
its few processors.
"""
import argparse
import os
import statistics
import struct
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLUSTER = f"{ROOT}/tests/cluster/cluster"
TARGET_MS = 100


def one_run(environment, directory, hosts, ranks_each, number, flags):
    path = f"{directory}/times.{number}"
    where = ",".join(f"s{i + 1}:{ranks_each}" for i in range(hosts))
    command = [CLUSTER, "exec", "head", f"{ROOT}/build/release/bin/dtrun", "--quiet", *flags, "-H",
               where, f"{ROOT}/build/release/bin/death_rank", path, "6"]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, timeout=120, check=False)
    if done.returncode != 3:
        raise SystemExit(f"death: dtrun ended with {done.returncode}: {done.stderr.decode()}")
    with open(path, "rb") as file:
        times = dict(struct.iter_unpack("<qq", file.read()))
    missing = hosts * ranks_each - len(times)
    if missing:
        raise SystemExit(f"death: {missing} ranks were not told")
    died = times.pop(0)
    waits = sorted((moment - died) / 1e6 for moment in times.values())
    return waits[len(waits) // 2], waits[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--ranks-each", type=int, default=50)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        os.chmod(directory, 0o777)
        environment = dict(os.environ, CLUSTER_STATE=f"{directory}/cluster")
        subprocess.run([CLUSTER, "up", str(options.hosts), "--share", ROOT, "--share", directory,
                        "--owner", str(os.getpid())], env=environment, check=True,
                       stdout=subprocess.DEVNULL)
        try:
            for name, flags in (("every host at the head", []), ("a tree", ["--tree-threshold", "2"])):
                runs = [one_run(environment, directory, options.hosts, options.ranks_each,
                                f"{len(flags)}.{i}", flags) for i in range(options.runs)]
                median = statistics.median(run[0] for run in runs)
                last = statistics.median(run[1] for run in runs)
                verdict = "met" if last <= TARGET_MS else "MISSED"
                print(f"{options.hosts} x {options.ranks_each} ranks, {name}: SIGTERM at the middle "
                      f"rank after {median:.1f} ms, at the last after {last:.1f} ms "
                      f"(medians of {options.runs} runs; target {TARGET_MS} ms: {verdict})")
        finally:
            subprocess.run([CLUSTER, "down"], env=environment, check=False,
                           stdout=subprocess.DEVNULL)


main()
