#!/usr/bin/env python3
"""The table of bench/scale.py, for few ranks."""
import pathlib
import subprocess
import sys
import unittest

SCALE = pathlib.Path(__file__).resolve().parents[2] / "bench/scale.py"
GRADWIRE = sys.argv.pop(1)


class Scale(unittest.TestCase):
    def test_has_a_row_for_each_transport_and_number_of_ranks(self):
        done = subprocess.run([str(SCALE), GRADWIRE, "--transports", "tcp,inproc", "--ranks", "2,3", "--inproc-ranks", "4", "--seconds", "1"],
                              capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
        self.assertEqual([row[:2] for row in rows], [["tcp", "2"], ["tcp", "3"], ["inproc", "4"]])
        for row in rows:
            start, descriptors, most_descriptors, memory, most_memory = map(float, row[2:])
            self.assertGreater(start, 0)
            self.assertGreaterEqual(most_descriptors, descriptors)
            self.assertGreaterEqual(most_memory, memory)
            self.assertGreater(memory, 0)
        # A process has its three standard descriptors, and over tcp listeners and connections.
        self.assertGreater(float(rows[0][3]), 6)

    def test_says_which_job_failed(self):
        done = subprocess.run([str(SCALE), GRADWIRE, "--transports", "carrier-pigeon", "--ranks", "2"], capture_output=True, text=True,
                              timeout=100, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("carrier-pigeon", done.stderr)


if __name__ == "__main__":
    unittest.main()
