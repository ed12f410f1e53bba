#!/usr/bin/env python3
"""The committed corpus of a fuzz target, a line of hexadecimal digits per input, as libFuzzer's files and back.

usage: corpus.py unpack FILE.hex FOLDER    a file per input; nothing where there is no FILE.hex
       corpus.py pack FOLDER FILE.hex      the inputs of up to 128 bytes, shortest first, as many as fit in 2 KiB of text
"""
import pathlib
import sys

INPUT_BYTES = 128
TEXT_BYTES = 2048


def unpack(source, folder):
    folder.mkdir(parents=True, exist_ok=True)
    lines = source.read_text().split() if source.exists() else []
    for number, line in enumerate(lines):
        (folder / f"corpus-{number}").write_bytes(bytes.fromhex(line))


def pack(folder, target):
    inputs = {path.read_bytes() for path in folder.iterdir() if path.is_file()}
    lines = []
    for data in sorted((one for one in inputs if 0 < len(one) <= INPUT_BYTES), key=lambda one: (len(one), one)):
        if sum(map(len, lines)) + len(lines) + 2 * len(data) < TEXT_BYTES:
            lines.append(data.hex())
    target.write_text("".join(line + "\n" for line in lines))


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("pack", "unpack"):
        sys.exit(__doc__)
    source, target = map(pathlib.Path, sys.argv[2:])
    {"pack": pack, "unpack": unpack}[sys.argv[1]](source, target)


if __name__ == "__main__":
    main()
