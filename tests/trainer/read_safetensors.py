#!/usr/bin/env python3
"""Reads a parameter file with the standard library alone: read_safetensors.py FILE 'NAME SHAPE VALUES' ..."""
import json
import struct
import sys


def main():
    data = open(sys.argv[1], "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    lines = []
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = struct.unpack(f"<{(end - begin) // 4}f", body[begin:end])
        lines.append(f"{name} {tuple(entry['shape'])} " + " ".join(str(v) for v in values))
    if lines != sys.argv[2:]:
        print(f"read {lines}; {sys.argv[2:]} wanted")
        sys.exit(1)


if __name__ == "__main__":
    main()
