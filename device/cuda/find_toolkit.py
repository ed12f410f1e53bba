#!/usr/bin/env python3
"""What nvcc is good for: find_toolkit.py NVCC [ARGUMENT...]

Compiles a kernel with the arguments and prints the toolkit's folder and version, a line each; exits with 1, and the
compiler's words, when it cannot (a host compiler that it does not know, an architecture that it no longer has).
"""
import pathlib
import re
import subprocess
import sys
import tempfile

KERNEL = "#include <cuda_runtime_api.h>\n#include <span>\n__global__ void nothing() {}\ncudaError_t start() { nothing<<<1, 1>>>(); return cudaGetLastError(); }\n"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def main():
    nvcc, *arguments = sys.argv[1:]
    version = re.search(r"release (\d+\.\d+)", run(nvcc, "--version").stdout)
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "kernel.cu"
        source.write_text(KERNEL)
        top = re.search(r"^#\$ TOP=(\S+)", run(nvcc, "--dryrun", str(source)).stderr, re.M)
        if not version or not top:
            sys.exit(f"{nvcc} says neither its version nor its folder")
        compiled = run(nvcc, *arguments, "-c", str(source), "-o", str(source.with_suffix(".o")))
        if compiled.returncode != 0:
            sys.exit(f"{nvcc} {version.group(1)} cannot compile: {(compiled.stderr + compiled.stdout).strip()[:2000]}")
    print(pathlib.Path(top.group(1)).resolve())
    print(version.group(1))


if __name__ == "__main__":
    main()
