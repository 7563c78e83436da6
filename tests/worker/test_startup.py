"""What Python imports when an interpreter of a job starts: test_startup.py FOLDER-OF-AGENT-BUNDLE"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Dict

STARTUP = pathlib.Path(sys.argv.pop()).resolve() / "dtrun_startup"
# What a program can see of it: whose sitecustomize there is, where modules are looked for, who minds SIGURG.
LOOK = """
import os, signal, sys
caught = [line for line in open("/proc/self/status") if line.startswith("SigCgt")][0].split()[1]
listens = int(caught, 16) >> (signal.SIGURG - 1) & 1
files = [os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + fd)]
has_file = sum("dtrun-stacks" in file for file in files)
own = getattr(sys.modules.get("sitecustomize"), "WHOSE", None)
print(listens, has_file, own, any("dtrun_startup" in entry for entry in sys.path))
"""


class Startup(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.folder = pathlib.Path(self.directory.name)

    def run_python(self, *words: str, path: str = str(STARTUP), **more: str) -> str:
        environment: Dict[str, str] = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more}
        done = subprocess.run([sys.executable, *words], env=environment, cwd=self.folder, check=False,
                              universal_newlines=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout

    def own(self, text: str) -> str:
        """A sitecustomize of the user's. :return: the PYTHONPATH that a rank has then"""
        (self.folder / "sitecustomize.py").write_text(text, encoding="utf-8")
        return f"{STARTUP}:{self.folder}"

    def test_python_listens_and_nothing_else_is_seen_of_it(self) -> None:
        self.assertEqual(self.run_python("-c", LOOK), "1 1 None False\n")
        without = self.run_python("-c", "import sys; print(sys.path)", path="")
        self.assertEqual(self.run_python("-c", "import sys; print(sys.path)"), without)

    def test_a_python_that_cannot_make_files_in_memory_has_another(self) -> None:
        before = "import os\nif hasattr(os, 'memfd_create'): del os.memfd_create\n"
        (self.folder / "early.pth").write_text("import early\n", encoding="utf-8")
        (self.folder / "early.py").write_text(before, encoding="utf-8")
        script = f"import site; site.addsitedir({str(self.folder)!r}); site.main()\n" + LOOK
        self.assertEqual(self.run_python("-S", "-c", script).splitlines()[-1][:3], "1 1")
        self.assertEqual([name for name in os.listdir("/dev/shm") if name.startswith("dtrun-stacks-")], [])

    def test_it_is_turned_off(self) -> None:
        self.assertEqual(self.run_python("-c", LOOK, DTRUN_STACKS="0"), "0 0 None False\n")

    def test_the_users_own_sitecustomize_is_imported_in_its_place(self) -> None:
        self.assertEqual(self.run_python("-c", LOOK, path=self.own("WHOSE = 'mine'\n")), "1 1 mine False\n")
        again = self.run_python("-c", "import sitecustomize as s; print(s.WHOSE)", path=self.own("WHOSE = 'mine'\n"))
        self.assertEqual(again, "mine\n")

    def test_one_that_changes_the_path_has_changed_it(self) -> None:
        path = self.own("import sys\nsys.path.insert(0, '/added')\n")
        self.assertEqual(self.run_python("-c", "import sys; print(sys.path[1])", path=path), "/added\n")

    def test_an_error_in_it_is_told_as_ever_and_python_listens_all_the_same(self) -> None:
        path = self.own("raise ValueError('mine')\n")
        said = self.run_python("-c", LOOK, path=path)
        self.assertEqual(said, self.run_python("-c", "pass", path=str(self.folder)) + "1 1 None False\n")
        self.assertIn("ValueError: mine", said)

    def test_one_that_lacks_a_module_is_told_as_ever(self) -> None:
        path = self.own("import not_there\n")
        self.assertEqual(self.run_python("-c", "pass", path=path), self.run_python("-c", "pass", path=str(self.folder)))

    def test_it_is_kept_compiled_in_a_folder_of_an_agent_alone(self) -> None:
        look = LOOK + "print(sys.dont_write_bytecode)\n"
        for name, kept in (("package-0123", True), ("package", False)):
            folder = self.folder / name / "dtrun_startup"
            folder.mkdir(parents=True)
            shutil.copy(STARTUP / "sitecustomize.py", folder)
            for _ in range(2):
                self.assertEqual(self.run_python("-c", look, path=str(folder)), "1 1 None False\nTrue\n")
                compiled = [file.name for file in folder.glob("__pycache__/*")]
                self.assertEqual([file.startswith("sitecustomize.") for file in compiled], [True] * kept)

    def test_a_job_within_a_job_has_it_twice(self) -> None:
        outer = self.folder / "outer/dtrun_startup"
        outer.mkdir(parents=True)
        (outer / "sitecustomize.py").write_bytes((STARTUP / "sitecustomize.py").read_bytes())
        self.assertEqual(self.run_python("-c", LOOK, path=f"{STARTUP}:{outer}"), "1 1 None False\n")

    def test_children_listen_as_well(self) -> None:
        script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LOOK!r}])"
        self.assertEqual(self.run_python("-c", script), "1 1 None False\n")

    def test_isolated_python_is_left_alone(self) -> None:
        for option in ("-I", "-S", "-E"):
            self.assertEqual(self.run_python(option, "-c", LOOK)[:3], "0 0")


if __name__ == "__main__":
    unittest.main()
