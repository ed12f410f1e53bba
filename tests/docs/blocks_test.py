#!/usr/bin/env python3
"""Runs the code blocks of one page that are tagged <!-- run -->, in order, each as a reader would paste it.

usage: blocks_test.py ROOT BUILD PAGE

The blocks of a page share a folder that looks like a checkout with its build: docs/, data/, examples/ and so on lead to ROOT,
build/ leads to BUILD, and `gradwire` is on the path. What they write stays in that folder. Python blocks see the package of the
checkout; those that import torch run in the environment that ./check keeps, and are left out, by name, where there is none.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import blocks

SECONDS_A_BLOCK = 240
WANTS_TORCH = re.compile(r"^\s*(import|from) (gradwire\.)?torch\b|^[^#\n]*\btorchrun ", re.M)
LEFT_OUT = {".git", ".cache", "demo-out"}


def laid_out(root, build, folder):
    for entry in root.iterdir():
        if entry.name not in LEFT_OUT and not entry.name.startswith("build"):
            (folder / entry.name).symlink_to(entry)
    (folder / "build").symlink_to(build)
    (folder / ".path").mkdir()
    (folder / ".path" / "gradwire").symlink_to(build / "apps/gradwire")


def environment(root, build, folder):
    values = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
    values["PATH"] = f"{folder / '.path'}:{values['PATH']}"
    values["PYTHONPATH"] = str(root / "python")
    values["GRADWIRE_LIBRARY"] = str(build / "adapters/c/libgradwire.so")
    values["GRADWIRE_CACHE"] = str(root / ".cache/torch-extension")
    return values


def command_of(block, root, folder):
    """What runs the block; None if this machine lacks what it needs."""
    if block.language in ("sh", "bash"):
        if WANTS_TORCH.search(block.text):
            torch = root / ".cache/torch/bin"
            if not (torch / "python").exists():
                return None
            return ["bash", "-euo", "pipefail", "-c", f'PATH="{torch}:$PATH"\n' + block.text]
        return ["bash", "-euo", "pipefail", "-c", block.text]
    if block.language == "python":
        torch = root / ".cache/torch/bin/python"
        python = str(torch) if torch.exists() else sys.executable
        if WANTS_TORCH.search(block.text) and not torch.exists():
            return None
        return [python, "-c", block.text]
    raise SystemExit(f"{block.page}:{block.line}: a block of '{block.language}' cannot be run "
                     "(expected sh or python; <!-- run: FILE --> is for others)")


def main():
    root, build, page = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
    found = [block for block in blocks.blocks(page) if block.tag == "run" and not block.subject]
    if not found:
        raise SystemExit(f"{page} has no block that is tagged <!-- run -->")
    failed, ran = 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        laid_out(root, build, folder)
        for block in found:
            where = f"{page.relative_to(root)}:{block.line}"
            command = command_of(block, root, folder)
            if command is None:
                print(f"{where}: left out, it needs PyTorch in .cache/torch")
                continue
            ran += 1
            try:
                done = subprocess.run(command, cwd=folder, env=environment(root, build, folder), stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=SECONDS_A_BLOCK)
                result, said = done.returncode, done.stdout + done.stderr
            except subprocess.TimeoutExpired as late:
                result, said = f"no end after {SECONDS_A_BLOCK} s", str(late.stdout or "") + str(late.stderr or "")
            print(f"{where}: {'ok' if result == 0 else f'FAILED, status {result}'}")
            if result != 0:
                failed += 1
                print(block.text + "\n--- it printed:\n" + said)
    if ran == 0:
        raise SystemExit(77)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
