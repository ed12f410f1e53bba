#!/usr/bin/env python3
"""gradwire under srun: a Slurm of one node, made in a temporary folder, whose steps need no flag and no variable of gradwire's.

Arguments: GRADWIRE. Exit status 77 where Slurm's and MUNGE's daemons are missing (Debian: slurm-wlm), or this is not root.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from slurm_cluster import LIMIT, Slurm, missing, wait_until


class Steps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.slurm = cls.enterClassContext(Slurm(cls.folder))

    def test_every_rank_takes_part(self):
        for ranks, transport in ((2, "auto"), (4, "tcp")):
            rows = pathlib.Path(self.folder) / f"{ranks}.jsonl"
            done = subprocess.run(self.slurm.srun(ranks, GRADWIRE, "bench", "all_reduce", "--transport", transport, "--max", "16K", "--json", str(rows)),
                                  env=self.slurm.environment, capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(done.returncode, 0, done.stderr)
            seen = [json.loads(line) for line in rows.read_text().splitlines()]
            self.assertGreater(len(seen), 3)
            self.assertEqual({(row["ranks"], row["wrong"]) for row in seen}, {(ranks, 0)})

    def test_a_killed_rank_is_named_by_the_others(self):
        metrics = pathlib.Path(self.folder) / "metrics.jsonl"
        step = subprocess.Popen(self.slurm.srun(3, GRADWIRE, "train", "--quiet", "--steps", "1000000", "--batch", "48", "--hidden", "16",
                                                "--metrics", str(metrics)),
                                env=self.slurm.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            wait_until(lambda: step.poll() is not None or (metrics.exists() and metrics.stat().st_size > 2000), "the training")
            self.assertIsNone(step.poll(), "the training ended by itself")
            victims = [pid for pid, environment in self.ranks().items() if b"SLURM_PROCID=1" in environment]
            self.assertEqual(len(victims), 1)
            os.kill(victims[0], signal.SIGKILL)
            said, _ = step.communicate(timeout=LIMIT)
        finally:
            step.kill()
            step.wait()
        self.assertNotEqual(step.returncode, 0)
        self.assertEqual(len(re.findall(r"^gradwire: error: .*rank 1 lost in ", said, re.M)), 2, said)

    def ranks(self):
        """pid -> environment, of the programs that train in this Slurm."""
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
                if f"SLURM_CONF={self.folder}/slurm.conf".encode() in environment and (process / "exe").resolve() == pathlib.Path(GRADWIRE).resolve():
                    found[int(process.name)] = environment
            except OSError:
                continue  # it ended meanwhile
        return found


if __name__ == "__main__":
    GRADWIRE = os.path.abspath(sys.argv.pop(1))
    if missing():
        print(missing())
        sys.exit(77)
    unittest.main(verbosity=2)
