#!/usr/bin/env python3
"""What a rank may fork: a data loader's workers, and children that destroy the process group, touch nothing of the rank's."""

import gc
import os
import signal
import traceback
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import gradwire.torch
import ranks
import training

warnings.filterwarnings("ignore")

CHILD_SECONDS = 30
SPEC = "qsgd:bits=8,min_elems=0"


def in_child(action):
    """The exit code of a child that does this; 0: `action` has returned."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(CHILD_SECONDS)
            action()
            status = 0
        except BaseException:  # noqa: BLE001: whatever it is, the test shall print it
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refused_and_destroyed(held):
    try:
        dist.all_reduce(torch.ones(3))
    except RuntimeError:
        pass
    else:
        raise AssertionError("a child may reduce")
    try:
        held["receiving"].wait()
    except RuntimeError as error:
        assert "forked" in str(error), error
    else:
        raise AssertionError("a child may wait for its parent's receive")
    held.clear()  # the module, and what compresses its gradients
    gc.collect()
    dist.destroy_process_group()
    gc.collect()


def forks_amid_messages(rank, size, options):
    """Compressed steps, and a receive whose message is sent only after the fork."""
    held = {"module": DistributedDataParallel(training.mlp())}
    gradwire.torch.compress(held["module"], SPEC, **options)
    held["optimizer"] = torch.optim.SGD(held["module"].parameters(), lr=0.01)
    training.step_of(held["module"], held["optimizer"], rank, 0)
    inbox = torch.zeros(1000)
    held["receiving"] = dist.irecv(inbox, (rank + size - 1) % size)
    ended = in_child(lambda: refused_and_destroyed(held))
    assert ended == 0, f"the child ended with {ended}"
    dist.send(torch.full((1000,), float(rank)), (rank + 1) % size)
    held["receiving"].wait()
    assert torch.equal(inbox, torch.full((1000,), float((rank + size - 1) % size)))
    training.step_of(held["module"], held["optimizer"], rank, 1)
    return training.hash_of(held["module"])


def loads_in_workers(rank, size):
    """Workers are forked in every epoch and live beside the steps."""
    rows = TensorDataset(torch.arange(24, dtype=torch.float32))
    for _ in range(2):
        for (batch,) in DataLoader(rows, batch_size=6, num_workers=2, multiprocessing_context="fork"):
            total = batch.clone()
            dist.all_reduce(total)
            assert torch.equal(total, size * batch)


class Forks(unittest.TestCase):
    def test_children_that_destroy_the_group(self):
        for options in ({}, {"nonfinite": "skip"}):
            hashes = ranks.run(2, forks_amid_messages, options)
            self.assertEqual(hashes[0], hashes[1])

    def test_data_loaders(self):
        ranks.run(2, loads_in_workers)


if __name__ == "__main__":
    unittest.main()
