#!/usr/bin/env python3
"""libgradwire.so exports every function that gradwire/c.h declares, under GRADWIRE_1, and nothing else; and it needs no UCX."""
import pathlib
import re
import subprocess
import sys

HEADERS = pathlib.Path(__file__).resolve().parents[3] / "include/gradwire/c"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def main():
    library = sys.argv[1]
    text = "\n".join(path.read_text() for path in sorted(HEADERS.glob("*.h")))
    declared = set(re.findall(r"^(?:gw_status|const char\*|void\*?|int|size_t) (gw_\w+)\(", text, re.M))
    # A linker may keep local symbols in the table (a type in lower case): no other object can bind to them.
    symbols = [line.split() for line in output("nm", "-D", "--defined-only", library).splitlines()]
    exported = {name for _, kind, name in symbols if kind.isupper()}
    wanted = {f"{name}@@GRADWIRE_1" for name in declared} | {"GRADWIRE_1"}
    if len(declared) < 50 or exported != wanted:
        sys.exit(f"missing {sorted(wanted - exported)}, unexpected {sorted(exported - wanted)}")
    needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", library))
    if any(name.startswith(("libuc", "libtorch", "libpython")) for name in needed):
        sys.exit(f"needs {needed}")
    print(f"{len(declared)} functions; needs {', '.join(needed)}")


if __name__ == "__main__":
    main()
