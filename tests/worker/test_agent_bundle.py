"""The small package by which ranks import dtrun where nothing was installed:

    test_agent_bundle.py FOLDER-OF-WORKER-CARRIED
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Dict

STAND_IN = pathlib.Path(sys.argv.pop()) / "dtrun/__init__.py"
EDITABLE = """
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == "dtrun":
            return importlib.util.spec_from_file_location(name, {file!r}, submodule_search_locations=[{folder!r}])

sys.meta_path.append(Finder)
"""


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def package(folder: pathlib.Path, whose: str) -> str:
    """A dtrun that says whose it is. :return: the folder for sys.path"""
    write(folder / "dtrun/__init__.py", f"WHOSE = {whose!r}\n")
    write(folder / "dtrun/part.py",
          f"from . import WHOSE as OF_PACKAGE\nif __name__ == '__main__':\n    print({whose!r})\n")
    return str(folder)


class Carried(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.folder = pathlib.Path(self.directory.name)
        self.last = self.carry("package-1")

    def carry(self, name: str) -> str:
        """What an agent adds to PYTHONPATH."""
        root = self.folder / name
        write(root / "pythonpath/dtrun/__init__.py", STAND_IN.read_text(encoding="utf-8"))
        package(root / "lib/dtrun/python", name)
        return str(root / "pythonpath")

    def run_python(self, *words: str, path: str = "") -> "subprocess.CompletedProcess[str]":
        environment: Dict[str, str] = {**os.environ, "PYTHONPATH": path or self.last}
        return subprocess.run([sys.executable, *words], env=environment, cwd=self.folder, check=False,
                              universal_newlines=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def whose(self, before: str = "", path: str = "") -> str:
        done = self.run_python("-c", f"import sys\n{before}\nimport dtrun, dtrun.part\n"
                               "assert dtrun.WHOSE == dtrun.part.OF_PACKAGE and sys.modules['dtrun'] is dtrun\n"
                               "print(dtrun.WHOSE)", path=path)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    def test_it_is_imported_where_there_is_no_other(self) -> None:
        self.assertEqual(self.whose(), "package-1")
        self.assertEqual(self.run_python("-m", "dtrun.part").stdout, "package-1\n")

    def test_an_installed_one_wins(self) -> None:
        installed = package(self.folder / "site-packages", "installed")
        self.assertEqual(self.whose(f"sys.path.append({installed!r})"), "installed")

    def test_one_in_pythonpath_wins(self) -> None:
        own = package(self.folder / "own", "own")
        for path in (f"{own}:{self.last}", f"{self.last}:{own}"):
            self.assertEqual(self.whose(path=path), "own")

    def test_one_in_the_working_directory_wins(self) -> None:
        package(self.folder, "here")
        self.assertEqual(self.whose(), "here")

    def test_one_that_was_installed_as_editable_wins(self) -> None:
        folder = package(self.folder / "sources", "editable") + "/dtrun"
        self.assertEqual(self.whose(EDITABLE.format(folder=folder, file=f"{folder}/__init__.py")), "editable")

    def test_a_folder_that_is_no_package_does_not_win(self) -> None:
        write(self.folder / "dtrun/README.md", "a copy of the sources")
        self.assertEqual(self.whose(), "package-1")

    def test_that_of_the_inner_job_wins_over_that_of_the_outer(self) -> None:
        inner = self.carry("package-2")
        for path in (f"{inner}:{self.last}", f"{self.last}:{inner}"):
            self.assertEqual(self.whose(path=path), path.split(":")[0].split("/")[-2])

    def test_a_library_that_cannot_be_loaded_is_named_with_what_to_do(self) -> None:
        write(self.folder / "package-1/lib/dtrun/python/dtrun/__init__.py", "raise OSError('GLIBC_9 not found')")
        expected = "ImportError: .*GLIBC_9 not found.*: install on this host a dtrun that was built for it"
        said = self.run_python("-c", "import dtrun").stdout
        self.assertRegex(said, expected)

    def test_a_file_system_that_is_mounted_noexec_is_named(self) -> None:
        write(self.folder / "package-1/lib/dtrun/python/dtrun/__init__.py",
              "raise OSError('x: failed to map segment from shared object')")
        self.assertRegex(self.run_python("-c", "import dtrun").stdout, "ImportError: .*set XDG_CACHE_HOME on this host")

    def test_an_error_of_the_installed_one_is_its_own(self) -> None:
        write(self.folder / "own/dtrun/__init__.py", "raise OSError('mine')")
        said = self.run_python("-c", "import dtrun", path=f"{self.last}:{self.folder}/own").stdout
        self.assertEqual(said.splitlines()[-1], "OSError: mine")


if __name__ == "__main__":
    unittest.main()
