#!/usr/bin/env python3
"""What runs compute stays bit for bit as it is: the runs of recorded_hashes.txt have the params_hash that stands there.

usage: recorded_hashes_test.py PATH/TO/gradwire BUILT_BY [--write]
BUILT_BY names the compiler and its options (tests/apps/meson.build). --write records what this program computes.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import machine  # noqa: E402

TABLE = pathlib.Path(__file__).with_name("recorded_hashes.txt")
LIMIT = 120  # seconds for one run; none takes two
SKIPPED = 77


def write_images(folder):
    """A data set of 28 x 28 images under the name of one that is not carried: models for larger images have some to train on."""
    state = 1
    for name, count in (("train", 60), ("t10k", 20)):
        values = bytearray()
        for _ in range(count * 28 * 28 + count):
            state = (state * 1103515245 + 12345) % 2**31
            values.append(state >> 16 & 255)
        images, labels = values[: count * 784], bytes(value % 10 for value in values[count * 784 :])
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 28, 28) + images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels)


def runs(lines):
    """(number of the line, recorded hash, flags) of every run, and the recorded arithmetic."""
    found, recorded, shared = [], None, []
    for number, line in enumerate(lines):
        first, _, rest = line.partition(" ")
        if first == "arithmetic":
            recorded = rest
        elif first == "SHARED":
            shared = rest.split()
        elif first and first[0] not in "#[":
            found.append((number, first, shared + rest.split()))
    return found, recorded


def params_hash(gradwire, flags, folder, number):
    metrics = folder / f"{number}.jsonl"
    words = [gradwire, "train", "--quiet", *flags, "--metrics", str(metrics)]
    if "fashion-mnist" in flags:
        words += ["--data-dir", str(folder)]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GRADWIRE_")}
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, env=plain)
    if done.returncode != 0:
        return f"status {done.returncode}: {done.stderr.strip()}"
    return json.loads(metrics.read_text().splitlines()[-1]).get("params_hash", "no params_hash")


def main():
    gradwire, built_by = os.path.abspath(sys.argv[1]), sys.argv[2]
    write = sys.argv[3:] == ["--write"]
    lines = TABLE.read_text().splitlines()
    rows, recorded = runs(lines)
    here = machine.arithmetic(built_by)
    if here != recorded and not write:
        print(f"skipped: recorded with '{recorded}', here is '{here}'")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = pathlib.Path(name)
        write_images(folder)
        hashes = list(pool.map(lambda row: params_hash(gradwire, row[2], folder, row[0]), rows))
    wrong = 0
    for (number, before, flags), found in zip(rows, hashes):
        if write:
            if not re.fullmatch("[0-9a-f]{16}", found):
                print(f"line {number + 1}: {found}")
                wrong += 1
                continue
            lines[number] = lines[number].replace(before, found, 1)
        elif found != before:
            print(f"line {number + 1}: got {found}, expected {before}: gradwire train {' '.join(flags)}")
            wrong += 1
    if write and wrong == 0:
        lines = [f"arithmetic {here}" if line.startswith("arithmetic ") else line for line in lines]
        TABLE.write_text("\n".join(lines) + "\n")
    print(f"{len(rows)} runs, {wrong} {'failed' if write else 'differ'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
