#!/usr/bin/env python3
"""Two cells of the testbed of placements: its table, what it keeps, and the pairs that it counts. 77 where there is no lab."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

TESTBED = pathlib.Path(__file__).resolve().parents[2] / "bench/placement/testbed.py"
GRADWIRE = sys.argv.pop(1)
SKIPPED = 77


def testbed():
    spec = importlib.util.spec_from_file_location("testbed", TESTBED)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cell(rate, foretold, measured):
    return {"model": "mlp", "rate": rate, "mesh": "none", "foretold": foretold, "measured": measured}


class Testbed(unittest.TestCase):
    def test_pairs_are_of_one_model_and_rate_and_apart(self):
        order = testbed().order
        self.assertEqual(order([cell("1gbit", 1.0, 2.0), cell("1gbit", 1.1, 1.0)]), (0, 0))
        self.assertEqual(order([cell("1gbit", 1.0, 2.0), cell("1gbit", 1.3, 1.0)]), (1, 0))
        self.assertEqual(order([cell("1gbit", 1.0, 1.0), cell("1gbit", 1.3, 2.0), cell("100mbit", 9.0, 0.1)]), (1, 1))

    def test_runs_count_while_a_rank_alone_is_as_fast_as_beside_the_profile(self):
        module = testbed()
        kind = ("mlp", 256, 1)
        alone = iter([1.0, 1.2, 1.0, 1.03, 0.97, 1.0, 1.0])
        runs = iter([0.5, 9.0, 8.0, 2.0, 3.0, 4.0])
        module.train_alone = lambda *_: 4.0 * next(alone)
        module.train = lambda *_: next(runs)
        words = types.SimpleNamespace(seconds=1.0, repeats=3, tries=12, drift=0.06)
        row = module.measure("gradwire", "mlp", "1gbit", "none", {kind: 4.0}, words, "")
        self.assertEqual((row["measured"], row["enough"]), (3.0, True))  # 9 and 8 had a slow minute beside them
        self.assertEqual([run[0] for run in row["runs"]], [9.0, 8.0, 2.0, 3.0, 4.0])
        alone, runs = iter([1.0, 1.2, 1.0, 1.0]), iter([0.5, 9.0, 8.0, 2.0])
        words.tries = 3
        row = module.measure("gradwire", "mlp", "1gbit", "none", {kind: 4.0}, words, "")
        self.assertEqual((row["measured"], row["enough"], len(row["runs"])), (8.0, False, 3))

    def test_a_rank_alone_has_the_micro_batches_of_the_cell(self):
        part_of = testbed().part_of
        self.assertEqual([part_of("gpt", mesh) for mesh in ("none", "tp", "pp")], [(8, 1), (16, 1), (16, 4)])

    def test_a_step_is_the_median_behind_the_warm_up(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.jsonl"
            rows = [{"step": step, "step_seconds": 100.0 if step < 5 else float(step)} for step in range(10)] + [{"totals": 1}]
            path.write_text("\n".join(map(json.dumps, rows)))
            self.assertEqual(testbed().median_step(path), 7.0)
            other = pathlib.Path(folder) / "n.jsonl"
            other.write_text("\n".join(json.dumps({"step": step, "step_seconds": 8.0}) for step in range(10)))
            self.assertEqual(testbed().median_step(path, other), 8.0)  # 8, 8, 8, 8 and 9

    def test_a_link_carries_less_than_its_rate(self):
        self.assertAlmostEqual(testbed().bytes_per_second("100mbit"), 12.5e6 * 1448 / 1538)

    def test_cells_are_foretold_and_measured_once(self):
        with tempfile.TemporaryDirectory() as folder:
            profile, done = pathlib.Path(folder) / "profile.json", pathlib.Path(folder) / "done.jsonl"
            words = [sys.executable, str(TESTBED), GRADWIRE, "--done", str(done), "--profile", str(profile), "--models", "mlp", "--rates",
                     "1gbit", "--meshes", "none,pp", "--seconds", "0.05", "--repeats", "1", "--drift", "1000", "--quick"]
            first = subprocess.run(words, capture_output=True, text=True, timeout=240)
            if first.returncode == SKIPPED:
                print(first.stderr.strip())
                os._exit(SKIPPED)
            self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
            self.assertRegex(first.stdout, r"# \d of 1 cells of replicas within 15%")
            kept = json.loads(profile.read_text())
            self.assertEqual({link["transport"] for link in kept["links"]}, {row["transport"] for row in kept["exchanges"]})
            self.assertTrue(kept["layers"] and kept["sums"])
            rows = [json.loads(line) for line in done.read_text().splitlines()]
            self.assertEqual([row["mesh"] for row in rows], ["none", "pp"])
            self.assertTrue(all(0 < row["measured"] < 60 and len(row["runs"]) == 1 for row in rows))
            self.assertIn("testbed: 2 of 2  mlp 1gbit pp", first.stderr)
            table = subprocess.run([*words, "--table"], capture_output=True, text=True, timeout=60)
            self.assertEqual((table.returncode, table.stdout), (0, first.stdout))
            again = subprocess.run(words, capture_output=True, text=True, timeout=60)
            self.assertEqual((again.returncode, again.stdout), (0, first.stdout))
            self.assertNotIn("testbed:", again.stderr)
            other = subprocess.run([*words, "--models", "gpt"], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(other.returncode, 0)
            self.assertIn("no steps of ('gpt'", other.stderr)


if __name__ == "__main__":
    unittest.main()
