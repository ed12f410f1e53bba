"""Training jobs that are killed while they save checkpoints, again and again: each start goes on from the last complete
one and says which, and the result is that of a job that nobody killed.

usage: checkpoint_kill_test.py GRADWIRE UCX [KILLS]
UCX: its version, or "none". KILLS: kills at random moments, 6 unless it is said. A long run of 200:
  python3 tests/multiprocess/checkpoint_kill_test.py build/apps/gradwire none 200 CheckpointKillTest.test_random_moments
"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

RANKS = 3
STEPS = 120
PATIENCE = 90  # seconds after which the test gives up: far above anything that is promised
MOST_KILLS = 8  # of one job; it is left alone after that
# How far a checkpoint is when the power goes, by what its folder holds: nothing, some ranks' files, the manifest too, its name.
MOMENTS = ["folder", "files", "manifest", "renamed"]
CHECKPOINT = re.compile(r"^step-(\d{10})$")


def ranks_of(launcher):
    """Process ids of the launcher's children that are ranks."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            if f"\nPPid:\t{launcher}\n" in status.read_text():
                found.append(int(status.parent.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def last_complete(folder):
    """The step of the last complete checkpoint, None where there is none."""
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    steps = [int(match.group(1)) for match in map(CHECKPOINT.match, names) if match]
    return max(steps, default=None)


class CheckpointKillTest(unittest.TestCase):
    def words(self, more):
        return [GRADWIRE, "run", "-n", str(RANKS), "--deadline", "10", "--", GRADWIRE, "train", "--steps", str(STEPS),
                "--batch", "48", "--seed", "5", *([] if "--hidden" in more else ["--hidden", "16"]),
                "--compressor", "topk:ratio=0.05,ef=ef14,min_elems=0", *more]

    def start(self, folder, more, transport=None):
        log = open(folder / "log", "w")
        environment = dict(os.environ, **({"GRADWIRE_TRANSPORT": transport} if transport else {}))
        job = subprocess.Popen(self.words(more), stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=environment)
        log.close()
        return job

    def wait(self, job):
        try:
            return job.wait(timeout=PATIENCE)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()

    def await_saving(self, job, run, draw):
        """Until a checkpoint is being written, a few more milliseconds at random; False if the job ended by itself."""
        until = time.monotonic() + PATIENCE
        passed = draw.randrange(3)  # so many that are left to finish
        left_over = set(os.listdir(run)) if run.exists() else set()  # by the job before
        seen = set()
        while job.poll() is None:
            self.assertLess(time.monotonic(), until, "no checkpoint is written")
            names = set(os.listdir(run)) if run.exists() else set()
            seen.update(name for name in names - left_over if name.endswith(".part"))
            if len(seen) > passed:
                time.sleep(draw.random() * 0.01)
                return True
            time.sleep(0.0005)
        return False

    def kill(self, job, all_of_them, draw):
        ranks = ranks_of(job.pid)
        victims = [job.pid, *ranks] if all_of_them else ranks and [draw.choice(ranks)]
        for process in victims:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has just ended

    def run_killed(self, all_of_them, seed, most=MOST_KILLS, ways=((),)):
        """How often it was killed before it came to its end, at most `most` times. Starts have flags that change nothing, those
        of `ways` in turns."""
        draw = random.Random(seed)
        killed = 0
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            self.assertEqual(self.wait(self.start(folder, [*ways[0], "--save-params", str(folder / "whole")])), 0)
            run = folder / "run"
            more = ["--checkpoint", str(run), "--checkpoint-every", "4", "--resume", "--save-params", str(folder / "end")]
            for start in range(most + 1):
                before = last_complete(run)
                job = self.start(folder, [*ways[start % len(ways)], *more])
                if killed < most and self.await_saving(job, run, draw):
                    self.kill(job, all_of_them, draw)
                    killed += 1
                status = self.wait(job)
                output = (folder / "log").read_text()
                said = re.search(r"resuming from .*|no complete checkpoint .*", output)
                if said or status == 0:  # a launcher that was killed may have kept the line to itself
                    wanted = f"resuming from {run}/step-{before or 0:010d}: {before} of {STEPS} step(s) done"
                    self.assertIn(f"no complete checkpoint in {run}" if before is None else wanted, said.group(0))
                if status == 0:
                    break
            self.assertEqual(status, 0, output)
            self.assertEqual(last_complete(run), STEPS)
            self.assertEqual((folder / "end").read_bytes(), (folder / "whole").read_bytes())
            self.assertEqual([n for n in os.listdir(run) if not CHECKPOINT.match(n)], [])
        return killed

    def await_moment(self, job, run, moment, log):
        """Until the job has said where it starts and a checkpoint of its own is so far, or farther; False if it ended by
        itself."""
        until = time.monotonic() + PATIENCE
        before = set(os.listdir(run)) if run.exists() else set()
        wanted = MOMENTS.index(moment)
        said = False
        while job.poll() is None:
            self.assertLess(time.monotonic(), until, f"no checkpoint comes to '{moment}'")
            said = said or "step(s) done" in log.read_text() or "starting from step 0" in log.read_text()
            for name in (set(os.listdir(run)) if run.exists() else set()) - before if said else ():
                if CHECKPOINT.match(name):
                    return True
                try:
                    held = os.listdir(run / name)
                except OSError:
                    continue  # it has just got its name
                if (2 if "manifest.json" in held else 1 if held else 0) >= wanted:
                    return True
            time.sleep(0.0002)
        return False

    def test_the_power_cord_over_ucx(self):
        """Launcher and all ranks, processes over UCX, die at once, at several moments of a checkpoint; the next start takes the
        last complete one and says so."""
        if UCX == "none":
            self.skipTest("a build without UCX")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            run = folder / "run"
            wide = ["--hidden", "256,256"]  # files that take a moment
            self.assertEqual(self.wait(self.start(folder, [*wide, "--save-params", str(folder / "whole")], "ucx")), 0)
            more = [*wide, "--checkpoint", str(run), "--checkpoint-every", "4", "--resume", "--save-params", str(folder / "end")]
            killed = 0
            for moment in [*MOMENTS, *MOMENTS, None]:
                before = last_complete(run)
                job = self.start(folder, more, "ucx")
                if moment and self.await_moment(job, run, moment, folder / "log"):
                    victims = [job.pid, *ranks_of(job.pid)]
                    for process in victims:
                        try:
                            os.kill(process, signal.SIGKILL)
                        except ProcessLookupError:
                            pass  # it has just ended
                    killed += 1
                status = self.wait(job)
                output = (folder / "log").read_text()
                if before is None:
                    self.assertIn(f"no complete checkpoint in {run}: starting from step 0", output)
                else:
                    self.assertIn(f"resuming from {run}/step-{before:010d}: {before} of {STEPS} step(s) done", output)
                if status == 0:
                    break
            self.assertGreaterEqual(killed, len(MOMENTS))
            self.assertEqual(status, 0, output)
            self.assertEqual(last_complete(run), STEPS)
            self.assertEqual((folder / "end").read_bytes(), (folder / "whole").read_bytes())

    def test_all_at_once(self):
        self.run_killed(True, 1)

    def test_one_of_them(self):
        self.run_killed(False, 2)

    def test_stages(self):
        deep = ["--hidden", "16,12,16,12,16", "--accumulate", "4"]
        ways = [["--parallel", f"pp=3/{schedule}", *deep] for schedule in ("1f1b", "interleaved", "zb-h1")]
        self.assertGreater(self.run_killed(True, 3, most=4, ways=ways), 0)

    def test_random_moments(self):
        """Job after job, whose ranks, one of them or all, are killed KILLS times together."""
        killed = 0
        for number in range(KILLS + 10):  # one that ends by itself counts none
            if killed >= KILLS:
                break
            killed += self.run_killed(number % 2 == 0, 100 + number, min(MOST_KILLS, KILLS - killed))
        self.assertEqual(killed, KILLS)


if __name__ == "__main__":
    KILLS = int(sys.argv.pop(3)) if len(sys.argv) > 3 and sys.argv[3].isdigit() else 6
    UCX = sys.argv.pop(2)
    GRADWIRE = sys.argv.pop(1)
    unittest.main(verbosity=2)
