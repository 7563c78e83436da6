"""./dev package, with trees of a few bytes: what is in each form, and what is refused."""

import base64
import csv
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

from small_sources import MACHINES, elf, make_sources, make_tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"project\(dtrun VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
def package(folder, out, *words, root=ROOT):
    return subprocess.run(["/usr/bin/python3", root / "packaging/package.py", "--trees", folder, "--out", out, *words], capture_output=True,
                          text=True, check=False, env={**os.environ, "SOURCE_DATE_EPOCH": "1790000000"})


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.top = pathlib.Path(cls.folder.name)
        cls.trees, cls.out = cls.top / "trees", cls.top / "dist"
        for cpu in MACHINES:
            make_tree(cls.trees, cpu)
        # An image needs Debian's packages, which are not fetched for this.
        done = package(cls.trees, cls.out, "wheel", "deb", "rpm", "apk", "arch", "tar", "sbom")
        assert done.returncode == 0, done

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def names(self, pattern):
        """What bsdtar sees in a package, and its text."""
        file, = self.out.glob(pattern)
        return subprocess.run(["bsdtar", "-tvf", file], capture_output=True, text=True, check=True).stdout

    def deb(self, cpu="amd64"):
        file = self.out / f"dtrun_{VERSION}_{cpu}.deb"
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", file], capture_output=True, check=True).stdout
        return tarfile.open(fileobj=io.BytesIO(data))

    def test_both_cpus_have_every_form(self):
        wanted = [f"dtrun-{VERSION}-1-aarch64.pkg.tar.zst", f"dtrun-{VERSION}-1-x86_64.pkg.tar.zst",
                  f"dtrun-{VERSION}-1.aarch64.rpm", f"dtrun-{VERSION}-1.x86_64.rpm",
                  f"dtrun-{VERSION}-linux-aarch64.tar.gz", f"dtrun-{VERSION}-linux-x86_64.tar.gz",
                  f"dtrun-{VERSION}-py3-none-manylinux_2_28_aarch64.whl",
                  f"dtrun-{VERSION}-py3-none-manylinux_2_28_x86_64.whl", f"dtrun-{VERSION}.cdx.json",
                  f"dtrun-agent_{VERSION}_aarch64.apk", f"dtrun-agent_{VERSION}_x86_64.apk",
                  f"dtrun_{VERSION}_amd64.deb", f"dtrun_{VERSION}_arm64.deb", "SHA256SUMS"]
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), sorted(wanted))
        done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=self.out, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(len(done.stdout.splitlines()), len(wanted) - 1)

    def test_the_same_tree_gives_the_same_bytes(self):
        again = self.top / "again"
        done = package(self.trees, again, "--cpu", "x86_64", "wheel", "deb", "rpm", "apk", "arch", "tar", "sbom")
        self.assertEqual(done.returncode, 0, done)
        self.assertLess(set((again / "SHA256SUMS").read_text().splitlines()),
                        set((self.out / "SHA256SUMS").read_text().splitlines()))

    def test_a_wheel_puts_a_prefix_into_an_environment(self):
        path = self.out / f"dtrun-{VERSION}-py3-none-manylinux_2_28_x86_64.whl"
        data, info = f"dtrun-{VERSION}.data/", f"dtrun-{VERSION}.dist-info/"
        with zipfile.ZipFile(path) as wheel:
            members = {one.filename: one for one in wheel.infolist()}
            self.assertEqual(sorted(members), sorted([
                data + "scripts/dtrun", data + "data/lib/dtrun/backends/libdtrun_backend_nccl.so",
                data + "data/lib/libdtrun.so.0", data + "data/libexec/dtrun/dtrun-agent",
                data + "data/libexec/dtrun/dtrun-agent-aarch64", data + "data/libexec/dtrun/dtrun-bench-rank",
                data + "data/libexec/dtrun/dtrun-package.tar.gz", data + "data/share/bash-completion/completions/dtrun",
                data + "data/share/doc/dtrun/docs/index.md", data + "data/share/doc/dtrun/examples/hello.sh",
                data + "data/share/man/man1/dtrun.1", "dtrun/__init__.py", info + "METADATA", info + "RECORD",
                info + "WHEEL", info + "licenses/LICENSE", info + "licenses/THIRD-PARTY-LICENCES.txt"]))
            modes = {name: one.external_attr >> 16 & 0o777 for name, one in members.items()}
            self.assertEqual({name for name, mode in modes.items() if mode == 0o755},
                             {name for name in members if "scripts/dtrun" in name or "dtrun-agent" in name
                              or "bench-rank" in name or name.endswith("/hello.sh")})
            self.assertEqual(wheel.read(data + "data/lib/libdtrun.so.0"), elf(62))  # no link: a wheel has none
            rows = list(csv.reader(io.StringIO(wheel.read(info + "RECORD").decode())))
            self.assertEqual({row[0] for row in rows}, set(members))
            for name, digest, size in rows:
                if name != info + "RECORD":
                    whole = hashlib.sha256(wheel.read(name)).digest()
                    self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(whole).rstrip(b"=").decode())
                    self.assertEqual(int(size), len(wheel.read(name)))
            metadata = wheel.read(info + "METADATA").decode()
            self.assertIn("Tag: py3-none-manylinux_2_28_x86_64", wheel.read(info + "WHEEL").decode())
        self.assertIn(f"\nVersion: {VERSION}\n", metadata)
        self.assertIn("LGPL-2.1-or-later", re.search("^License-Expression: (.*)$", metadata, re.M).group(1))
        self.assertNotRegex(metadata, r"\]\((?!https?://)", "a link that an index page has not")

    def test_a_deb_has_the_places_and_papers_of_debian(self):
        with self.deb() as files:
            names = {one.name.lstrip("./"): one for one in files}
            for name in ("usr/bin/dtrun", "usr/libexec/dtrun/dtrun-agent", "usr/lib/libdtrun.so.0.1.0",
                         "usr/lib/dtrun/python/dtrun/__init__.py", "usr/include/dtrun.h", "usr/share/doc/dtrun/copyright",
                         "usr/share/man/man1/dtrun.1.gz", "usr/share/lintian/overrides/dtrun",
                         "usr/share/doc/dtrun/docs/index.md"):
                self.assertIn(name, names)
                self.assertEqual((names[name].uname, names[name].gname), ("root", "root"))
            self.assertEqual(names["usr/lib/libdtrun.so.0"].linkname, "libdtrun.so.0.1.0")
            self.assertEqual([name for name in names if name.endswith((".pyc", "README.md/", ".html"))], [])
            unit = files.extractfile(names["usr/lib/systemd/system/dtrun-serve.service"]).read().decode()
            self.assertIn("ExecStart=/usr/bin/dtrun serve", unit)
            changes = gzip.decompress(files.extractfile(names["usr/share/doc/dtrun/changelog.gz"]).read()).decode()
        self.assertTrue(changes.startswith(f"dtrun ({VERSION}) unstable; urgency=medium\n\n  * "), changes[:80])
        parsed = subprocess.run(["dpkg-parsechangelog", "-l-", "-SVersion"], input=changes, capture_output=True,
                                text=True, check=False)
        self.assertEqual((parsed.stdout, parsed.stderr), (VERSION + "\n", ""))
        control = subprocess.run(["dpkg-deb", "--field", self.out / f"dtrun_{VERSION}_arm64.deb"], capture_output=True,
                                 text=True, check=True).stdout
        self.assertIn("Depends: libc6 (>= 2.28)\n", control)
        self.assertIn("Architecture: arm64\n", control)

    def test_an_rpm_has_libraries_where_its_distributions_look(self):
        listing = self.names("*.x86_64.rpm")
        for name in ("usr/lib64/libdtrun.so.0.1.0", "usr/lib64/dtrun/python/dtrun/__init__.py",
                     "usr/lib/systemd/system/dtrun-serve.service", "usr/libexec/dtrun/dtrun-agent"):
            self.assertIn(f"/{name}\n", listing)
        self.assertNotIn("usr/lib/libdtrun", listing)
        self.assertRegex(listing, r"\n-rwxr-xr-x .*usr/lib64/libdtrun.so.0.1.0\n")
        file, = self.out.glob("*.x86_64.rpm")
        read = ["bsdtar", "-xOf", file, "./usr/lib64/cmake/dtrun/dtrunTargets-release.cmake",
                "./usr/lib64/pkgconfig/dtrun.pc"]
        text = subprocess.run(read, capture_output=True, text=True, check=True).stdout
        self.assertIn('"${_IMPORT_PREFIX}/lib64/libdtrun.so.0.1.0"', text)
        self.assertIn("libdir=${prefix}/lib64\n", text)

    def test_alpine_gets_what_runs_there(self):
        listing = self.names("*_x86_64.apk")
        self.assertIn("usr/libexec/dtrun/dtrun-agent\n", listing)
        self.assertIn("usr/bin/dtrun-agent -> ../libexec/dtrun/dtrun-agent\n", listing)
        self.assertNotIn("usr/bin/dtrun\n", listing)
        self.assertNotIn("usr/lib/", listing)
        self.assertNotIn("index.md", listing)

    def test_the_tar_has_one_folder_and_keeps_links(self):
        with tarfile.open(self.out / f"dtrun-{VERSION}-linux-x86_64.tar.gz") as files:
            names = {one.name: one for one in files}
            top = f"dtrun-{VERSION}-linux-x86_64"
            unit = files.extractfile(top + "/lib/systemd/system/dtrun-serve.service").read().decode()
        self.assertEqual({name.split("/")[0] for name in names}, {top})
        self.assertEqual(names[top + "/lib/libdtrun.so"].linkname, "libdtrun.so.0")
        self.assertEqual(names[top + "/bin/dtrun"].mode, 0o755)
        self.assertEqual({(one.mtime, one.uname, one.uid) for one in names.values()}, {(1790000000, "root", 0)})
        self.assertIn("ExecStart=/usr/local/bin/dtrun serve", unit)  # where docs/INSTALL.md puts a link
        self.assertEqual([name for name in names if ".pyc" in name or "torch/README" in name], [])

    def test_an_image_starts_dtrun_with_a_c_library_and_a_shell(self):
        sources, out = self.top / "sources", self.top / "images"
        make_sources(sources)
        done = package(self.trees, out, "image", "--cpu", "aarch64", root=sources)
        self.assertEqual(done.returncode, 0, done)
        folder = out / f"dtrun-{VERSION}-image-aarch64"
        index = json.loads((folder / "index.json").read_text())

        def blob(descriptor):
            data = (folder / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
            self.assertEqual((f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)),
                             (descriptor["digest"], descriptor["size"]))
            return data
        manifest = json.loads(blob(index["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        self.assertEqual((config["architecture"], config["config"]["User"]), ("arm64", "65532:65532"))
        self.assertEqual(config["config"]["Entrypoint"], ["/usr/bin/dtrun"])
        layer, = manifest["layers"]
        tar = gzip.decompress(blob(layer))
        self.assertEqual(config["rootfs"]["diff_ids"], ["sha256:" + hashlib.sha256(tar).hexdigest()])
        with tarfile.open(fileobj=io.BytesIO(tar)) as files:
            names = {one.name: one for one in files}
        self.assertEqual(names["usr/bin/dtrun-agent"].linkname, "../libexec/dtrun/dtrun-agent")
        self.assertEqual(names["bin/sh"].linkname, "busybox")
        self.assertEqual((names["tmp"].mode, names["root"].mode), (0o1777, 0o700))
        for name in ("lib/ld-linux-aarch64.so.1", "lib/aarch64-linux-gnu/libc.so.6", "usr/share/doc/libc6/copyright",
                     "usr/bin/dtrun", "usr/libexec/dtrun/dtrun-agent", "usr/share/doc/dtrun/IMAGE.txt"):
            self.assertIn(name, names)
        self.assertNotIn("usr/libexec/dtrun/dtrun-agent-x86_64", names)
        self.assertEqual([name for name in names if "gconv" in name or name.endswith((".h", "index.md"))], [])
        with tarfile.open(out / f"dtrun-{VERSION}-image-aarch64.tar") as archive:
            docker, = json.loads(archive.extractfile("manifest.json").read())
            self.assertIn(docker["Layers"][0], archive.getnames())
        # A package that is not the one which was looked at is not taken.
        (sources / "build/archives/libc6_2.36-9+deb12u14_arm64.deb").write_bytes(b"another")
        done = subprocess.run(["/usr/bin/python3", sources / "packaging/package.py", "--trees", self.trees, "--out", out,
                               "image", "--cpu", "aarch64"], capture_output=True, text=True, check=False,
                              env={**os.environ, "SOURCE_DATE_EPOCH": "1", "DTRUN_DEBIAN_MIRROR": sources.as_uri()})
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("DTRUN_DEBIAN_MIRROR names another mirror", done.stderr)

    def test_the_list_of_parts_has_licences_and_hashes(self):
        parts = json.loads((self.out / f"dtrun-{VERSION}.cdx.json").read_text())
        found = {one["name"]: one for one in parts["components"]}
        self.assertEqual(found["libssh"]["licenses"], [{"license": {"id": "LGPL-2.1-or-later"}}])
        self.assertTrue(found["libssh"]["purl"].startswith("pkg:deb/debian/libssh@"))
        self.assertEqual(found["busybox-static"]["scope"], "optional")
        hashes = [one["hashes"][0]["content"] for one in found["openssl"]["externalReferences"] if "hashes" in one]
        self.assertRegex(hashes[0], "^[0-9a-f]{64}$")

    def test_every_library_has_its_licence_text(self):
        with tarfile.open(self.out / f"dtrun-{VERSION}-linux-x86_64.tar.gz") as files:
            member = f"dtrun-{VERSION}-linux-x86_64/share/doc/dtrun/THIRD-PARTY-LICENCES.txt"
            text = files.extractfile(member).read().decode()
        for name in ("openssl", "libssh", "zlib", "hwloc", "yaml-cpp", "sqlite3", "boost", "fmt", "spdlog", "libc++", "musl"):
            self.assertIn(f"{'=' * 80}\n{name}\n{'=' * 80}\n\n", text)
        self.assertIn("GNU LESSER GENERAL PUBLIC LICENSE", text)
        self.assertIn("./dev portable --sources", text)

    def refused(self, *words, change=None):
        """What is said about a tree that `change` has spoilt."""
        with tempfile.TemporaryDirectory() as folder:
            trees = pathlib.Path(folder, "trees")
            make_tree(trees, "x86_64")
            if change:
                change(trees / "x86_64/tree")
            done = package(trees, pathlib.Path(folder, "dist"), *words)
        self.assertEqual(done.returncode, 1, done)
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def test_what_cannot_be_packed_is_refused_with_a_remedy(self):
        self.assertIn("has no libexec/dtrun/dtrun-agent; `./dev portable x86_64` makes",
                      self.refused("tar", change=lambda tree: (tree / "libexec/dtrun/dtrun-agent").unlink()))
        self.assertIn("bin/dtrun is not for x86_64",
                      self.refused("tar", change=lambda tree: (tree / "bin/dtrun").write_bytes(elf(183))))
        self.assertIn("needs glibc 2.36, packages promise 2.28",
                      self.refused("tar", change=lambda tree: (tree / "bin/dtrun").write_bytes(elf(62, "2.36"))))
        self.assertIn("snap: forms are wheel, deb,", self.refused("snap"))
        self.assertIn("aarch64/tree is not there", self.refused("tar", "--cpu", "aarch64"))

    def test_a_tree_of_this_machines_compiler_makes_no_promise(self):
        with tempfile.TemporaryDirectory() as folder:
            trees = pathlib.Path(folder, "trees")
            make_tree(trees, "x86_64")
            (trees / "x86_64/tree/bin/dtrun").write_bytes(elf(62, "2.36"))
            done = package(trees, pathlib.Path(folder, "dist"), "--native", "wheel")
            self.assertEqual(done.returncode, 0, done)
            self.assertTrue(pathlib.Path(folder, "dist", f"dtrun-{VERSION}-py3-none-linux_x86_64.whl").exists())


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=sys.argv[:1])
