"""Finds and loads libgradwire.so.

In this order: the file that GRADWIRE_LIBRARY names; libgradwire.so in the package's folder, where pip puts it; libgradwire.so.1 on the
loader's path, where `meson install` puts it.
"""

from __future__ import annotations

import ctypes as c
import functools
import os
import pathlib

from gradwire import _structs as s
from gradwire.errors import Unsupported, error_for

_HERE = pathlib.Path(__file__).resolve().parent
_API_VERSION = 1

_P = c.c_void_p
_PP = c.POINTER(c.c_void_p)
_COUNTS = c.POINTER(c.c_int64)
_OP = c.POINTER(s.OpOptions)
# Every function that Python calls and returns a gw_status: its parameters.
_CALLS = {
    "gw_init_env": [c.POINTER(s.CommOptions), _PP],
    "gw_init_threads": [c.c_int, c.POINTER(s.CommOptions), _PP],
    "gw_launch_from_env": [c.POINTER(s.Launch)],
    "gw_comm_status": [_P],
    "gw_comm_get_stats": [_P, c.POINTER(s.CommStats)],
    "gw_comm_abort": [_P, c.c_char_p],
    "gw_comm_split": [_P, c.c_int, c.c_int, _PP],
    "gw_comm_group": [_P, c.POINTER(c.c_int), c.c_int, _PP],
    "gw_comm_shrink": [_P, c.c_double, _PP],
    "gw_work_test": [_P, c.POINTER(c.c_int)],
    "gw_work_wait": [_P, c.c_double],
    "gw_work_wait_on": [_P, c.POINTER(s.Stream)],
    "gw_memory_place": [_P, c.POINTER(s.Stream)],
    "gw_broadcast": [_P, _P, c.c_int64, c.c_int, c.c_int, _OP, _PP],
    "gw_reduce": [_P, _P, _P, c.c_int64, c.c_int, c.c_int, c.c_int, _OP, _PP],
    "gw_all_reduce": [_P, _P, _P, c.c_int64, c.c_int, c.c_int, _OP, _PP],
    "gw_reduce_scatter": [_P, _P, _P, c.c_int64, c.c_int, c.c_int, _OP, _PP],
    "gw_all_gather": [_P, _P, _P, c.c_int64, c.c_int, _OP, _PP],
    "gw_all_gather_v": [_P, _P, _P, _COUNTS, c.c_int, _OP, _PP],
    "gw_gather": [_P, _P, _P, c.c_int64, c.c_int, c.c_int, _OP, _PP],
    "gw_scatter": [_P, _P, _P, c.c_int64, c.c_int, c.c_int, _OP, _PP],
    "gw_all_to_all": [_P, _P, _P, c.c_int64, c.c_int, _OP, _PP],
    "gw_all_to_all_v": [_P, _P, _COUNTS, _P, _COUNTS, c.c_int, _OP, _PP],
    "gw_exclusive_scan": [_P, _P, _P, c.c_int64, c.c_int, c.c_int, _OP, _PP],
    "gw_barrier": [_P, _OP, _PP],
    "gw_send": [_P, _P, c.c_int64, c.c_int, c.c_int, _OP, _PP],
    "gw_recv": [_P, _P, c.c_int64, c.c_int, c.c_int, _OP, _PP],
    "gw_probe": [_P, c.c_int, c.c_double, _OP, c.POINTER(c.c_int)],
    "gw_aggregator_create": [_P, c.POINTER(s.TensorInfo), c.c_size_t, c.POINTER(s.AggregatorOptions), _PP],
    "gw_aggregator_submit_on": [_P, c.POINTER(s.Gradient), c.c_size_t, c.POINTER(s.Stream), _PP],
    "gw_aggregator_flush": [_P],
    "gw_aggregator_set_learning_rate": [_P, c.c_double],
    "gw_aggregator_set_loss_scale": [_P, c.c_double],
    "gw_aggregator_skip": [_P, c.c_int, c.POINTER(c.c_int)],
    "gw_aggregator_get_stats": [_P, c.POINTER(s.AggregatorStats)],
    "gw_aggregator_save": [_P, _PP],
    "gw_aggregator_load": [_P, _PP, c.c_size_t],
    "gw_state_create": [_PP],
    "gw_state_add": [_P, c.POINTER(s.StateEntry)],
    "gw_state_get": [_P, c.c_size_t, c.POINTER(s.StateEntry)],
    "gw_method_get": [c.c_size_t, c.POINTER(s.Method)],
    "gw_spec_inspect": [c.POINTER(s.AggregatorOptions), c.POINTER(s.TensorInfo), c.c_int, c.POINTER(s.SpecInfo)],
}
# Those that return something else: what, and their parameters.
_QUESTIONS = {
    "gw_version": (c.c_char_p, []),
    "gw_api_version": (c.c_int, []),
    "gw_last_error": (c.c_char_p, []),
    "gw_comm_rank": (c.c_int, [_P]),
    "gw_comm_size": (c.c_int, [_P]),
    "gw_comm_job_rank": (c.c_int, [_P, c.c_int]),
    "gw_comm_describe": (c.c_char_p, [_P]),
    "gw_work_source": (c.c_int, [_P]),
    "gw_state_count": (c.c_size_t, [_P]),
    "gw_aggregator_warning": (c.c_char_p, [_P, c.c_size_t]),
    "gw_comm_free": (None, [_P]),
    "gw_work_free": (None, [_P]),
    "gw_aggregator_free": (None, [_P]),
    "gw_state_free": (None, [_P]),
}


@functools.lru_cache(maxsize=None)
def path() -> str:
    """The library's file, or its name where the loader is to look for it."""
    wanted = os.environ.get("GRADWIRE_LIBRARY")
    if wanted:
        return wanted
    beside = _HERE / "libgradwire.so"
    return str(beside) if beside.exists() else "libgradwire.so.1"


def include_dir() -> str:
    """The folder that has gradwire/c.h: of the package, or of the source tree that it is run from."""
    for folder in (_HERE / "include", _HERE.parents[1] / "include"):
        if (folder / "gradwire/c.h").exists():
            return str(folder)
    raise Unsupported(f"gradwire/c.h is neither in {_HERE / 'include'} nor in {_HERE.parents[1] / 'include'}")


@functools.lru_cache(maxsize=None)
def load() -> c.CDLL:
    """The library, its functions' types set. Raises Unsupported with what the loader said."""
    try:
        library = c.CDLL(path())
    except OSError as error:
        raise Unsupported(f"cannot load libgradwire ({error}); install the package with pip, or set GRADWIRE_LIBRARY=FILE") from error
    for name, parameters in _CALLS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = parameters, c.c_int
    for name, (result, parameters) in _QUESTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = parameters, result
    found = library.gw_api_version()
    if found != _API_VERSION:
        raise Unsupported(f"{path()} has version {found} of the C API (expected {_API_VERSION})")
    return library


def call(name: str, *arguments: object) -> None:
    """Calls a function that returns a gw_status; raises the error of any but GW_OK."""
    library = load()
    status = getattr(library, name)(*arguments)
    if status != 0:
        raise error_for(status, library.gw_last_error().decode(errors="replace"))


def version() -> str:
    """The loaded library's."""
    return load().gw_version().decode()


def text(value: str | None) -> bytes | None:
    """A string for the library; None stays the default."""
    return None if value is None else value.encode()
