#!/usr/bin/env python3
"""What compress() says: of a spec, of steps that send more than without it, and of an optimizer whose momentum would act twice."""

import logging
import unittest
import warnings

import torch
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
import ranks
import training

warnings.filterwarnings("ignore")

# Without these two keys tensors as small as here travel as they are.
ALL = ",dense_1d=false,min_elems=0"


class Heard(logging.Handler):
    """What the package logs."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def of(self, words):
        return [line for line in self.lines if words in line]

    def __enter__(self):
        logging.getLogger("gradwire").addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger("gradwire").removeHandler(self)


def more_than_dense(rank, size):
    """Nine tenths as pairs are more than all elements: known once a step has sent them, and said once, on the first rank."""
    with Heard() as heard:
        wrapped = DistributedDataParallel(training.mlp())
        compression = gradwire.torch.compress(wrapped, "topk:ratio=0.9" + ALL)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
        for step in range(5):
            training.step_of(wrapped, optimizer, rank, step)
        stats = compression.stats()
        assert stats["wire_bytes"] > stats["dense_ring_bytes"], stats
        found = heard.of("uncompressed")
        assert len(found) == (1 if rank == 0 else 0), found


def units_warn_once(rank, size):
    """Each unit of FSDP2 has an averaging of its own; a kind of warning is the job's."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = training.mlp()
    mesh = init_device_mesh("cpu", (size,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    with Heard() as heard:
        gradwire.torch.compress(model, "signsgd:bucket=16,min_elems=0")
        for step in range(2):
            training.step_of(model, torch.optim.SGD(model.parameters(), lr=0.01), rank, step)
        found = heard.of("biased")
        assert len(found) == (1 if rank == 0 else 0), found


def own_momentum(rank, size):
    """DGC keeps a momentum: the optimizer's beside it is refused where the optimizer was given, and warned of where it was not."""
    spec = "dgc:ratio=0.25"

    def taken(momentum):
        wrapped = DistributedDataParallel(training.mlp())
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=momentum or 0)
        given = {} if momentum is None else {"optimizer": optimizer}
        with Heard() as heard:
            gradwire.torch.compress(wrapped, spec, **given)
            training.step_of(wrapped, optimizer, rank, 0)
        return heard.of("momentum")

    assert len(taken(None)) == (1 if rank == 0 else 0)
    assert taken(0.0) == []
    try:
        taken(0.9)
        raise AssertionError("dgc was taken beside a momentum of 0.9")
    except ValueError as error:
        assert "dgc" in str(error) and "0.9" in str(error), error


class Warnings(unittest.TestCase):
    def test_more_than_dense_is_said_once(self):
        ranks.run(2, more_than_dense)

    def test_units_of_fsdp_warn_once(self):
        ranks.run(2, units_warn_once)

    def test_methods_with_a_momentum_of_their_own(self):
        ranks.run(2, own_momentum)


if __name__ == "__main__":
    unittest.main()
