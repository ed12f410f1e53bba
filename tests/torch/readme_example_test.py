#!/usr/bin/env python3
"""examples/pytorch/train_ddp.py, which the README shows, under torchrun on two ranks: the loss falls, and few bytes are sent."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples/pytorch/train_ddp.py"
SECONDS = 300


class ReadmeExample(unittest.TestCase):
    def test_under_torchrun(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)],
                                  cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=SECONDS)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        losses = [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)$", done.stdout, re.M)]
        self.assertEqual(len(losses), 6, said)
        self.assertLess(losses[-1], losses[0] / 2, said)
        sent, uncompressed = (int(number.replace(",", "")) for number in
                              re.search(r"^sent ([\d,]+) bytes; uncompressed: ([\d,]+)$", done.stdout, re.M).groups())
        self.assertLess(sent, uncompressed / 5, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
