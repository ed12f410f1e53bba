"""Compressed averaging of named arrays over ranks."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence

import numpy as np

from gradwire import _structs as s
from gradwire._arrays import (Array, Given, address, dtype_of, name_of, number_of, place_of, readable, stream_of, text_of_place,
                              writable)
from gradwire._library import call, load, text
from gradwire.communicator import Communicator, Work
from gradwire.errors import InvalidArgument

State = dict[str, Array]


def tensor_info(name: str, shape: Sequence[int], number: int) -> s.TensorInfo:
    """The C struct that describes an array; the dimensions from the fourth on are combined into one."""
    folded = [int(length) for length in shape]
    if len(folded) > 4:
        folded = [*folded[:3], int(np.prod(folded[3:], dtype=np.int64))]
    info = s.TensorInfo(name.encode(), number, len(folded))
    info.shape[:len(folded)] = folded
    return info


class Aggregator:
    """Averages every rank's arrays over ranks: exactly, or by a compressor spec, with error feedback per array.

    Creating one is collective: all ranks pass the same names, shapes, types and options. A step averages each array once, in any memory.

    communicator: stays the caller's; the aggregator works on a communicator of its own.
    arrays: by name, the arrays or others of their shape, type (float64, float32, float16 or bfloat16) and place. They are NumPy's, or lend
    their memory by DLPack or __cuda_array_interface__ (CuPy, JAX, PyTorch): all in host memory, or all on one CUDA device.
    compressor: a spec, "topk:ratio=0.01,ef=ef14", or rules by name and size, "*.bias=none;*=powersgd:rank=4,ef=ef14".
    seed: of the random numbers. bucket_bytes: bytes of gradient that are exchanged together (0: 4 MiB). threads: number of threads that
    encode and decode. allow_unsafe: warn of combinations that fail or may diverge instead of refusing them.
    skip_nonfinite: all ranks skip a step in which any rank has an element that is not finite; the arrays become NaN. algorithm: of exact
    sums (None: "auto").
    momentum: the momentum factor of the optimizer that uses the averages, 0 for none; a compressor with a momentum of its own (dgc) is
    refused if it is above 0, and causes a warning if it is not given.

    Errors of every method: InvalidArgument for a call that the state does not allow, and nothing is changed; PeerLost, TimedOut,
    RankMismatch, CorruptPayload or Cancelled if an exchange fails, after which the communicator is unusable. The constructor raises
    InvalidArgument for a bad spec or combination, with the reason and what to write instead. Threads: any.
    """

    def __init__(self, communicator: Communicator, arrays: Mapping[str, Array], compressor: str = "none", *, seed: int = 0,
                 bucket_bytes: int = 0, threads: int = 1, allow_unsafe: bool = False, skip_nonfinite: bool = False,
                 algorithm: str | None = None, momentum: float | None = None) -> None:
        self._handle: c.c_void_p | None = None
        self._communicator = communicator
        given = {name: array if isinstance(array, np.ndarray) else readable(array, f"'{name}'") for name, array in arrays.items()}
        self._like = {name: (array.shape, number_of(array)) for name, array in given.items()}
        self._place = place_of(next(iter(given.values()), None))
        for name, array in given.items():
            self._check_place(name, array)
        self._index = {name: i for i, name in enumerate(given)}
        infos = [tensor_info(name, array.shape, number_of(array)) for name, array in given.items()]
        options = s.AggregatorOptions(compressor=text(compressor), algorithm=text(algorithm), bucket_bytes=bucket_bytes, seed=seed,
                                      threads=threads, allow_unsafe=int(allow_unsafe), nonfinite=int(skip_nonfinite),
                                      space=self._place[0], device=self._place[1])
        if momentum is not None:
            options.momentum = c.pointer(c.c_double(momentum))
        handle = c.c_void_p()
        call("gw_aggregator_create", communicator._handle, (s.TensorInfo * len(infos))(*infos), len(infos), c.byref(options),
             c.byref(handle))
        self._handle = handle

    def submit(self, arrays: Mapping[str, Array]) -> Work:
        """Submits some of the step's arrays: one, a bucket, or all. Returns at once; the Work is done when these arrays hold the average.
        They are lent until then. On a device they are final after the work of the stream that they name. Raises InvalidArgument for an
        unknown name, another shape, type or place, or an array that was submitted before in this step."""
        gradients = (s.Gradient * len(arrays))()
        lent = []
        for place, (name, array) in zip(gradients, arrays.items()):
            if name not in self._index:
                raise InvalidArgument(f"no array '{name}' (expected one of {', '.join(self._index)})")
            given = writable(array, f"'{name}'")
            shape, number = self._like[name]
            if (given.shape, number_of(given)) != (shape, number):
                raise InvalidArgument(f"'{name}' is {name_of(number_of(given))}{given.shape} (expected {name_of(number)}{shape})")
            self._check_place(name, given)
            place.index, place.data = self._index[name], address(given)
            lent.append(given)
        handle = c.c_void_p()
        stream = stream_of(tuple(lent))
        on_device = c.byref(stream) if stream.space else None
        call("gw_aggregator_submit_on", self._handle, gradients, len(arrays), on_device, c.byref(handle))
        return Work(handle, None, tuple(lent), stream)

    def _check_place(self, name: str, array: Given) -> None:
        if place_of(array) != self._place:
            raise InvalidArgument(f"'{name}' is in {text_of_place(place_of(array))} (expected {text_of_place(self._place)}, as the others)")

    def average(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """A whole step: replaces every array by its average over ranks, in place, and returns them. Raises InvalidArgument if `arrays`
        are not all arrays of the aggregator."""
        if arrays.keys() != self._index.keys():
            raise InvalidArgument(f"a step of {sorted(arrays)} (expected all of {sorted(self._index)})")
        self.submit(arrays).wait()
        return arrays

    def flush(self) -> None:
        """Waits for the end of the step, whose arrays must all be submitted. Raises InvalidArgument if one is missing."""
        call("gw_aggregator_flush", self._handle)

    def skip(self, overflow: bool) -> bool:
        """True on all ranks if any rank passes overflow=True. Collective, between steps. The caller then skips the step; the state is
        not changed. Raises InvalidArgument within a step."""
        skip = c.c_int()
        call("gw_aggregator_skip", self._handle, int(overflow), c.byref(skip))
        return skip.value == 1

    def set_learning_rate(self, rate: float) -> None:
        """Sets the learning rate of the next update, 0 or above; between steps, equal on all ranks. Specs with ef_rescale_lr=true
        multiply residuals by the last rate over this one. Raises InvalidArgument for a rate that is negative or not finite."""
        call("gw_aggregator_set_learning_rate", self._handle, float(rate))

    def set_loss_scale(self, scale: float) -> None:
        """Sets the scale, a factor above 0, of the next arrays (mixed precision); between steps, equal on all ranks. Residuals are
        multiplied by this scale over the last one. Raises InvalidArgument for a scale that is not above 0."""
        call("gw_aggregator_set_loss_scale", self._handle, float(scale))

    def stats(self) -> dict[str, float]:
        """Counters of this rank since the aggregator was created: steps, skipped_steps; gradient_bytes (uncompressed), dense_ring_bytes
        (what this rank would have sent uncompressed with a ring all-reduce), payload_bytes (what it encoded), wire_bytes (what it sent,
        headers included); encode_seconds, exchange_seconds (waiting), decode_seconds, exposed_seconds (flush() blocked)."""
        seen = s.AggregatorStats()
        call("gw_aggregator_get_stats", self._handle, c.byref(seen))
        return {name: getattr(seen, name) for name, _ in s.AggregatorStats._fields_[1:]}

    def warnings(self) -> list[str]:
        """The warnings so far: unsound or scaled combinations, old names of keys, and a step that sent more bytes than uncompressed
        arrays."""
        found: list[str] = []
        while (line := load().gw_aggregator_warning(self._handle, len(found))) is not None:
            found.append(line.decode())
        return found

    def state_dict(self) -> State:
        """A copy of this rank's state that a checkpoint must save (residuals, warm starts), as arrays by name; between steps. Raises
        InvalidArgument within a step."""
        state = c.c_void_p()
        call("gw_aggregator_save", self._handle, c.byref(state))
        try:
            return dict(_entry(state, i) for i in range(load().gw_state_count(state)))
        finally:
            load().gw_state_free(state)

    def load_state_dict(self, by_old_rank: State | Sequence[State]) -> None:
        """Restores state_dict(): this rank's own, saved by as many ranks as there are now, or a list of every old rank's, in rank order,
        equal on all ranks. With another number of ranks residuals keep their average over ranks. Between steps. Raises InvalidArgument,
        and nothing is changed, for an entry that is missing, superfluous or of another shape."""
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
        """Frees the aggregator. Within a step it cancels the step's works, and the communicator becomes unusable. Twice is harmless.
        Never raises."""
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
