"""The device of the tests: PyTorch's type PrivateUse1 over emulated CUDA devices, called "emulated".

$GRADWIRE_TEST_DEVICE=emulated makes it that of the tests which take a device; GRADWIRE_LIBRARY is then the library over the emulator,
whose streams are this device's. It is compiled once, into GRADWIRE_CACHE.
"""

import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sysconfig
import types

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "_emulated_device"
DEVICE = os.environ.get("GRADWIRE_TEST_DEVICE", "cpu")
_here = "cpu"


def _compile(library, target):
    base = pathlib.Path(torch.__file__).resolve().parent
    includes = [ROOT / "tests/emulation/runtime", ROOT, ROOT / "include"]
    foreign = [sysconfig.get_paths()["include"], base / "include", base / "include/torch/csrc/api/include"]
    unit = target.with_suffix(f".{os.getpid()}.cc")
    unit.write_text("".join(f'#include "tests/torch/device/{name}.cc"\n' for name in ("streams", "memory", "pinned", "operators", "module")))
    built = target.with_suffix(f".{os.getpid()}.so")
    command = ["g++", "-std=c++20", "-O0", "-fPIC", "-shared", f"-DTORCH_EXTENSION_NAME={NAME}",
               *(f"-I{path}" for path in includes), *(f"-isystem{path}" for path in foreign), str(unit), "-o", str(built), str(library),
               f"-Wl,-rpath,{library.parent}", f"-L{base / 'lib'}", f"-Wl,-rpath,{base / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10",
               "-ltorch_python"]
    subprocess.run(command, check=True, timeout=600)
    os.replace(built, target)
    unit.unlink()


@functools.cache
def build():
    """The compiled module's path."""
    library = pathlib.Path(os.environ["GRADWIRE_LIBRARY"]).resolve()
    digest = hashlib.sha256(torch.__version__.encode() + str(library).encode())
    for path in [*sorted((ROOT / "tests/torch/device").iterdir()), *sorted((ROOT / "tests/emulation").rglob("*.h")),
                 *sorted((ROOT / "device").rglob("*.h"))]:
        digest.update(path.read_bytes())
    folder = pathlib.Path(os.environ["GRADWIRE_CACHE"])
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{NAME}-{digest.hexdigest()[:16]}.so"
    # Tests that run at the same time compile it once: the others wait, and the system ends the wait with the one that compiles.
    with open(folder / f"{NAME}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_file():
            _compile(library, target)
    return target


def load():
    """The module; torch.device("emulated") is there from then on. In each process of its own, before its first thread."""
    if hasattr(torch, "emulated"):
        return torch.emulated.calls
    path = build()
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(path))
    spec = importlib.util.spec_from_file_location(NAME, str(path), loader=loader)
    calls = importlib.util.module_from_spec(spec)
    loader.exec_module(calls)
    torch.utils.rename_privateuse1_backend("emulated")
    torch._register_device_module("emulated", _module(calls))
    torch.utils.generate_methods_for_privateuse1_backend()
    return calls


class _Current:
    """torch.emulated.device(index): that device is the thread's inside."""

    def __init__(self, device):
        index = device if isinstance(device, int) else torch.device(device).index
        self._index = torch.emulated.calls.current_device() if index is None else index

    def __enter__(self):
        self._before = torch.emulated.calls.current_device()
        torch.emulated.calls.set_device(self._index)

    def __exit__(self, *_):
        torch.emulated.calls.set_device(self._before)


def _module(calls):
    """What PyTorch's Python code asks of a device's module."""
    module = types.ModuleType("torch.emulated")
    module.calls = calls
    module.device_count, module.current_device, module.set_device = calls.device_count, calls.current_device, calls.set_device
    module.device = _Current
    module.is_available = module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.manual_seed = module.manual_seed_all = lambda seed: None
    module.current_stream = lambda device=None: torch.accelerator.current_stream(device)
    module.Stream, module.Event = torch.Stream, torch.Event
    module.stream = lambda stream: stream
    module.synchronize = lambda device=None: torch.accelerator.synchronize(device)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    module.get_rng_state = lambda device=None: torch.get_rng_state()
    module.set_rng_state = lambda state, device=None: torch.set_rng_state(state)
    return module


def here():
    """The device of this process's new tensors: begin()'s, or the CPU."""
    return _here


def begin(backend):
    """Makes the device that of new tensors in this process, if it has the backend, and returns the text for init_process_group: the
    backend for the host's tensors and for the device's. Gloo, with which results are compared, has the host's alone."""
    if DEVICE == "cpu" or backend == "gloo":
        return backend
    load()
    return use(backend)


def use(backend, index=None):
    """begin() of the calling thread, where the module is loaded already; on the device of that number."""
    global _here
    if index is not None:
        torch.emulated.set_device(index)
    torch.set_default_device(DEVICE if index is None else f"{DEVICE}:{index}")
    _here = DEVICE
    return f"cpu:{backend},{DEVICE}:{backend}"


if __name__ == "__main__":
    print(build())
