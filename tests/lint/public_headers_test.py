#!/usr/bin/env python3
"""Every public header compiles alone, those of the C API as C11 too."""
import os
import pathlib
import subprocess
import sys
import tempfile


def main():
    root, build = (pathlib.Path(p) for p in sys.argv[1:3])
    public = root / "include/gradwire"
    headers = sorted(p.name for p in public.glob("*.h") if p.name != "c.h") + ["version.h"]
    of_c = ["c.h"] + sorted(f"c/{p.name}" for p in (public / "c").glob("*.h"))
    testing = sorted(f"testing/{p.name}" for p in (public / "testing").glob("*.h"))
    errors = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in headers + of_c + testing:
            languages = [(os.environ.get("CXX", "c++"), "c++20", "cc")]
            if name in of_c:
                languages.append((os.environ.get("CC", "cc"), "c11", "c"))
            for compiler, standard, suffix in languages:
                source = pathlib.Path(folder) / f"alone.{suffix}"
                source.write_text(f'#include "gradwire/{name}"\n')
                run = subprocess.run([compiler, f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic",
                                      "-Werror", f"-I{root}/include", f"-I{build}/include", str(source)],
                                     capture_output=True, text=True)
                if run.returncode != 0:
                    print(f"gradwire/{name} does not compile alone as {standard}:\n{run.stderr}")
                    errors += 1
    print(f"{len(headers) + len(of_c) + len(testing)} headers, {errors} findings")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
