"""./dev bench ddp: its tables, and its ranks on this machine for a few steps:

    ddp_bench_test.py DTRUN PYTHON
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

TOP = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / "tests/support"), str(TOP / "bench")]
import ddp_table  # noqa: E402
from skip import skip  # noqa: E402

DTRUN, PYTHON = sys.argv[1:]


def step_records(way, *rounds, net="gradients"):
    """Of rounds whose steps take so many ms, half of them without communication."""
    return [{"net": net, "way": way, "round": number, "ms": [ms] * 3, "alone_ms": [ms / 2], "cpu_ms": 1.0,
             "bytes": 4e6} for number, ms in enumerate(rounds)]


def accuracy_record(way, seed, *accuracies):
    return {"way": way, "seed": seed,
            "tests": [(test + 1, 2.0 * (test + 1), accuracy) for test, accuracy in enumerate(accuracies)]}


class Tables(unittest.TestCase):
    def row(self, lines, way):
        return next(line for line in lines if line.startswith("  " + way)).split()

    def test_an_interval_is_that_of_students_distribution(self):
        mean, half = ddp_table.estimate([1.0, 2.0, 3.0, 4.0, 5.0])
        self.assertEqual(mean, 3.0)
        self.assertAlmostEqual(half, 1.963, places=3)

    def test_a_ratio_compares_each_round_with_itself(self):
        found = step_records("torch f32", 100, 900, 100) + step_records("dtrun int8", 25, 300, 20)
        lines = ddp_table.steps(found, 4)
        self.assertEqual(self.row(lines, "dtrun int8"), ["dtrun", "int8", "25.0", "4.00x", "12.5", "0.2", "1.00"])

    def test_a_way_that_is_too_slow_is_marked(self):
        found = step_records("torch f32", 100) + step_records("torch fp16", 40) + step_records("dtrun int8", 50)
        self.assertIn("missed: 3x, 0.80x torch fp16", "\n".join(ddp_table.steps(found, 4)))
        small = [dict(record, net="small") for record in found]
        self.assertNotIn("3x", "\n".join(ddp_table.steps(small, 4)))

    def test_accuracy_is_compared_seed_by_seed(self):
        found = [accuracy_record("torch f32", 1, 90, 99), accuracy_record("torch f32", 2, 97, 98),
                 accuracy_record("dtrun int8", 1, 98, 98.5), accuracy_record("dtrun int8", 2, 90, 97.5)]
        lines = ddp_table.accuracy(found, 98)
        self.assertIn("98.00 ± 6.35   -0.50 ± 0.00 1 of 2 got there  missed: 0.3 points", lines[-1])
        self.assertEqual(self.row(lines, "torch f32")[-3:], ["4.0", "±", "0.0"])


class Ranks(unittest.TestCase):
    def test_ranks_time_all_ways_in_turns_and_let_nets_learn(self):
        ways = ["torch f32", "torch fp16", "PowerSGD 4", "dtrun f32", "dtrun int8", "backend f32"]
        program = [PYTHON, str(TOP / "bench/ddp_rank.py"), "steps,accuracy", ",".join(ways), "--nets", "small",
                   "--rounds", "2", "--steps", "2", "--seeds", "1", "--epochs", "1", "--pictures", "256"]
        done = subprocess.run([DTRUN, "--tag", "none", "-np", "2", *program], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True, check=True,
                              env=dict(os.environ, OMP_NUM_THREADS="1", DTRUN_COMPRESS="always"))
        found = [json.loads(line) for line in done.stdout.splitlines()]
        timed = [record for record in found if record["part"] == "steps"]
        learned = {record["way"]: record["tests"] for record in found if record["part"] == "accuracy"}
        self.assertEqual([record["way"] for record in timed], ways + ways[1:] + ways[:1])
        self.assertTrue(all(len(record["ms"]) == 2 and min(record["ms"]) > 0 for record in timed))
        self.assertEqual(timed[3]["ratio"], 1)
        self.assertGreater(timed[4]["ratio"], 2)
        self.assertEqual(list(learned), ways)
        accuracies = {way: [accuracy for _, _, accuracy in tests] for way, tests in learned.items()}
        self.assertEqual(accuracies["dtrun f32"], accuracies["torch f32"])


if __name__ == "__main__":
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        skip(f"{PYTHON} has no torch")
    unittest.main(argv=sys.argv[:1], verbosity=2)
