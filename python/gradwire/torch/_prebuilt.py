"""The compiled extension that a wheel may carry, for one minor release of PyTorch and one of Python.

It lies in prebuilt/NAME/ beside this file, as python/prebuild.py made it. NAME says what a binary depends on, so a folder of that name
is all that there is to look for.
"""

import hashlib
import pathlib
import platform
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "prebuilt"
# The headers of the classes that the extension shares with PyTorch, and of how that PyTorch was configured: a build of one's own, or a
# patch release that changed one of them, has another name.
HEADERS = (
    "ATen/core/TensorBase.h", "ATen/core/ivalue.h", "ATen/core/ivalue_inl.h", "c10/core/TensorImpl.h", "c10/macros/cmake_macros.h",
    "c10/util/intrusive_ptr.h", "pybind11/detail/internals.h", "torch/csrc/distributed/c10d/Backend.hpp",
    "torch/csrc/distributed/c10d/PrefixStore.hpp", "torch/csrc/distributed/c10d/Store.hpp", "torch/csrc/distributed/c10d/Types.hpp",
    "torch/csrc/distributed/c10d/Work.hpp", "torch/headeronly/macros/cmake_macros.h",
)


def name(torch):
    """What a binary for this PyTorch and this Python is called."""
    digest = hashlib.sha256()
    include = pathlib.Path(torch.__file__).resolve().parent / "include"
    for header in HEADERS:
        path = include / header
        digest.update(header.encode() + (path.read_bytes() if path.is_file() else b""))
    version = re.match(r"\d+\.\d+", str(torch.__version__))
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return (f"torch{version and version[0]}-abi{abi}-{sys.implementation.cache_tag}-{platform.machine()}-"
            f"{digest.hexdigest()[:16]}")


def find(torch, module):
    """The binary for this PyTorch, or None."""
    path = FOLDER / name(torch) / f"{module}.so"
    return path if path.is_file() else None
