"""./dev release, in a repository of a few files whose builder makes trees of a few bytes."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from small_sources import ROOT, make_sources

BUILDER = """#!/usr/bin/env python3
import pathlib, shutil, sys
sys.path.insert(0, {tests!r})
from small_sources import make_tree
trees = pathlib.Path(__file__).resolve().parents[1] / "build/portable"
shutil.rmtree(trees, ignore_errors=True)
for cpu in ("x86_64", "aarch64"):
    make_tree(trees, cpu)
{more}
"""


class Release(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.sources = pathlib.Path(kept.name, "sources")
        make_sources(self.sources)
        (self.sources / ".gitignore").write_text("/build/\n__pycache__/\n")
        if (ROOT / "build/tools").is_dir():  # rather than fetching it again
            os.symlink(ROOT / "build/tools", self.sources / "build/tools")
        self.write("CMakeLists.txt", "project(dtrun VERSION 3.2.1 LANGUAGES CXX)\n")
        self.write("CHANGELOG.md", "# Changes\n\n## 3.2.1, 2026-11-27\n\n- One thing.\n- Another\n  thing.\n\n"
                   "## 3.2.0, 2026-01-01\n\n- Old.\n")
        self.builder()
        self.git("init", "--quiet")
        self.commit()

    def write(self, name, text):
        (self.sources / name).write_text(text)

    def builder(self, more=""):
        self.write("packaging/portable", BUILDER.format(tests=str(ROOT / "tests/packaging"), more=more))
        (self.sources / "packaging/portable").chmod(0o755)

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *words], cwd=self.sources, check=True)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")

    def release(self, *words):
        environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
        return subprocess.run(["/usr/bin/python3", "packaging/release.py", *words], cwd=self.sources,
                              capture_output=True, text=True, check=False, env=environment)

    def refused(self, *words):
        done = self.release(*words)
        self.assertEqual(done.returncode, 1, done)
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def test_a_release_has_all_packages_sums_and_notes_and_says_what_is_left(self):
        (self.sources / "build/dist").mkdir()
        self.write("build/dist/of-another-day", "")
        done = self.release("3.2.1")
        self.assertEqual(done.returncode, 0, done)
        dist = self.sources / "build/dist"
        names = [path.name for path in dist.iterdir() if path.is_file()]
        for ending in (".whl", ".deb", ".rpm", ".apk", ".pkg.tar.zst", ".tar.gz", ".tar"):
            self.assertEqual(len([name for name in names if name.endswith(ending)]), 2, ending)
        self.assertNotIn("of-another-day", names)
        sums = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, capture_output=True,
                              text=True, check=False)
        self.assertEqual((sums.returncode, len(sums.stdout.splitlines())), (0, len(names) - 1), sums)
        notes = (dist / "RELEASE-NOTES.md").read_text()
        self.assertTrue(notes.startswith("# dtrun 3.2.1\n\n- One thing.\n- Another\n  thing.\n"), notes)
        self.assertNotIn("Old.", notes)
        for words in ("gpg --armor --detach-sign build/dist/SHA256SUMS", "git tag --sign v3.2.1", "Nothing is signed"):
            self.assertIn(words, done.stdout)
        self.assertEqual(subprocess.run(["git", "status", "--porcelain"], cwd=self.sources, capture_output=True,
                                        check=True).stdout, b"")

    def test_built_twice_it_has_the_same_bytes_or_says_which_have_not(self):
        done = self.release("3.2.1", "--twice")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("built again in another folder: the same bytes in 15 files", done.stdout)
        self.builder('(trees / "x86_64/tree/lib/libdtrun.so.0.1.0").write_text(str(trees))')
        self.commit()
        told = self.refused("3.2.1", "--twice")
        self.assertIn("these are different: ", told)
        self.assertIn("dtrun_3.2.1_amd64.deb", told)
        self.assertNotIn("aarch64", told)

    def test_what_must_not_be_released_is_refused(self):
        self.assertIn("CMakeLists.txt has version 3.2.1, not 3.2.2", self.refused("3.2.2"))
        self.assertIn("v3.2.1 is no version such as 3.2.1", self.refused("v3.2.1"))
        self.write("new", "")
        self.assertRegex(self.refused("3.2.1"), r"what is released is a commit.*\n\?\? new")
        (self.sources / "new").unlink()
        changes = (self.sources / "CHANGELOG.md").read_text()
        for text, words in ((changes.replace("2026-11-27", "unreleased"), "CHANGELOG.md says '## 3.2.1, unreleased'"),
                            (re.sub("- (One|Another).*\n", "", changes), "no section '## 3.2.1' with items"),
                            (changes.replace("3.2.1", "4.0.0"), "no section '## 3.2.1' with items")):
            self.write("CHANGELOG.md", text)
            self.commit()
            self.assertIn(words, self.refused("3.2.1"))
        self.write("CHANGELOG.md", changes)
        self.commit()
        self.git("tag", "v3.2.1")
        self.assertIn("there is a tag v3.2.1", self.refused("3.2.1"))

    def test_a_build_that_fails_ends_it(self):
        self.builder("sys.exit('no compiler')")
        self.commit()
        told = self.refused("3.2.1")
        self.assertIn("no compiler", told)
        self.assertIn("packaging/portable failed; its words are above", told)


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=sys.argv[:1])
