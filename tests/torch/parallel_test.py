#!/usr/bin/env python3
"""What is built on a process group trains to the same parameters as over Gloo: bit for bit on 2 ranks, to 1e-6 on 3."""

import os
import tempfile
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import emulated
import gradwire.torch  # noqa: F401: registers the backend
import ranks
import training

warnings.filterwarnings("ignore")


def ddp(rank, size, settings):
    return training.train_ddp(rank, size, **settings)


def ddp_compiled(rank, size):
    wrapped = DistributedDataParallel(training.mlp())
    compiled = torch.compile(wrapped, backend="aot_eager")
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for step in range(3):
        training.step_of(compiled, optimizer, rank, step)
    return training.parameters_of(wrapped.module)


def ddp_batch_norm(rank, size):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for step in range(3):
        training.step_of(wrapped, optimizer, rank, step)
    return training.parameters_of(wrapped.module)


def fsdp1(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

    wrapped = FullyShardedDataParallel(training.mlp(), device_id=torch.device(emulated.here()))
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for step in range(3):
        training.step_of(wrapped, optimizer, rank, step)
        wrapped.clip_grad_norm_(10.0)
    with FullyShardedDataParallel.state_dict_type(wrapped, StateDictType.FULL_STATE_DICT):
        return dict(wrapped.state_dict())


def fsdp2(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(emulated.here(), (size,))
    model = training.mlp()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    for layer in model.modules():  # Gloo has no average
        if hasattr(layer, "set_force_sum_reduction_for_comms"):
            layer.set_force_sum_reduction_for_comms(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(3):
        training.step_of(model, optimizer, rank, step)
    return {name: parameter.full_tensor().detach() for name, parameter in model.named_parameters()}


def dtensor(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(emulated.here(), (size,))
    rows = distribute_tensor(torch.arange(24.0).view(6, 4), mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    product = columns @ distribute_tensor(torch.ones(4, 3), mesh, [Shard(0)])
    return {
        "rows": rows.full_tensor(),
        "columns": columns.full_tensor(),
        "product": product.redistribute(mesh, [Replicate()]).to_local(),
    }


def functional(rank, size):
    """Collectives that torch.compile sees as operations of the graph."""
    from torch.distributed import _functional_collectives as collectives

    def both(tensor):
        summed = collectives.all_reduce(tensor * 2, "sum", dist.group.WORLD)
        gathered = collectives.all_gather_tensor(summed + rank, 0, dist.group.WORLD)
        return summed, gathered, collectives.reduce_scatter_tensor(gathered, "sum", 0, dist.group.WORLD)

    compiled = torch.compile(both, backend="aot_eager", fullgraph=True)
    tensor = torch.arange(12.0).view(6, 2) * (rank + 1)
    return {name: value.clone() for name, value in zip(("summed", "gathered", "scattered"), compiled(tensor))}


def zero(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    wrapped = DistributedDataParallel(training.mlp())
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.Adam, lr=0.01)
    for step in range(3):
        training.step_of(wrapped, optimizer, rank, step)
    return training.parameters_of(wrapped.module)


def checkpoint(rank, size, folder):
    import torch.distributed.checkpoint as dcp

    wrapped = DistributedDataParallel(training.mlp())
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    training.step_of(wrapped, optimizer, rank, 0)
    place = os.path.join(folder, dist.get_backend())
    dcp.save({"model": wrapped.module.state_dict()}, checkpoint_id=place)
    loaded = {"model": training.mlp(seed=9).state_dict()}
    dcp.load(loaded, checkpoint_id=place)
    training.close(loaded["model"], wrapped.module.state_dict(), 0, "loaded checkpoint")
    return loaded["model"]


class LikeGloo(unittest.TestCase):
    def compare(self, function, *arguments):
        for size, relative in ((2, 0), (3, 1e-6)):
            with self.subTest(ranks=size):
                wanted = ranks.run(size, function, *arguments, backend="gloo")
                seen = ranks.run(size, function, *arguments)
                for rank in range(size):
                    training.close(seen[rank], wanted[rank], relative, f"rank {rank}")

    def test_ddp(self):
        for settings in ({}, {"bucket_cap_mb": 0.001}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
            self.compare(ddp, settings)

    def test_ddp_with_batch_norm_and_unused_parameters(self):
        self.compare(ddp_batch_norm)

    def test_compiled_ddp(self):
        self.compare(ddp_compiled)

    def test_fsdp1(self):
        self.compare(fsdp1)

    def test_fsdp2(self):
        self.compare(fsdp2)

    def test_dtensor(self):
        self.compare(dtensor)

    def test_compiled_functional_collectives(self):
        self.compare(functional)

    def test_zero_redundancy_optimizer(self):
        self.compare(zero)

    def test_distributed_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            self.compare(checkpoint, folder)


if __name__ == "__main__":
    unittest.main()
