#!/usr/bin/env python3
"""The tokens that decide between sides, in the stores of real launchers: of all ranks one is first, and every run begins anew.

usage: tokens_test.py PATH/TO/token_rank PATH/TO/gradwire

torchrun is GRADWIRE_TORCHRUN, else .cache/torch/bin/torchrun of this project, else that of PATH. Exit status 77 without one.
"""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

RANK, GRADWIRE = (str(pathlib.Path(word).resolve()) for word in (sys.argv.pop(1), sys.argv.pop(1)))
PROJECT = pathlib.Path(__file__).resolve().parents[2]
RANKS = 4
LIMIT = 180  # seconds, for what takes ten
LAUNCHERS = ("GRADWIRE_", "OMPI_", "PMI", "PALS_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_")


def torchrun():
    for path in (os.environ.get("GRADWIRE_TORCHRUN"), str(PROJECT / ".cache/torch/bin/torchrun"), shutil.which("torchrun")):
        if path and os.access(path, os.X_OK):
            return path
    return ""


class Tokens(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_job(self, *words, **environment):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
        done = subprocess.run([*words, RANK, str(self.folder)], env={**kept, "OMP_NUM_THREADS": "1", **environment},
                              capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)

    def holder(self, life):
        """Who holds the token, which all ranks agree on, and where the store is."""
        said = {(self.folder / f"{life}-{rank}").read_text() for rank in range(RANKS)}
        self.assertEqual(len(said), 1, said)
        holder, place = said.pop().split(" ")
        self.assertRegex(holder, f"^{life}-[0-{RANKS - 1}]$")
        return place

    def test_gradwire_run_has_a_folder_for_each_run_and_removes_it(self):
        places = set()
        for _ in range(2):
            self.run_job(GRADWIRE, "run", "-n", str(RANKS), "--", GRADWIRE_LAUNCHER_STORE="file:///nonexistent")
            place = self.holder(0)
            self.assertTrue(place.startswith("file:///"), place)
            self.assertFalse(pathlib.Path(place.removeprefix("file://")).exists(), place)
            places.add(place)
        self.assertEqual(len(places), 2, places)

    @unittest.skipUnless(torchrun(), "torchrun is not installed (Python: torch==2.13.0)")
    def test_torchruns_agent_gives_each_restart_tokens_of_its_own(self):
        # Where name and place of the job are given, they do not tell one life of the ranks from the next.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{probe.getsockname()[1]}"
        self.run_job(torchrun(), "--standalone", "--nproc-per-node", str(RANKS), "--max-restarts", "1", "--no-python", "--",
                     GRADWIRE_JOB="job", GRADWIRE_RENDEZVOUS=place)
        for life in (0, 1):
            self.assertEqual(self.holder(life), "agent")


if __name__ == "__main__":
    outcome = unittest.main(verbosity=2, exit=False).result
    sys.exit(1 if not outcome.wasSuccessful() else 77 if outcome.skipped else 0)
