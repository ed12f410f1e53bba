"""How a training run ends that does not come to its last step, and what it leaves: a loss that is not finite, a folder that
another run writes to. usage: train_endings_test.py GRADWIRE UCX_VERSION|none"""

import array
import ctypes
import json
import math
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SECONDS = 90  # after which the test gives up: far above anything that is promised
# A rate at which the second or third step overflows, in every mode.
DIVERGES = ["--batch", "36", "--hidden", "32,32,32", "--lr", "1e6", "--steps", "60"]
GOOD = ["--batch", "36", "--hidden", "32,32,32", "--lr", "0.05"]
MODES = [[], ["--mode", "ps-sync"], ["--mode", "ps-async"], ["--mode", "fedavg"], ["--mode", "easgd"], ["--mode", "sync-easgd"],
         ["--mode", "eamsgd"], ["--mode", "eamsgd", "--asynchronous"], ["--mode", "hogwild"]]


def environment(transport=None):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("GRADWIRE_", "UCX_"))}
    return own | ({"GRADWIRE_TRANSPORT": transport} if transport else {})


def run(*words, transport=None):
    return subprocess.run([GRADWIRE, *words], capture_output=True, text=True, timeout=SECONDS, env=environment(transport))


def job(ranks, *words):
    return ["run", "-n", str(ranks), "--timeout", str(SECONDS), "--", GRADWIRE, "train", *words]


def transports():
    return ["tcp", "shm"] + ([] if UCX == "none" else ["ucx"])


def steps_in(folder):
    """Of all complete checkpoints, ascending."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name[5:]) for name in names if name.startswith("step-"))


def parameters(folder, step):
    """All elements of the model that a checkpoint holds, by tensor."""
    path = pathlib.Path(folder) / f"step-{step:010d}"
    tensors = json.loads((path / "manifest.json").read_text())["checkpoint"]
    found = {}
    for name, tensor in tensors["tensors"].items():
        if not name.startswith("parameters/"):
            continue
        values = array.array("f")
        for part in tensor["slices"]:
            data = (path / tensors["files"][part["file"]]["name"]).read_bytes()
            (length,) = struct.unpack("<Q", data[:8])
            begin, end = json.loads(data[8:8 + length])[part["entry"]]["data_offsets"]
            values.frombytes(data[8 + length + begin:8 + length + end])
        found[name] = values
    return found


class Endings(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.run = str(self.root / "run")

    def metrics(self, name="m"):
        return [json.loads(line) for line in (self.root / name).read_text().splitlines()]


class NotFinite(Endings):
    def check(self, done, metrics):
        """Of a run that diverged in its first steps."""
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        *rows, totals = metrics
        self.assertIsNone(rows[-1]["loss"])
        self.assertEqual([row["loss"] is None for row in rows[:-1]], [False] * (len(rows) - 1))
        self.assertEqual((totals["diverged"], totals["steps"]), (True, len(rows)))
        self.assertNotIn("accuracy", totals)
        self.assertIn(f"loss of step {len(rows)} ", done.stderr)

    def test_ends_the_run_in_every_mode(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                done = run("train", "--inproc", "3", *DIVERGES, *mode, "--metrics", str(self.root / "m"))
                self.check(done, self.metrics())

    def test_ends_a_job_of_processes(self):
        for transport in transports():
            for mode in ([], ["--mode", "ps-sync", "--servers", "2"], ["--mode", "fedavg", "--local-steps", "1"]):
                with self.subTest(transport=transport, mode=mode):
                    done = run(*job(4, *DIVERGES, *mode, "--metrics", str(self.root / "m")), transport=transport)
                    self.check(done, self.metrics())

    def test_never_takes_the_place_of_a_good_checkpoint(self):
        for number, mode in enumerate(MODES):
            with self.subTest(mode=mode):
                folder = self.run + str(number)
                saves = ["--checkpoint", folder, "--checkpoint-every", "1", "--checkpoint-keep", "1"]
                done = run("train", "--inproc", "3", *GOOD, *mode, *saves, "--steps", "4")
                self.assertEqual(done.returncode, 0, done.stderr)
                done = run("train", "--inproc", "3", *DIVERGES, *mode, *saves, "--resume", "--metrics", str(self.root / "m"))
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                saved = steps_in(folder)
                for name, values in parameters(folder, saved[-1]).items():
                    self.assertTrue(all(map(math.isfinite, values)), name)
                # With the last one the next loss may be infinite. One stays that training can go on from.
                slow = ["--inproc", "3", *GOOD, "--lr-schedule", "step:0:1e-7", *mode, *saves, "--resume"]
                done = run("train", *slow, "--steps", str(saved[-1] + 2))
                if done.returncode != 0:
                    shutil.rmtree(pathlib.Path(folder) / f"step-{saved[-1]:010d}")
                    done = run("train", *slow, "--steps", str(saved[-1] + 2))
                self.assertEqual(done.returncode, 0, f"{saved} {done.stderr}")

    def test_a_model_that_cannot_be_saved_ends_with_totals(self):
        # Of weights that decay by lr * decay = 1e12 a step, which is growth: the model overflows before a loss does.
        grows = ["--lr", "1e6", "--weight-decay", "1e6"]
        # Modes without decay: after the sixth step no float is as large as the rate. A thread alone does not hear of it
        # from another one's loss.
        leaps = ["--lr", "1", "--lr-schedule", "step:0.1:1e60"]
        cases = [(3, [*grows, *mode]) for mode in ([], ["--zero", "2"], ["--mode", "ps-sync"], ["--mode", "ps-async"])]
        cases += [(3, [*leaps, *mode]) for mode in (["--mode", "fedavg", "--local-steps", "1"], ["--mode", "easgd"],
                                                    ["--mode", "sync-easgd"], ["--mode", "eamsgd"], ["--mode", "eamsgd", "--asynchronous"])]
        cases += [(1, [*leaps, "--mode", "hogwild"])]
        always = ["--model", "logistic", "--batch", "36", "--momentum", "0", "--steps", "60", "--checkpoint-every", "1"]
        for number, (ranks, words) in enumerate(cases):
            with self.subTest(words=words):
                folder = self.run + str(number)
                done = run("train", "--inproc", str(ranks), *always, *words, "--checkpoint", folder, "--metrics", str(self.root / "m"))
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertRegex(done.stderr, r"checkpoint: rank \d+: (parameters/|rank-)[^ ]+: element \d+ is (-?inf|nan) ")
                *rows, totals = self.metrics()
                self.assertEqual((totals["diverged"], totals["steps"]), (True, len(rows)))
                self.assertNotIn("accuracy", totals)
                self.assertTrue(all(row["loss"] is not None for row in rows))
                self.assertEqual(steps_in(folder)[-1:], [len(rows) - 1])
                if "--lr-schedule" in words:
                    self.assertEqual(len(rows), 7)

    def test_is_a_result_of_a_sweep_and_of_its_rules(self):
        study = self.root / "study.toml"
        study.write_text("""
            inproc = 1
            [train]
            batch = 36
            hidden = "32,32,32"
            steps = 30
            [[row]]
            compressor = "none"
            [[row]]
            name = "too fast"
            compressor = "none"
            lr = 1e6
            [[accept]]
            row = "too fast"
            at_most = 0
            """)
        out = str(self.root / "out")
        done = run("sweep", str(study), "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 complete, 1 diverged, 0 failed", done.stdout)
        again = run("sweep", str(study), "--out", out, "--resume")
        self.assertRegex(again.stderr, r"\b2 finished")
        report = run("report", out)
        self.assertEqual(report.returncode, 0, report.stderr)
        self.assertRegex(report.stdout, r"too fast +diverged")
        self.assertRegex(report.stdout, r"accepted +\+0\.00")
        (record,) = [json.loads(path.read_text()) for path in pathlib.Path(out).glob("runs/too-fast*/run.json")]
        self.assertEqual((record["outcome"], record["exit_status"]), ("diverged", 1))


class AFolderThatCannotBeWritten(Endings):
    def run_without_right(self, *words):
        """As a user who may do what the mode of files says alone, root too."""
        of_root = ctypes.CDLL(None, use_errno=True)
        drop, cap_dac_override = 24, 1  # PR_CAPBSET_DROP; without root's rights there is nothing to drop
        return subprocess.run([GRADWIRE, *words], capture_output=True, text=True, timeout=SECONDS, env=environment(),
                              preexec_fn=lambda: of_root.prctl(drop, cap_dac_override, 0, 0, 0))

    def test_is_refused_unless_no_step_is_left(self):
        for number, mode in enumerate(([], ["--mode", "fedavg"], ["--mode", "hogwild"])):
            with self.subTest(mode=mode):
                folder = self.run + str(number)
                words = ["train", "--inproc", "2", *GOOD, *mode, "--checkpoint", folder, "--resume"]
                self.assertEqual(run(*words, "--steps", "4").returncode, 0)
                os.chmod(folder, 0o555)
                self.addCleanup(os.chmod, folder, 0o755)
                before = sorted(os.listdir(folder))
                done = self.run_without_right(*words, "--steps", "4")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("4 of 4", done.stdout + done.stderr)
                more = self.run_without_right(*words, "--steps", "6")
                self.assertEqual(more.returncode, 1, more.stderr)
                self.assertIn(folder, more.stderr)
                self.assertNotIn("step 5", more.stderr)  # before it has trained
                self.assertEqual(sorted(os.listdir(folder)), before)

    def test_is_refused_to_a_run_that_begins(self):
        os.mkdir(self.run, 0o555)
        for more in ([], ["--resume"], ["--mode", "fedavg"]):
            with self.subTest(more=more):
                done = self.run_without_right("train", "--inproc", "2", *GOOD, "--steps", "4", "--checkpoint", self.run, *more)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(self.run, done.stderr)


class OneFolder(Endings):
    def start(self, *words, transport=None):
        with open(self.root / "log", "w", encoding="utf-8") as log:
            process = subprocess.Popen([GRADWIRE, *words], stdout=log, stderr=log, env=environment(transport))
        self.addCleanup(process.wait, SECONDS)
        self.addCleanup(process.kill)
        return process

    def await_checkpoint(self, process):
        until = time.monotonic() + SECONDS
        while not steps_in(self.run):
            self.assertIsNone(process.poll(), (self.root / "log").read_text())
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def test_a_second_run_is_refused_and_named_the_first(self):
        saves = ["--checkpoint", self.run, "--checkpoint-every", "1"]
        long = [*GOOD, "--steps", "100000000", *saves]
        kinds = [["train", "--inproc", "2"], ["train", "--mode", "fedavg", "--inproc", "2", "--local-steps", "1"]]
        for words in [[*kind, *long] for kind in kinds] + [job(2, *long)]:
            with self.subTest(words=words):
                first = self.start(*words)
                self.await_checkpoint(first)
                for more in ([], ["--resume"]):
                    second = run(*words, *more)
                    self.assertEqual(second.returncode, 1, second.stdout)
                    self.assertRegex(second.stderr, rf"gradwire: error: .*'{re.escape(self.run)}'.*\bprocess \d+")
                self.assertIsNone(first.poll())
                first.kill()
                first.wait(SECONDS)
                # However it ended, the folder is free again.
                done = run(*words, "--resume", "--dry-run")
                self.assertEqual(done.returncode, 0, done.stderr)
                last = steps_in(self.run)[-1]
                shorter = [str(last + 500) if word == "100000000" else word for word in words]
                done = run(*shorter, "--resume")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual([name for name in os.listdir(self.run) if not name.startswith("step-")], [])
                for name in os.listdir(self.run):
                    for path in (pathlib.Path(self.run) / name).iterdir():
                        path.unlink()
                    (pathlib.Path(self.run) / name).rmdir()

    def test_a_folder_that_cannot_be_locked_is_said_to_be_open(self):
        for number, mode in enumerate(([], ["--mode", "fedavg"])):
            with self.subTest(mode=mode):
                folder = self.run + str(number)
                os.makedirs(folder + "/.lock")  # where the file of the lock would be
                for steps in ("2", "4"):
                    done = run("train", "--inproc", "2", *GOOD, *mode, "--steps", steps, "--checkpoint", folder, "--resume")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(f"'{folder}/.lock'", done.stdout)


if __name__ == "__main__":
    GRADWIRE, UCX = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
    unittest.main()
