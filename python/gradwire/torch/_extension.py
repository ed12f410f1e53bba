"""The compiled part: what the wheel carries where it fits; else built for the PyTorch that is installed, once, and kept in the user's
cache.

c10d has no stable binary interface, so a binary serves one version of PyTorch. The sources come with the package and are compiled
by g++ (or $CXX) in less than a minute; ``python -m gradwire.torch.build`` does it ahead of time.
"""

import contextlib
import errno
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

import gradwire
from gradwire import _library
from gradwire.torch import _prebuilt
from gradwire.torch._versions import require_torch

NAME = "_torch_backend"
USUAL_SECONDS = 30  # of compiling, said beforehand
COMPILE_SECONDS = 600.0
LOCK_SECONDS = COMPILE_SECONDS + 60  # one process of a job compiles, the others wait for it


def source_root():
    """The folder below which adapters/torch/ lies: of an installed package, or of a checkout."""
    here = pathlib.Path(__file__).resolve().parent
    for root in (here / "src", here.parents[2]):
        if (root / "adapters" / "torch" / "module.cc").is_file():
            return root
    raise ImportError(f"gradwire: the sources of the PyTorch extension are missing (expected adapters/torch below {here / 'src'})")


def cache_folder():
    """$GRADWIRE_CACHE, else gradwire/ in the user's cache."""
    own = os.environ.get("GRADWIRE_CACHE")
    if own:
        return pathlib.Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    if not base:
        try:
            base = pathlib.Path.home() / ".cache"
        except RuntimeError as error:
            raise ImportError(f"gradwire.torch: no folder for its cache: {error} (set GRADWIRE_CACHE to one)") from error
    return pathlib.Path(base) / "gradwire"


def compiler():
    """The C++ compiler's path. ImportError without one."""
    wanted = os.environ.get("CXX") or "g++"
    found = shutil.which(wanted.split()[0])
    if found is None:
        raise ImportError(
            f"gradwire.torch compiles its extension for this PyTorch, and the C++ compiler {wanted!r} was not found on PATH "
            "(Debian: apt-get install g++; or set CXX; or run `python -m gradwire.torch.build` where there is one, with "
            "GRADWIRE_CACHE on a folder that both see)"
        )
    return found


def _sources(root):
    return sorted((root / "adapters" / "torch").glob("*.cc"))


def _flags(torch):
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", f"-DGRADWIRE_TORCH_MODULE={NAME}"]
    flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}")
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):  # gone since 2.9
        value = getattr(torch._C, f"_PYBIND11_{name}", None)
        if value is not None:
            flags.append(f'-DPYBIND11_{name}="{value}"')
    return flags


def _key(torch, root):
    """What a binary depends on, as a short text."""
    digest = hashlib.sha256()
    headers = pathlib.Path(_library.include_dir()) / "gradwire" / "c"
    for path in [*sorted((root / "adapters" / "torch").iterdir()), *sorted(headers.glob("*.h"))]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    for part in (torch.__file__, _library.path(), *_flags(torch)):
        digest.update(str(part).encode())
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return (f"torch{torch.__version__}-abi{abi}-{sys.implementation.cache_tag}-{platform.machine()}-gradwire{gradwire.__version__}-"
            f"{digest.hexdigest()[:16]}")


def _links(torch):
    """The linker's words for libgradwire.so and PyTorch's libraries, where they are installed."""
    base = pathlib.Path(torch.__file__).resolve().parent
    wanted = _library.path()
    if "/" in wanted:
        library = pathlib.Path(wanted).resolve()
        own = [str(library), f"-Wl,-rpath,{library.parent}"]
    else:  # the loader's own search, which is the linker's too
        own = [f"-l:{wanted}"]
    return [*own, f"-Wl,-rpath,{base / 'lib'}"]


def _links_of_wheel(library):
    """The same for a wheel: libgradwire.so from where this file will lie in it. PyTorch has loaded its own libraries by then."""
    return [str(library), "-Wl,-rpath,$ORIGIN/../../..", "-O2", "-s"]


def _command(torch, root, unit, target, links):
    base = pathlib.Path(torch.__file__).resolve().parent
    includes = [root, _library.include_dir()]
    foreign = [sysconfig.get_paths()["include"], base / "include", base / "include" / "torch" / "csrc" / "api" / "include"]
    return [
        compiler(), *_flags(torch), *(f"-I{path}" for path in includes), *(f"-isystem{path}" for path in foreign), str(unit),
        "-o", str(target), *links, f"-L{base / 'lib'}",
        "-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python",
    ]


def _compile(torch, root, target, links):
    """Compiles all sources as one unit, which costs PyTorch's headers once, into `target`, atomically."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as folder:
        unit = pathlib.Path(folder) / "all.cc"
        unit.write_text("".join(f'#include "adapters/torch/{path.name}"\n' for path in _sources(root)))
        built = pathlib.Path(folder) / target.name
        command = _command(torch, root, unit, built, links)
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise ImportError(f"gradwire.torch: the compiler has not ended within {COMPILE_SECONDS:.0f} s: {' '.join(command)}") from error
        if result.returncode != 0:
            lines = [line for line in result.stderr.splitlines() if "error" in line] or result.stderr.splitlines()
            raise ImportError(
                "gradwire.torch: compiling its extension for torch "
                f"{torch.__version__} failed: {' '.join(command)}\n" + "\n".join(lines[:20])
            )
        os.replace(built, target)


@contextlib.contextmanager
def _locked(path):
    """Holds the lock of a cache entry: one process compiles, the others of the job wait for it."""
    with open(path, "a+", encoding="utf-8") as file:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                    break  # a file system without locks: several may compile, and each puts a whole file in place
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            if time.monotonic() > deadline:
                file.seek(0)
                raise ImportError(
                    f"gradwire.torch: another process ({file.read().strip() or 'unknown'}) has compiled the extension for more than "
                    f"{LOCK_SECONDS:.0f} s (lock {path})"
                )
            time.sleep(0.1)
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


def build(force=False):
    """The path of the extension for this PyTorch, compiled now if it is not in the cache (or if `force`)."""
    torch = require_torch()
    root = source_root()
    folder = cache_folder() / _key(torch, root)
    target = folder / f"{NAME}.so"
    if target.is_file() and not force:
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImportError(f"gradwire.torch: its cache {folder} cannot be made: {error} (GRADWIRE_CACHE names another)") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ImportError(f"gradwire.torch: its cache {folder} cannot be written (GRADWIRE_CACHE names another)")
    with _locked(folder / "lock"):
        if force or not target.is_file():
            compiler()  # or its error, before anything is announced
            print(f"gradwire: compiling the PyTorch extension for torch {torch.__version__} (about {USUAL_SECONDS} s, once)",
                  file=sys.stderr, flush=True)
            _compile(torch, root, target, _links(torch))
    return target


def prebuild(target):
    """Compiles the extension for a wheel, of which GRADWIRE_LIBRARY is the library."""
    torch = require_torch()
    _compile(torch, source_root(), target, _links_of_wheel(_library.path()))


def _carried(torch):
    """The extension that the package carries for this PyTorch, or None. It belongs to the package's own library."""
    return None if os.environ.get("GRADWIRE_LIBRARY") else _prebuilt.find(torch, NAME)


def _module(path):
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(path))
    spec = importlib.util.spec_from_file_location(NAME, str(path), loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def ahead(force=False):
    """The extension's path: what the package carries, else as build()."""
    return (None if force else _carried(require_torch())) or build(force)


def load():
    """The extension as a module. ImportError says what is missing."""
    torch = require_torch()
    _library.load()  # names what is wrong with the library, where the linker would not
    carried = _carried(torch)
    if carried is not None:
        try:
            return _module(carried)
        except ImportError as error:
            print(f"gradwire: the wheel's PyTorch extension does not fit torch {torch.__version__} ({error})", file=sys.stderr, flush=True)
    path = build()
    try:
        return _module(path)
    except ImportError as error:
        raise ImportError(
            f"gradwire.torch: the extension {path} does not fit torch {torch.__version__} ({error}); "
            "`python -m gradwire.torch.build --force` compiles it again"
        ) from error
