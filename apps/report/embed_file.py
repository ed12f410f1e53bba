#!/usr/bin/env python3
"""embed_file.py INPUT OUTPUT HEADER NAME: writes a C++ source that defines NAME and NAMEBytes with INPUT's bytes."""
import sys


def main(source, target, header, name):
    data = open(source, "rb").read()
    with open(target, "w", encoding="ascii") as out:
        out.write(f'#include "{header}"\n\nnamespace gradwire {{\nconst char {name}[] =\n')
        for begin in range(0, len(data), 100):
            piece = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in data[begin:begin + 100])
            out.write(f'    "{piece}"\n')
        out.write(f"    ;\nconst std::size_t {name}Bytes = {len(data)};\n}}  // namespace gradwire\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
