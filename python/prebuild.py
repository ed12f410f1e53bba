#!/usr/bin/env python3
"""Compiles the extension for PyTorch into a wheel (option torch_python); run by the Python whose PyTorch it is for.

usage: prebuild.py name                     prints what the extension's folder is called
       prebuild.py compile LIBRARY TARGET   compiles it against libgradwire.so into the file TARGET
"""

import importlib.util
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent


def prebuilt():
    """gradwire.torch._prebuilt, without the package, which needs its library."""
    spec = importlib.util.spec_from_file_location("prebuilt", HERE / "gradwire/torch/_prebuilt.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(arguments):
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(HERE))
    if arguments == ["name"]:
        import torch

        print(prebuilt().name(torch))
        return
    verb, library, target = arguments
    assert verb == "compile", verb
    os.environ["GRADWIRE_LIBRARY"] = str(pathlib.Path(library).resolve())
    from gradwire.torch import _extension

    _extension.prebuild(pathlib.Path(target).resolve())


if __name__ == "__main__":
    main(sys.argv[1:])
