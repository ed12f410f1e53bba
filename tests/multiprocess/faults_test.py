#!/usr/bin/env python3
"""kill -9 and kill -STOP of each of four training ranks over UCX: the others end with an error, in time, and say
which rank was lost, in which operation and after how long.

usage: faults_test.py PATH/TO/gradwire
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
RANKS = 4
DEADLINE = 6  # seconds
LIMIT = 60  # seconds, for whatever should be there in two
STEPS_FIRST = 30  # steps of training before anything happens
LOST = re.compile(r"^rank (\d) \| gradwire: error: .*\brank (\d) lost in (\w+) \(operation \d+\) after (\d+\.\d) s")


def wait_until(condition, what):
    """Returns how long it took, less the time in which the machine let not even this loop run."""
    start = last = time.monotonic()
    stalled = 0
    while not condition():
        if last > start + LIMIT:
            raise AssertionError(f"waited {LIMIT} s in vain: {what}")
        time.sleep(0.02)
        now = time.monotonic()
        stalled += max(0, now - last - 0.1)
        last = now
    return last - start - stalled


def rank_pids(launcher):
    """The launcher's children by rank, from what the kernel says about them."""
    pids = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent != launcher:
                continue
            names = dict(entry.partition("=")[::2] for entry in (folder / "environ").read_text().split("\0"))
        except (OSError, IndexError):
            continue
        if "GRADWIRE_RANK" in names:
            pids[int(names["GRADWIRE_RANK"])] = int(folder.name)
    return pids


def runs(pid):
    """A zombie does not: whoever inherits the ranks of a dead launcher may not reap them."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Job:
    """Four ranks in training."""

    def __init__(self, folder, *flags, launcher=()):
        self.metrics = pathlib.Path(folder) / "metrics.jsonl"
        command = [GRADWIRE, "run", "-n", str(RANKS), "--deadline", str(DEADLINE), "--timeout", str(2 * LIMIT), *launcher, "--",
                   "gradwire", "train", "--steps", "10000000", "--quiet", "--metrics", str(self.metrics), *flags]
        self.output = open(pathlib.Path(folder) / "output", "w+")
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT)
        wait_until(self.trains, "the job to train")
        self.pids = rank_pids(self.process.pid)

    def trains(self):
        if self.process.poll() is not None:
            raise AssertionError("the job has ended: " + self.text())
        return self.metrics.exists() and self.metrics.read_text().count("\n") >= STEPS_FIRST

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()  # its ranks die with it
        self.process.wait(LIMIT)
        self.output.close()


class Faults(unittest.TestCase):
    def check(self, victim, number, *flags):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(folder, *flags)
            try:
                self.assertEqual(sorted(job.pids), list(range(RANKS)))
                others = [job.pids[rank] for rank in range(RANKS) if rank != victim]
                os.kill(job.pids[victim], number)
                took = wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in others), "the others to end")
                job.process.wait(LIMIT)
                self.check_output(job.text(), victim, number, job.process.returncode)
                self.assertLessEqual(took, DEADLINE + 1, job.text())
            finally:
                job.end()

    def test_a_rank_that_ends_before_it_joins(self):
        script = 'if [ $GRADWIRE_RANK = 2 ]; then exit 3; fi; exec "$0" train --steps 10'
        done = subprocess.run([GRADWIRE, "run", "-n", str(RANKS), "--deadline", "1", "--", "sh", "-c", script, GRADWIRE],
                              capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], r"^gradwire: error: rank 2\b.*\b3$")

    def test_the_launcher_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            records = pathlib.Path(folder) / "records"
            job = Job(folder, launcher=("--flight", str(records)))
            try:
                job.process.kill()
                job.process.wait(LIMIT)
                took = wait_until(lambda: not any(map(runs, job.pids.values())), "the ranks to end")
                self.assertLessEqual(took, DEADLINE + 1)
                for rank in range(RANKS):
                    self.assertRegex((records / f"rank-{rank}.json").read_text(), r"\blauncher\b")
                said = subprocess.run([GRADWIRE, "inspect", "flight", str(records)], capture_output=True, text=True, timeout=LIMIT)
                self.assertEqual(said.returncode, 0, said.stderr)
                self.assertRegex(said.stdout, r"\blauncher\b.*\brank")
            finally:
                job.end()

    def check_output(self, text, victim, number, status):
        said = {}
        for match in filter(None, map(LOST.match, text.splitlines())):
            said[int(match[1])] = (int(match[2]), match[3])
        others = [rank for rank in range(RANKS) if rank != victim]
        self.assertEqual(sorted(said), others, text)
        for rank, (lost, operation) in said.items():
            self.assertEqual(lost, victim, text)
            self.assertRegex(operation, r"^(all_reduce|all_gather|all_to_all|reduce_scatter|broadcast|barrier)")
            self.assertIn(f"gradwire: rank {rank}: exit status 1", text)  # by itself, not by the launcher
        last = text.rstrip("\n").split("\n")[-1]
        if number == signal.SIGKILL:
            self.assertRegex(last, rf"^gradwire: error: rank {victim}\b.*\b9 \(SIGKILL\)$")
            self.assertEqual(status, 128 + signal.SIGKILL)
        else:
            self.assertRegex(last, rf"^gradwire: error: rank {victim}\b.*\b19 \(SIGSTOP\).*\brank \d\b.*\b1\b.*\brank {victim}\b")
            self.assertEqual(status, 1)


def case(victim, number, *flags):
    return lambda self: self.check(victim, number, *flags)


for rank in range(RANKS):
    setattr(Faults, f"test_rank_{rank}_killed", case(rank, signal.SIGKILL))
    setattr(Faults, f"test_rank_{rank}_stopped", case(rank, signal.SIGSTOP))
    # The aggregator's other ways: payloads gathered by their lengths, and shards.
    ways = ("topk:ratio=0.01,ef=ef14", "qsgd:bits=8,combine=sra,ef=ef14")
    setattr(Faults, f"test_rank_{rank}_killed_under_compression",
            case(rank, signal.SIGKILL, "--compressor", ways[rank % len(ways)]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
