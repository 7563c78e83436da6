#!/usr/bin/python3
"""How pages are read, and what they show is compared with what commands print."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import pages  # noqa: E402

PAGE = """<!-- hosts: slurm -->
# A page
```console
$ first \\
> goes on
shown
$ second
```
<!-- not run: it would -->
```console
$ third
```
<!-- file: a.py -->
```python
print()
```
<!-- first: true -->
| in the batch script | new line |
|---|---|
| `srun -n 2 ./prog` | `dtrun -np 2 ./prog` |
"""


class Pages(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "page.md")
            path.write_text(text, encoding="utf-8")
            return pages.Page(path)

    def test_a_page_is_files_and_then_its_commands_in_their_order(self):
        page = self.read(PAGE)
        self.assertEqual(page.hosts, "slurm")
        self.assertEqual(page.steps[0], ("file", "a.py", "print()\n"))
        commands = [step[1] for step in page.steps if step[0] == "run"]
        self.assertEqual([(one.text, one.shown, one.line) for one in commands],
                         [("first \\\ngoes on", ["shown"], 4), ("second", [], 7)])
        self.assertEqual(page.steps[-2:], [("first", "true"), ("before", "(srun --test-only -n 2 ./prog) >/dev/null")])

    def test_a_block_that_begins_with_output_is_a_mistake(self):
        with self.assertRaises(ValueError):
            self.read("```console\nshown\n```\n")

    def test_lines_may_come_in_any_order_and_no_other_may_come(self):
        self.assertIsNone(pages.difference(["[0]:a", "[1]:b"], ["[1]:b", "", "[0]:a"]))
        self.assertIn("has not come: [1]:b", pages.difference(["[0]:a", "[1]:b"], ["[0]:a"]))
        self.assertIn("is not shown: [1]:b", pages.difference(["[0]:a"], ["[0]:a", "[1]:b"]))
        self.assertIn("is not shown: a", pages.difference(["a"], ["a", "a"]))

    def test_an_ellipsis_is_a_part_of_a_line_or_any_lines(self):
        self.assertIsNone(pages.difference(["took … s"], ["took 3 s"]))
        self.assertIsNone(pages.difference(["a", "…"], ["b", "a", "c"]))
        self.assertIn("has not come", pages.difference(["a.c", "…"], ["abc"]))

    def test_numbers_that_differ_from_run_to_run_need_no_ellipsis(self):
        self.assertIsNone(pages.difference(["rank 1 (pid 4711) after 0.08 s"], ["rank 1 (pid 2) after 1.5 s"]))
        self.assertIsNotNone(pages.difference(["rank 1 of 2"], ["rank 1 of 3"]))


if __name__ == "__main__":
    unittest.main()
