#!/usr/bin/env python3
"""What PyTorch's own suite tests of backends called gloo, mpi or nccl alone, tested of this one: accumulation without
synchronisation, with and without hooks, what DDP logs, and the barrier that names who is missing, also in a part of the ranks.
"""

import datetime
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

ITERATIONS = 4


def mean_hook(group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    tensor = bucket.buffer() / group.size()
    return dist.all_reduce(tensor, group=group, async_op=True).get_future().then(lambda done: done.value()[0])


def doubling_hook(group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Two callbacks in a row, which together change nothing."""
    future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
    return future.then(lambda done: 2 * done.value()[0]).then(lambda done: done.value() / (2 * group.size()))


def accumulate(rank, size, hook, settings):
    """Every second backward averages; then DDP holds what one process has that sees all ranks' batches."""
    wrapped = DistributedDataParallel(training.mlp(), **settings)
    if hook is not None:
        wrapped.register_comm_hook(dist.group.WORLD, hook)
    alone = training.mlp()
    with torch.no_grad(), wrapped.no_sync():
        wrapped(training.batch(rank, 0))
    for iteration in range(ITERATIONS):
        for r in range(size):
            ((alone(training.batch(r, iteration)) ** 2).mean() / size).backward()
        synchronised = iteration % 2 == 1
        if synchronised:
            (wrapped(training.batch(rank, iteration)) ** 2).mean().backward()
        else:
            with wrapped.no_sync():
                (wrapped(training.batch(rank, iteration)) ** 2).mean().backward()
        for (name, wanted), seen in zip(alone.named_parameters(), wrapped.module.parameters()):
            alike = torch.allclose(seen.grad, wanted.grad, rtol=1e-5, atol=1e-7)
            assert alike == synchronised, f"iteration {iteration}, {name}: {seen.grad} seen, {wanted.grad} of all batches"


def logged(rank, size):
    wrapped = DistributedDataParallel(training.mlp())
    wrapped._set_ddp_runtime_logging_sample_rate(2)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    for step in range(20):
        training.step_of(wrapped, optimizer, rank, step)
        data = wrapped._get_ddp_logging_data()
        if step > 0 and (step < 10 or step % 2 == 0):
            assert data["iteration"] == step, data
            for name in ("forward_compute_time", "backward_compute_time", "backward_comm_time"):
                assert data[name] >= 1, data
        elif step > 0:
            assert data["iteration"] != step, data
    parameters = list(wrapped.parameters())
    size_in_bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    wanted = {
        "world_size": size, "rank": rank, "module_name": "Sequential", "device_ids": "", "output_device": -1, "broadcast_buffers": 1,
        "bucket_cap_bytes": 25 * 1024 * 1024, "find_unused_parameters": 0, "gradient_as_bucket_view": 0, "iteration": 18, "dtypes": "float",
        "total_parameter_size_bytes": size_in_bytes, "num_parameter_tensors": len(parameters), "bucket_sizes": str(size_in_bytes),
        "has_rebuilt_buckets": 1, "rebuilt_bucket_sizes": str(size_in_bytes), "backend_name": "custom",  # of all that PyTorch does not bring
    }
    for name, value in wanted.items():
        assert data.get(name) == value, f"{name}: {data.get(name)} seen, {value} wanted"
    for name in ("gloo_socket_ifname", "nccl_socket_ifname"):
        assert data.get(name) is None, f"{name}: {data[name]}"


def barrier_without(rank, size, missing, group_ranks):
    """All but one come to a barrier of the group, which names it on rank 0 and fails on the others; then all to another one."""
    group = dist.new_group(group_ranks)
    if rank in group_ranks:
        ample = datetime.timedelta(seconds=120)
        for wait_for_all in (False, True):
            group.monitored_barrier(timeout=ample, wait_all_ranks=wait_for_all)
        dist.all_reduce(torch.ones(10), group=group)
        limit = datetime.timedelta(seconds=0.5)
        if rank == 0:
            try:
                group.monitored_barrier(timeout=limit)
                raise AssertionError(f"the barrier passed without rank {missing}")
            except RuntimeError as error:
                assert f"Rank {missing} failed to pass monitoredBarrier in 500 ms" in str(error), error
        elif rank != missing:
            try:
                group.monitored_barrier(timeout=limit)
                raise AssertionError(f"the barrier passed without rank {missing}")
            except RuntimeError as error:
                assert f"Rank {rank} successfully reached monitoredBarrier" in str(error), error
    dist.barrier()


class ByName(unittest.TestCase):
    def accumulate(self, hook=None, **settings):
        for size in (2, 3):
            ranks.run(size, accumulate, hook, settings)

    def test_accumulation_without_synchronisation(self):
        self.accumulate()

    def test_accumulation_in_buckets(self):
        self.accumulate(gradient_as_bucket_view=True)

    def test_accumulation_with_a_hook(self):
        self.accumulate(mean_hook)

    def test_accumulation_with_a_chain_of_callbacks(self):
        self.accumulate(doubling_hook)

    @unittest.skipIf(emulated.DEVICE != "cpu", "of devices PyTorch's DDP times CUDA's alone")
    def test_what_ddp_logs(self):
        ranks.run(2, logged)

    def test_barrier_names_the_missing_rank(self):
        ranks.run(3, barrier_without, 1, [0, 1, 2])

    def test_barrier_of_a_part_of_the_ranks(self):
        ranks.run(3, barrier_without, 1, [0, 1])


if __name__ == "__main__":
    unittest.main()
