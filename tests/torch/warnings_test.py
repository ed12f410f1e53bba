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
        assert stats["steps"] == 5 and all(isinstance(stats[key], float if key.endswith("seconds") else int) for key in stats), stats
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


def error_of(action, kind):
    """The text of the error that the action raises."""
    try:
        action()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def specs_differ(rank, size):
    """All ranks end with a sentence that has both specs and a rank of each."""
    wrapped = DistributedDataParallel(training.mlp())
    gradwire.torch.compress(wrapped, "powersgd:rank=4,ef=ef14" if rank == 1 else "topk:ratio=0.1,ef=ef14")
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    text = error_of(lambda: training.step_of(wrapped, optimizer, rank, 0), ValueError)
    assert "spec differs" in text and "'powersgd:rank=4,ef=ef14' on rank 1" in text and "'topk:ratio=0.1,ef=ef14' on rank 0" in text, text


def wrong_arguments(rank, size):
    """What is no spec, no optimizer and no state is named, with what was expected."""
    wrapped = DistributedDataParallel(training.mlp())
    text = error_of(lambda: gradwire.torch.compress(wrapped, 4), TypeError)
    assert "spec is 4" in text and "topk:ratio=0.01" in text, text
    text = error_of(lambda: gradwire.torch.compress(wrapped, "none", optimizer=0.1), TypeError)
    assert "optimizer is a float" in text and "torch.optim.Optimizer" in text, text
    compression = gradwire.torch.compress(wrapped, "topk:ratio=0.1,ef=ef14" + ALL)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    training.step_of(wrapped, optimizer, rank, 0)
    state = compression.state_dict()
    assert "NoneType" in error_of(lambda: compression.load_state_dict(None), TypeError)
    assert "[]" in error_of(lambda: compression.load_state_dict({}), ValueError)
    assert f"old rank {rank} of 2 is there twice" in error_of(lambda: compression.load_state_dict([state, state]), ValueError)
    assert f"old rank {1 - rank} of 2 is missing" in error_of(lambda: compression.load_state_dict([state]), ValueError)

    def with_rank(held, ranks):
        return {"gradients": {**state["gradients"], "rank": held, "ranks": ranks}}

    text = error_of(lambda: compression.load_state_dict(with_rank(0, 3)), ValueError)
    assert "one of 3 ranks saved, in a job of 2" in text and "list" in text, text
    text = error_of(lambda: compression.load_state_dict(with_rank(1 - rank, 2)), ValueError)
    assert f"the state of rank {1 - rank} on rank {rank}" in text, text
    other = {"gradients": {**state["gradients"], "tensors": {}}}
    assert "spec is 'topk:ratio=0.1,ef=ef14" in error_of(lambda: compression.load_state_dict(other), ValueError)


def rules_without_default(rank, size):
    """Rules need to match the module's parameters, no others. One that no rule matches is named by the first step."""
    def stepped(rules):
        wrapped = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 8)))
        gradwire.torch.compress(wrapped, rules)
        wrapped(torch.ones(4, 32)).sum().backward()

    stepped("0.*=topk:ratio=0.1,ef=ef14;1.*=none")
    text = error_of(lambda: stepped("0.*=topk:ratio=0.1,ef=ef14;1.bias=none"), ValueError)
    assert "matches parameter '1.weight'" in text, text
    assert "topkk" in error_of(lambda: stepped("0.*=topkk:ratio=0.1;1.*=none"), ValueError)


def without_feedback(rank, size):
    """The warning says whose it is: a job without a logging configuration prints its text alone."""
    with Heard() as heard:
        wrapped = DistributedDataParallel(training.mlp())
        gradwire.torch.compress(wrapped, "topk:ratio=0.1" + ALL)
        training.step_of(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.05), rank, 0)
        found = heard.of("without error feedback")
        assert len(found) == (1 if rank == 0 else 0) and all(line.startswith("gradwire: warning: ") for line in found), found


class Warnings(unittest.TestCase):
    def test_more_than_dense_is_said_once(self):
        ranks.run(2, more_than_dense)

    def test_units_of_fsdp_warn_once(self):
        ranks.run(2, units_warn_once)

    def test_specs_that_differ_between_ranks(self):
        ranks.run(3, specs_differ)

    def test_rules_need_no_default(self):
        ranks.run(2, rules_without_default)

    def test_wrong_arguments(self):
        ranks.run(2, wrong_arguments)

    def test_warnings_name_gradwire(self):
        ranks.run(2, without_feedback)

    def test_methods_with_a_momentum_of_their_own(self):
        ranks.run(2, own_momentum)


if __name__ == "__main__":
    unittest.main()
