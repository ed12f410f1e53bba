#!/usr/bin/env python3
"""Does compress() do to a model what it should? Fashion-MNIST, MLP 784-128-64-10, 8 ranks of 16 samples, 5 epochs of 468 steps.

    GRADWIRE_DATA=DIR fashion_mnist_study.py --out OUT [--seeds 3] [--epochs 5]

The recipe of docs/studies/fashion_mnist.md in PyTorch: the same start and batches for all rows of a seed, momentum 0.9 after
averaging unless a row says "nm", a tenth of the learning rate after 60 % of the steps. Differences are paired by seed to the dense
run. Prints the table and what is accepted; ends with status 1 where something is not. Runs that ended are kept in OUT, one file each,
and are not repeated; --short looks whether one tenth of an epoch trains.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
import images
import ranks
import selection
import training

RANKS, ROWS, WIDTHS = 8, 16, (784, 128, 64, 10)
BATCH = RANKS * ROWS
ALL = ",combine=gather,min_elems=0,dense_1d=false"  # every tensor by itself
BASELINE = "SGD momentum"
# name: (spec, learning rate, momentum)
STUDY = {
    BASELINE: ("none", 0.05, 0.9),
    "int8": ("qsgd:bits=8" + ALL, 0.05, 0.9),
    "int4": ("qsgd:bits=4" + ALL, 0.05, 0.9),
    "PowerSGD r4": ("powersgd:rank=4,ef=ef14,min_elems=0,dense_1d=false", 0.05, 0.9),
    "top-k 1 %": ("topk:ratio=0.01" + ALL, 0.05, 0.9),
    "top-k 1 % + EF": ("topk:ratio=0.01,ef=ef14" + ALL, 0.05, 0.9),
    "EF-sign nm lr .2": ("signsgd:bucket=tensor,ef=ef14" + ALL, 0.2, 0.0),
}
# What is accepted of mean accuracies, in percent: (sentence, value of the means by name, lowest, highest).
RULES = [
    ("the dense run's accuracy", lambda mean: mean[BASELINE], 87.7, 88.9),
    ("int8", lambda mean: mean["int8"] - mean[BASELINE], -0.6, 100),
    ("int4", lambda mean: mean["int4"] - mean[BASELINE], -0.6, 100),
    ("PowerSGD r4", lambda mean: mean["PowerSGD r4"] - mean[BASELINE], -0.6, 100),
    ("EF-sign nm", lambda mean: mean["EF-sign nm lr .2"] - mean[BASELINE], -0.9, 100),
    ("top-k 1 %: what error feedback gains", lambda mean: mean["top-k 1 % + EF"] - mean["top-k 1 %"], 2.5, 100),
]


def accuracy_of(module, samples, labels):
    with torch.no_grad():
        return 100.0 * (module(samples).argmax(1) == labels).float().mean().item()


def one_run(rank, name, seed, epochs, data, test):
    """What is kept of a run: accuracy after the last step, loss, bytes, seconds."""
    spec, rate, momentum = STUDY[name]
    wrapped = DistributedDataParallel(training.mlp(seed, WIDTHS))
    compression = gradwire.torch.compress(wrapped, spec, seed=seed)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=rate, momentum=momentum)
    samples, labels = data
    of_an_epoch = len(samples) // BATCH
    steps = int(epochs * of_an_epoch)
    started = time.monotonic()
    for step in range(steps):
        if step % of_an_epoch == 0:
            order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(1000 * seed + step // of_an_epoch))
        if step == int(0.6 * steps):
            optimizer.param_groups[0]["lr"] = rate / 10
        first = step % of_an_epoch * BATCH + rank * ROWS
        chosen = order[first : first + ROWS]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(wrapped(samples[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
    seconds = time.monotonic() - started
    training.same_on_all(rank, RANKS, wrapped.module, f"{name}, seed {seed}")
    stats = compression.stats()
    accuracy = accuracy_of(wrapped.module, *test) if rank == 0 else None
    return {
        "name": name, "seed": seed, "epochs": epochs, "spec": spec, "lr": rate, "momentum": momentum, "steps": steps,
        "accuracy": accuracy, "loss": loss.item(), "payload_bytes": stats["payload_bytes"] / steps, "seconds": seconds,
    }


def file_of(out, name, seed, epochs):
    plain = "".join(letter if letter.isalnum() else "_" for letter in name)
    return pathlib.Path(out) / f"{plain}-{seed}-{epochs:g}.json"


def all_runs(rank, size, wanted, data, test, out):
    started = time.monotonic()
    for done, (name, seed, epochs) in enumerate(wanted):
        kept = one_run(rank, name, seed, epochs, data, test)
        if rank == 0:
            path = file_of(out, name, seed, epochs)
            path.with_suffix(".part").write_text(json.dumps(kept), encoding="utf-8")
            path.with_suffix(".part").rename(path)
            left = (time.monotonic() - started) / (done + 1) * (len(wanted) - done - 1)
            print(
                f"{name}, seed {seed}: {kept['accuracy']:.2f} %, {1000 * kept['seconds'] / kept['steps']:.1f} ms a step; "
                f"run {done + 1} of {len(wanted)}, {left:.0f} s left", flush=True,
            )
        dist.barrier()


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def print_tables(runs, seeds):
    """Whether all rules accept."""
    print("\n| row | spec | lr, momentum | test accuracy, % | difference | payload bytes a step |\n|---|---|---|---|---|---|")
    by_name = {name: [runs[name, seed] for seed in seeds] for name in STUDY}
    base = [run["accuracy"] for run in by_name[BASELINE]]
    mean = {name: statistics.mean(run["accuracy"] for run in of_name) for name, of_name in by_name.items()}
    for name, of_name in by_name.items():
        accuracies = [run["accuracy"] for run in of_name]
        pairs = [seen - dense for seen, dense in zip(accuracies, base)]
        difference = "–" if name == BASELINE else f"{statistics.mean(pairs):+.2f} ± {spread(pairs):.2f}"
        first = of_name[0]
        print(
            f"| {name} | `{first['spec']}` | {first['lr']:g}, {first['momentum']:g} | {mean[name]:.2f} ± {spread(accuracies):.2f} | "
            f"{difference} | {statistics.mean(run['payload_bytes'] for run in of_name):,.0f} |"
        )
    print("\n| expectation | measured | accepted if | outcome |\n|---|---|---|---|")
    accepted = True
    for sentence, value, lowest, highest in RULES:
        seen = value(mean)
        fits = lowest <= seen <= highest
        accepted = accepted and fits
        band = f">= {lowest}" if highest == 100 else f"{lowest} to {highest}"
        print(f"| {sentence} | {seen:+.2f} | {band} | {'accepted' if fits else 'REFUSED'} |")
    return accepted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=5)
    asked = parser.parse_args()
    folder = images.fashion_folder()
    if folder is None:
        selection.skip_all("Fashion-MNIST was not found (GRADWIRE_DATA wanted; gradwire data fetch fashion-mnist gets it)")
    pathlib.Path(asked.out).mkdir(parents=True, exist_ok=True)
    seeds = range(1, asked.seeds + 1)
    cases = [(name, seed, asked.epochs) for seed in seeds for name in STUDY]
    wanted = [case for case in cases if not file_of(asked.out, *case).is_file()]
    if wanted:
        torch.set_num_threads(1)  # before the ranks are forked, which share the samples
        data, test = images.fashion(folder), images.fashion(folder, train=False)
        ranks.run(RANKS, all_runs, wanted, data, test, asked.out, seconds=3600.0 * len(wanted))
    runs = {(name, seed): json.loads(file_of(asked.out, name, seed, epochs).read_text(encoding="utf-8")) for name, seed, epochs in cases}
    print(f"\ntorch {torch.__version__}, {RANKS} ranks of {ROWS} samples, {asked.epochs:g} epochs, seeds {seeds[0]} to {seeds[-1]}")
    return 0 if print_tables(runs, seeds) else 1


if __name__ == "__main__":
    sys.exit(main())
