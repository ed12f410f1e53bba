"""Arrays as the library sees them: NumPy's own, and those that lend their memory."""

from __future__ import annotations

import ctypes as c

import numpy as np
import numpy.typing as npt

from gradwire import _structs as s
from gradwire._lent import CUDA, Lent, lends
from gradwire.errors import InvalidArgument

Array = npt.NDArray[np.generic]
# What the library is given: an array of the caller's, or of NumPy's, or the memory of another library's.
Given = Array | Lent

# By NumPy's name: gw_dtype. bfloat16 is a type of the package ml_dtypes; truth values travel as bytes.
_NUMBERS = {"float64": 0, "float32": 1, "float16": 2, "bfloat16": 3, "int64": 4, "int32": 5, "int8": 6, "uint8": 7, "bool": 7}
_NAMES = {number: name for name, number in _NUMBERS.items() if name not in ("bool", "bfloat16")}
REDUCTIONS = {"sum": 0, "mean": 1, "max": 2, "min": 3, "product": 4, "pre_mul_sum": 5, "bit_and": 6, "bit_or": 7, "bit_xor": 8}


def number_of(array: Given) -> int:
    """The gw_dtype of its elements."""
    if isinstance(array, Lent):
        return array.number
    name = array.dtype.name
    if name not in _NUMBERS or not array.dtype.isnative:
        raise InvalidArgument(f"an array of {array.dtype} (expected one of {', '.join(_NUMBERS)})")
    return _NUMBERS[name]


def dtype_of(number: int) -> np.dtype:
    """The other way; bfloat16 needs the package ml_dtypes."""
    if number == _NUMBERS["bfloat16"]:
        import ml_dtypes  # a package of its own, wanted by those alone who have such arrays

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_NAMES[number])


def reduction_of(name: str) -> int:
    """The gw_reduction of that name."""
    if name not in REDUCTIONS:
        raise InvalidArgument(f"no reduction '{name}' (expected one of {', '.join(REDUCTIONS)})")
    return REDUCTIONS[name]


def name_of(number: int) -> str:
    """The type's name, of a gw_dtype."""
    return "bfloat16" if number == _NUMBERS["bfloat16"] else _NAMES[number]


def readable(value: object, what: str = "array") -> Given:
    """A contiguous array, the caller's own where it is one. Arrays that lend their memory are not copied."""
    if not isinstance(value, (np.ndarray, np.generic)) and lends(value):
        return Lent(value, what)
    array = np.asarray(value)
    number_of(array)
    return np.ascontiguousarray(array) if array.ndim > 0 or not array.flags.c_contiguous else array


def writable(value: object, what: str) -> Given:
    """The caller's array, if the library can write into it."""
    if not isinstance(value, np.ndarray):
        if not lends(value):
            raise InvalidArgument(f"{what} is a {type(value).__name__} (expected a NumPy array, or one with __dlpack__ or "
                                  "__cuda_array_interface__)")
        lent = Lent(value, what)
        if not lent.writable:
            raise InvalidArgument(f"{what} is read-only (expected an array that may be written)")
        return lent
    if not value.flags.c_contiguous or not value.flags.writeable:
        raise InvalidArgument(f"{what} is {'not contiguous' if not value.flags.c_contiguous else 'read-only'} "
                              "(expected a contiguous array that may be written)")
    number_of(value)
    return value


def result(given: object, shape: tuple[int, ...], like: Given, what: str = "out") -> Given:
    """The array for a result: the caller's, of that size and type and in the same memory, or a new one."""
    if given is None:
        return like.empty(shape, what) if isinstance(like, Lent) else np.empty(shape, like.dtype)
    array = writable(given, what)
    size = int(np.prod(shape, dtype=np.int64))
    if array.size != size or number_of(array) != number_of(like):
        raise InvalidArgument(f"{what} has {array.size} elements of {name_of(number_of(array))} "
                              f"(expected {size} of {name_of(number_of(like))})")
    if place_of(array) != place_of(like):
        raise InvalidArgument(f"{what} is in {text_of_place(place_of(array))} (expected {text_of_place(place_of(like))}, as the input)")
    return array


def value_of(array: Given | None) -> object:
    """The caller's array."""
    return array.owner if isinstance(array, Lent) else array


def address(array: Given | None) -> int | None:
    """Where its elements are."""
    if isinstance(array, Lent):
        return array.address
    return None if array is None or array.size == 0 else array.ctypes.data


def place_of(array: Given | None) -> tuple[int, int]:
    """Its gw_space and its device."""
    return array.place if isinstance(array, Lent) else (0, 0)


def text_of_place(place: tuple[int, int]) -> str:
    """A place in words."""
    space, device = place
    return f"memory of CUDA device {device}" if space == CUDA else "host memory"


def stream_of(arrays: tuple[object, ...]) -> s.Stream:
    """Of an operation's arrays: the device that they are on and the stream that they name, else the host. Raises InvalidArgument for two
    streams: the operation would follow one of them alone."""
    there = [array for array in arrays if isinstance(array, Lent) and array.space == CUDA]
    if not there:
        return s.Stream()
    streams = sorted({array.stream for array in there})
    if len(streams) > 1:
        raise InvalidArgument(f"arrays that name the streams {' and '.join(hex(stream) for stream in streams)} (expected one stream)")
    return s.Stream(CUDA, there[0].device, streams[0] or None)


def counts_of(counts: object) -> c.Array[c.c_int64]:
    """Counts, one a rank, for the library."""
    values = [int(count) for count in counts]  # type: ignore[attr-defined]
    return (c.c_int64 * len(values))(*values)
