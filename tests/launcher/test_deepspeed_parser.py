"""test_deepspeed_parser.py DTRUN CACHE: DeepSpeed's own parser reads what `dtrun hosts` writes.

DeepSpeed's sources come from the package index, once, into the folder CACHE; torch is not needed. Exit code 77:
skipped, since they cannot be had.
"""
import hashlib
import importlib
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import types
from collections import Counter
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../support")
from skip import skip  # noqa: E402

DTRUN, CACHE = sys.argv[1:3]
VERSION = "0.16.4"
SHA256 = "495febfb6dd20423f44b1c4a1bb6da2cadbcaf9b07962e17f87d52edfeec9bba"


def fetch(path):
    """Downloads the source archive to `path`, or says why not."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
               "--no-build-isolation", "--dest", CACHE, f"deepspeed=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    if not os.path.exists(path):
        lines = done.stderr.strip().splitlines() or ["no output"]
        skip(f"pip cannot download deepspeed {VERSION}: {lines[-1]}")


def load_runner():
    """DeepSpeed's launcher/runner.py, with stand-ins for the parts of the package that want torch."""
    os.makedirs(CACHE, exist_ok=True)
    path = os.path.join(CACHE, f"deepspeed-{VERSION}.tar.gz")
    if not os.path.exists(path):
        fetch(path)
    with open(path, "rb") as archive:
        assert hashlib.sha256(archive.read()).hexdigest() == SHA256, f"{path} is not DeepSpeed {VERSION}; remove it"
    sources = os.path.join(CACHE, f"deepspeed-{VERSION}")
    if not os.path.isdir(sources):
        with tempfile.TemporaryDirectory(dir=CACHE) as unpacked:
            with tarfile.open(path) as archive:
                archive.extractall(unpacked)  # its hash is known
            os.rename(os.path.join(unpacked, f"deepspeed-{VERSION}"), sources)
    package = types.ModuleType("deepspeed")
    package.__path__ = [os.path.join(sources, "deepspeed")]
    sys.modules["deepspeed"] = package
    for name in ("utils", "accelerator", "autotuning"):
        sys.modules[f"deepspeed.{name}"] = mock.MagicMock()
    return importlib.import_module("deepspeed.launcher.runner")


def dtrun_hosts(names, *options):
    """Output of `dtrun hosts` for piped names, one line each."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    done = subprocess.run([DTRUN, "hosts", *options], input="".join(f"{name}\n" for name in names), text=True,
                          capture_output=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_pool(runner, names, expected, *options):
    text = dtrun_hosts(names, "--format", "deepspeed", *options)
    lines = text.splitlines(keepends=True)
    assert text == "".join(f"{host} slots={slots}\n" for host, slots in expected), text
    assert list(runner._parse_hostfile(lines).items()) == expected, text


def main():
    runner = load_runner()
    # What `srun hostname -s` printed for 10 tasks on 4 nodes: in no order.
    srun = "n2 n3 n2 n2 n2 n1 n4 n1 n1 n1".split()
    check_pool(runner, srun, [("n2", 4), ("n3", 1), ("n1", 4), ("n4", 1)])
    check_pool(runner, srun, [("n1", 4), ("n2", 4), ("n3", 1), ("n4", 1)], "--sort")
    check_pool(runner, ["n10.cluster.local", "n9.cluster.local"], [("n9", 1), ("n10", 1)], "--short", "--sort")
    check_pool(runner, ["rack[1-2]n[08-09]"], [(f"rack{r}n0{n}", 8) for r in (1, 2) for n in (8, 9)], "--slots", "8")
    check_pool(runner, ["10.0.0.1", "a_b-c.d"], [("10.0.0.1", 1), ("a_b-c.d", 1)])

    seed = int(os.environ.get("DTRUN_SEED") or random.randrange(2**32))
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(20):
        hosts = [f"{chance.choice(['n', 'gpu-a100-', 'r1c2n'])}{chance.randrange(200):03}" for _ in range(20)]
        names = [chance.choice(hosts) for _ in range(chance.randrange(1, 100))]
        check_pool(runner, names, list(Counter(names).items()))  # a Counter keeps the order of first mention

    # The way back: what DeepSpeed would run on is what dtrun reads.
    with tempfile.NamedTemporaryFile("w", suffix=".hostfile") as hostfile:
        hostfile.write(dtrun_hosts(srun))
        hostfile.flush()
        pool = runner.fetch_hostfile(hostfile.name)
        assert dtrun_hosts([], "--hostfile", hostfile.name, "--format", "mpich") == "".join(
            f"{host}:{slots}\n" for host, slots in pool.items())


main()
