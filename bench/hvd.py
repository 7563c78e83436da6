"""dtrun.torch next to Horovod, both in ranks of this machine that dtrun starts, in turns:

    ./dev bench hvd [--np N] [--rounds N]
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess

TOP = pathlib.Path(__file__).resolve().parents[1]
KINDS = [("horovod", "none"), ("dtrun", "none"), ("dtrun", "fp16"), ("dtrun", "int8")]


def run(build, ranks, kind):
    """Milliseconds of a step, by model."""
    python = TOP / "build/frameworks/horovod/bin/python"
    environment = dict(os.environ, PYTHONPATH=str(TOP / "worker/python"), OMP_NUM_THREADS="1",
                       LIBDTRUN_PATH=str(build / "lib/libdtrun.so.0"),
                       LIBDTRUN_COLLECTIVES_PATH=str(build / "lib/libdtrun_collectives.so.0"))
    done = subprocess.run([build / "bin/dtrun", "-np", str(ranks), python, TOP / "bench/hvd_step.py", *kind],
                          env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {name: float(ms) for name, ms in re.findall(r"(?:>: ?)?([\w -]+)\t([\d.]+)$", done.stdout, re.M)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build/release")
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    results = {kind: [] for kind in KINDS}
    for _ in range(chosen.rounds):
        for kind in KINDS:
            results[kind].append(run(chosen.build, chosen.np, kind))
    models = list(results[KINDS[0]][0])
    print("| ms | " + " | ".join(models) + " |\n|---|" + "---|" * len(models))
    for kind in KINDS:
        medians = [statistics.median(result[model] for result in results[kind]) for model in models]
        print(f"| {' '.join(kind)} | " + " | ".join(f"{ms:.2f}" for ms in medians) + " |")


main()
