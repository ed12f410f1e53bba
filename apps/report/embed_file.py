#!/usr/bin/env python3
"""embed_file.py INPUT OUTPUT HEADER NAME: writes a C++ source that defines NAME and NAMEBytes with INPUT's bytes."""
import sys


def main(source, target, header, name):
    data = open(source, "rb").read()
    with open(target, "w", encoding="ascii") as out:
        # Numbers: a string of this length is more than a compiler has to take.
        out.write(f'#include "{header}"\n\nnamespace gradwire {{\nconst char {name}[] = {{\n')
        for begin in range(0, len(data), 24):
            out.write("    " + " ".join(f"{b if b < 128 else b - 256}," for b in data[begin:begin + 24]) + "\n")
        out.write(f"    0}};\nconst std::size_t {name}Bytes = {len(data)};\n}}  // namespace gradwire\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
