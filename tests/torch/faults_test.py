#!/usr/bin/env python3
"""A rank that dies or stops {before, during, after} a step of DDP: every survivor's backward or next collective raises, and names it.

Four cases; all twelve, and a rank that is late by half a minute, with GRADWIRE_TEST_FULL set, which wants a machine of its own: it
holds ranks to the times that are promised, where the four have patience.
"""

import datetime
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import emulated
import gradwire.torch
import training

warnings.filterwarnings("ignore")

WHOLE = bool(os.environ.get("GRADWIRE_TEST_FULL"))
LIVENESS = 3.0 if WHOLE else 6.0
# What a survivor may take beyond the liveness, and to destroy its group.
NOTICE, DESTROY = (1.0, 2.0) if WHOLE else (30.0, 30.0)
# Of all kinds of fault, moments and gradients, two of each, in another pair each time.
SAMPLE = {("SIGKILL", "before", "dense"), ("SIGKILL", "during", "compressed"), ("SIGSTOP", "during", "dense"), ("SIGSTOP", "after", "compressed")}
PATIENCE = 120.0  # seconds for anything
MOMENTS = ("before", "during", "after")
DOOMED = 1
SIZES = (3,) if emulated.DEVICE == "cpu" else (2, 3)
TOP_K = "topk:ratio=0.1,ef=ef14,dense_1d=false,min_elems=0"


def fail(how, ready):
    ready.set()
    os.kill(os.getpid(), how)


def survive(rank, wrapped, ready, first):
    """Steps until it raises; what it raised, and how long that took after the fault."""
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    fault = None
    try:
        for step in range(first, first + 100000):
            training.step_of(wrapped, optimizer, rank, step)
            if fault is None and ready.is_set():
                fault = time.monotonic()
    except RuntimeError as error:
        fault = fault or time.monotonic()
        return type(error).__name__, str(error), time.monotonic()
    return "nothing", "", time.monotonic()


def in_rank(rank, size, store, how, moment, spec, ready, noticed, pipe):
    torch.set_num_threads(1)
    dist.init_process_group(
        emulated.begin("gradwire"), rank=rank, world_size=size, store=dist.FileStore(store, size), timeout=datetime.timedelta(seconds=120),
        pg_options=gradwire.torch.Options(liveness=LIVENESS),
    )
    wrapped = DistributedDataParallel(training.mlp())
    if spec:
        gradwire.torch.compress(wrapped, spec)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    for step in range(2):
        training.step_of(wrapped, optimizer, rank, step)
    dist.barrier()
    if rank == DOOMED:
        if moment == "during":  # in the backward, when its bucket is not yet on its way
            next(wrapped.module.parameters()).register_hook(lambda gradient: fail(how, ready))
        if moment != "before":
            training.step_of(wrapped, optimizer, rank, 2)
        fail(how, ready)
        os._exit(3)  # a stopped one that was continued
    pipe.send(survive(rank, wrapped, ready, 2))
    noticed.wait(PATIENCE)  # who leaves before is lost to those that have noticed nothing yet
    started = time.monotonic()
    dist.destroy_process_group()
    pipe.send(time.monotonic() - started)
    pipe.close()
    os._exit(0)


def receive(rank, pipe, otherwise):
    assert pipe.poll(PATIENCE), f"rank {rank} {otherwise}"
    return pipe.recv()


def run_case(how, moment, spec, size):
    """(exception, text, seconds from the fault to it, seconds to destroy) of each survivor."""
    context = multiprocessing.get_context("fork")
    if emulated.DEVICE != "cpu":
        emulated.build()
    with tempfile.TemporaryDirectory() as folder:
        ready, noticed = context.Event(), context.Event()
        ranks = []
        for rank in range(size):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=in_rank, args=(rank, size, os.path.join(folder, "store"), how, moment, spec, ready, noticed, theirs))
            process.start()
            theirs.close()
            ranks.append((process, mine))
        try:
            assert ready.wait(PATIENCE), "the doomed rank did not come to its fault"
            fault = time.monotonic()
            survivors = [(rank, pipe) for rank, (_, pipe) in enumerate(ranks) if rank != DOOMED]
            raised = [receive(rank, pipe, "noticed nothing") for rank, pipe in survivors]
            noticed.set()
            destroying = [receive(rank, pipe, "could not destroy its group") for rank, pipe in survivors]
            return [(rank, kind, text, when - fault, seconds)
                    for (rank, _), (kind, text, when), seconds in zip(survivors, raised, destroying)]
        finally:
            for process, _ in ranks:
                process.kill()
                process.join()


class Faults(unittest.TestCase):
    def check(self, how, moment, spec, size):
        for rank, kind, text, took, destroying in run_case(how, moment, spec, size):
            what = f"{how.name} {moment} a step, {spec or 'no compression'}: rank {rank}: {kind}: {text} after {took:.2f} s, {destroying:.2f} s to destroy"
            print(what, file=sys.stderr)
            self.assertEqual(kind, "DistBackendError" if not spec else kind, what)
            self.assertIn(kind, ("DistBackendError", "RuntimeError"), what)
            self.assertRegex(text, rf"rank {DOOMED} ", what)
            self.assertRegex(text, r"after [0-9.]+ m?s", what)
            self.assertLess(took, LIVENESS + NOTICE, what)
            self.assertLess(destroying, DESTROY, what)


def add_cases():
    for how in (signal.SIGKILL, signal.SIGSTOP):
        for moment in MOMENTS:
            for label, spec in (("dense", None), ("compressed", TOP_K)):
                if not WHOLE and (how.name, moment, label) not in SAMPLE:
                    continue

                def case(self, how=how, moment=moment, spec=spec):
                    for size in SIZES:
                        with self.subTest(ranks=size):
                            self.check(how, moment, spec, size)

                setattr(Faults, f"test_{how.name.lower()}_{moment}_{label}", case)


class Late(unittest.TestCase):
    def test_a_late_rank_is_not_lost(self):
        import ranks

        seconds = 30.0 if WHOLE else 2 * LIVENESS
        ranks.run(2, late, seconds, setup=short_liveness, seconds=seconds + 60)


def short_liveness(_backend):
    return {"pg_options": gradwire.torch.Options(liveness=LIVENESS)}


def late(rank, size, seconds):
    if rank == 1:
        time.sleep(seconds)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 3


add_cases()

if __name__ == "__main__":
    unittest.main()
