"""gradwire sweep and compare: what they say when they are stopped, and of a folder that holds other runs.
usage: sweep_stop_test.py GRADWIRE"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
SECONDS = 120
STUDY = """
    transport = "inproc"
    ranks = 2
    [train]
    data = "digits"
    hidden = "8"
    steps = 400000
    batch = 32
    [grid]
    compressor = ["none"]
    """


class Stop(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name) / "out"

    def stopped_by(self, number, *words):
        """What it printed, once a run had begun and the signal had come."""
        sweep = subprocess.Popen([GRADWIRE, *words, "--out", str(self.out)], stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + SECONDS
        while not list(self.out.glob("runs/*/metrics.jsonl")) and time.monotonic() < end:
            self.assertIsNone(sweep.poll())
            time.sleep(0.02)
        sweep.send_signal(number)
        said = sweep.communicate(timeout=SECONDS)[1]
        self.assertEqual(sweep.returncode, -number)
        return said

    def test_a_stopped_sweep_says_what_continues_it(self):
        study = pathlib.Path(self.folder.name) / "study.toml"
        study.write_text(STUDY)
        said = self.stopped_by(signal.SIGINT, "sweep", str(study))
        self.assertIn(f"sweep: stopped; gradwire sweep {study} --out {self.out} --resume continues\n", said)

    def test_a_stopped_comparison_too_and_not_if_it_is_to_be_quiet(self):
        words = ("compare", "--inproc", "2", "--hidden", "8", "--steps", "400000", "--compressors", "none")
        said = self.stopped_by(signal.SIGTERM, *words)
        self.assertIn("compare: stopped; the same command continues", said)
        self.assertNotIn("stopped", self.stopped_by(signal.SIGTERM, *words, "--fresh", "--quiet"))

    def test_runs_of_other_flags_in_the_folder_are_named(self):
        def said(*more):
            words = ("compare", "--inproc", "2", "--hidden", "8", "--compressors", "none", "--out", str(self.out), *more)
            return subprocess.run([GRADWIRE, *words], capture_output=True, text=True, timeout=SECONDS, check=True).stderr
        self.assertNotIn("of other flags", said("--steps", "3"))
        self.assertIn(f"; 1 run of other flags kept in {self.out}/runs, not in the report", said("--steps", "4"))


if __name__ == "__main__":
    unittest.main()
