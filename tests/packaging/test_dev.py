#!/usr/bin/python3
"""What ./dev does about packages that are missing: on Debian with root, with sudo, without either, and elsewhere.

usage: test_dev.py SOURCE

`dev` is copied into a folder with a dependencies.txt of the test's, and finds only the programs that the test made.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = sys.argv.pop(1)
ORDINARY = ("awk", "bash", "cat", "dirname", "env", "grep", "readlink", "sed", "sort", "true")
DEPENDENCIES = """# Of packages that nobody has.
[build]
compiler
boost-new | boost

[run]
sshd

[lint]
tidy-1 | tidy-2 | tidy
"""


class Machine:
    """A folder that is PATH: programs of coreutils, and those that a test adds."""

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        self.path, self.source = f"{self.folder}/path", f"{self.folder}/source"
        os.mkdir(self.path)
        os.mkdir(self.source)
        shutil.copy(f"{SOURCE}/dev", self.source)
        self.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\n")
        self.write("dependencies.txt", DEPENDENCIES)
        for name in ORDINARY:
            os.symlink(shutil.which(name), f"{self.path}/{name}")
        with open(f"{self.folder}/calls", "w", encoding="utf-8"):
            pass
        self.is_user(1000)

    def remove(self):
        shutil.rmtree(self.folder)

    def write(self, name, text):
        with open(f"{self.source}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def has(self, name, script="exit 0"):
        """A program; each call of it is a line of `calls`."""
        path = f"{self.path}/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho {name} "$@" >>{self.folder}/calls\n{script}\n')
        os.chmod(path, 0o755)

    def is_user(self, number):
        self.has("id", f"echo {number}")

    def is_debian(self, installed=(), known=()):
        states = "".join(f"installed={name} " for name in installed)
        self.has("dpkg-query", f"echo '{states}deinstall=sshd '")
        # Of a name that is mentioned by others and is no package, apt-cache shows nothing, successfully.
        self.has("apt-cache", f"case ' {' '.join(known)} ' in *\" $2 \"*) echo Package: $2 ;; esac")
        self.has("apt-get")

    def dev(self, *words, **environment):
        """Standard error and status. It has no terminal, as in CI and in cron."""
        return subprocess.run([f"{self.source}/dev", *words], env={"PATH": self.path, **environment}, text=True,
                              capture_output=True, start_new_session=True, stdin=subprocess.DEVNULL, check=False)

    def installed(self):
        """What apt-get was asked to install."""
        with open(f"{self.folder}/calls", encoding="utf-8") as file:
            lines = [line.split() for line in file]
        return [word for line in lines if line[:3] == ["apt-get", "-qq", "install"] for word in line[3:]
                if not word.startswith("-")]


class Dev(unittest.TestCase):
    def setUp(self):
        self.machine = Machine()
        self.addCleanup(self.machine.remove)

    def refused(self, *words, **environment):
        done = self.machine.dev(*words, **environment)
        self.assertEqual(1, done.returncode, done)
        self.assertNotIn("command not found", done.stderr)
        return done.stderr

    def test_root_installs_what_is_missing_and_nothing_else(self):
        self.machine.is_user(0)
        self.machine.is_debian(installed=["compiler"])
        self.assertEqual(0, self.machine.dev("deps", "build", "run").returncode)
        self.assertEqual(["boost", "sshd"], self.machine.installed())

    def test_of_alternatives_the_first_that_apt_knows_is_taken(self):
        self.machine.is_user(0)
        self.machine.is_debian(installed=["compiler", "boost"], known=["boost-new", "tidy-2", "tidy"])
        self.assertEqual(0, self.machine.dev("deps", "build", "lint").returncode)
        self.assertEqual(["boost-new", "tidy-2"], self.machine.installed())

    def test_an_alternative_that_is_installed_will_do_where_apt_knows_no_better(self):
        self.machine.is_debian(installed=["compiler", "boost", "tidy-2"])
        done = self.machine.dev("deps", "build", "lint")
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_without_sudo_it_says_what_is_missing_and_the_ways(self):
        self.machine.is_debian(installed=["compiler"])
        told = self.refused("run")
        for part in ("needs root to be installed, and there is no sudo:\n",
                     "    apt-get install --no-install-recommends boost sshd\n", "docs/INSTALL.md",
                     "DTRUN_INSTALL=no", "pip install dtrun"):
            self.assertIn(part, told)

    def test_sudo_that_wants_a_password_is_not_asked_without_a_terminal(self):
        self.machine.is_debian()
        self.machine.has("sudo", 'echo "sudo: a password is required" >&2; exit 1')
        told = self.refused("deps", "run")
        self.assertIn("and sudo wants a password where there is no terminal:\n", told)
        self.assertNotIn("a password is required", told)

    def test_sudo_that_needs_no_password_is_used(self):
        self.machine.is_debian(installed=["sshd"])
        self.machine.has("sudo", '[ "$1" = -n ] && shift; exec "$@"')
        self.assertEqual(0, self.machine.dev("deps", "build").returncode)
        self.assertEqual(["compiler", "boost"], self.machine.installed())

    def test_what_is_there_needs_neither_root_nor_sudo(self):
        self.machine.is_debian(installed=["compiler", "boost", "sshd"])
        done = self.machine.dev("deps", "build", "run")
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_without_apt_it_names_the_programs_that_are_missing(self):
        for name in ("cmake", "c++"):
            self.machine.has(name)
        told = self.refused("deps", "build")
        self.assertIn("missing here: ninja pkg-config\n", told)
        self.assertIn("Fedora, Arch, conda and Spack", told)

    def test_with_packages_from_elsewhere_apt_is_left_alone(self):
        self.machine.is_debian()
        for name in ("cmake", "c++", "ninja", "pkg-config"):
            self.machine.has(name)
        self.assertEqual(0, self.machine.dev("deps", "build", DTRUN_INSTALL="no").returncode)
        self.assertEqual([], self.machine.installed())

    def build_tools(self, cmake):
        for name in ("c++", "ninja", "nproc", "pkg-config"):
            self.machine.has(name)
        self.machine.has("cmake", cmake)

    def test_a_cmake_that_is_too_old_is_named(self):
        self.build_tools("echo cmake version 3.22.1")
        self.assertIn("cmake 3.22.1 is too old, 3.25 is the oldest that will do", self.refused("build"))

    def test_what_cmake_cannot_find_is_followed_by_where_its_name_stands(self):
        self.build_tools('[ "$1" = --version ] && echo cmake version 3.31.6 && exit; echo no libssh >&2; exit 1')
        told = self.refused("build")
        self.assertLess(told.index("no libssh"), told.index("docs/INSTALL.md"))

    def test_the_main_job_says_before_it_builds_that_it_takes_root(self):
        self.machine.is_debian(installed=["compiler", "boost", "sshd"])
        self.assertIn("the four hosts of the main job are made by root, and there is no sudo.\n"
                      "Without them: ./dev run -np 4 examples/hello.sh", self.refused("run"))


if __name__ == "__main__":
    unittest.main()
