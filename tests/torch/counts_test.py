#!/usr/bin/env python3
"""What a step of compress() asks of the host for tensors on a device, by method: how many points of streams it waits for or looks at,
and how many kernels it launches, in each bucket of DDP. The emulator counts; a method that comes to want more fails.
"""

import ctypes
import os
import unittest
import warnings

import torch
from torch.nn.parallel import DistributedDataParallel

import emulated
import gradwire.torch
import methods_test
import ranks
import training

warnings.filterwarnings("ignore")

WIDTHS = (64, 128, 128, 10)  # of a perceptron of six tensors
EVERYTHING = "dense_1d=false,min_elems=0"
# At most (host waits, kernels) in a bucket of six tensors.
MOST = {
    "none": (11, 6), "lossless": (22, 24), "cast": (11, 12), "fp8": (50, 54), "mx": (50, 54), "natural": (32, 42),
    "topk": (29, 54), "threshold": (42, 42), "dgc": (41, 78), "randomk": (17, 54), "block_sparse": (41, 60),
    "cltk": (26, 84), "minmax": (50, 54), "absmax": (50, 54), "qsgd": (50, 67), "terngrad": (26, 28),
    "global_qsgd": (26, 24), "thc": (38, 60), "signsgd": (50, 54), "onebit": (50, 54), "signum": (23, 12),
    "powersgd": (32, 45), "acpsgd": (32, 39), "atomo": (23, 21),
}
STEPS = 3  # the last one counts: what is made once has been made


def counters():
    calls = ctypes.CDLL(os.environ["GRADWIRE_LIBRARY"])
    calls.test_host_waits.restype = calls.test_launches.restype = ctypes.c_size_t
    return lambda: (calls.test_host_waits(), calls.test_launches(0))


def count(rank, size, specs):
    """(waits, launches) in a bucket of each spec's last step."""
    counted, now = {}, counters()
    for method, spec in specs.items():
        wrapped = DistributedDataParallel(training.mlp(1, WIDTHS), bucket_cap_mb=1)
        compression = gradwire.torch.compress(wrapped, methods_test.spec_for(method, EVERYTHING))
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.001)
        for step in range(STEPS):
            compression.stats()  # ends the step before
            before = now()
            training.step_of(wrapped, optimizer, rank, step, lambda rank, step: training.batch(rank, step, columns=WIDTHS[0]))
        assert compression.stats()["steps"] == STEPS
        buckets = len(str(wrapped._get_ddp_logging_data().get("rebuilt_bucket_sizes", "0")).split(","))
        counted[method] = tuple((after - earlier) / buckets for after, earlier in zip(now(), before))
    return counted


class Counts(unittest.TestCase):
    @unittest.skipUnless(emulated.DEVICE != "cpu", "counts what is asked of a device")
    def test_a_bucket_of_each_method(self):
        counted = ranks.run(2, count, methods_test.SPECS)[0]
        print("\n| method | host waits a bucket | kernels a bucket |\n|---|---|---|")
        for method, (waits, launches) in counted.items():
            print(f"| `{method}` | {waits:g} | {launches:g} |", flush=True)
        for method, (waits, launches) in counted.items():
            most_waits, most_launches = MOST[method]
            self.assertLessEqual(waits, most_waits, method)
            self.assertLessEqual(launches, most_launches, method)
            self.assertGreater(launches, 0, method)


if __name__ == "__main__":
    unittest.main()
