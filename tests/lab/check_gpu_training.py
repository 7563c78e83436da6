"""check_gpu_training.py DTRUN FAKE: `dtrun bench --train` over NCCL, without a GPU.

NCCL, the CUDA runtime and the trainer's kernels are FAKE's: they run thread by thread, so the network is what it
would be on a GPU, and only its times mean nothing. It has to learn what it learns over a backend for processors.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

DTRUN, FAKE = (os.path.abspath(word) for word in sys.argv[1:3])
LIBRARIES = {f"DTRUN_{name}_LIBRARY": FAKE for name in ("NCCL", "CUDART", "CODEC_CUDA", "TRAIN_CUDA")}


def write_images(folder, name, count, seed):
    """Images of MNIST's format in which a digit is a bright bar at a height of its own, and noise."""
    draw = random.Random(seed)
    labels = [draw.randrange(10) for _ in range(count)]
    pixels = bytearray()
    for label in labels:
        for row in range(28):
            bright = 160 if row // 2 == label + 2 else 0
            pixels += bytes(min(255, bright + draw.randrange(90)) for _ in range(28))
    with open(f"{folder}/{name}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, count, 28, 28) + pixels)
    with open(f"{folder}/{name}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">II", 0x801, count) + bytes(labels))


def bench(folder, backends, *words, **more):
    path = f"{folder}/report.json"
    done = subprocess.run(
        [DTRUN, "bench", "--no-sweep", "--train", "--backends", backends, "--slots", "2", "--data", folder,
         "--global-batch", "50", "--epochs", "2", "--json", path, *words],
        capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL,
        env={**os.environ, **LIBRARIES, **more})
    with open(path) as file:
        return done.returncode, json.load(file), done.stdout + done.stderr


def learns_the_same(folder, model, algorithms):
    code, report, said = bench(folder, "dtrun,nccl", "--model", model, "--algorithms", algorithms)
    assert code == 0, said
    runs = {(run["algorithm"], run["backend"]): run for run in report["train"]}
    parallel = {(name, backend) for name in algorithms.split(",") for backend in ("dtrun", "nccl")}
    assert set(runs) == {("serial", "none"), ("serial", "nccl")} | parallel, said
    for (algorithm, backend), run in runs.items():
        wanted = runs[algorithm, "dtrun" if algorithm != "serial" else "none"]
        # Where a value lies between two codes, rounding decides which one it becomes.
        near = 1e-3 if algorithm == "int8" else 1e-5
        assert abs(run["loss"] / wanted["loss"] - 1) < near, (algorithm, backend, run["loss"], wanted["loss"])
        assert abs(run["accuracy"] - wanted["accuracy"]) <= 0.03, (algorithm, backend, run)
        assert run["accuracy"] > 0.5, (algorithm, backend, run["accuracy"])
        assert 0 < run["comm_ms"] < run["step_ms"] or run["algorithm"] == "serial", run


def names_what_is_missing(folder):
    code, report, said = bench(folder, "dtrun,nccl", "--algorithms", "parallel",
                               DTRUN_TRAIN_CUDA_LIBRARY="/nowhere/kernels.so")
    assert code == 1 and "/nowhere/kernels.so" in said, said
    # Those on processors go on.
    assert [(run["algorithm"], run["backend"]) for run in report["train"]] == [
        ("serial", "none"), ("parallel", "dtrun")], said
    assert "left out: 1 training with several ranks: the serial one has failed already" in said, said
    code, report, said = bench(folder, "nccl", "--algorithms", "parallel", FAKE_TRAIN_ERROR="35")
    assert "the kernels of training do not run on this GPU: CUDA driver version is insufficient" in said, said
    code, report, said = bench(folder, "nccl", "--algorithms", "parallel", FAKE_GPU_COUNT="0")
    assert code == 1 and "no GPU can be used: no CUDA-capable device is detected" in said, said


with tempfile.TemporaryDirectory() as here:
    write_images(here, "train", 400, 1)
    write_images(here, "t10k", 100, 2)
    learns_the_same(here, "mlp", "parallel,int8")
    learns_the_same(here, "cnn", "parallel")
    names_what_is_missing(here)
print("ok")
