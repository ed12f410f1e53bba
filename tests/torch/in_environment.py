#!/usr/bin/env python3
"""Runs Python with PyTorch, which ./check keeps in .cache/torch, on the library of a build folder and the package of this tree.

usage: in_environment.py LIBRARY ARGUMENT...     (of python: a test and its arguments, or -m gradwire.torch.build)

The compiled extension is kept in .cache/torch-extension. Exit status 77 where the environment is missing, after the reason that
./check has left.
"""
import os
import pathlib
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = PROJECT / ".cache/torch/bin/python"
REASON = PROJECT / ".cache/torch-missing"


def main():
    library, *arguments = sys.argv[1:]
    if not os.access(PYTHON, os.X_OK):
        reason = REASON.read_text() if REASON.exists() else "./check makes it"
        print(f"skipped: there is no PyTorch in {PYTHON.parents[1]}: {reason}")
        sys.exit(77)
    own = {"GRADWIRE_LIBRARY": str(pathlib.Path(library).resolve()), "GRADWIRE_CACHE": str(PROJECT / ".cache/torch-extension"),
           "PYTHONPATH": str(PROJECT / "python"), "OMP_NUM_THREADS": "1"}
    os.execve(PYTHON, [str(PYTHON), *arguments], {**os.environ, **own})


if __name__ == "__main__":
    main()
