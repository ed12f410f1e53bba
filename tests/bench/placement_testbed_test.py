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

    def test_order_is_of_what_was_foretold_as_it_is_or_calibrated(self):
        order = testbed().order
        cells = [{**cell("1gbit", 1.0, 2.0), "scaled": 2.0}, {**cell("1gbit", 1.3, 1.0), "scaled": 1.0}]
        self.assertEqual(order(cells), (1, 0))
        self.assertEqual(order(cells, "scaled"), (1, 1))

    def test_a_slower_machine_has_slower_processors_and_the_same_links(self):
        profile = {"cores": 2, "layers": [{"rows": 8, "forward_seconds": 1.0, "backward_seconds": 2.0}],
                   "links": [{"latency_seconds": 3.0, "bytes_per_second": 5.0, "cpu_seconds_per_byte": 7.0}],
                   "exchanges": [{"elements": 16, "seconds": 4.0}]}
        self.assertEqual(testbed().slowed(profile, 2.0),
                         {"cores": 2, "layers": [{"rows": 8, "forward_seconds": 2.0, "backward_seconds": 4.0}],
                          "links": [{"latency_seconds": 6.0, "bytes_per_second": 5.0, "cpu_seconds_per_byte": 14.0}],
                          "exchanges": [{"elements": 16, "seconds": 8.0}]})

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
                     "1gbit", "--meshes", "none,pp", "--seconds", "0.05", "--repeats", "1", "--quick"]
            first = subprocess.run(words, capture_output=True, text=True, timeout=240)
            if first.returncode == SKIPPED:
                print(first.stderr.strip())
                os._exit(SKIPPED)
            self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
            for name in ("raw", "calibrated"):
                self.assertRegex(first.stdout, rf"# {name}: \d of 1 cells of replicas within 15%")
            kept = json.loads(profile.read_text())
            self.assertEqual({link["transport"] for link in kept["links"]}, {row["transport"] for row in kept["exchanges"]})
            self.assertTrue(kept["layers"] and kept["sums"])
            rows = [json.loads(line) for line in done.read_text().splitlines()]
            self.assertEqual([row["mesh"] for row in rows], ["none", "pp"])
            self.assertTrue(all(0 < row["measured"] < 60 and len(row["alone"]) == 2 for row in rows))
            self.assertIn("testbed: 2 of 2  mlp 1gbit pp", first.stderr)
            table = subprocess.run([*words, "--table", "--meshes", "none,pp,tp"], capture_output=True, text=True, timeout=60)
            self.assertEqual((table.returncode, table.stdout), (0, first.stdout))
            again = subprocess.run(words, capture_output=True, text=True, timeout=60)
            self.assertEqual((again.returncode, again.stdout), (0, first.stdout))
            self.assertNotIn("testbed:", again.stderr)


if __name__ == "__main__":
    unittest.main()
