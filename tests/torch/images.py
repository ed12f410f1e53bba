"""Data sets of `gradwire train` as tensors: the same files, the same numbers for a pixel."""

import csv
import gzip
import os
import pathlib

import torch

FASHION_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
DIGITS_TRAIN = 1437


def fashion_folder():
    """Where Fashion-MNIST lies below $GRADWIRE_DATA; None without one of its files."""
    below = os.environ.get("GRADWIRE_DATA")
    for folder in (pathlib.Path(below), pathlib.Path(below) / "fashion-mnist") if below else ():
        if all(_found(folder, name) for name in FASHION_FILES):
            return folder
    return None


def _found(folder, name):
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _idx(folder, name):
    path = _found(folder, name)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        content = file.read()
    dims = [int.from_bytes(content[4 + 4 * d : 8 + 4 * d], "big") for d in range(content[3])]
    return torch.frombuffer(bytearray(content[4 + 4 * len(dims) :]), dtype=torch.uint8).view(dims)


def fashion(folder, train=True):
    """(samples, 784) normalised pixels and (samples,) labels."""
    image_file, label_file = FASHION_FILES[:2] if train else FASHION_FILES[2:]
    pixels = _idx(folder, image_file).flatten(1).double()
    return ((pixels / 255 - 0.2860) / 0.3530).float(), _idx(folder, label_file).long()


def digits():
    """The training part of the project's digits: (1437, 64) pixels from 0 to 1, and labels."""
    path = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits" / "digits.csv.gz"
    with gzip.open(path, "rt", encoding="ascii") as file:
        rows = torch.tensor([[int(value) for value in row] for row in csv.reader(file)][:DIGITS_TRAIN])
    return rows[:, :64].float() / 16, rows[:, 64]
