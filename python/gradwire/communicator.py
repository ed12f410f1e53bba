"""Communicators: groups of ranks that start the same operations in the same order."""

from __future__ import annotations

import ctypes as c
import dataclasses
from collections.abc import Callable, Sequence

import numpy.typing as npt

from gradwire import _structs as s
from gradwire._arrays import (Array, Given, address, counts_of, name_of, number_of, readable, reduction_of, result, stream_of, value_of,
                              writable)
from gradwire._library import call, load, text
from gradwire.errors import InvalidArgument

# The `peer` of recv() and probe() for messages of any rank.
ANY_SOURCE = -1
_LEVELS = {"error": 0, "warn": 1, "info": 2, "debug": 3, "trace": 4}


@dataclasses.dataclass(frozen=True)
class Launch:
    """What the environment says about this process."""

    rank: int  # this rank, 0 to size - 1
    size: int  # number of ranks in the job
    local_rank: int  # rank among those of this host; rank if the launcher does not say
    source: str  # the launcher: "torchrun", "Open MPI", "Slurm", ...; "alone" without one
    rendezvous: str  # where the ranks meet: "host:port", "file://DIR", ...; "" if the launcher names none


def launch() -> Launch:
    """Reads rank and size from the environment; without a launcher, one rank. Opens no connection. Raises InvalidArgument if the
    launcher's variables are incomplete or malformed."""
    info = s.Launch()
    call("gw_launch_from_env", c.byref(info))
    return Launch(info.rank, info.size, info.local_rank, info.source.decode(), info.rendezvous.decode())


class Work:
    """An operation that was started with ``wait=False``. It keeps its arrays alive until the operation has ended. An object that is
    dropped waits for its operation. Threads: any."""

    def __init__(self, handle: c.c_void_p, value: object, lent: tuple[object, ...], stream: s.Stream | None = None) -> None:
        self._handle, self._value, self._lent, self._stream = handle, value, lent, stream or s.Stream()

    def done(self) -> bool:
        """True once the operation has ended, with success or an error. Never blocks, and never raises the operation's error."""
        ended = c.c_int()
        call("gw_work_test", self._handle, c.byref(ended))
        return ended.value == 1

    def wait(self, timeout: float | None = None) -> Array | None:
        """Waits for the operation, at most `timeout` seconds (None: its own time limit), and returns the result. Raises TimedOut if the
        wait ends first, and the operation continues; or the operation's error."""
        call("gw_work_wait", self._handle, -1.0 if timeout is None else float(timeout))
        return self._value

    def wait_on(self, stream: int | None = None) -> Array | None:
        """Orders the operation before later work on a CUDA stream of its arrays' device, and returns the result: over NCCL the stream
        waits, and the call returns at once; for all other operations it is wait(). stream: the address of a cudaStream_t (None: the
        arrays' own). Raises InvalidArgument for arrays in host memory; or the operation's error."""
        if self._stream.space == 0:
            raise InvalidArgument("wait_on() of an operation on host memory (expected arrays on a CUDA device; wait() serves all)")
        native = self._stream.native if stream is None else stream
        call("gw_work_wait_on", self._handle, c.byref(s.Stream(self._stream.space, self._stream.device, native)))
        return self._value

    @property
    def source(self) -> int:
        """The sender's rank in the group, for a recv() that has ended; -1 otherwise."""
        return load().gw_work_source(self._handle)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is None:
            return
        # The library writes into the arrays until the operation's end, which its timeout bounds.
        load().gw_work_wait(handle, -1.0)
        load().gw_work_free(handle)


class Communicator:
    """A group of ranks. Operations wait and return their result, or, with ``wait=False``, return a `Work` at once.

    Arrays are NumPy's, or those of other libraries that lend their memory by DLPack or ``__cuda_array_interface__`` (CuPy, JAX, PyTorch):
    host memory, or one CUDA device's. They are not copied, and must be contiguous. An operation on a device starts after the work of
    the stream that the arrays name (DLPack: CUDA's default stream, for which the arrays' owner waits).

    ``out``: the array for the result, contiguous and of its size and type, in the input's memory; may be the input itself (in place).
    None: a new array, of the input's library.
    ``timeout``: time limit of the operation in seconds; None: the communicator's. ``algorithm``: "ring", "canonical", ...; None: the
    communicator's. ``factor``: factor of this rank's elements with op="pre_mul_sum". Inputs of NumPy that are not contiguous are copied.
    Types: float64, float32, float16, bfloat16, int64, int32, int8, uint8, bool. Results are bit-identical on all ranks.

    Errors of every operation: InvalidArgument for wrong shapes, types or ranks, and nothing is started; PeerLost if a rank failed,
    TimedOut if a rank did not take part in time, RankMismatch, CorruptPayload or Cancelled, after which the communicator is unusable.
    Threads: any; all ranks must start the same operations in the same order.
    """

    def __init__(self, handle: c.c_void_p, keep: tuple[object, ...] = ()) -> None:
        self._handle, self._keep = handle, keep

    @property
    def rank(self) -> int:
        """This rank in the group, 0 to size - 1."""
        return load().gw_comm_rank(self._handle)

    @property
    def size(self) -> int:
        """The number of ranks of the group."""
        return load().gw_comm_size(self._handle)

    def job_rank(self, rank: int) -> int:
        """The rank in the job of the group's `rank`; -1 if that is out of range."""
        return load().gw_comm_job_rank(self._handle, rank)

    def check(self) -> None:
        """Raises the error that made the communicator unusable, if there is one."""
        call("gw_comm_status", self._handle)

    def __repr__(self) -> str:
        return f"<gradwire.Communicator: {load().gw_comm_describe(self._handle).decode()}>"

    def stats(self) -> dict[str, int]:
        """Counters of this rank: bytes_sent by this communicator's operations; job_bytes_sent, job_bytes_received, job_messages_sent
        and job_messages_received of the job's transport. Raises InvalidArgument after close()."""
        seen = s.CommStats()
        call("gw_comm_get_stats", self._handle, c.byref(seen))
        return {name: getattr(seen, name) for name, _ in s.CommStats._fields_[1:]}

    def _start(self, name: str, arguments: tuple[object, ...], target: Given | None, lent: tuple[object, ...], wait: bool,
               timeout: float | None, algorithm: str | None = None, factor: float = 1, tag: int = 0) -> Array | Work | None:
        stream = stream_of((target, *lent))
        options = s.OpOptions(timeout_seconds=timeout or 0, algorithm=text(algorithm), factor=factor, tag=tag, stream=stream)
        if wait:
            call(name, self._handle, *arguments, c.byref(options), None)
            return value_of(target)  # type: ignore[return-value]
        handle = c.c_void_p()
        call(name, self._handle, *arguments, c.byref(options), c.byref(handle))
        return Work(handle, value_of(target), (target, *lent), stream)

    def all_reduce(self, array: npt.ArrayLike, op: str = "sum", *, out: Array | None = None, wait: bool = True,
                   timeout: float | None = None, algorithm: str | None = None, factor: float = 1) -> Array | Work:
        """The reduction of all ranks' arrays, on all ranks. Never compressed. op: "sum", "mean", "max", "min", "product", "bit_and",
        "bit_or", "bit_xor", or "pre_mul_sum" (the sum of each rank's elements times its `factor`)."""
        source = readable(array)
        target = result(out, source.shape, source)
        return self._start("gw_all_reduce", (address(source), address(target), source.size, number_of(source), reduction_of(op)),
                           target, (source,), wait, timeout, algorithm, factor)

    def reduce(self, array: npt.ArrayLike, op: str = "sum", root: int = 0, *, out: Array | None = None, wait: bool = True,
               timeout: float | None = None, algorithm: str | None = None, factor: float = 1) -> Array | Work | None:
        """all_reduce() for the root only; None on other ranks."""
        source = readable(array)
        target = result(out, source.shape, source) if self.rank == root else None
        return self._start("gw_reduce", (address(source), address(target), source.size, number_of(source), reduction_of(op), root),
                           target, (source,), wait, timeout, algorithm, factor)

    def broadcast(self, array: Array, root: int = 0, *, wait: bool = True, timeout: float | None = None,
                  algorithm: str | None = None) -> Array | Work:
        """Copies the root's elements to every rank's array, in place. Returns the array."""
        target = writable(array, "array")
        return self._start("gw_broadcast", (address(target), target.size, number_of(target), root), target, (), wait, timeout, algorithm)

    def reduce_scatter(self, array: npt.ArrayLike, op: str = "sum", *, out: Array | None = None, wait: bool = True,
                       timeout: float | None = None, algorithm: str | None = None, factor: float = 1) -> Array | Work:
        """The reduction of this rank's block. array: shape (size, ...), one block per rank; the result has the shape (...)."""
        source = self._rows(array)
        target = result(out, source.shape[1:], source)
        return self._start("gw_reduce_scatter", (address(source), address(target), target.size, number_of(source), reduction_of(op)),
                           target, (source,), wait, timeout, algorithm, factor)

    def all_gather(self, array: npt.ArrayLike, *, out: Array | None = None, wait: bool = True, timeout: float | None = None,
                   algorithm: str | None = None) -> Array | Work:
        """All ranks' arrays: shape (size, ...), whose block r is rank r's array."""
        source = readable(array)
        target = result(out, (self.size, *source.shape), source)
        return self._start("gw_all_gather", (address(source), address(target), source.size, number_of(source)), target, (source,), wait,
                           timeout, algorithm)

    def all_gather_v(self, array: npt.ArrayLike, counts: Sequence[int], *, out: Array | None = None, wait: bool = True,
                     timeout: float | None = None) -> Array | Work:
        """All ranks' arrays, of counts[r] elements on rank r, one after another; counts are equal on all ranks."""
        source = readable(array)
        self._check_counts(source, counts)
        target = result(out, (sum(counts),), source)
        given = counts_of(counts)
        return self._start("gw_all_gather_v", (address(source), address(target), given, number_of(source)), target, (source,), wait, timeout)

    def gather(self, array: npt.ArrayLike, root: int = 0, *, out: Array | None = None, wait: bool = True,
               timeout: float | None = None) -> Array | Work | None:
        """all_gather() for the root only; None on other ranks."""
        source = readable(array)
        target = result(out, (self.size, *source.shape), source) if self.rank == root else None
        return self._start("gw_gather", (address(source), address(target), source.size, number_of(source), root), target, (source,), wait,
                           timeout)

    def scatter(self, array: npt.ArrayLike | None, out: Array, root: int = 0, *, wait: bool = True,
                timeout: float | None = None) -> Array | Work:
        """Copies block r of the root's array, of shape (size, ...), to rank r's `out`. On other ranks `array` may be None."""
        source = self._rows(array) if self.rank == root else None
        target = writable(out, "out")
        if source is not None and (number_of(source) != number_of(target) or source.size != target.size * self.size):
            raise InvalidArgument(f"out has {target.size} elements of {name_of(number_of(target))} (expected a row of the array)")
        return self._start("gw_scatter", (address(source), address(target), target.size, number_of(target), root), target, (source,), wait,
                           timeout)

    def all_to_all(self, array: npt.ArrayLike, *, out: Array | None = None, wait: bool = True,
                   timeout: float | None = None) -> Array | Work:
        """Sends block r of the array, of shape (size, ...), to rank r; block r of the result comes from rank r."""
        source = self._rows(array)
        target = result(out, source.shape, source)
        return self._start("gw_all_to_all", (address(source), address(target), source.size // self.size, number_of(source)), target,
                           (source,), wait, timeout)

    def exclusive_scan(self, array: npt.ArrayLike, op: str = "sum", *, out: Array | None = None, wait: bool = True,
                       timeout: float | None = None) -> Array | Work:
        """On rank r the reduction of the arrays of ranks 0 to r - 1; on rank 0 the neutral element (0 for a sum). Not for "mean"."""
        source = readable(array)
        target = result(out, source.shape, source)
        return self._start("gw_exclusive_scan", (address(source), address(target), source.size, number_of(source), reduction_of(op)),
                           target, (source,), wait, timeout)

    def barrier(self, *, wait: bool = True, timeout: float | None = None) -> Work | None:
        """Returns, or is done, once all ranks have called it."""
        return self._start("gw_barrier", (), None, (), wait, timeout)  # type: ignore[return-value]

    def send(self, array: npt.ArrayLike, peer: int, tag: int = 0, *, wait: bool = True, timeout: float | None = None) -> Work | None:
        """Sends the array to the group's rank `peer`, which receives it by recv() with the same tag (0 to 32767). May be done before
        its recv() is started."""
        source = readable(array)
        return self._start("gw_send", (address(source), source.size, number_of(source), peer), None, (source,), wait, timeout,
                           tag=tag)  # type: ignore[return-value]

    def recv(self, array: Array, peer: int = ANY_SOURCE, tag: int = 0, *, wait: bool = True,
             timeout: float | None = None) -> Array | Work:
        """Receives a message of the group's rank `peer` (ANY_SOURCE: any rank) with that tag into `array`, which has the sender's size
        and type. With ``wait=False``, Work.source is the sender. Raises RankMismatch for another size."""
        target = writable(array, "array")
        return self._start("gw_recv", (address(target), target.size, number_of(target), peer), target, (), wait, timeout, tag=tag)

    def probe(self, peer: int = ANY_SOURCE, tag: int = 0, *, timeout: float = 0) -> int | None:
        """The rank that has sent a message with that tag which no recv() has taken; None if there is none within `timeout` seconds.
        Receives nothing."""
        source = c.c_int(-1)
        options = s.OpOptions(factor=1, tag=tag)
        call("gw_probe", self._handle, peer, float(timeout), c.byref(options), c.byref(source))
        return None if source.value < 0 else source.value

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Divides the group: ranks with equal color form a communicator, ordered by key, then by old rank; None for a negative color.
        Collective."""
        handle = c.c_void_p()
        call("gw_comm_split", self._handle, color, key, c.byref(handle))
        return Communicator(handle, self._keep) if handle else None

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """The communicator of these ranks, in this order; None on the others. Collective over all ranks of this group."""
        handle = c.c_void_p()
        members = (c.c_int * len(ranks))(*ranks)
        call("gw_comm_group", self._handle, members, len(ranks), c.byref(handle))
        return Communicator(handle, self._keep) if handle else None

    def shrink(self, timeout: float = 0) -> Communicator:
        """After a failure: a new communicator of the surviving ranks, in the old order. Collective over the survivors. Blocks at most
        `timeout` seconds (0: the communicator's) and 1 more; ranks that have not called by then are excluded. Raises PeerLost if this
        rank was excluded or is isolated, InvalidArgument if nothing has failed, Unsupported if the transport cannot recover."""
        handle = c.c_void_p()
        call("gw_comm_shrink", self._handle, float(timeout), c.byref(handle))
        return Communicator(handle, self._keep)

    def abort(self, reason: str = "aborted by its caller") -> None:
        """Ends all operations of this rank with Cancelled. Those of the other ranks end, too, with an error that names this rank and the
        reason. Does nothing after a failure."""
        call("gw_comm_abort", self._handle, reason.encode())

    def close(self) -> None:
        """Closes the communicator. Operations in progress end with Cancelled. Twice is harmless. Never raises."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            load().gw_comm_free(handle)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _rows(self, array: npt.ArrayLike | None) -> Given:
        rows = readable(array)  # type: ignore[arg-type]
        if rows.ndim == 0 or rows.shape[0] != self.size:
            raise InvalidArgument(f"an array of shape {rows.shape} (expected a row for each of {self.size} ranks)")
        return rows

    def _check_counts(self, own: Given, counts: Sequence[int]) -> None:
        if len(counts) != self.size or counts[self.rank] != own.size:
            raise InvalidArgument(f"counts {list(counts)} for {own.size} elements on rank {self.rank} of {self.size} "
                                  "(expected one a rank, this rank's being its array's size)")


def _options(liveness: float, timeout: float, rendezvous_timeout: float, transport: str | None, interface: str | None,
             algorithm: str | None, job: str | None, checksums: bool, log: Callable[[str, str], None] | None,
             log_level: str) -> tuple[s.CommOptions, tuple[object, ...]]:
    options = s.CommOptions(liveness_seconds=liveness, timeout_seconds=timeout, rendezvous_seconds=rendezvous_timeout,
                            transport=text(transport), interface_name=text(interface), algorithm=text(algorithm), job=text(job),
                            checksums=int(checksums))
    if log is None:
        return options, ()
    if log_level not in _LEVELS:
        raise InvalidArgument(f"log_level '{log_level}' (expected one of {', '.join(_LEVELS)})")
    names = list(_LEVELS)
    options.log_level = _LEVELS[log_level]
    options.log = s.LOG(lambda _, level, line: log(names[level], line.decode(errors="replace")))
    return options, (options.log,)


def init(*, rank: int | None = None, size: int | None = None, rendezvous: str | None = None, liveness: float = 0,
         timeout: float = 0, rendezvous_timeout: float = 0, transport: str | None = None, interface: str | None = None,
         algorithm: str | None = None, job: str | None = None, checksums: bool = False,
         log: Callable[[str, str], None] | None = None, log_level: str = "info") -> Communicator:
    """The communicator of all ranks that the launcher started; without a launcher, of one rank. Collective; blocks until all have called.

    rank, size: this rank and the number of ranks, instead of the launcher's; both or neither.
    rendezvous: where the ranks meet: "host:port" of rank 0, or "file://DIR" with a folder that all ranks see (None:
    GRADWIRE_RENDEZVOUS, else the launcher's). rendezvous_timeout: seconds to wait for the slowest rank (0: 60).
    liveness: seconds within which a dead or stopped rank is noticed (0: GRADWIRE_DEADLINE, else 15).
    timeout: time limit of operations whose ranks are all alive, in seconds (0: 300).
    transport: "auto", "shm", "ucx", "tcp", "nccl" or "nccl:N" (None: GRADWIRE_TRANSPORT, else "auto").
    interface: the network interface (None: GRADWIRE_IFNAME, else the first usable one).
    algorithm: of reductions that name none (None: "auto"). job: the job's id (None: the launcher's).
    checksums: True adds a checksum to every message; False: as GRADWIRE_CHECKSUM says.
    log: called with a level and a line, for lines of `log_level` ("error", "warn", "info", "debug" or "trace") and more severe ones.

    Raises InvalidArgument for an option out of range, Unsupported for a transport that this build or machine lacks (it names the
    library), RankMismatch if ranks differ in options, TimedOut or PeerLost if a rank does not appear in time.
    """
    options, keep = _options(liveness, timeout, rendezvous_timeout, transport, interface, algorithm, job, checksums, log, log_level)
    if rank is not None and size is not None:
        if not 0 <= rank < size:
            raise InvalidArgument(f"rank {rank} of {size} ranks (expected 0 to size - 1)")
        options.rank, options.size = rank, size
    elif rank is not None or size is not None:
        raise InvalidArgument(f"rank {rank} and size {size} (expected both or neither)")
    options.rendezvous = text(rendezvous)
    handle = c.c_void_p()
    call("gw_init_env", c.byref(options), c.byref(handle))
    return Communicator(handle, keep)


def threads(size: int, *, timeout: float = 0, algorithm: str | None = None) -> list[Communicator]:
    """Communicators for `size` ranks that are threads of this process, for tests: element r is for the thread of rank r.

    timeout: time limit of operations in seconds (0: 300). algorithm: of reductions that name none (None: "auto"). Raises InvalidArgument
    for a size or an option out of range.
    """
    options, keep = _options(0, timeout, 0, None, None, algorithm, None, False, None, "info")
    handles = (c.c_void_p * max(size, 1))()
    call("gw_init_threads", size, c.byref(options), handles)
    return [Communicator(c.c_void_p(handle), keep) for handle in handles[:size]]
