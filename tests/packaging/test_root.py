#!/usr/bin/python3
"""What `root` says about wrong words, and that a root which runs changes nothing of the machine.

usage: test_root.py          its words: needs neither root nor a package
       test_root.py SUITE    a root of that suite
"""
import os
import select
import signal
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, f"{HERE}/../support"]
import roots  # noqa: E402
from skip import skip  # noqa: E402

SUITE = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1] in roots.SUITES else None


def root(*words):
    return subprocess.run([f"{HERE}/root", *words], capture_output=True, text=True, check=False)


class Words(unittest.TestCase):
    def test_help_is_shown_without_words(self):
        self.assertIn("root run SUITE", root().stdout)
        self.assertEqual(2, root().returncode)
        self.assertEqual(0, root("--help").returncode)


@unittest.skipUnless(SUITE, "needs a suite")
class Running(unittest.TestCase):
    def test_wrong_words_are_named(self):
        for words, told in ((("make", "potato"), "no suite 'potato'; there are bullseye, bookworm, trixie"),
                            (("run", SUITE), "The command comes behind --"),
                            (("run", SUITE, "--bnd", "x", "--", "id"), "what is '--bnd'?"),
                            (("run", SUITE, "--bind", "/nowhere", "--", "id"), "/nowhere is not a directory"),
                            (("run", "--", "id"), "which suite?"),
                            (("mkae", SUITE), "what is 'mkae")):
            done = root(*words)
            self.assertEqual(2, done.returncode, done)
            self.assertIn(told, done.stderr)

    def test_what_a_command_does_to_its_root_is_gone_with_it(self):
        script = "echo changed >/etc/issue; rm /dev/null; touch /gone; cat /etc/issue; exit 7"
        packages = list(roots.HOST_PACKAGES)
        done = root("run", SUITE, *packages, "--", "sh", "-c", script)
        self.assertEqual((7, "changed\n"), (done.returncode, done.stdout), done.stderr)
        done = root("run", SUITE, *packages, "--", "sh", "-c", "ls /gone /dev/null; cat /etc/issue")
        self.assertIn("/dev/null", done.stdout)
        self.assertNotIn("changed", done.stdout)
        self.assertIn("cannot access '/gone'", done.stderr)
        self.assertTrue(os.path.exists("/dev/null"))
        self.assertNotIn("dtrun-roots", roots.read("/proc/mounts"))

    def test_it_has_no_network_and_only_its_own_processes(self):
        with roots.Root(SUITE) as here:
            self.assertEqual(["lo"], here.run("ls", "/sys/class/net").split())
            processes = [name for name in here.run("ls", "/proc").split() if name.isdigit()]
            self.assertEqual(2, len(processes), processes)  # its first, and ls

    def test_a_bound_folder_can_be_read_and_a_shared_one_written(self):
        with roots.Root(SUITE, binds={"/read": HERE}) as here:
            self.assertIn("roots.py", here.run("ls", "/read"))
            self.assertIn("Read-only file system", here.run("touch", "/read/new", code=1))

    def test_it_ends_with_whoever_made_it(self):
        """The whole root, a process that left its session included."""
        script = ("import sys; sys.path.insert(0, sys.argv[1]); import roots\n"
                  "here = roots.Root(sys.argv[2]); here.shell('setsid sleep 1000 >/dev/null 2>&1 &')\n"
                  "print(here.pid, flush=True); sys.stdin.read()")
        with subprocess.Popen([sys.executable, "-c", script, HERE, SUITE], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as owner:
            watched = os.pidfd_open(int(owner.stdout.readline()))
            owner.send_signal(signal.SIGKILL)
            self.assertTrue(select.select([watched], [], [], 60)[0])
            os.close(watched)


if __name__ == "__main__":
    if SUITE and (why := roots.missing()):
        skip(why)
    unittest.main()
