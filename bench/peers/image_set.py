"""The data that both sides train on: images of 28x28 in 10 classes, as IDX files in a folder of its own.

The first samples of Fashion-MNIST where its files are, else classes made on the spot: a fixed pattern each, under noise.
"""
import array
import gzip
import pathlib
import random

SIDE, CLASSES, TEST = 28, 10, 100
NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MEAN, DEVIATION = 0.2860, 0.3530  # gradwire inspect data fashion-mnist


def idx_path(folder, name):
    """The file of that name in `folder` or its fashion-mnist, plain or gzipped; None where there is none."""
    for place in (folder, folder / "fashion-mnist"):
        for path in (place / name, place / f"{name}.gz"):
            if path.exists():
                return path
    return None


def head(path, samples, dimensions):
    """The first `samples` of an IDX file, without its header."""
    size = SIDE * SIDE if dimensions == 3 else 1
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        file.seek(4 + 4 * dimensions)
        items = file.read(samples * size)
    if len(items) != samples * size:
        raise ValueError(f"{path}: fewer than {samples} samples")
    return items


def made(samples, seed):
    """(images, labels): labels in turn, each image its class's pattern and noise of four times its weight."""
    draw = random.Random(2024)
    patterns = [draw.randbytes(SIDE * SIDE) for _ in range(CLASSES)]
    draw.seed(seed)
    labels = bytes(sample % CLASSES for sample in range(samples))
    images = bytearray()
    for label in labels:
        noise = draw.randbytes(SIDE * SIDE)
        images += bytes((pattern + 4 * other) // 5 for pattern, other in zip(patterns[label], noise))
    return bytes(images), labels


def write_idx(path, items, dimensions):
    sizes = [len(items)] if len(dimensions) == 0 else [len(items) // (SIDE * SIDE), *dimensions]
    header = [2048 + len(sizes), *sizes]
    path.write_bytes(b"".join(number.to_bytes(4, "big") for number in header) + items)


def make_set(folder, source, samples):
    """Writes the set's four files and returns where it is from, in words. `source`: a folder, or None."""
    found = [idx_path(source, name) for name in NAMES] if source else [None]
    parts = []
    for part, count in enumerate((samples, TEST)):
        if all(found):
            parts.append((head(found[2 * part], count, 3), head(found[2 * part + 1], count, 1)))
        else:
            parts.append(made(count, part))
    for part, (images, labels) in enumerate(parts):
        write_idx(folder / NAMES[2 * part], images, (SIDE, SIDE))
        write_idx(folder / NAMES[2 * part + 1], labels, ())
    return f"the first {samples} images of Fashion-MNIST" if all(found) else f"{samples} made images (no Fashion-MNIST)"


def read_set(folder):
    """(pixels as arrays of bytes, labels) of the training part."""
    items = [array.array("B", (folder / name).read_bytes()) for name in NAMES[:2]]
    return items[0][16:], items[1][8:]
