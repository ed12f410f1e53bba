#!/usr/bin/env python3
"""PyTorch with tensors on a device, as JSON lines: each kind of operation and method once against the host, then times.

    torch_rows.py [--ranks N] [--device NAME] [--transport NAME] [--elements N] [--smoke]

Ranks are processes of this machine, which share its devices where those are fewer. --elements: of the gradient that is averaged (16 Mi).
--smoke: without the times. Rows come from rank 0 as they are measured; one with "failed" names the first difference. GRADWIRE_LIBRARY
names a library that was built for the device. Exit status 1: a row failed, or a rank ended otherwise.
"""
import argparse
import datetime
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch

SECONDS = 60  # for one operation
TIMES = 10
SIZES = [1 << 12, 1 << 20, 1 << 26]  # bytes
# Means of fp32 gradients: the device may add what a method's statistic is made of in another order.
CLOSE = 1e-3
EVERYTHING = "dense_1d=false,min_elems=0"  # small tensors are coded, too
SPECS = ["none", "cast:bf16", "fp8:ef=ef14", "natural", "minmax:ef=ef14", "absmax:ef=ef14", "qsgd:bits=4,ef=ef14", "terngrad",
         "signsgd:ef=ef14", "onebit:ef=ef14", "topk:ratio=0.01,ef=ef14", "dgc:ratio=0.01", "randomk:ratio=0.01,ef=ef14",
         "powersgd:rank=4,ef=ef14"]


def everything(spec):
    return spec if spec == "none" else spec + ("," if ":" in spec else ":") + EVERYTHING


def synchronize(device):
    torch.get_device_module(device).synchronize()


def operations(rank, size, device):
    """(name, function): each raises what differs from the values that the host computes."""

    def same(seen, wanted):
        wanted = torch.as_tensor(wanted, dtype=seen.dtype, device="cpu").expand(seen.shape)
        seen = seen.cpu()
        if not torch.equal(seen, wanted):
            raise AssertionError(f"{seen.flatten()[:4].tolist()} seen, {wanted.flatten()[:4].tolist()} wanted")

    def of(value, count=1000):
        return torch.full((count,), float(value), device=device)

    def all_reduce():
        tensor = of(rank)
        dist.all_reduce(tensor)
        same(tensor, size * (size - 1) / 2)

    def broadcast():
        tensor = of(rank)
        dist.broadcast(tensor, size - 1)
        same(tensor, size - 1)

    def all_gather():
        out = of(-1, size * 1000)
        dist.all_gather_into_tensor(out, of(rank))
        same(out, torch.arange(float(size), device="cpu").repeat_interleave(1000))

    def reduce_scatter():
        out = of(-1)
        dist.reduce_scatter_tensor(out, of(rank, size * 1000))
        same(out, size * (size - 1) / 2)

    def all_to_all():
        out = of(-1, size)
        dist.all_to_all_single(out, of(rank, size))
        same(out, torch.arange(float(size), device="cpu"))

    def messages():
        taken = of(-1)
        works = [dist.isend(of(rank), (rank + 1) % size), dist.irecv(taken, (rank - 1) % size)]
        for work in works:
            work.wait()
        same(taken, (rank - 1) % size)

    return [(one.__name__, one) for one in (all_reduce, broadcast, all_gather, reduce_scatter, all_to_all, messages)]


def trained(rank, device, spec, steps=3):
    """The averaged gradients of the last step, on the host."""
    torch.manual_seed(1)
    model = torch.nn.Linear(64, 48, device="cpu").to(device)
    wrapped = DistributedDataParallel(model)
    gradwire.torch.compress(wrapped, everything(spec))
    for step in range(steps):
        generator = torch.Generator("cpu").manual_seed(100 * rank + step)
        wrapped.zero_grad()
        wrapped(torch.randn(8, 64, generator=generator, device="cpu").to(device)).square().mean().backward()
    return torch.cat([parameter.grad.flatten().cpu() for parameter in model.parameters()])


def compared(rank, size, device, spec):
    there, here = trained(rank, device, spec), trained(rank, "cpu", spec)
    difference = float((there - here).norm() / here.norm().clamp_min(1e-30))
    everyones = [torch.zeros_like(there, device="cpu") for _ in range(size)]
    dist.all_gather(everyones, there)
    if not all(torch.equal(other, there) for other in everyones):
        raise AssertionError("ranks have different means")
    if not difference <= CLOSE:
        raise AssertionError(f"the mean differs from the host's by {difference:.3g} of its norm (expected at most {CLOSE:g})")
    return {"difference": difference}


def seconds_of(device, action):
    """(seconds with the device, seconds until the calls had returned): medians."""
    whole, calls = [], []
    for _ in range(TIMES + 2):
        synchronize(device)
        dist.barrier()
        began = time.perf_counter()
        action()
        calls.append(time.perf_counter() - began)
        synchronize(device)
        whole.append(time.perf_counter() - began)
    return {"seconds": statistics.median(whole[2:]), "call_seconds": statistics.median(calls[2:])}


def all_reduce_times(device, size_in_bytes):
    tensor = torch.ones(size_in_bytes // 4, device=device)
    row = seconds_of(device, lambda: dist.all_reduce(tensor))
    return {**row, "bytes_per_second": size_in_bytes / row["seconds"]}


def step_times(device, spec, elements):
    """Of a backward whose gradients are averaged by the method; None: by DDP itself."""
    width = max(64, int((elements / 4) ** 0.5) // 64 * 64)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False, device=device) for _ in range(4)))
    wrapped = DistributedDataParallel(model)
    if spec is not None:
        gradwire.torch.compress(wrapped, spec)
    batch = torch.ones(16, width, device=device)
    row = seconds_of(device, lambda: wrapped(batch).sum().backward())
    return {**row, "elements": 4 * width * width}


def measure(rank, size, device, add, elements=1 << 24, smoke=False):
    """Calls add(row) for each; on all ranks, in a process group that serves the device. Whether all rows are good."""
    good = True

    def row(case, function, *arguments, **more):
        nonlocal good
        said = {"bench": "torch", "device": device, "ranks": size, "case": case, **more}
        try:
            said.update(function(*arguments) or {})
        except (AssertionError, ValueError, RuntimeError) as error:
            good = False
            said["failed"] = str(error)
        add(said)

    for name, operation in operations(rank, size, device):
        row(name, operation)
    for spec in SPECS:
        row("compress", compared, rank, size, device, spec, spec=spec)
    if smoke:
        return good
    for size_in_bytes in SIZES:
        row("all_reduce_time", all_reduce_times, device, size_in_bytes, bytes=size_in_bytes)
    for spec in [None, *SPECS]:
        row("step_time", step_times, device, spec, elements, spec=spec)
    return good


def in_rank(rank, options, store):
    module = torch.get_device_module(options.device)
    module.set_device(rank % module.device_count())
    dist.init_process_group(
        "gradwire" if options.device == "cpu" else f"cpu:gradwire,{options.device}:gradwire", rank=rank, world_size=options.ranks, store=dist.FileStore(store, options.ranks),
        timeout=datetime.timedelta(seconds=SECONDS), pg_options=gradwire.torch.Options(transport=options.transport),
    )

    def add(row):
        if rank == 0 or "failed" in row:
            print(json.dumps({**row, "transport": options.transport, "torch": torch.__version__, "rank": rank}), flush=True)

    good = measure(rank, options.ranks, options.device, add, options.elements, options.smoke)
    dist.destroy_process_group()
    sys.exit(0 if good else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=in_rank, args=(rank, options, os.path.join(folder, "store"))) for rank in range(options.ranks)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
    return 0 if all(one.exitcode == 0 for one in ranks) else 1


if __name__ == "__main__":
    sys.exit(main())
