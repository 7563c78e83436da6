#!/usr/bin/python3
"""That a second distribution, Debian 13, has what dependencies.txt asks for, and that its compiler and libraries take
the sources without a word.

usage: test_from_source.py SOURCE [PATTERN]     PATTERN: of the outputs to check, see check_syntax.py
"""
import os
import re
import sys
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, f"{HERE}/../support"]
import roots  # noqa: E402
from skip import skip  # noqa: E402

SOURCE, PATTERN = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "."
# What `./dev test` compiles with, less the sanitizers, and a packager's flags, with which glibc's headers complain more.
CONFIGURE = """cmake -S /src -B /tmp/build -G Ninja -DCMAKE_BUILD_TYPE=None -DDTRUN_TESTS=ON \
    -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=6 -DCMAKE_CXX_FLAGS='-Werror -O2 -D_FORTIFY_SOURCE=2 \
    -Wformat -Wformat-security -fstack-protector-strong -fstack-clash-protection -Wdate-time'"""


def packages(*sections):
    """Of those sections of dependencies.txt; of alternatives the last, which is for newer distributions."""
    with open(f"{SOURCE}/dependencies.txt", encoding="utf-8") as file:
        parts = re.split(r"^\[(\w+)\]$", file.read(), flags=re.MULTILINE)
    lines = "\n".join(parts[parts.index(section) + 1] for section in sections).splitlines()
    return [line.split("|")[-1].strip() for line in lines if line.strip() and not line.startswith("#")]


class FromSource(unittest.TestCase):
    def test_its_compiler_and_libraries_take_the_sources(self):
        with roots.Root("trixie", [*packages("build", "run"), "catch2"], binds={"/src": SOURCE}) as here:
            # ./dev's own reader of dependencies.txt finds nothing missing.
            self.assertEqual("", here.run("/src/dev", "deps", "build", "run"))
            self.assertNotIn("Warning", here.shell(CONFIGURE))
            checking = here.start("/usr/bin/python3", "/src/tests/packaging/check_syntax.py", "/tmp/build", PATTERN)
            self.assertEqual(0, checking.wait())


if __name__ == "__main__":
    if why := roots.missing():
        skip(why)
    unittest.main(argv=sys.argv[:1])
