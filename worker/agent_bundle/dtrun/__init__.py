"""Stands for dtrun in ranks of a job: the folder that has this is the last one of their PYTHONPATH.

The launcher has carried dtrun's Python package to this host together with its agent, so that `import dtrun`
works where nothing was installed. Python looks into PYTHONPATH before it looks for what is installed; therefore
this module first asks everybody else for a dtrun. If there is one, it wins; else the one that was carried is
imported. In both cases that module takes the place of this one, of which nothing is left.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Optional

_PACKAGE = Path("lib/dtrun/python")  # from the folder above that of PYTHONPATH


def _is_carried(folder: Path) -> bool:
    """Whether a folder of sys.path is this one, or that of another job around this one."""
    return folder.name == "pythonpath" and (folder.parent / _PACKAGE / "dtrun").is_dir()


def _find_installed() -> Optional[ModuleSpec]:
    """The dtrun that would be imported without this folder; a mere folder of that name is none."""
    others = [entry for entry in sys.path if not _is_carried(Path(entry).absolute())]
    for finder in sys.meta_path:
        if not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec("dtrun", others if finder is PathFinder else None)
        if spec is None or spec.loader is None:
            continue
        if spec.origin is None or not _is_carried(Path(spec.origin).absolute().parents[1]):
            return spec
    return None


def _find_carried() -> ModuleSpec:
    folder = Path(__file__).resolve().parents[2] / _PACKAGE
    spec = PathFinder.find_spec("dtrun", [str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} has no dtrun: remove {folder.parents[2]}, and the next job copies it anew",
                          name="dtrun")
    return spec


def _become(spec: ModuleSpec) -> None:
    module = importlib.util.module_from_spec(spec)
    sys.modules["dtrun"] = module  # what `import dtrun` gives, by the rules of the import system
    assert spec.loader is not None
    spec.loader.exec_module(module)


def _import() -> None:
    installed = _find_installed()
    if installed is not None:
        _become(installed)
        return
    try:
        _become(_find_carried())
    except OSError as error:
        # The loader's words where nothing may be executed, which is so from the file system on, not in the file.
        remedy = ("set XDG_CACHE_HOME on this host to a folder that is not mounted noexec"
                  if "failed to map segment" in str(error) else "install on this host a dtrun that was built for it")
        raise ImportError("dtrun came to this host with the job, and its library cannot be loaded here "
                          f"({error}): {remedy}", name="dtrun") from error


_import()
