"""check_training.py DTRUN PYTHON: `dtrun bench --train` on this machine, with a Python that has PyTorch.

Over each backend, and with compressed gradients, the net has to learn what it learns alone.
"""
import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

DTRUN, PYTHON = (os.path.abspath(word) for word in sys.argv[1:3])
OF_HOROVOD = """import time, torch, dtrun.torch as hvd
hvd.init()
model = torch.nn.Linear(8, 8)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
for _ in range(12):
    optimizer.zero_grad()
    time.sleep(0.03)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""
WITHOUT_TORCH = "#!/bin/sh\nexec /usr/bin/python3 -S \"$@\"\n"


def write_images(folder, name, count, seed):
    """Images of MNIST's format in which a digit is a bright bar at a height of its own, and noise."""
    draw = random.Random(seed)
    labels = [draw.randrange(10) for _ in range(count)]
    pixels = bytearray()
    for label in labels:
        for row in range(28):
            bright = 160 if row // 2 == label + 2 else 0
            pixels += bytes(min(255, bright + draw.randrange(90)) for _ in range(28))
    with gzip.open(f"{folder}/{name}-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, count, 28, 28) + pixels)
    with open(f"{folder}/{name}-labels.idx1-ubyte", "wb") as file:
        file.write(struct.pack(">II", 0x801, count) + bytes(labels))


def bench(*words, python=PYTHON):
    done = subprocess.run([DTRUN, "bench", "--no-sweep", "--train", "--python", python, "--slots", "2", "--json", "r.json",
                           *words], capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL)
    with open("r.json") as file:
        return done.returncode, json.load(file), done.stdout + done.stderr


def learns_the_same(folder):
    code, report, said = bench("--data", folder, "--backends", "dtrun", "--algorithms", "parallel,int8", "--global-batch",
                               "50", "--epochs", "2")
    assert code == 0, said
    runs = {run["algorithm"]: run for run in report["train"]}
    assert set(runs) == {"serial", "parallel", "int8"}, said
    alone = runs["serial"]
    assert (alone["backend"], alone["data"], alone["train_samples"]) == ("none", "MNIST", 400), alone
    for algorithm, run in runs.items():
        near = 0.05 if algorithm == "int8" else 1e-4
        assert abs(run["loss"] / alone["loss"] - 1) < near, (algorithm, run["loss"], alone["loss"])
        assert abs(run["accuracy"] - alone["accuracy"]) <= 0.03 and run["accuracy"] > 0.5, (algorithm, run)
        assert len(run["by_epoch"]) == 2 and run["by_epoch"][1]["accuracy"] == run["accuracy"], run
        assert run["samples_per_s"] > 0 and (algorithm == "serial" or 0 < run["comm_ms"] < run["step_ms"]), run
    assert [(comm["backend"], comm["ranks"]) for comm in report["comms"]] == [("dtrun", 2)] * 2, report["comms"]


def scales_weakly():
    code, report, said = bench("--backends", "dtrun", "--algorithms", "parallel", "--scaling", "weak", "--epochs", "1",
                               "--model", "cnn", "--global-batch", "1000")
    assert code == 0, said
    run = report["train"][1]
    assert (run["scaling"], run["global_batch"], run["data"]) == ("weak", 2000, "generated digits"), run


def programs_on_dtrun_torch_have_steps():
    with open("horovod.py", "w") as file:
        file.write(OF_HOROVOD)
    done = subprocess.run([DTRUN, "bench", "--slots", "2", "--json", "r.json", "--", PYTHON, "horovod.py"], timeout=200,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    with open("r.json") as file:
        run, = json.load(file)["train"]
    assert run["step_ms"] > 30 and 0.3 < run["seconds"] and run["ranks"] == 2, run


def names_what_is_missing(folder):
    with open("no-torch", "w") as file:
        file.write(WITHOUT_TORCH)
    os.chmod("no-torch", 0o755)
    words = ("--backends", "dtrun", "--algorithms", "parallel", "--epochs", "1")
    code, report, said = bench(*words, python=os.path.abspath("no-torch"))
    assert code == 1 and report["train"] == [] and said.count("training needs PyTorch: pip install torch; ") >= 1, said
    assert "left out: 1 training with several ranks: the serial one has failed already" in said, said
    for data, expected in (("nowhere", "nowhere: no train-images-idx3-ubyte or train-images-idx3-ubyte.gz"),
                           (f"{folder}/short", "train-labels-idx1-ubyte: it has 0 bytes behind its head, not 10")):
        code, _, said = bench(*words, "--data", data)
        assert code == 1 and expected in said, (data, said)


with tempfile.TemporaryDirectory() as here:
    os.chdir(here)
    write_images(here, "train", 400, 1)
    write_images(here, "t10k", 100, 2)
    os.mkdir("short")
    write_images("short", "train", 1, 3)
    with open("short/train-labels-idx1-ubyte", "wb") as short:
        short.write(struct.pack(">II", 0x801, 10))
    learns_the_same(here)
    scales_weakly()
    programs_on_dtrun_torch_have_steps()
    names_what_is_missing(here)
print("ok")
