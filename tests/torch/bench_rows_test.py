#!/usr/bin/env python3
"""bench/gpu_stages/torch_rows.py on the device of the tests: a row of each operation and method, without a difference from the host."""

import pathlib
import sys
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/gpu_stages"))

import emulated  # noqa: E402
import ranks  # noqa: E402
import torch_rows  # noqa: E402

warnings.filterwarnings("ignore")


def rows_of(rank, size, broken):
    rows = []
    if broken:
        torch_rows.CLOSE = -1.0
    good = torch_rows.measure(rank, size, emulated.here(), rows.append, smoke=True)
    return good, rows


class BenchRows(unittest.TestCase):
    def test_each_operation_and_method(self):
        for good, rows in ranks.run(2, rows_of, False):
            self.assertEqual([row["failed"] for row in rows if "failed" in row], [])
            self.assertTrue(good)
            self.assertEqual([row["spec"] for row in rows if row["case"] == "compress"], torch_rows.SPECS)
            self.assertGreater(len(rows), len(torch_rows.SPECS) + 5)

    def test_a_difference_is_named(self):
        good, rows = ranks.run(2, rows_of, True)[0]
        self.assertFalse(good)
        self.assertIn("the mean differs from the host's by", rows[-1]["failed"])


if __name__ == "__main__":
    unittest.main()
