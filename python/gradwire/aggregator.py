"""Compressed averaging of named arrays over ranks."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence

import numpy as np

from gradwire import _structs as s
from gradwire._arrays import Array, dtype_of, number_of, writable
from gradwire._library import call, load, text
from gradwire.communicator import Communicator, Work
from gradwire.errors import InvalidArgument

State = dict[str, Array]


def tensor_info(name: str, shape: Sequence[int], number: int) -> s.TensorInfo:
    """Dimensions from the fourth on are folded into one."""
    folded = [int(length) for length in shape]
    if len(folded) > 4:
        folded = [*folded[:3], int(np.prod(folded[3:], dtype=np.int64))]
    info = s.TensorInfo(name.encode(), number, len(folded))
    info.shape[:len(folded)] = folded
    return info


class Aggregator:
    """Turns every rank's arrays into their mean over ranks: exactly, or by a compressor spec with error feedback.

    Collective: all ranks give the same names, shapes and spec. ``arrays``: by name, the arrays or others of their shape and type.
    A step averages each of them once, wherever its elements then are. ``momentum``: the optimizer's, 0 for none; a compressor that keeps
    one itself (dgc) is refused beside it, and warned of where it is not given.
    """

    def __init__(self, communicator: Communicator, arrays: Mapping[str, Array], compressor: str = "none", *, seed: int = 0,
                 bucket_bytes: int = 0, threads: int = 1, allow_unsafe: bool = False, skip_nonfinite: bool = False,
                 algorithm: str | None = None, momentum: float | None = None) -> None:
        self._handle: c.c_void_p | None = None
        self._communicator = communicator
        self._like = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        self._index = {name: i for i, name in enumerate(arrays)}
        infos = [tensor_info(name, array.shape, number_of(array)) for name, array in arrays.items()]
        options = s.AggregatorOptions(compressor=text(compressor), algorithm=text(algorithm), bucket_bytes=bucket_bytes, seed=seed,
                                      threads=threads, allow_unsafe=int(allow_unsafe), nonfinite=int(skip_nonfinite))
        if momentum is not None:
            options.momentum = c.pointer(c.c_double(momentum))
        handle = c.c_void_p()
        call("gw_aggregator_create", communicator._handle, (s.TensorInfo * len(infos))(*infos), len(infos), c.byref(options),
             c.byref(handle))
        self._handle = handle

    def submit(self, arrays: Mapping[str, Array]) -> Work:
        """Hands over some of the step's arrays; the Work is done when they hold the mean. Returns at once."""
        gradients = (s.Gradient * len(arrays))()
        for place, (name, array) in zip(gradients, arrays.items()):
            if name not in self._index:
                raise InvalidArgument(f"no array '{name}' (one of {', '.join(self._index)} wanted)")
            given = writable(array, f"'{name}'")
            if (given.shape, given.dtype) != self._like[name]:
                raise InvalidArgument(f"'{name}' is {given.dtype}{given.shape} ({self._like[name][1]}{self._like[name][0]} wanted)")
            place.index, place.data = self._index[name], given.ctypes.data
        handle = c.c_void_p()
        call("gw_aggregator_submit", self._handle, gradients, len(arrays), c.byref(handle))
        return Work(handle, None, tuple(arrays.values()))

    def average(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """A whole step: every array becomes the mean over ranks, in place. Returns them."""
        if arrays.keys() != self._index.keys():
            raise InvalidArgument(f"a step of {sorted(arrays)} (all of {sorted(self._index)} wanted)")
        self.submit(arrays).wait()
        return arrays

    def flush(self) -> None:
        """Waits for the end of the step, all of whose arrays are submitted."""
        call("gw_aggregator_flush", self._handle)

    def skip(self, overflow: bool) -> bool:
        """Collective, between steps: True on all ranks if any says overflow. The step is then to be left out."""
        skip = c.c_int()
        call("gw_aggregator_skip", self._handle, int(overflow), c.byref(skip))
        return skip.value == 1

    def set_learning_rate(self, rate: float) -> None:
        """The coming update's, between steps: for specs with ef_rescale_lr=true."""
        call("gw_aggregator_set_learning_rate", self._handle, float(rate))

    def set_loss_scale(self, scale: float) -> None:
        """What the coming arrays are multiplied by, between steps: residuals follow it."""
        call("gw_aggregator_set_loss_scale", self._handle, float(scale))

    def stats(self) -> dict[str, float]:
        """Steps, bytes and seconds since creation, on this rank."""
        seen = s.AggregatorStats()
        call("gw_aggregator_get_stats", self._handle, c.byref(seen))
        return {name: getattr(seen, name) for name, _ in s.AggregatorStats._fields_[1:]}

    def warnings(self) -> list[str]:
        """What is known to be fragile about the spec, and, from the step on that showed it, that more was sent than without compression."""
        found: list[str] = []
        while (line := load().gw_aggregator_warning(self._handle, len(found))) is not None:
            found.append(line.decode())
        return found

    def state_dict(self) -> State:
        """A copy of this rank's residuals and whatever else must survive a checkpoint; between steps."""
        state = c.c_void_p()
        call("gw_aggregator_save", self._handle, c.byref(state))
        try:
            return dict(_entry(state, i) for i in range(load().gw_state_count(state)))
        finally:
            load().gw_state_free(state)

    def load_state_dict(self, by_old_rank: State | Sequence[State]) -> None:
        """Between steps: this rank's own state of as many ranks as there are now, or a list of every old rank's, of any number."""
        rank, size = self._communicator.rank, self._communicator.size
        states: Sequence[State | None] = [by_old_rank if r == rank else None for r in range(size)] if isinstance(by_old_rank, dict) else by_old_rank
        handles = (c.c_void_p * len(states))()
        try:
            for i, state in enumerate(states):
                if state is not None:
                    handles[i] = _state_of(state).value
            call("gw_aggregator_load", self._handle, handles, len(states))
        finally:
            for handle in handles:
                load().gw_state_free(handle)

    def close(self) -> None:
        """Ends it; in the middle of a step this ends the communicator's operations too."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            load().gw_aggregator_free(handle)

    def __del__(self) -> None:
        self.close()


def _entry(state: c.c_void_p, i: int) -> tuple[str, Array]:
    entry = s.StateEntry()
    call("gw_state_get", state, i, c.byref(entry))
    copied = np.frombuffer(c.string_at(entry.data, entry.bytes), dtype_of(entry.dtype)).copy()
    return entry.name.decode(), copied.reshape(entry.shape[:entry.dimensions])


def _state_of(state: State) -> c.c_void_p:
    handle = c.c_void_p()
    call("gw_state_create", c.byref(handle))
    for name, value in state.items():
        array = np.ascontiguousarray(value)
        entry = s.StateEntry(name.encode(), number_of(array), array.ndim)
        entry.shape[:array.ndim] = array.shape
        entry.data, entry.bytes = array.ctypes.data, array.nbytes
        call("gw_state_add", handle, c.byref(entry))
    return handle
