"""A training rank that is killed or stopped: every other rank names it and ends. usage:
lost_rank_test.py GRADWIRE UCX_VERSION|none (none: skipped, 77)"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

RANKS = 4
DEADLINE = 6  # seconds that an operation may take
PATIENCE = 60  # seconds after which the test gives up: far above anything that is promised


def ranks_of(launcher):
    """rank -> process id, of the launcher's children."""
    found = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            if f"\nPPid:\t{launcher}\n" not in status.read_text():
                continue
            environment = (status.parent / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile
        for entry in environment:
            if entry.startswith(b"GRADWIRE_RANK="):
                found[int(entry.split(b"=")[1])] = int(status.parent.name)
    return found


class LostRankTest(unittest.TestCase):
    def lose(self, number, victim, more=("--hidden", "16")):
        """Trains, sends the victim a signal in the midst of it; the launcher's status and output."""
        with tempfile.TemporaryDirectory() as folder:
            metrics = pathlib.Path(folder) / "m.jsonl"
            words = [GRADWIRE, "run", "-n", str(RANKS), "--deadline", str(DEADLINE), "--", GRADWIRE, "train", "--quiet",
                     "--steps", "1000000", "--batch", "64", "--metrics", str(metrics), *more]
            job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                until = time.monotonic() + PATIENCE
                while not (metrics.exists() and metrics.stat().st_size > 2000):
                    self.assertLess(time.monotonic(), until, "the job does not train")
                    self.assertIsNone(job.poll(), "the job ended by itself")
                    time.sleep(0.05)
                ranks = ranks_of(job.pid)
                self.assertEqual(sorted(ranks), list(range(RANKS)))
                os.kill(ranks[victim], number)
                output, _ = job.communicate(timeout=PATIENCE)
                return job.returncode, output
            finally:
                job.kill()
                job.wait()

    def check_survivors(self, output, victim):
        for rank in range(RANKS):
            if rank == victim:
                continue
            line = rf"^rank {rank} \| gradwire: error: .*rank {victim} lost in \w+ .*after [0-9.]+ s"
            self.assertRegex(output, re.compile(line, re.M))
        for other in range(RANKS):
            if other != victim:
                self.assertNotIn(f"rank {other} lost", output)

    def test_a_killed_rank_is_named_by_all_others(self):
        status, output = self.lose(signal.SIGKILL, 2)
        self.assertEqual(status, 128 + signal.SIGKILL, output)
        self.check_survivors(output, 2)

    def test_rank_0_may_be_the_one_that_is_killed(self):
        status, output = self.lose(signal.SIGKILL, 0)
        self.assertEqual(status, 128 + signal.SIGKILL, output)
        self.check_survivors(output, 0)

    def test_a_stopped_rank_is_named_by_all_others(self):
        status, output = self.lose(signal.SIGSTOP, 1)
        self.assertNotEqual(status, 0, output)
        self.check_survivors(output, 1)

    # Each holds a stage, and waits for its neighbours alone.
    STAGES = ("--hidden", "16,16,16,16", "--parallel", f"pp={RANKS}", "--accumulate", "8")

    def test_a_killed_stage_is_named_by_all_others(self):
        status, output = self.lose(signal.SIGKILL, 2, self.STAGES)
        self.assertEqual(status, 128 + signal.SIGKILL, output)
        self.check_survivors(output, 2)

    # In both directions, and without a flush, at any step.
    def test_a_killed_rank_is_named_in_the_midst_of_a_stream(self):
        for schedule, micro_batches in (("chimera", "8"), ("pipedream", "1"), ("pipedream[vertical_sync=on]", "1"), ("2bw", "8")):
            with self.subTest(schedule=schedule):
                flags = ("--hidden", "16,16,16,16", "--parallel", f"pp={RANKS}/{schedule}", "--accumulate", micro_batches)
                status, output = self.lose(signal.SIGKILL, 2, flags)
                self.assertEqual(status, 128 + signal.SIGKILL, output)
                self.check_survivors(output, 2)
                for seconds in re.findall(r"rank 2 lost in .* after ([0-9.]+) s", output):
                    self.assertLessEqual(float(seconds), DEADLINE + 1, output)

    def test_a_stopped_stage_is_named_by_all_others(self):
        status, output = self.lose(signal.SIGSTOP, 1, self.STAGES)
        self.assertNotEqual(status, 0, output)
        self.check_survivors(output, 1)


if __name__ == "__main__":
    GRADWIRE = sys.argv.pop(1)
    if sys.argv.pop(1) == "none":
        sys.exit(77)
    unittest.main()
