#!/usr/bin/env python3
"""The two ways in which operations complete, registration, options, and the refusals' words."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import emulated
import gradwire.torch
import gradwire_torch_autoload
import ranks
import training

warnings.filterwarnings("ignore")


SIZES = (2,) if emulated.DEVICE == "cpu" else (2, 3)


def blocking(_backend):
    return {"pg_options": gradwire.torch.Options(blocking=True)}


def stock_power_sgd(rank, size, trainings, steps, settings, widths):
    for seed in range(trainings):
        group = dist.new_group(pg_options=gradwire.torch.Options(blocking=True))
        wrapped = DistributedDataParallel(training.mlp(seed, widths), process_group=group, **settings)
        state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.1)
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
        for step in range(steps):
            training.step_of(wrapped, optimizer, rank, step)
        training.same_on_all(rank, size, wrapped.module, f"training {seed}")
        dist.destroy_process_group(group)


def chained_asynchronously(rank, size):
    """On one rank the first operation ends late, so that its callback runs apart and issues the second one."""

    def again(done):
        tensor = done.value()[0]
        dist.all_reduce(tensor)
        return tensor

    import time

    if rank == 1:
        time.sleep(0.3)
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(again)
    if emulated.here() != "cpu":  # complete at the call, so that callbacks run there, in one order on all ranks
        assert future.wait().tolist() == [size * size] * 4
        return
    try:
        future.wait()
        if rank == 0:
            raise AssertionError("a collective from a callback was taken")
        dist.all_reduce(torch.ones(4))
        raise AssertionError("the other rank's collective was completed by nobody")
    except RuntimeError as error:
        assert "Options(blocking=True)" in str(error), error


def by_environment(_backend):
    os.environ["GRADWIRE_BLOCKING"] = "1"
    return {}


def complete_at_once(rank, size):
    for _ in range(20):
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        assert work.is_completed() and work.get_future().done()


def timed_out(rank, size):
    import datetime
    import time

    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    if rank == 1:
        time.sleep(4)
        return None
    started = time.monotonic()
    try:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        work.wait(*([] if emulated.here() == "cpu" else [datetime.timedelta(seconds=60)]))  # else the stream waits
        raise AssertionError("an all-reduce without rank 1 ended")
    except dist.DistBackendError as error:
        took = time.monotonic() - started
        assert "all_reduce reached its timeout of 1000 ms" in str(error) and "rank 1" in str(error), error
        assert took < 3.5, took
    time.sleep(1)
    return None


def hooks_after_their_group(rank, size):
    """The second operation of a batch ends behind what is chained to the first one, when its group has gone."""
    import threading
    import time

    import gradwire.torch._groups as groups

    group = dist.new_group()
    seen, begun, gone = [], threading.Event(), threading.Event()
    group._register_on_completion_hook(lambda info: seen.append(info.op_type))
    if rank == 1:
        time.sleep(0.5)  # rank 0's batch ends later, and apart
    place = torch.device(emulated.here())
    group._start_coalescing(place)
    first = dist.all_reduce(torch.ones(4), group=group, async_op=True)
    dist.all_reduce(torch.ones(4), group=group, async_op=True)
    if rank == 0 and place.type == "cpu":  # on a device it is complete, and the callback would run here
        first.get_future().then(lambda _: (begun.set(), gone.wait(60)))
    batch = group._end_coalescing(place)
    batch.wait()
    del batch, first
    assert rank == 1 or place.type != "cpu" or begun.wait(60)
    dist.distributed_c10d._abort_process_group(group)  # destroy_process_group() would wait for the callback
    del group
    groups._groups.close()  # as at the process' end: waits 2 s, and lets the group go
    gone.set()
    deadline = time.monotonic() + 60
    while len(seen) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(seen) == 3, f"{seen}: the batch and its two operations wanted"


class Modes(unittest.TestCase):
    @unittest.skipIf(emulated.DEVICE != "cpu", "PyTorch has completion hooks for groups of one device alone")
    def test_completion_hooks_outlive_their_group(self):
        ranks.run(2, hooks_after_their_group, seconds=120)

    def test_power_sgd_of_pytorch_in_blocking_mode(self):
        for settings in ({}, {"bucket_cap_mb": 0.001}):
            for size in SIZES:
                ranks.run(size, stock_power_sgd, 2, 8, settings, (12, 32, 32, 32, 16, 4), seconds=120)

    def test_collective_in_a_callback_names_the_option(self):
        for size in SIZES:
            ranks.run(size, chained_asynchronously)

    def test_the_environment_chooses_blocking(self):
        for size in SIZES:
            ranks.run(size, complete_at_once, setup=by_environment)

    def test_a_timeout_names_the_late_rank(self):
        for size in SIZES:
            ranks.run(size, timed_out)


class Registration(unittest.TestCase):
    def test_twice_is_harmless_and_a_foreign_one_is_refused(self):
        gradwire.torch.register()
        gradwire_torch_autoload.autoload()
        plugin = dist.Backend._plugins["GRADWIRE"]
        self.assertIs(plugin.creator_fn, gradwire_torch_autoload.create)
        try:
            dist.Backend._plugins["GRADWIRE"] = plugin._replace(creator_fn=print)
            with self.assertRaisesRegex(RuntimeError, "registered .* already, by builtins"):
                gradwire.torch.register()
            gradwire_torch_autoload.autoload()  # never raises
        finally:
            dist.Backend._plugins["GRADWIRE"] = plugin

    def test_options_are_checked(self):
        self.assertTrue(gradwire.torch.Options(blocking=True).blocking)
        with self.assertRaisesRegex(ValueError, "liveness=-1"):
            gradwire.torch.Options(liveness=-1)
        with self.assertRaisesRegex(TypeError, "expected gradwire.torch.Options"):
            gradwire.torch._create(None, "blocking")
        with self.assertRaisesRegex(TypeError, "Linear .expected DistributedDataParallel"):
            gradwire.torch.compress(torch.nn.Linear(1, 1), "none")


class Refusals(unittest.TestCase):
    """What users read, in processes of their own."""

    def import_with(self, prelude, **environment):
        program = f"{prelude}\nimport gradwire.torch"
        result = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
        )
        self.assertNotEqual(result.returncode, 0, result.stderr)
        return result.stderr.strip().splitlines()[-1]

    def test_without_torch(self):
        text = self.import_with("import sys; sys.modules['torch'] = None")
        self.assertIn("gradwire.torch needs PyTorch 2.5 or later, found none", text)

    def test_old_torch(self):
        with tempfile.TemporaryDirectory() as folder:  # found before the installed one
            (pathlib.Path(folder) / "torch").mkdir()
            (pathlib.Path(folder) / "torch/__init__.py").write_text("__version__ = '1.13.1'\n")
            text = self.import_with("", PYTHONPATH=os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])]))
        self.assertIn("gradwire.torch needs PyTorch 2.5 or later, found 1.13.1", text)

    def test_without_a_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.import_with("", CXX="no-such-compiler", GRADWIRE_CACHE=folder)
        self.assertIn("'no-such-compiler' was not found", text)

    def test_an_extension_of_another_torch(self):
        from gradwire.torch import _extension

        with tempfile.TemporaryDirectory() as folder:
            there = pathlib.Path(folder) / _extension.build().parent.name
            there.mkdir()
            (there / "_torch_backend.so").write_bytes(b"no library")
            text = self.import_with("", GRADWIRE_CACHE=folder)
        self.assertIn("does not fit torch", text)


if __name__ == "__main__":
    unittest.main()
