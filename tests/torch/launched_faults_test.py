#!/usr/bin/env python3
"""Ranks of a launcher die or stop {before, during, after} a step of DDP, with and without compress().

    GRADWIRE_TEST_FULL=1 launched_faults_test.py

Started by `gradwire run`: each survivor's backward or next collective raises DistBackendError (through the hook's Python a
RuntimeError of the same text) that names rank, operation and time, within the liveness and a second; the group is left within two.
torchrun ends survivors itself: the job ends, with an error, and no process stays. A rank that is late by half a minute, where
operations may take one, is no error. Without the variable: a case of each launcher, without the limits of time, for busy machines.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import fault_rank
import selection

SHORT = selection.short()
PROGRAM = selection.program()
RANKS = 3
SCRIPT = str(pathlib.Path(fault_rank.__file__).resolve())
TOP_K = "topk:ratio=0.1,ef=ef14,dense_1d=false,min_elems=0"
SPECS = {"dense": None, "compressed": TOP_K}
LIVENESS = 6.0 if SHORT else 5.0
JOB_SECONDS = 600.0
GONE_SECONDS = 60.0
LATE = 10.0 if SHORT else 30.0
SAMPLE = {("gradwire_run", "SIGKILL", "during", "compressed"), ("torchrun", "SIGKILL", "after", "dense")}


def command_of(launcher, folder, how, moment, spec):
    words = [SCRIPT, folder, how, moment, str(LIVENESS), *([spec] if spec else [])]
    if launcher == "gradwire_run":
        return [PROGRAM, "run", "-n", str(RANKS), "--", sys.executable, *words]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), *words]


def run_job(launcher, folder, how, moment, spec):
    """Exit status and output."""
    command = command_of(launcher, folder, how, moment, spec)
    environment = {**os.environ, fault_rank.LATE_SECONDS: str(LATE)}
    result = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=JOB_SECONDS, check=False
    )
    return result.returncode, result.stdout


def read(folder, name):
    path = pathlib.Path(folder) / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def is_rank(process):
    """Whether that process still runs the script: numbers are used again."""
    try:
        return SCRIPT.encode() in pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


class LaunchedFaults(unittest.TestCase):
    def check_gone(self, folder, what):
        deadline = time.monotonic() + GONE_SECONDS
        for rank in range(RANKS):
            process = read(folder, f"pid-{rank}")
            self.assertIsNotNone(process, f"{what}: rank {rank} did not start")
            while is_rank(process) and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertFalse(is_rank(process), f"{what}: rank {rank} is still there")

    def check_survivor(self, folder, rank, label, what):
        raised, left = read(folder, f"raised-{rank}"), read(folder, f"left-{rank}")
        self.assertIsNotNone(raised, f"{what}: rank {rank} raised nothing")
        self.assertIsNotNone(left, f"{what}: rank {rank} did not leave its group")
        kind, text, when = raised
        took = when - read(folder, "fault")
        said = f"{what}, rank {rank}: {kind}: {text}; {took:.2f} s after the fault, {left:.2f} s to leave"
        print(said, flush=True)
        self.assertIn(kind, ("DistBackendError",) if label == "dense" else ("DistBackendError", "RuntimeError"), said)
        self.assertRegex(text, rf"rank {fault_rank.DOOMED} .* in [a-z_]+ .*after [0-9.]+ m?s", said)
        if not SHORT:
            self.assertLess(took, LIVENESS + 1.0, said)
            self.assertLess(left, 2.0, said)

    def check(self, launcher, how, moment, label):
        what = f"{launcher}, {how} {moment} a step, {label}"
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            status, output = run_job(launcher, folder, how, moment, SPECS[label])
            print(f"{what}: ended with status {status} after {time.monotonic() - started:.1f} s", flush=True)
            self.assertNotEqual(status, 0, f"{what}: {output}")
            self.assertIsNotNone(read(folder, "fault"), f"{what}: no fault came to be: {output}")
            self.check_gone(folder, what)
            if launcher == "gradwire_run":
                for rank in range(RANKS):
                    if rank != fault_rank.DOOMED:
                        self.check_survivor(folder, rank, label, f"{what}: {output}" if read(folder, f"left-{rank}") is None else what)

    def check_late(self, launcher, moment, label):
        with tempfile.TemporaryDirectory() as folder:
            status, output = run_job(launcher, folder, "late", moment, SPECS[label])
            self.assertEqual(status, 0, f"{launcher}, a rank {LATE:.0f} s late {moment} a step, {label}: {output}")
            print(f"{launcher}, a rank {LATE:.0f} s late {moment} a step, {label}: no error", flush=True)
            self.check_gone(folder, "late")


def add_cases():
    for launcher in ("gradwire_run", "torchrun"):
        for moment in ("before", "during", "after"):
            for label in SPECS:
                for how in ("SIGKILL", "SIGSTOP"):
                    if SHORT and (launcher, how, moment, label) not in SAMPLE:
                        continue

                    def case(self, launcher=launcher, how=how, moment=moment, label=label):
                        self.check(launcher, how, moment, label)

                    setattr(LaunchedFaults, f"test_{launcher}_{how.lower()}_{moment}_{label}", case)
                if SHORT or launcher == "torchrun" or moment == "after":
                    continue

                def late(self, launcher=launcher, moment=moment, label=label):
                    self.check_late(launcher, moment, label)

                setattr(LaunchedFaults, f"test_{launcher}_late_{moment}_{label}", late)


add_cases()

if __name__ == "__main__":
    if PROGRAM is None:
        selection.skip_all("gradwire was not found (GRADWIRE_PROGRAM wanted)")
    unittest.main()
