"""NumPy arrays as the library sees them."""

from __future__ import annotations

import ctypes as c

import numpy as np
import numpy.typing as npt

from gradwire.errors import InvalidArgument

Array = npt.NDArray[np.generic]

# By NumPy's name: gw_dtype. bfloat16 is a type of the package ml_dtypes; truth values travel as bytes.
_NUMBERS = {"float64": 0, "float32": 1, "float16": 2, "bfloat16": 3, "int64": 4, "int32": 5, "int8": 6, "uint8": 7, "bool": 7}
_NAMES = {number: name for name, number in _NUMBERS.items() if name not in ("bool", "bfloat16")}
REDUCTIONS = {"sum": 0, "mean": 1, "max": 2, "min": 3, "product": 4, "pre_mul_sum": 5, "bit_and": 6, "bit_or": 7, "bit_xor": 8}


def number_of(array: Array) -> int:
    """The gw_dtype of its elements."""
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


def readable(value: npt.ArrayLike, what: str = "array") -> Array:
    """A contiguous array, the caller's own where it is one."""
    array = np.asarray(value)
    number_of(array)
    return np.ascontiguousarray(array) if array.ndim > 0 or not array.flags.c_contiguous else array


def writable(value: object, what: str) -> Array:
    """The caller's array, if the library can write into it."""
    if not isinstance(value, np.ndarray):
        raise InvalidArgument(f"{what} is a {type(value).__name__} (expected a NumPy array)")
    if not value.flags.c_contiguous or not value.flags.writeable:
        raise InvalidArgument(f"{what} is {'not contiguous' if not value.flags.c_contiguous else 'read-only'} "
                              "(expected a contiguous array that may be written)")
    number_of(value)
    return value


def result(given: object, shape: tuple[int, ...], like: Array, what: str = "out") -> Array:
    """The array for a result: the caller's, of that size and type, or a new one."""
    if given is None:
        return np.empty(shape, like.dtype)
    array = writable(given, what)
    size = int(np.prod(shape, dtype=np.int64))
    if array.size != size or array.dtype != like.dtype:
        raise InvalidArgument(f"{what} has {array.size} elements of {array.dtype} (expected {size} of {like.dtype})")
    return array


def address(array: Array | None) -> int | None:
    """Where its elements are."""
    return None if array is None or array.size == 0 else array.ctypes.data


def counts_of(counts: object) -> c.Array[c.c_int64]:
    """Counts, one a rank, for the library."""
    values = [int(count) for count in counts]  # type: ignore[attr-defined]
    return (c.c_int64 * len(values))(*values)
