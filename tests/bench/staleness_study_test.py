#!/usr/bin/env python3
"""The study of pipelines without a flush on small models: its table and picture, and that it goes on where it was ended."""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

STUDY = pathlib.Path(__file__).resolve().parents[2] / "bench/pipelines/staleness_study.py"
GRADWIRE = sys.argv.pop(1)
SCHEDULES = ("1F1B", "Chimera", "PipeDream", "PipeDream, vertical sync", "PipeDream-2BW")


class Study(unittest.TestCase):
    def run_in(self, folder):
        done = subprocess.run([sys.executable, str(STUDY), GRADWIRE, "--out", folder, "--sample", "--seeds", "2"], capture_output=True, text=True,
                              timeout=250, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_trains_once_and_shows_every_schedule(self):
        with tempfile.TemporaryDirectory() as folder:
            first = self.run_in(folder)
            self.assertEqual(first.count(", seed "), 20)
            again = self.run_in(folder)
            self.assertEqual(again.count(", seed "), 0)
            text = (pathlib.Path(folder) / "table.txt").read_text()
            self.assertTrue(first.endswith(again))
            for name in SCHEDULES:
                self.assertEqual([line.startswith(f"{name:26}") for line in text.splitlines()].count(True), 2, text)
            svg = xml.etree.ElementTree.parse(pathlib.Path(folder) / "curves.svg")
            lines = svg.findall(".//{http://www.w3.org/2000/svg}polyline")
            self.assertEqual(len(lines), 2 * 3 * len(SCHEDULES))
            for line in lines[:5] + lines[15:20]:  # by samples; those by time end where the fastest has
                self.assertGreater(len(line.get("points").split()), 3)

    def test_a_step_without_a_flush_is_shorter_than_one_with(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_in(folder)
            rows = {}
            for line in (pathlib.Path(folder) / "table.txt").read_text().splitlines():
                if line[:26].strip() in SCHEDULES:
                    cells = line[26:].split()  # rate, loss, +-, deviation, accuracy, samples, and of each link ms a step and s
                    rows.setdefault(line[:26].strip(), []).append([float(cells[6]), float(cells[8])])
            for of_flush, streaming in zip(rows["1F1B"], rows["PipeDream-2BW"]):
                for slow, fast in zip(of_flush, streaming):
                    self.assertLess(fast, slow)


if __name__ == "__main__":
    unittest.main()
