"""What is known about compressors without any rank."""

from __future__ import annotations

import ctypes as c
import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gradwire import _structs as s
from gradwire._arrays import number_of
from gradwire._library import call, text
from gradwire.aggregator import tensor_info
from gradwire.errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class Method:
    """A compression method: what it sends, and its keys, each with its default and meaning."""

    name: str
    help: str
    keys: dict[str, str]


def methods() -> list[Method]:
    """All methods that specs may name."""
    found: list[Method] = []
    entry = s.Method()
    while True:
        try:
            call("gw_method_get", len(found), c.byref(entry))
        except InvalidArgument:
            return found
        lines = [line.partition("=") for line in entry.keys.decode().splitlines()]
        found.append(Method(entry.name.decode(), entry.help.decode(), {key: meaning for key, _, meaning in lines}))


@dataclasses.dataclass(frozen=True)
class SpecInfo:
    """What a spec makes of an array: how it travels, and how many bytes a rank encodes of how many."""

    spec: str
    path: str
    dense_bytes: int
    payload_bytes: int
    rounds: int
    elementwise: bool
    sparse: bool
    lossless: bool
    unbiased: bool
    stateful: bool
    error_feedback: bool

    @property
    def ratio(self) -> float:
        """Dense bytes for each byte of payload."""
        return self.dense_bytes / max(self.payload_bytes, 1)


def inspect(compressor: str, shape: Sequence[int] = (1000, 1000), *, dtype: npt.DTypeLike = "float32", name: str = "weight",
            size: int = 4, allow_unsafe: bool = False) -> SpecInfo:
    """What the spec, or the first of its rules that fits, makes of an array of that name and shape among `size` ranks.
    InvalidArgument says what is wrong with a spec, and what to write instead."""
    info = s.SpecInfo()
    options = s.AggregatorOptions(compressor=text(compressor), allow_unsafe=int(allow_unsafe))
    tensor = tensor_info(name, shape, number_of(np.empty(0, dtype)))
    call("gw_spec_inspect", c.byref(options), c.byref(tensor), size, c.byref(info))
    return SpecInfo(info.spec.decode(), info.path.decode(), info.dense_bytes, info.payload_bytes, info.rounds, bool(info.elementwise),
                    bool(info.sparse), bool(info.lossless), bool(info.unbiased), bool(info.stateful), bool(info.error_feedback))
