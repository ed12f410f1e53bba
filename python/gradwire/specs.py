"""The methods, and what a spec does to an array. Needs neither ranks nor a transport."""

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
    """A compression method."""

    name: str  # as written in a spec
    help: str  # one line: what it sends
    keys: dict[str, str]  # by key: its default and meaning


def methods() -> list[Method]:
    """All methods that specs may name. Raises Unsupported if the library cannot be loaded."""
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
    """How a spec sends an array."""

    spec: str  # the spec that applies, in canonical form
    path: str  # the aggregation mode: "dense" (uncompressed), "sum", "gather", "oktopk" or "sra"
    dense_bytes: int  # the uncompressed array
    payload_bytes: int  # the largest payload of one rank, all rounds together
    rounds: int  # number of exchanges in a step
    elementwise: bool  # encodes element by element
    sparse: bool  # sends selected elements
    lossless: bool  # decodes bit for bit
    unbiased: bool  # the expected result is the input
    stateful: bool  # the method keeps state between steps
    error_feedback: bool  # the spec has error feedback

    @property
    def ratio(self) -> float:
        """The compression ratio: dense_bytes divided by payload_bytes."""
        return self.dense_bytes / max(self.payload_bytes, 1)


def inspect(compressor: str, shape: Sequence[int] = (1000, 1000), *, dtype: npt.DTypeLike = "float32", name: str = "weight",
            size: int = 4, allow_unsafe: bool = False) -> SpecInfo:
    """How a spec, or the first of its rules that matches, sends an array of that name, shape and element type.

    size: number of ranks. allow_unsafe: accept combinations that fail or may diverge. Raises InvalidArgument for a bad spec, with the
    reason and what to write instead.
    """
    info = s.SpecInfo()
    options = s.AggregatorOptions(compressor=text(compressor), allow_unsafe=int(allow_unsafe))
    tensor = tensor_info(name, shape, number_of(np.empty(0, dtype)))
    call("gw_spec_inspect", c.byref(options), c.byref(tensor), size, c.byref(info))
    return SpecInfo(info.spec.decode(), info.path.decode(), info.dense_bytes, info.payload_bytes, info.rounds, bool(info.elementwise),
                    bool(info.sparse), bool(info.lossless), bool(info.unbiased), bool(info.stateful), bool(info.error_feedback))
