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
import ddp  # noqa: E402
import table  # noqa: E402
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
        return next(line for line in lines if line.startswith(way)).split()

    def steps(self, found):
        targets = table.Targets()
        return ddp.steps(found, 4, targets), [(what, verdict) for what, _, verdict in targets.rows]

    def test_an_interval_is_that_of_students_distribution(self):
        self.assertEqual(ddp.with_interval([1.0, 2.0, 3.0, 4.0, 5.0], 3), "3.000 ± 1.963")
        self.assertEqual(ddp.with_interval([1.0]), "1.00")

    def test_a_ratio_compares_each_round_with_itself(self):
        lines, targets = self.steps(step_records("torch f32", 100, 900, 100) + step_records("dtrun int8", 25, 300, 20))
        self.assertEqual(self.row(lines, "dtrun int8"), ["dtrun", "int8", "25.0", "4.00", "x", "12.5", "0.2", "1.00"])
        self.assertEqual(targets, [("gradients: dtrun int8 at least 3 x torch f32", "met")])

    def test_a_way_that_is_too_slow_is_missed(self):
        found = step_records("torch f32", 100) + step_records("torch fp16", 40) + step_records("dtrun int8", 50)
        self.assertEqual(self.steps(found)[1], [("gradients: dtrun int8 at least 3 x torch f32", "MISSED"),
                                                ("gradients: dtrun int8 not behind torch fp16", "MISSED")])
        small = [dict(record, net="small") for record in found]
        self.assertEqual(self.steps(small)[1], [("small: dtrun int8 not behind torch fp16", "MISSED")])

    def test_accuracy_is_compared_seed_by_seed(self):
        found = [accuracy_record("torch f32", 1, 90, 99), accuracy_record("torch f32", 2, 97, 98),
                 accuracy_record("dtrun int8", 1, 98, 98.5), accuracy_record("dtrun int8", 2, 90, 97.5)]
        targets = table.Targets()
        lines = ddp.accuracy(found, 98, targets)
        self.assertEqual(self.row(lines, "dtrun int8")[2:], "98.00 ± 6.35 -0.50 ± 0.00 1 of 2".split())
        self.assertEqual(self.row(lines, "torch f32")[-3:], ["4.0", "±", "0.0"])
        self.assertEqual([(figure, verdict) for _, figure, verdict in targets.rows], [("-0.50", "MISSED")])

    def test_columns_are_aligned_and_verdicts_said(self):
        self.assertEqual(table.columns([["launcher", "", "1x2"], ["dtrun", "0.1", "12.5"], ["x", "not installed"]], words=2),
                         ["launcher        1x2", "dtrun     0.1  12.5", "x         not installed"])
        targets = table.Targets()
        targets.at_most("quick", 3, 4, "{} s")
        targets.at_least("large", None, 1)
        targets.add("told", "7", None)
        self.assertEqual(targets.lines(), ["quick  3 s  met", "told   7"])
        self.assertEqual([table.in_turns([1, 2, 3], number) for number in (0, 1, 5)], [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        self.assertEqual(table.paired_ratio([{"round": 0, "s": 2}, {"round": 1, "s": 9}], [{"round": 0, "s": 4}],
                                            lambda run: run["s"]), 0.5)


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
