#!/usr/bin/python3
"""What ./dev portable says when it cannot have what it wants, and what packaging/check finds in a tree.

usage: test_portable.py SOURCE

Nothing is compiled with the portable compiler: a tree for the check is made by this machine's.
"""
import hashlib
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))
MACHINE = os.uname().machine


def archive(files):
    """A .tar.xz with one folder around the files, as upstream's."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:xz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"thing-1.0/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return held.getvalue()


class Sources(unittest.TestCase):
    """packaging/sources.sh, with a mirror that is a folder and a table of one library."""

    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)
        (self.folder / "mirror/pool").mkdir(parents=True)

    def offer(self, content, digest=None):
        (self.folder / "mirror/pool/thing_1.0.orig.tar.xz").write_bytes(content)
        self.table(digest or hashlib.sha256(content).hexdigest())

    def table(self, digest):
        (self.folder / "libraries.txt").write_text(
            f"# NAME\nthing  1.0  MIT  https://example.org\n    {digest}  pool/thing_1.0.orig.tar.xz\n")

    def unpack(self, name="thing", **more):
        return subprocess.run(
            ["bash", "-euc", f"""
             say() {{ echo "portable: $*" >&2; exit 1; }}
             here={self.folder} out={self.folder}/out changed={more.get("changed", "/nonexistent")}
             . {SOURCE}/packaging/sources.sh
             source=$(unpack {name}) || exit 1  # as its caller does, which switches `set -e` off inside
             echo $source"""],
            env={"PATH": os.environ["PATH"], "DTRUN_DEBIAN_MIRROR": f"file://{self.folder}/mirror"},
            capture_output=True, text=True, check=False)

    def test_a_file_with_the_digest_of_the_table_is_unpacked_without_its_folder(self):
        self.offer(archive({"a.c": "int a;\n"}))
        done = self.unpack()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(pathlib.Path(done.stdout.strip(), "a.c").read_text(), "int a;\n")

    def test_patches_of_debian_are_applied_in_the_order_of_the_series(self):
        patch = "--- a/a.c\n+++ b/a.c\n@@ -1 +1 @@\n-int {};\n+int {};\n"
        self.offer(archive({"a.c": "int a;\n", "debian/patches/series": "# comment\none.patch\n\ntwo.patch -p1\n",
                            "debian/patches/one.patch": patch.format("a", "b"),
                            "debian/patches/two.patch": patch.format("b", "c")}))
        done = self.unpack()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(pathlib.Path(done.stdout.strip(), "a.c").read_text(), "int c;\n")

    def test_a_patch_that_does_not_fit_ends_it_each_time(self):
        self.offer(archive({"a.c": "int a;\n", "debian/patches/series": "one.patch\n",
                            "debian/patches/one.patch": "--- a/a.c\n+++ b/a.c\n@@ -1 +1 @@\n-int x;\n+int y;\n"}))
        for _ in range(2):
            done = self.unpack()
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("one.patch of Debian's patches does not fit", done.stderr)

    def test_an_archive_that_is_cut_short_ends_it_each_time(self):
        self.offer(archive({"a.c": "int a;\n" * 10_000, "b.c": "int b;\n"})[:-40])
        for _ in range(2):
            done = self.unpack()
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("cannot unpack", done.stderr)

    def test_a_file_with_another_digest_is_refused_and_not_kept(self):
        self.offer(archive({"a.c": "int a;\n"}), digest="0" * 64)
        done = self.unpack()
        self.assertEqual(done.returncode, 1)
        self.assertIn("thing_1.0.orig.tar.xz has another SHA-256 than packaging/libraries.txt says", done.stderr)
        self.assertEqual(list((self.folder / "out/downloads").iterdir()), [])

    def test_a_file_that_the_mirror_no_longer_has_is_named_with_the_ways_out(self):
        self.table("0" * 64)
        done = self.unpack()
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"cannot download file://{self.folder}/mirror/pool/thing_1.0.orig.tar.xz", done.stderr)
        self.assertIn(f"put it into {self.folder}/out/downloads", done.stderr)

    def test_changed_sources_are_taken_in_place_of_the_archive(self):
        self.table("0" * 64)
        (self.folder / "mine/thing").mkdir(parents=True)
        done = self.unpack(changed=f"{self.folder}/mine")
        self.assertEqual((done.returncode, done.stdout.strip()), (0, f"{self.folder}/mine/thing"))

    def test_a_library_that_is_not_in_the_table_is_said(self):
        self.table("0" * 64)
        self.assertIn("packaging/libraries.txt has no library other", self.unpack("other").stderr)


class Words(unittest.TestCase):
    def test_each_library_of_the_table_has_a_recipe_and_each_file_a_digest(self):
        recipes = (SOURCE / "packaging/libraries.sh").read_text()
        for line in (SOURCE / "packaging/libraries.txt").read_text().splitlines():
            if line.startswith("    "):
                self.assertRegex(line, r"^    [0-9a-f]{64}  pool/\S+$")
                self.assertIn(f"build_{name.replace('-', '_')}()", recipes)
            elif line and not line.startswith("#"):
                name = line.split()[0]


class Check(unittest.TestCase):
    """packaging/check, of a tree with what this machine's compiler makes."""

    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.tree = pathlib.Path(kept.name)
        (self.tree / "bin").mkdir()
        (self.tree / "lib").mkdir()
        self.compile("bin/dtrun", "int main() {}", "-s")

    def compile(self, name, text, *flags):
        subprocess.run(["g++", "-x", "c++", "-", "-o", self.tree / name, *flags], input=text, text=True, check=True)

    def check(self, cpu=MACHINE):
        done = subprocess.run([SOURCE / "packaging/check", cpu, self.tree], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def test_what_a_library_shows_needs_and_looks_for_is_found(self):
        self.compile("lib/libx.so", "#include <cmath>\n#include <string>\nstd::string other(int n) { return std::to_string(n); }",
                     "-shared", "-fPIC", "-s", "-Wl,-rpath,/opt/lib:")
        status, said = self.check()
        self.assertEqual(status, 1)
        self.assertIn("libx.so needs libstdc++.so.6", said)
        self.assertIn("libx.so looks for libraries in '/opt/lib'", said)
        self.assertIn("libx.so looks for libraries in ''", said)
        self.assertIn("libx.so shows _Z5other", said)

    def test_symbols_that_are_left_are_found(self):
        self.compile("lib/libx.so", "extern \"C\" int dtrun_x() { return 1; }", "-shared", "-fPIC", "-nostdlib")
        self.assertIn("libx.so is not stripped", self.check()[1])

    def test_a_file_of_another_cpu_is_found(self):
        other = "aarch64" if MACHINE == "x86_64" else "x86_64"
        self.assertIn(f"bin/dtrun is for {MACHINE}", self.check(other)[1])

    def test_an_agent_that_is_dynamic_is_found(self):
        (self.tree / "libexec").mkdir()
        self.compile("libexec/dtrun-agent", "int main() {}", "-s")
        self.assertIn("dtrun-agent is not static", self.check()[1])

    def test_a_tree_that_is_not_there_is_said(self):
        (self.tree / "bin/dtrun").unlink()
        self.assertIn(f"./dev portable {MACHINE}", self.check()[1])


if __name__ == "__main__":
    unittest.main()
