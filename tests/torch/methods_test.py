#!/usr/bin/env python3
"""compress() with every method that specs can name: ten steps of two models on three ranks leave replicas alike, bit for bit.

    GRADWIRE_TEST_FULL=1 methods_test.py [METHOD ...]

The models are the multilayer perceptron of ten million parameters and a small transformer. Without the variable: a small perceptron,
five steps of it, on two ranks (on a device also three), all methods in one job.
"""

import sys
import time
import unittest
import warnings

import torch
from torch.nn.parallel import DistributedDataParallel

import emulated
import gradwire.specs
import gradwire.torch
import ranks
import selection
import training

warnings.filterwarnings("ignore")

SHORT = selection.short()
RANKS, STEPS = ((2,), 5) if SHORT else ((3,), 10)
if SHORT and emulated.DEVICE != "cpu":
    RANKS = (2, 3)
SECONDS = 3600
WIDTHS = (784, 2048, 2048, 2048, 10)
FEEDBACK = "ef=ef14"
# What a method's page says to start with: error feedback where it is biased, a share of the elements where it wants one.
SPECS = {
    "none": "none",
    "lossless": "lossless",
    "cast": "cast:bf16",
    "fp8": "fp8:" + FEEDBACK,
    "mx": "mx:e4m3," + FEEDBACK,
    "natural": "natural",
    "topk": "topk:ratio=0.01," + FEEDBACK,
    "threshold": "threshold:tau=0.001," + FEEDBACK,
    "dgc": "dgc:ratio=0.001",
    "randomk": "randomk:ratio=0.01," + FEEDBACK,
    "block_sparse": "block_sparse",
    "cltk": "cltk:ratio=0.01," + FEEDBACK,
    "minmax": "minmax:" + FEEDBACK,
    "absmax": "absmax:" + FEEDBACK,
    "qsgd": "qsgd:bits=4," + FEEDBACK,
    "terngrad": "terngrad",
    "global_qsgd": "global_qsgd",
    "thc": "thc:" + FEEDBACK,
    "signsgd": "signsgd:" + FEEDBACK,
    "onebit": "onebit:" + FEEDBACK,
    "signum": "signum",
    "powersgd": "powersgd:rank=4," + FEEDBACK,
    "acpsgd": "acpsgd:rank=4," + FEEDBACK,
    "atomo": "atomo",
}
# They keep a momentum of their own, and step by signs where they send nothing else.
OWN_MOMENTUM = {"dgc", "signum"}


def models():
    """(name, module, batches, what the spec is given besides): without those two keys small tensors travel as they are."""
    everything = "dense_1d=false,min_elems=0"
    if SHORT:
        yield "small MLP", training.mlp(), training.batch, everything
        return
    yield "MLP of 10 M", training.mlp(1, WIDTHS), lambda rank, step: training.batch(rank, step, 32, WIDTHS[0]), ""
    yield "transformer", training.Attention(width=64), training.tokens, everything


def spec_for(method, keys):
    spec = SPECS[method]
    if not keys or method in ("none", "lossless"):
        return spec
    return spec + ("," if ":" in spec else ":") + keys


def train(rank, size, methods):
    """(model, spec, seconds, bytes of payload a step) of each method and model."""
    results = []
    for method, (name, model, batches, keys) in ((method, case) for method in methods for case in models()):
        spec = spec_for(method, keys)
        wrapped = DistributedDataParallel(model)
        compression = gradwire.torch.compress(wrapped, spec)
        before = training.hash_of(wrapped.module)
        momentum = 0.0 if method in OWN_MOMENTUM else 0.9
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.001, momentum=momentum)
        started = time.monotonic()
        for step in range(STEPS):
            training.step_of(wrapped, optimizer, rank, step, batches)
        seconds = time.monotonic() - started
        after = training.same_on_all(rank, size, wrapped.module, f"{spec}, {name}")
        assert after != before, f"{spec}, {name}: nothing was learnt"
        assert all(torch.isfinite(tensor).all() for tensor in wrapped.module.state_dict().values()), f"{spec}, {name}: no finite numbers"
        stats = compression.stats()
        assert stats["steps"] == STEPS and stats["payload_bytes"] > 0, f"{spec}, {name}: {stats}"
        results.append((name, spec, seconds, stats["payload_bytes"] / STEPS))
    return results


class Methods(unittest.TestCase):
    def check(self, methods):
        for size in RANKS:
            for name, spec, seconds, payload in ranks.run(size, train, methods, seconds=SECONDS)[0]:
                print(f"{spec}, {name}, {size} ranks, {STEPS} steps: alike, {payload:,.0f} bytes a step, {seconds:.1f} s", flush=True)

    def test_all_methods_are_here(self):
        self.assertEqual(set(SPECS), {method.name for method in gradwire.specs.methods()})


def add_cases():
    """Under GRADWIRE_TEST_FULL one of each method, else one of them all."""
    if SHORT:
        Methods.test_a_small_model_of_each = lambda self: self.check(list(SPECS))
        return
    for method in SPECS:

        def case(self, method=method):
            self.check([method])

        setattr(Methods, f"test_{method}", case)


add_cases()

if __name__ == "__main__":
    sys.argv[1:] = [f"Methods.test_{argument}" if argument in SPECS else argument for argument in sys.argv[1:]]
    unittest.main(verbosity=2)
