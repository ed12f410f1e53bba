#!/usr/bin/env python3
"""Two cells of the testbed of placements: its table, what it keeps, and the pairs that it counts. 77 where there is no lab."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
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

    def test_a_link_carries_less_than_its_rate(self):
        self.assertAlmostEqual(testbed().bytes_per_second("100mbit"), 12.5e6 * 1448 / 1538)

    def test_cells_are_foretold_and_measured_once(self):
        with tempfile.TemporaryDirectory() as folder:
            profile, done = f"{folder}/profile.json", pathlib.Path(folder) / "done.jsonl"
            subprocess.run([GRADWIRE, "profile", "--quick", profile], check=True, capture_output=True, timeout=60)
            words = [sys.executable, str(TESTBED), GRADWIRE, "--done", str(done), "--profile", profile, "--models", "mlp", "--rates", "1gbit",
                     "--meshes", "none,pp", "--seconds", "0.05", "--repeats", "1"]
            first = subprocess.run(words, capture_output=True, text=True, timeout=240)
            if first.returncode == SKIPPED:
                print(first.stderr.strip())
                os._exit(SKIPPED)
            self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
            self.assertIn("of 1 cells within 15%", first.stdout)
            rows = [json.loads(line) for line in done.read_text().splitlines()]
            self.assertEqual([row["mesh"] for row in rows], ["none", "pp"])
            self.assertTrue(all(0 < row["measured"] < 60 for row in rows))
            again = subprocess.run(words, capture_output=True, text=True, timeout=60)
            self.assertEqual((again.returncode, again.stdout), (0, first.stdout))
            self.assertNotIn("testbed:", again.stderr)


if __name__ == "__main__":
    unittest.main()
