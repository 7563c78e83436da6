"""session.sh over a bundle of programs that only pretend: what it makes of ends, gates and time limits."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def bundle(folder: pathlib.Path, codec: str) -> pathlib.Path:
    """A bundle whose test_codec_cuda is the shell text `codec`."""
    for name in ("bin", "lib", "python", "tests", "tools"):
        (folder / name).mkdir(parents=True)
    shutil.copytree(HERE, folder / "tests" / "gpu")
    (folder / "MANIFEST").write_text("commit 0\n")
    programs = {"bin/test_codec_cuda": codec, "bin/test_nccl_gpu": 'case "$*" in *--rank*) exit 3 ;; esac; exit 0',
                "bin/dtrun": "exit 77",
                "tools/nvidia-smi": "echo a GPU that is none", "tools/ncu": "exit 0",
                "tools/python": "exit 1"}  # it has no torch
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return folder / "tests" / "gpu" / "session.sh"


def outcomes(codec: str, *phases: str, seconds: str = "") -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        script = bundle(folder / "bundle", codec)
        path = f"{folder}/bundle/tools:/usr/bin:/bin"
        environment = {"PATH": path, "OUT": f"{folder}/out", "PYTHON": f"{folder}/bundle/tools/python", "HOME": os.environ.get("HOME", "/"),
                       **({"PHASE_SECONDS": seconds} if seconds else {})}
        began = time.monotonic()
        done = subprocess.run([script, *phases], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        print(done.stdout)
        steps = json.loads((folder / "out" / "summary.json").read_text())
        return {"status": done.returncode, "took": time.monotonic() - began, **{step["step"]: step["outcome"] for step in steps}}


def check_packing() -> None:
    """`bundle` takes what a build has, programs and scripts, and says what it is made of."""
    with tempfile.TemporaryDirectory() as name:
        build, packed = pathlib.Path(name) / "build", pathlib.Path(name) / "packed"
        for file in ("bin/dtrun", "bin/dtrun-agent", "bin/dtrun-bench-rank", "bin/test_codec_cuda", "bin/test_nccl_gpu", "lib/libdtrun.so.0",
                     "lib/libdtrun_collectives.so.0", "lib/dtrun/backends/libdtrun_codec_cuda.so"):
            (build / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy("/bin/true", build / file)
        (build / "bin/torch").mkdir()
        for script in ("trainer.py", "digits.py"):
            (build / "bin/torch" / script).write_text("pass\n")
        subprocess.run([HERE / "bundle", build, packed], check=True, stdout=subprocess.DEVNULL)
        assert (packed / "bin/torch/trainer.py").read_text() == "pass\n"
        assert (packed / "MANIFEST").read_text().startswith("commit ")
        for file in ("bin/dtrun-agent", "tests/gpu/session.sh"):
            assert os.access(packed / file, os.X_OK), file
        assert (packed / "python/dtrun/torch/__init__.py").exists()


def main() -> None:
    check_packing()
    good = outcomes("exit 0", "1")
    assert good["status"] == 0, good
    assert (good["about"], good["codec-check"], good["nccl"], good["survivor"]) == ("ok",) * 4, good
    assert good["memcheck"] == "skipped", good
    wrong = outcomes('case "$*" in *check-only*) exit 1 ;; esac', "1")
    assert (wrong["status"], wrong["codec-check"], wrong["codec-rates"]) == (1, "FAILED", "gated"), wrong
    slow = outcomes('case "$*" in *measure-only*) kill -9 $$ ;; esac', "1")
    assert (slow["status"], slow["codec-rates"], slow["nccl"]) == (1, "timeout", "ok"), slow
    second = outcomes("exit 0", "2")
    assert (second["profile"], second["streams"], second["status"]) == ("ok", "skipped", 0), second
    # A step that hangs leaves the others of its phase, and the other phases, their time.
    hangs = outcomes('case "$*" in *measure-only*) sleep 100 ;; esac', "1", "2", seconds="12")
    assert (hangs["codec-rates"], hangs["nccl"], hangs["survivor"]) == ("timeout", "ok", "ok"), hangs
    assert hangs["profile"] == "ok" and hangs["took"] < 40, hangs
    print("ok")


main()
