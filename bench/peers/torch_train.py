#!/usr/bin/env python3
"""One rank of training the MLP in PyTorch, in several ways one after the other; train_beside_torch.py starts it.

    bench/peers/torch_train.py FOLDER JOB.json          with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set

FOLDER has the data (image_set.py) and start.safetensors, the parameters that gradwire starts from. Each way starts from these, over
the same samples in the same order. Rank 0 prints a line of JSON for each: {"name", "seconds": [a step's], "losses": [global batch's]}.
A step is zero_grad, forward, backward (whose averaging overlaps), SGD's step; samples are in memory as floats.
"""
import datetime
import json
import os
import pathlib
import struct
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import image_set

DEADLINE = datetime.timedelta(seconds=120)


def load_parameters(model, path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    entries = json.loads(raw[8:8 + length])
    linears = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
    for number, layer in enumerate(linears, start=1):
        for kind, parameter in (("weight", layer.weight), ("bias", layer.bias)):
            begin, end = entries[f"fc{number}.{kind}"]["data_offsets"]
            values = torch.frombuffer(bytearray(raw[8 + length + begin:8 + length + end]), dtype=torch.float32)
            parameter.data.copy_(values.view_as(parameter))


def make_model(widths, path):
    layers = []
    for number, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layers += [torch.nn.ReLU()] if number else []
        layers.append(torch.nn.Linear(inputs, outputs))
    model = torch.nn.Sequential(*layers)
    load_parameters(model, path)
    return model


def samples(folder):
    pixels, labels = image_set.read_set(folder)
    images = torch.frombuffer(pixels, dtype=torch.uint8).view(-1, image_set.SIDE**2).float()
    return (images / 255 - image_set.MEAN) / image_set.DEVIATION, torch.frombuffer(labels, dtype=torch.uint8).long()


def wrap(model, way):
    """The model with the way's averaging; as it is for "compute"."""
    if way["hook"] == "compute":
        return model
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=way["bucket_mb"], gradient_as_bucket_view=True)
    if way["hook"] == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif way["hook"] == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=way["rank"], start_powerSGD_iter=2,
                                            min_compression_rate=1)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif way["hook"].startswith("gradwire:"):
        import gradwire.torch
        gradwire.torch.compress(ddp, way["hook"].removeprefix("gradwire:"))
    elif way["hook"] != "none":
        raise ValueError(f"hook {way['hook']} (none, fp16, powersgd, gradwire:SPEC or compute wanted)")
    return ddp


def train(model, way, job, data):
    """Seconds of every step and this rank's losses."""
    images, labels = data
    rank, ranks = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=way["lr"])
    seconds, losses = [], []
    part = job["batch"] // ranks
    for step in range(way["steps"]):
        begin = step * job["batch"] % (len(images) // job["batch"] * job["batch"]) + rank * part
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[begin:begin + part]), labels[begin:begin + part])
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.detach())
    return seconds, losses


def main():
    folder = pathlib.Path(sys.argv[1])
    job = json.loads(pathlib.Path(sys.argv[2]).read_text())
    torch.set_num_threads(1)
    if job["backend"] == "gradwire":
        import gradwire.torch  # noqa: F401  (registers the backend)
    dist.init_process_group(job["backend"], timeout=DEADLINE)
    data = samples(folder)
    for way in job["ways"]:
        model = wrap(make_model(job["widths"], folder / "start.safetensors"), way)
        dist.barrier()
        seconds, losses = train(model, way, job, data)
        mean = torch.stack(losses)
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            mean /= dist.get_world_size()
            print(json.dumps({"name": way["name"], "seconds": seconds, "losses": mean.tolist()}), flush=True)
    if job["backend"] == "gloo" and dist.get_rank() == 0:
        print(json.dumps({"torch": torch.__version__}), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads may outlive the group and abort at exit


if __name__ == "__main__":
    main()
