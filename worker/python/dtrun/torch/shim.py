"""Runs a program that imports horovod.torch on dtrun.torch, unchanged:

    dtrun -np 4 python3 -m dtrun.torch.shim train.py --epochs 3
    dtrun -np 4 python3 -m dtrun.torch.shim -m package.train
"""

from __future__ import annotations

import os
import pathlib
import runpy
import sys
from typing import List

_USAGE = "usage: python3 -m dtrun.torch.shim (PROGRAM.py | -m MODULE) [ARGUMENT...]"


def put_in_front() -> str:
    """Makes `import horovod` find dtrun's, here and in Python programs that this one starts.

    :return: the folder
    """
    folder = str(pathlib.Path(__file__).resolve().parents[2] / "horovod_shim")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    before = os.environ.get("PYTHONPATH")
    if folder not in (before or "").split(os.pathsep):
        os.environ["PYTHONPATH"] = folder if not before else folder + os.pathsep + before
    return folder


def main(arguments: List[str]) -> None:
    is_module = arguments[:1] == ["-m"]
    program = arguments[1:] if is_module else arguments
    if not program or program[0].startswith("-"):
        sys.exit(_USAGE)
    put_in_front()
    sys.argv = program
    if is_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(pathlib.Path(program[0]).resolve().parent))
    runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
