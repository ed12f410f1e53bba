#!/usr/bin/env python3
"""NCCL from PyTorch, on the tests' device (emulated.py), over the NCCL that the tests play: operations, CUDA graphs of them, and
compress() over two levels, NCCL inside nodes and messages between them."""

import datetime
import itertools
import os
import re
import threading
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import emulated
import gradwire.torch
import ranks
import selection
import threads
import training

warnings.filterwarnings("ignore")

SHORT = selection.short()
SIZES = (2,) if SHORT else (2, 3)
STEPS = 4
KEYS = ",dense_1d=false,min_elems=0,intra_node=none"
SPECS = ["none:min_elems=0,dense_1d=false,intra_node=none", "cast:bf16" + KEYS, "qsgd:bits=4,ef=ef14" + KEYS, "topk:ratio=0.05,ef=ef14" + KEYS,
         "powersgd:rank=2,ef=ef14,min_elems=0,intra_node=none"]
# Threads have one generator of random numbers.
DRAWING = threading.Lock()


def operations(rank, size):
    tensor = torch.full((1000,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert torch.equal(tensor.cpu(), torch.full((1000,), size * (size - 1) / 2, device="cpu")), tensor
    assert work.is_completed(), "the stream has come past it"
    assert f"CUDA device {rank}: NCCL" in gradwire.torch.describe(), gradwire.torch.describe()
    rows = torch.zeros(3 * size)
    dist.all_gather_into_tensor(rows, torch.full((3,), float(rank)))
    assert rows.cpu().tolist() == [float(r) for r in range(size) for _ in range(3)], rows
    row = torch.zeros(2)
    dist.reduce_scatter_tensor(row, torch.arange(2.0 * size))
    assert row.cpu().tolist() == [2.0 * rank * size, (2.0 * rank + 1) * size], row
    gaps = torch.full((8,), float(rank))[::2]
    dist.broadcast(gaps, size - 1)
    assert gaps.cpu().tolist() == [size - 1] * 4, gaps
    host = torch.ones(3, device="cpu")  # by messages
    dist.all_reduce(host)
    assert host.tolist() == [size] * 3, host


def captured(rank, size, gaps):
    """A graph sums what is there at each launch: an all-reduce that is waited for, and one of which the caller keeps nothing."""
    own = torch.Stream(device=f"{emulated.DEVICE}:{rank}")
    calls = torch.emulated.calls
    with own:
        whole, other = torch.zeros(64), torch.zeros(5)
        tensor = whole[::2] if gaps else whole
        dist.all_reduce(tensor)  # what makes connections cannot be captured
        torch.accelerator.current_stream().synchronize()
        calls.begin_capture(own.native_handle)
        dist.all_reduce(tensor)
        dist.all_reduce(other, async_op=True)
        graph = calls.end_capture(own.native_handle)
        for launch in range(3):
            whole.fill_(float(rank + launch))
            other.fill_(1.0)
            graph.launch(own.native_handle)
            wanted = torch.full(tensor.shape, float(size * launch + size * (size - 1) // 2), device="cpu")
            assert torch.equal(tensor.cpu(), wanted), f"launch {launch}: {tensor} seen, {wanted[0]} wanted"
            assert other.cpu().tolist() == [size] * 5, other
        dist.all_reduce(other)  # the group goes on
        assert other.cpu().tolist() == [size * size] * 5, other


def trained(rank, size, specs, group):
    """Parameters of each spec after some steps of DDP."""
    results = {}
    for spec in specs:
        with DRAWING:
            model = training.mlp()
        wrapped = DistributedDataParallel(model, process_group=group)
        compression = gradwire.torch.compress(wrapped, spec)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
        for step in range(STEPS):
            training.step_of(wrapped, optimizer, rank, step)
        assert compression.stats()["steps"] == STEPS, compression.stats()
        results.update({f"{spec} {name}": value for name, value in training.parameters_of(wrapped.module).items()})
    return results


def on_devices(rank, size, specs, tcp):
    assert not tcp or "over tcp" in gradwire.torch.describe(), gradwire.torch.describe()
    return trained(rank, size, specs, None)


def on_the_host(rank, size, specs, nodes):
    os.environ["GRADWIRE_NODE"] = nodes[rank]
    return trained(rank, size, specs, dist.new_group(pg_options=gradwire.torch.Options(transport="tcp")))


def values_of(rank, dtype, elems):
    return torch.sin(torch.arange(elems, dtype=torch.float64, device="cpu") * (rank + 1) * 0.37).to(dtype)


def sums(rank, group):
    """Of one part, of parts for all, of several tensors at once, and means; of two types."""
    seen = {}
    for dtype, elems in itertools.product((torch.float32, torch.bfloat16), (1, 5000, 30_001)):
        values = values_of(rank, dtype, elems)
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
            tensor = values.to(emulated.here(), copy=True)
            dist.all_reduce(tensor, op, group=group)
            seen[f"{dtype} {elems} {op}"] = tensor.cpu()
        several = [values.to(emulated.here(), copy=True), values[: elems // 2].to(emulated.here()) * 2]
        dist.all_reduce_coalesced(several, group=group)
        seen.update({f"{dtype} {elems} tensor {i}": tensor.cpu() for i, tensor in enumerate(several)})
    return seen


def sums_on_devices(rank, size):
    assert "by NCCL inside 2 nodes, by messages between them" in gradwire.torch.describe(), gradwire.torch.describe()
    return sums(rank, None)


def sums_on_the_host(rank, size, nodes):
    os.environ["GRADWIRE_NODE"] = nodes[rank]
    return sums(rank, dist.new_group(pg_options=gradwire.torch.Options(transport="tcp", algorithm="two_level")))


def unlike(rank, size):
    """What a rank is told where nodes sum tensors of other lengths."""
    tensor = torch.zeros(100 if rank < 2 else 200)
    try:
        dist.all_reduce(tensor, async_op=True).wait(datetime.timedelta(seconds=60))
    except dist.DistBackendError as error:
        return str(error)
    return "nothing"


def on_host_ranks(size, function, *arguments):
    """ranks.run() of processes whose tensors are the host's."""
    kept = os.environ.pop("GRADWIRE_TEST_DEVICE")
    emulated.DEVICE = "cpu"
    try:
        return ranks.run(size, function, *arguments)
    finally:
        os.environ["GRADWIRE_TEST_DEVICE"] = emulated.DEVICE = kept


class OverNccl(unittest.TestCase):
    def test_operations(self):
        for size in SIZES:
            _, log = threads.run(["here"] * size, operations)
            for call in ("ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast"):
                self.assertRegex(log, rf"{call} rank 0: count")

    def test_graphs(self):
        for size in SIZES:
            for gaps in (False, True):
                with self.subTest(ranks=size, gaps=gaps):
                    threads.run(["here"] * size, captured, gaps)

    def test_compression_over_two_levels(self):
        """Two ranks to a node: sums of two have one order, so that they are the host's bits, whose levels are both of messages."""
        nodes, specs = ["one", "one", "two", "two"], SPECS[2:3] if SHORT else SPECS
        runs = []
        for tcp in (True,) if SHORT else (True, False):
            seen, log = threads.run(nodes, on_devices, specs, tcp, tcp=tcp)
            self.assertRegex(log, r"ncclReduce rank \d: count")
            self.assertFalse(re.search("ncclSend", log), "between nodes by NCCL")
            runs.append(seen)
        wanted = on_host_ranks(len(nodes), on_the_host, specs, nodes)
        for seen, rank in itertools.product(runs, range(len(nodes))):
            training.close(seen[rank], seen[0], 0, f"rank {rank} and 0")
            training.close(seen[rank], wanted[rank], 0, f"rank {rank} and the host's")

    def test_sums_over_two_levels(self):
        nodes = ["one", "one", "two", "two"]
        one, two, three, four = (values_of(rank, torch.float32, 5000) for rank in range(4))
        wanted = [{"torch.float32 5000 RedOpType.SUM": (one + two) + (three + four)}] * 4
        if not SHORT:
            wanted = on_host_ranks(len(nodes), sums_on_the_host, nodes)
        for tcp in (True,) if SHORT else (True, False):
            seen, log = threads.run(nodes, sums_on_devices, tcp=tcp, inter_node="messages")
            self.assertRegex(log, r"ncclReduce rank \d: count")
            self.assertNotIn("ncclAllReduce", log)
            for rank, name in itertools.product(range(len(nodes)), wanted[0]):
                self.assertTrue(torch.equal(seen[rank][name], wanted[rank][name]), f"rank {rank}: {name}")

    if not SHORT:  # nccl_sums_on_levels_test has it too

        def test_nodes_that_differ_are_named(self):
            told, _ = threads.run(["one", "one", "two", "two"], unlike, tcp=True, inter_node="messages")
            for rank, text in enumerate(told):
                self.assertRegex(text, "all_reduce of [12]00", f"rank {rank}")

    def test_what_joins_nodes_is_checked(self):
        self.assertEqual(gradwire.torch.Options(inter_node="messages").algorithm, "two_level")
        self.assertEqual(gradwire.torch.Options(inter_node="nccl", algorithm="ring").algorithm, "ring")
        with self.assertRaisesRegex(ValueError, "inter_node=ucx .*messages or nccl"):
            gradwire.torch.Options(inter_node="ucx")
        with self.assertRaisesRegex(ValueError, "inter_node=messages with algorithm=ring"):
            gradwire.torch.Options(inter_node="messages", algorithm="ring")


if __name__ == "__main__":
    if emulated.DEVICE == "cpu":
        selection.skip_all("NCCL has tensors on devices alone (expected GRADWIRE_TEST_DEVICE=emulated)")
    unittest.main()
