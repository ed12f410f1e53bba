#!/usr/bin/env python3
"""PyTorch's own PowerSGD hook, a chain of operations, over this backend.

    GRADWIRE_TEST_FULL=1 stock_hook_test.py [--gloo]

In blocking mode: 50 trainings of 20 steps with DDP's own buckets and 50 with twelve, each with a new group and a new DDP in the same
two processes; replicas are alike after each. In asynchronous mode it ends on every rank, with the error that names the way out; of tensors on
a device it trains, since futures are complete at the call.
--gloo says what Gloo makes of the same trainings instead, and accepts whatever that is. Without the variable: two trainings of each
kind.
"""

import datetime
import itertools
import os
import sys
import tempfile
import time
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import emulated
import gradwire.torch
import ranks
import selection
import training

warnings.filterwarnings("ignore")

SHORT = selection.short()
GLOO = "--gloo" in sys.argv
sys.argv = [argument for argument in sys.argv if argument != "--gloo"]
TRAININGS, STEPS, ROWS = (2 if SHORT else 50), 20, 32
SECONDS_OF_A_TRAINING = 300
# On a device also three ranks.
SIZES = (2,) if emulated.DEVICE == "cpu" else (2, 3)
OPERATION_SECONDS = 120  # of Gloo, which may wait for ever otherwise
# Both have ten million parameters, 0.3 on a device of the tests. A bucket holds whole tensors: the first has eight of them, the second
# twelve.
PART = 1 if emulated.DEVICE == "cpu" else 8
WIDE = (784, *[2048 // PART] * 3, 10)
DEEP = (784, *[1488 // PART] * 5, 10)
KINDS = {"default buckets": (WIDE, {} if PART == 1 else {"bucket_cap_mb": 25 / PART**2}), "12 buckets": (DEEP, {"bucket_cap_mb": 0.00003})}


def images(rank, step):
    return training.batch(rank, step, ROWS, WIDE[0])


def hooked(group, seed, widths, settings, seen):
    """A DDP with the hook as PyTorch documents it, which notes the numbers of its buckets in `seen`."""
    wrapped = DistributedDataParallel(training.mlp(seed, widths), process_group=group, **settings)
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=4, start_powerSGD_iter=2)

    def hook(state, bucket):
        seen.add(bucket.index())
        return powerSGD_hook.powerSGD_hook(state, bucket)

    hook.__annotations__ = powerSGD_hook.powerSGD_hook.__annotations__
    wrapped.register_comm_hook(state, hook)
    return wrapped


def ended_in(progress):
    """What rank 0 has noted there."""
    if not os.path.exists(progress):
        return "0"
    with open(progress, encoding="utf-8") as file:
        return file.read()


def group_of(blocking):
    if dist.get_backend() == "gloo":
        return dist.new_group(timeout=datetime.timedelta(seconds=OPERATION_SECONDS))
    return dist.new_group(pg_options=gradwire.torch.Options(blocking=blocking))


def trainings(rank, size, kind, count, progress):
    """How many buckets there were; rank 0 keeps the number of trainings that ended in the file `progress`."""
    widths, settings = KINDS[kind]
    started = time.monotonic()
    for seed in range(count):
        group, seen = group_of(blocking=True), set()
        wrapped = hooked(group, seed, widths, settings, seen)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
        for step in range(STEPS):
            seen.clear()  # DDP cuts anew after the first step
            training.step_of(wrapped, optimizer, rank, seed * STEPS + step, images)
        training.same_on_all(rank, size, wrapped.module, f"{kind}, training {seed}")
        dist.destroy_process_group(group)
        if rank == 0:
            each = (time.monotonic() - started) / (seed + 1)
            with open(progress, "w", encoding="utf-8") as file:
                file.write(str(seed + 1))
            print(f"{kind}: training {seed + 1} of {count}, {each:.1f} s each, {each * (count - seed - 1):.0f} s left", flush=True)
    return len(seen)


def asynchronous(rank, size, kind):
    """What the hook ends with, and how long after the training began."""
    widths, settings = KINDS[kind]
    wrapped = hooked(group_of(blocking=False), 0, widths, settings, set())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    started = time.monotonic()
    try:
        for step in range(STEPS):
            training.step_of(wrapped, optimizer, rank, step, images)
        training.same_on_all(rank, size, wrapped.module, f"{kind}, asynchronous")
    except RuntimeError as error:
        return str(error), time.monotonic() - started
    return "", time.monotonic() - started


class StockHook(unittest.TestCase):
    def train(self, kind, size):
        with tempfile.TemporaryDirectory() as folder:
            progress = os.path.join(folder, "progress")
            try:
                return ranks.run(size, trainings, kind, TRAININGS, progress, seconds=TRAININGS * SECONDS_OF_A_TRAINING)
            finally:
                done = ended_in(progress)
                print(f"gradwire, blocking, {kind}, {size} ranks: {done} of {TRAININGS} trainings of {STEPS} steps ended with equal replicas", flush=True)

    def test_blocking_with_default_buckets(self):
        for size in SIZES:
            for buckets in self.train("default buckets", size):
                self.assertGreater(buckets, 1)

    def test_blocking_with_twelve_buckets(self):
        for size in SIZES:
            self.assertEqual(self.train("12 buckets", size), [12] * size)

    def test_asynchronous_mode_names_the_way_out(self):
        for kind, size in itertools.product(KINDS, SIZES):
            for rank, (text, took) in enumerate(ranks.run(size, asynchronous, kind)):
                print(f"gradwire, asynchronous, {kind}, rank {rank}: after {took:.1f} s: {text}", flush=True)
                if emulated.DEVICE == "cpu":
                    self.assertIn("Options(blocking=True)", text)
                else:
                    self.assertEqual(text, "")


def record_gloo():
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            progress = os.path.join(folder, "progress")
            try:
                ranks.run(2, trainings, kind, TRAININGS, progress, backend="gloo", seconds=TRAININGS * SECONDS_OF_A_TRAINING)
                end = "ended"
            except AssertionError as error:
                end = "then: " + " | ".join(line for line in str(error).splitlines() if not line.startswith("  "))
            print(f"gloo, {kind}: {ended_in(progress)} of {TRAININGS} trainings, {end}", flush=True)


if __name__ == "__main__":
    if GLOO:
        record_gloo()
    else:
        unittest.main()
