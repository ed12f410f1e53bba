"""Arrays of other libraries as the library sees them: their memory, without copies, by DLPack or __cuda_array_interface__."""

from __future__ import annotations

import ctypes as c
from typing import Any

import numpy as np

from gradwire import _structs as s
from gradwire._library import call
from gradwire.errors import InvalidArgument, Unsupported

HOST, CUDA = 0, 1  # gw_space
# CUDA's names for streams, as both protocols use them.
_DEFAULT_STREAM = 1

# By DLPack's code and bits, and by the kind and bytes of a typestr: gw_dtype. Truth values travel as bytes.
_BY_CODE = {(2, 64): 0, (2, 32): 1, (2, 16): 2, (4, 16): 3, (0, 64): 4, (0, 32): 5, (0, 8): 6, (1, 8): 7, (6, 8): 7}
_BY_KIND = {"f8": 0, "f4": 1, "f2": 2, "i8": 4, "i4": 5, "i1": 6, "u1": 7, "b1": 7}
_BYTES = (8, 4, 2, 2, 8, 4, 1, 1)
_TYPES = "float64, float32, float16, bfloat16, int64, int32, int8, uint8 or bool"

# Of DLPack's devices: those whose memory is the host's, and CUDA's.
_HOST_DEVICES, _CUDA_DEVICES = (1, 3), (2, 13)
_READ_ONLY = 1


class _Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class _Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", _Device), ("ndim", c.c_int32), ("code", c.c_uint8), ("bits", c.c_uint8),
                ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class _Versioned(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("manager", c.c_void_p), ("deleter", c.c_void_p), ("flags", c.c_uint64),
                ("tensor", _Tensor)]


def _capsule(function: str, result: Any, *parameters: Any) -> Any:
    return c.PYFUNCTYPE(result, *parameters)((function, c.pythonapi))


_is_capsule = _capsule("PyCapsule_IsValid", c.c_int, c.py_object, c.c_char_p)
_pointer_of = _capsule("PyCapsule_GetPointer", c.c_void_p, c.py_object, c.c_char_p)


class Lent:
    """Contiguous elements in memory of the host or of a CUDA device, which belong to `owner`."""

    def __init__(self, owner: Any, what: str) -> None:
        self.owner = owner
        self.shape: tuple[int, ...] = ()
        self.number = 0  # gw_dtype
        self.address: int | None = None
        self.space, self.device, self.stream = HOST, 0, 0
        self.writable = True
        self._keep: Any = None  # a capsule: its end tells the owner that the memory is free
        self._read(what)
        self.size = int(np.prod(self.shape, dtype=np.int64))
        if self.size == 0:
            self.address = None

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def place(self) -> tuple[int, int]:
        """Its space and its device."""
        return self.space, self.device

    def empty(self, shape: tuple[int, ...], what: str) -> Any:
        """New elements of the owner's library, beside its own, as a Lent. Raises InvalidArgument where that library cannot make them."""
        namespace = getattr(self.owner, "__array_namespace__", None)
        if namespace is None:
            raise InvalidArgument(f"a {type(self.owner).__name__} without {what}= (expected {what}=ARRAY for the result)")
        made = namespace().empty(shape, dtype=self.owner.dtype, device=self.owner.device)
        return Lent(made, what)

    def _read(self, what: str) -> None:
        interface = self._ask(what, lambda: getattr(self.owner, "__cuda_array_interface__", None))
        # Without a word on the stream (versions 1 and 2) the order is DLPack's to say, where there is one.
        if interface is not None and ("stream" in interface or not hasattr(self.owner, "__dlpack__")):
            self._read_interface(interface, what)
        else:
            self._read_capsule(what)

    def _ask(self, what: str, question: Any) -> Any:
        try:
            return question()
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgument(f"{what} is a {type(self.owner).__name__} that does not lend its memory: {error}") from error

    def _read_interface(self, interface: dict[str, Any], what: str) -> None:
        """CUDA's array interface, version 3: Numba's documentation, "CUDA Array Interface"."""
        self.shape = tuple(int(length) for length in interface["shape"])
        text = str(interface["typestr"])
        number = _BY_KIND.get(text[1:])
        if number is None or text[0] == ">":
            raise InvalidArgument(f"{what} is of type '{text}' (expected {_TYPES})")
        self.number = number
        address, read_only = interface["data"]
        self.address, self.writable = int(address), not read_only
        strides = interface.get("strides")
        if strides is not None:
            self._check_strides([int(stride) // _BYTES[number] for stride in strides], what)
        if interface.get("mask") is not None:
            raise InvalidArgument(f"{what} has a mask (expected an array without one)")
        self.space, self.device = CUDA, self._device_of_interface()
        stream = interface.get("stream", _DEFAULT_STREAM)
        self.stream = _native(_DEFAULT_STREAM if stream is None else int(stream))

    def _device_of_interface(self) -> int:
        if hasattr(self.owner, "__dlpack_device__"):
            return int(self.owner.__dlpack_device__()[1])
        place = s.Stream()
        if self.address:
            call("gw_memory_place", self.address, c.byref(place))
        return place.device

    def _read_capsule(self, what: str) -> None:
        """DLPack: dmlc.github.io/dlpack, the Python specification, versions 0.x and 1.x."""
        kind, device = (int(number) for number in self._ask(what, self.owner.__dlpack_device__))
        if kind not in _HOST_DEVICES + _CUDA_DEVICES:
            raise Unsupported(f"{what} is on a device of DLPack's type {kind} (expected 1, the host, or 2, CUDA)")
        self.space = CUDA if kind in _CUDA_DEVICES else HOST
        self.device = device if self.space == CUDA else 0
        # The owner makes that stream wait for its own work.
        stream = _DEFAULT_STREAM if self.space == CUDA else None
        self._keep = self._ask(what, lambda: self._capsule(stream))
        versioned = _is_capsule(self._keep, b"dltensor_versioned")
        name = b"dltensor_versioned" if versioned else b"dltensor"
        if not versioned and not _is_capsule(self._keep, name):
            raise InvalidArgument(f"{what}: __dlpack__() of {type(self.owner).__name__} returned no DLPack tensor")
        pointer = _pointer_of(self._keep, name)
        whole = c.cast(pointer, c.POINTER(_Versioned)).contents if versioned else None
        if whole is not None and whole.major != 1:
            raise Unsupported(f"{what} is of DLPack {whole.major}.{whole.minor} (expected 1.x or earlier)")
        self.writable = whole is None or not whole.flags & _READ_ONLY
        self._take(whole.tensor if whole is not None else c.cast(pointer, c.POINTER(_Tensor)).contents, what)

    def _capsule(self, stream: int | None) -> Any:
        words = {} if stream is None else {"stream": stream}
        try:
            return self.owner.__dlpack__(max_version=(1, 0), **words)
        except TypeError:  # of an earlier version
            return self.owner.__dlpack__(**words)

    def _take(self, tensor: _Tensor, what: str) -> None:
        self.shape = tuple(tensor.shape[:tensor.ndim])
        number = _BY_CODE.get((tensor.code, tensor.bits))
        if number is None or tensor.lanes != 1:
            raise InvalidArgument(f"{what} is of DLPack's type {tensor.code} with {tensor.bits} bits in {tensor.lanes} lanes "
                                  f"(expected {_TYPES})")
        self.number = number
        if tensor.strides:
            self._check_strides(tensor.strides[:tensor.ndim], what)
        self.address = (tensor.data or 0) + tensor.byte_offset

    def _check_strides(self, strides: list[int], what: str) -> None:
        wanted = 1
        if 0 in self.shape:
            return
        for length, stride in zip(reversed(self.shape), reversed(strides)):
            if length != 1 and stride != wanted:
                raise InvalidArgument(f"{what} has strides of {list(strides)} elements for shape {self.shape} "
                                      "(expected a contiguous array in row-major order)")
            wanted *= length


def _native(stream: int) -> int:
    """CUDA's default stream is NULL to the library."""
    return 0 if stream == _DEFAULT_STREAM else stream


def lends(value: object) -> bool:
    """Whether an object that is no NumPy array has memory to lend."""
    kind = type(value)
    return hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__")
