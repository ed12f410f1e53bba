#!/usr/bin/env python3
"""Where a library of NVIDIA's lies: find_library.py HEADER LIBRARY WHEEL_FOLDER... --prefix CUDA_PREFIX [--python PROGRAM]

Looks for HEADER and LIBRARY in the CUDA prefix, then on the system, then in the folder nvidia/WHEEL_FOLDER of a Python
environment's packages, where the wheels put them. Prints the folder of the header (empty: the compiler finds it by itself)
and the path of the library, a line each; exits with 1, and says where it looked, when they are nowhere.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

SYSTEM = ["/usr", "/usr/local"]
PACKAGES = "import sysconfig, site; print('\\n'.join([sysconfig.get_path('purelib'), sysconfig.get_path('platlib'), *site.getsitepackages(), site.getusersitepackages()]))"


def in_prefix(prefix, header, library):
    prefix = pathlib.Path(prefix)
    libraries = [prefix / "lib64", prefix / "lib", *sorted(prefix.glob("targets/*/lib")), *sorted((prefix / "lib").glob("*-linux-gnu"))]
    for include in [prefix / "include", *sorted(prefix.glob("targets/*/include"))]:
        for folder in libraries:
            if (include / header).is_file() and (folder / library).exists():
                yield include, folder / library


def package_folders(python):
    program = python or shutil.which("python3")
    if not program:
        return []
    run = subprocess.run([program, "-c", PACKAGES], capture_output=True, text=True)
    return list(dict.fromkeys(run.stdout.split("\n")))[:-1] if run.returncode == 0 else []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("header")
    parser.add_argument("library")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--python", default="")
    wanted = parser.parse_args()
    prefixes = [wanted.prefix, *SYSTEM]
    prefixes += [f"{packages}/nvidia/{folder}" for packages in package_folders(wanted.python) for folder in wanted.folders]
    for prefix in prefixes:
        for include, library in in_prefix(prefix, wanted.header, wanted.library):
            print("" if str(include) == "/usr/include" else include)
            print(library)
            return
    sys.exit(f"{wanted.header} and {wanted.library} are in none of: {', '.join(prefixes)}")


if __name__ == "__main__":
    main()
