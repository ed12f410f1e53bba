#!/usr/bin/env python3
"""Arrays of other libraries through the Python package: CuPy-like ones on emulated CUDA devices (__cuda_array_interface__ and DLPack),
and DLPack's on the host. Ranks are processes; what they compute is compared with NumPy arrays that go the same way."""
import ctypes as c
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    sys.exit(77)

SOURCE = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(SOURCE / "python"))
PATIENCE = 120
DLPACK_CODE = {"f": 2, "i": 0, "u": 1, "b": 6}


class Device:
    """The emulator inside the library."""

    def __init__(self):
        self.calls = c.CDLL(os.environ["GRADWIRE_LIBRARY"])
        for name in ("test_device_alloc", "test_stream_create"):
            getattr(self.calls, name).restype = c.c_void_p
        self.calls.test_device_alloc.argtypes = [c.c_size_t, c.c_int]
        self.calls.test_device_free.argtypes = [c.c_void_p, c.c_int]
        self.calls.test_stream_create.argtypes = [c.c_int]
        self.calls.test_stream_destroy.argtypes = [c.c_void_p]
        self.calls.test_stream_hold.argtypes = [c.c_void_p, c.c_int]
        for name in ("test_copy_to_device", "test_copy_to_host"):
            getattr(self.calls, name).argtypes = [c.c_void_p, c.c_void_p, c.c_size_t, c.c_int, c.c_void_p]
        self.calls.test_play_devices(2)


class Array:
    """As CuPy's: memory of a device, and the stream on which its owner works."""

    cuda = None  # a Device

    def __init__(self, values, device=0, stream=None, strides=None, read_only=False):
        values = np.ascontiguousarray(values)
        self.shape, self.dtype, self.device, self.stream = values.shape, values.dtype, device, stream
        self.strides, self.read_only, self.nbytes = strides, read_only, values.nbytes
        self.address = Array.cuda.calls.test_device_alloc(max(values.nbytes, 1), device)
        self.set(values)

    def set(self, values):
        """Enqueued on its stream."""
        self.source = np.ascontiguousarray(values)
        assert Array.cuda.calls.test_copy_to_device(self.address, self.source.ctypes.data, self.nbytes, self.device, self.stream) == 0

    def get(self):
        values = np.empty(self.shape, self.dtype)
        assert Array.cuda.calls.test_copy_to_host(values.ctypes.data, self.address, self.nbytes, self.device, self.stream) == 0
        return values

    def __del__(self):
        self.get()  # its stream may have work on it
        Array.cuda.calls.test_device_free(self.address, self.device)

    def __array_namespace__(self):
        return Namespace(type(self), self.stream)


class Namespace:
    """The module of an array: what makes others like it."""

    def __init__(self, kind, stream):
        self.kind, self.stream = kind, stream

    def empty(self, shape, dtype, device):
        return self.kind(np.zeros(shape, dtype), device, self.stream)


class InterfaceArray(Array):
    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, self.read_only), "version": 3,
                "strides": self.strides, "stream": self.stream or 1}


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device", c.c_int32), ("ndim", c.c_int32), ("code", c.c_uint8),
                ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)),
                ("byte_offset", c.c_uint64), ("manager", c.c_void_p), ("deleter", c.c_void_p)]


DESTRUCTOR = c.CFUNCTYPE(None, c.c_void_p)
new_capsule = c.PYFUNCTYPE(c.py_object, c.c_void_p, c.c_char_p, DESTRUCTOR)(("PyCapsule_New", c.pythonapi))


class Capsules:
    """DLPack for an array; counts what is lent now, and remembers the streams for which it was asked to wait."""

    lent, streams, kept = 0, [], []

    @classmethod
    def make(cls, address, device, shape, dtype):
        lengths = (c.c_int64 * len(shape))(*shape)
        tensor = Tensor(address - 8, *device, len(shape), DLPACK_CODE[dtype.kind], dtype.itemsize * 8, 1, lengths, None, 8)

        @DESTRUCTOR
        def free(_):
            Capsules.lent -= 1

        cls.kept.append((tensor, lengths, free))  # the capsule may go at any time, its struct never does
        cls.lent += 1
        return new_capsule(c.addressof(tensor), b"dltensor", free)


class DlpackArray(Array):
    kind = 2  # of devices: CUDA

    def __dlpack_device__(self):
        return self.kind, self.device

    def __dlpack__(self, stream=None):
        Capsules.streams.append(stream)
        self.get()  # that stream is behind its own: here the host waits
        return Capsules.make(self.address, (self.kind, self.device), self.shape, self.dtype)


class HostArray:
    """An array of the host that is not NumPy's."""

    def __init__(self, values):
        self.values = values

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, stream=None, max_version=None):
        assert stream is None
        return self.values.__dlpack__()


def numbers(rank, count, step=0):
    return (((np.arange(count) * 37 + rank * 101 + step * 17) % 1009) / 512 - 1).astype("f4")


def operations(gradwire, comm, kind):
    stream = Array.cuda.calls.test_stream_create(0)
    size, rank = comm.size, comm.rank
    wanted = sum(np.arange(100, dtype="i8") + r for r in range(size))
    Array.cuda.calls.test_stream_hold(stream, 1)
    own = kind(np.arange(100, dtype="i8") + rank, stream=stream)
    if kind is DlpackArray:
        Array.cuda.calls.test_stream_hold(stream, 0)  # its owner waits
    work = comm.all_reduce(own, out=own, wait=False)
    Array.cuda.calls.test_stream_hold(stream, 0)
    assert work.wait_on(stream) is own
    np.testing.assert_array_equal(own.get(), wanted)
    total = comm.all_reduce(kind(np.full((2, 3), rank + 1, "f8"), stream=stream), "mean")
    assert type(total) is kind and total.shape == (2, 3)
    np.testing.assert_array_equal(total.get(), np.full((2, 3), (size + 1) / 2))
    rows = comm.all_gather(kind(np.full(3, rank, "u1"), stream=stream))
    np.testing.assert_array_equal(rows.get(), [[r] * 3 for r in range(size)])
    fixed = kind(np.full(5, rank, "i4"), stream=stream)
    comm.broadcast(fixed, root=size - 1)
    np.testing.assert_array_equal(fixed.get(), [size - 1] * 5)
    if rank < 2:
        comm.send(fixed, 1 - rank, 3, wait=False)
        heard = comm.recv(kind(np.zeros(5, "i4"), stream=stream), 1 - rank, 3)
        np.testing.assert_array_equal(heard.get(), [size - 1] * 5)
    comm.barrier()


def averages(gradwire, comm, kind, spec):
    shapes = {"weight": (50, 40), "bias": (40,)}
    here = {name: np.zeros(shape, "f4") for name, shape in shapes.items()}
    stream = Array.cuda.calls.test_stream_create(0)
    there = {name: kind(np.zeros(shape, "f4"), stream=stream) for name, shape in shapes.items()}
    on_host, on_device = gradwire.Aggregator(comm, here, spec), gradwire.Aggregator(comm, there, spec)
    for step in range(4):
        for name, shape in shapes.items():
            here[name][:] = numbers(comm.rank, int(np.prod(shape)), step).reshape(shape)
            there[name].set(here[name].copy())
        assert on_device.average(there) is there
        on_host.average(here)
        for name in shapes:
            np.testing.assert_array_equal(there[name].get(), here[name], err_msg=f"{name} in step {step} of {spec}")
    state = on_device.state_dict()
    for name, value in on_host.state_dict().items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)
    assert on_device.stats()["payload_bytes"] == on_host.stats()["payload_bytes"] < on_device.stats()["gradient_bytes"]


def on_the_host(gradwire, comm):
    values = np.arange(6, dtype="f4")
    lent = HostArray(values)
    assert comm.all_reduce(lent, out=lent) is lent
    np.testing.assert_array_equal(values, np.arange(6) * comm.size)
    with_same = {"weight": HostArray(np.full((30, 40), comm.rank, "f4"))}
    gradwire.Aggregator(comm, with_same, "none").average(with_same)
    np.testing.assert_array_equal(with_same["weight"].values, np.full((30, 40), (comm.size - 1) / 2, "f4"))


def rank_main():
    import gradwire

    Array.cuda = Device()
    comm = gradwire.init(timeout=60)
    on_the_host(gradwire, comm)
    for kind in (InterfaceArray, DlpackArray):
        operations(gradwire, comm, kind)
        for spec in ("topk:ratio=0.05,ef=ef14", "powersgd:rank=2,ef=ef14"):
            averages(gradwire, comm, kind, spec)
    comm.close()


class DeviceArrays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global gradwire, Lent
        import gradwire
        from gradwire._lent import Lent

        Array.cuda = Device()
        cls.comm = gradwire.threads(1)[0]

    def test_ranks_that_are_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank in range(2):
                env = {**os.environ, "GRADWIRE_RANK": str(rank), "GRADWIRE_WORLD_SIZE": "2", "GRADWIRE_RENDEZVOUS": f"file://{folder}",
                       "GRADWIRE_TRANSPORT": "tcp"}
                ranks.append(subprocess.Popen([sys.executable, __file__, "--rank"], env=env, stdout=subprocess.PIPE,
                                              stderr=subprocess.STDOUT, text=True))
            said = [rank.communicate(timeout=PATIENCE)[0] for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0, 0], "\n".join(said))

    def test_addresses_are_the_owner_s(self):
        values = np.arange(12, dtype="f8").reshape(3, 4)
        self.assertEqual(Lent(HostArray(values), "array").address, values.ctypes.data)
        for kind in (InterfaceArray, DlpackArray):
            array = kind(values, device=1)
            lent = Lent(array, "array")
            self.assertEqual((lent.address, lent.shape, lent.place, lent.number), (array.address, (3, 4), (1, 1), 0))

    def test_capsules_live_as_long_as_the_work(self):
        stream = Array.cuda.calls.test_stream_create(0)
        gc.collect()
        lent = Capsules.lent
        array = DlpackArray(np.ones(10, "f4"))
        work = self.comm.all_reduce(array, out=array, wait=False)
        self.assertGreater(Capsules.lent, lent)
        self.assertEqual(Capsules.streams[-1], 1)
        work.wait()
        del work
        gc.collect()
        self.assertEqual(Capsules.lent, lent)
        Array.cuda.calls.test_stream_destroy(stream)

    def test_the_stream_of_the_interface_is_the_operation_s(self):
        stream = Array.cuda.calls.test_stream_create(0)
        Array.cuda.calls.test_stream_hold(stream, 1)
        array = InterfaceArray(np.full(10, 3, "f4"), stream=stream)
        other = InterfaceArray(np.zeros(10, "f4"), stream=stream)
        work = self.comm.all_reduce(array, out=other, wait=False)
        with self.assertRaises(gradwire.TimedOut):
            work.wait(0.1)
        Array.cuda.calls.test_stream_hold(stream, 0)
        np.testing.assert_array_equal(work.wait(60).get(), np.full(10, 3))

    def refused(self, kind, words, call, *arguments, **named):
        with self.assertRaisesRegex(kind, words):
            call(*arguments, **named)

    def test_what_is_refused(self):
        ones = np.ones((4, 6), "f4")
        comm, bad = self.comm, gradwire.InvalidArgument
        first, second = InterfaceArray(ones), InterfaceArray(ones, device=1)
        stream = Array.cuda.calls.test_stream_create(0)
        self.refused(bad, "out is in host memory .expected memory of CUDA device 0", comm.all_reduce, first, out=ones)
        self.refused(bad, "out is in memory of CUDA device 1", comm.all_reduce, first, out=second)
        self.refused(bad, "strides of .12, 2. elements", comm.all_reduce, InterfaceArray(ones, strides=(48, 8)))
        self.refused(bad, "array is read-only", comm.broadcast, InterfaceArray(ones, read_only=True))
        self.refused(bad, "type '<c8'", comm.all_reduce, InterfaceArray(ones.astype("c8")))
        self.refused(bad, "type '>f4'", comm.all_reduce, InterfaceArray(ones.astype(">f4")))
        self.refused(bad, "the streams 0x0 and 0x", comm.all_reduce, first, out=InterfaceArray(ones, stream=stream))
        self.refused(gradwire.Unsupported, "bitwise", comm.all_reduce, InterfaceArray(ones.astype("i4")), "bit_or")
        self.refused(bad, "out is a list", comm.all_reduce, first, out=[1.0])
        self.refused(bad, "'b' is in memory of CUDA device 1 .expected memory of CUDA device 0", gradwire.Aggregator, comm,
                     {"a": first, "b": second})
        aggregator = gradwire.Aggregator(comm, {"a": first})
        self.refused(bad, "'a' is in host memory", aggregator.submit, {"a": ones})
        self.refused(bad, "'a' is float32.6, 4. .expected float32.4, 6.", aggregator.submit, {"a": InterfaceArray(ones.T.copy())})
        self.refused(bad, "on host memory", comm.all_reduce(ones, wait=False).wait_on)
        other = DlpackArray(ones)
        other.kind = 10
        self.refused(gradwire.Unsupported, "DLPack's type 10", comm.all_reduce, other)

        class Absent(DlpackArray):
            def __dlpack__(self, stream=None):
                raise BufferError("needs a gradient")

        self.refused(bad, "array is a Absent that does not lend its memory: needs a gradient", comm.all_reduce, Absent(ones))

        class Without(InterfaceArray):
            __array_namespace__ = None

        self.refused(bad, "out=ARRAY", comm.all_reduce, Without(ones))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_main()
    else:
        unittest.main(verbosity=2)
