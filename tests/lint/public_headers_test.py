#!/usr/bin/env python3
"""Every public header compiles alone, and there are at most 18 of them beside those for testing, which need GoogleTest."""
import os
import pathlib
import subprocess
import sys
import tempfile


def main():
    root, build = (pathlib.Path(p) for p in sys.argv[1:3])
    public = root / "include/gradwire"
    headers = sorted(p.name for p in public.glob("*.h")) + ["version.h"]
    testing = sorted(f"testing/{p.name}" for p in (public / "testing").glob("*.h"))
    errors = 0
    if len(headers) > 18:
        print(f"{len(headers)} public headers (at most 18 wanted)")
        errors += 1
    with tempfile.TemporaryDirectory() as folder:
        for name in headers + testing:
            source = pathlib.Path(folder) / "alone.cc"
            source.write_text(f'#include "gradwire/{name}"\n')
            run = subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic",
                                  "-Werror", f"-I{root}/include", f"-I{build}/include", str(source)],
                                 capture_output=True, text=True)
            if run.returncode != 0:
                print(f"gradwire/{name} does not compile alone:\n{run.stderr}")
                errors += 1
    print(f"{len(headers) + len(testing)} headers, {errors} findings")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
