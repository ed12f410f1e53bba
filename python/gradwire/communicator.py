"""Communicators: ranks that issue the same operations in the same order."""

from __future__ import annotations

import ctypes as c
import dataclasses
from collections.abc import Callable, Sequence

import numpy.typing as npt

from gradwire import _structs as s
from gradwire._arrays import Array, address, counts_of, number_of, readable, reduction_of, result, writable
from gradwire._library import call, load, text
from gradwire.errors import InvalidArgument

ANY_SOURCE = -1
_LEVELS = {"error": 0, "warn": 1, "info": 2, "debug": 3, "trace": 4}


@dataclasses.dataclass(frozen=True)
class Launch:
    """What the launcher's variables say about this process."""

    rank: int
    size: int
    local_rank: int
    source: str
    rendezvous: str


def launch() -> Launch:
    """Rank and size from the environment, and who said so; alone without any launcher."""
    info = s.Launch()
    call("gw_launch_from_env", c.byref(info))
    return Launch(info.rank, info.size, info.local_rank, info.source.decode(), info.rendezvous.decode())


class Work:
    """An operation under way. It keeps the arrays that were lent to it until it has ended."""

    def __init__(self, handle: c.c_void_p, value: Array | None, lent: tuple[object, ...]) -> None:
        self._handle, self._value, self._lent = handle, value, lent

    def done(self) -> bool:
        """Whether it has ended, well or not. Never blocks."""
        ended = c.c_int()
        call("gw_work_test", self._handle, c.byref(ended))
        return ended.value == 1

    def wait(self, timeout: float | None = None) -> Array | None:
        """Waits for the end and returns the result. TimedOut after `timeout` seconds: the operation goes on."""
        call("gw_work_wait", self._handle, -1.0 if timeout is None else float(timeout))
        return self._value

    @property
    def source(self) -> int:
        """Of a recv that has ended: the rank that it came from; else -1."""
        return load().gw_work_source(self._handle)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is None:
            return
        # The library writes into the arrays until the operation's end, which its timeout bounds.
        load().gw_work_wait(handle, -1.0)
        load().gw_work_free(handle)


class Communicator:
    """A group of ranks. Operations return their result, or with ``wait=False`` a `Work`.

    ``out`` may be the array itself: in place. ``timeout`` bounds an operation, in seconds; without one the communicator's does.
    Arrays are contiguous, or copied. Errors are those of `gradwire.errors`.
    """

    def __init__(self, handle: c.c_void_p, keep: tuple[object, ...] = ()) -> None:
        self._handle, self._keep = handle, keep

    @property
    def rank(self) -> int:
        """This rank's number in the group."""
        return load().gw_comm_rank(self._handle)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return load().gw_comm_size(self._handle)

    def job_rank(self, rank: int) -> int:
        """The number in the whole job of a rank of this group; -1 for none."""
        return load().gw_comm_job_rank(self._handle, rank)

    def check(self) -> None:
        """Raises the failure that has finished it, if there is one."""
        call("gw_comm_status", self._handle)

    def __repr__(self) -> str:
        return f"<gradwire.Communicator: {load().gw_comm_describe(self._handle).decode()}>"

    def stats(self) -> dict[str, int]:
        """Bytes and messages: of this communicator's operations, and of the job's transport below."""
        seen = s.CommStats()
        call("gw_comm_get_stats", self._handle, c.byref(seen))
        return {name: getattr(seen, name) for name, _ in s.CommStats._fields_[1:]}

    def _start(self, name: str, arguments: tuple[object, ...], value: Array | None, lent: tuple[object, ...], wait: bool,
               timeout: float | None, algorithm: str | None = None, factor: float = 1, tag: int = 0) -> Array | Work | None:
        options = s.OpOptions(timeout_seconds=timeout or 0, algorithm=text(algorithm), factor=factor, tag=tag)
        if wait:
            call(name, self._handle, *arguments, c.byref(options), None)
            return value
        handle = c.c_void_p()
        call(name, self._handle, *arguments, c.byref(options), c.byref(handle))
        return Work(handle, value, lent)

    def all_reduce(self, array: npt.ArrayLike, op: str = "sum", *, out: Array | None = None, wait: bool = True,
                   timeout: float | None = None, algorithm: str | None = None, factor: float = 1) -> Array | Work:
        """The reduction over ranks, on all of them, exact up to the type's rounding: "sum", "mean", "max", "min", "product",
        "bit_and", "bit_or", "bit_xor", or "pre_mul_sum" (of elements times `factor`)."""
        source = readable(array)
        target = result(out, source.shape, source)
        return self._start("gw_all_reduce", (address(source), address(target), source.size, number_of(source), reduction_of(op)),
                           target, (source,), wait, timeout, algorithm, factor)

    def reduce(self, array: npt.ArrayLike, op: str = "sum", root: int = 0, *, out: Array | None = None, wait: bool = True,
               timeout: float | None = None, algorithm: str | None = None, factor: float = 1) -> Array | Work | None:
        """As all_reduce(), on root alone; None elsewhere."""
        source = readable(array)
        target = result(out, source.shape, source) if self.rank == root else None
        return self._start("gw_reduce", (address(source), address(target), source.size, number_of(source), reduction_of(op), root),
                           target, (source,), wait, timeout, algorithm, factor)

    def broadcast(self, array: Array, root: int = 0, *, wait: bool = True, timeout: float | None = None,
                  algorithm: str | None = None) -> Array | Work:
        """Root's elements into every rank's array, in place."""
        target = writable(array, "array")
        return self._start("gw_broadcast", (address(target), target.size, number_of(target), root), target, (), wait, timeout, algorithm)

    def reduce_scatter(self, array: npt.ArrayLike, op: str = "sum", *, out: Array | None = None, wait: bool = True,
                       timeout: float | None = None, algorithm: str | None = None, factor: float = 1) -> Array | Work:
        """Of arrays with a row for every rank (the first dimension is `size`): the reduction of this rank's row."""
        source = self._rows(array)
        target = result(out, source.shape[1:], source)
        return self._start("gw_reduce_scatter", (address(source), address(target), target.size, number_of(source), reduction_of(op)),
                           target, (source,), wait, timeout, algorithm, factor)

    def all_gather(self, array: npt.ArrayLike, *, out: Array | None = None, wait: bool = True, timeout: float | None = None,
                   algorithm: str | None = None) -> Array | Work:
        """Every rank's array as a row of the result."""
        source = readable(array)
        target = result(out, (self.size, *source.shape), source)
        return self._start("gw_all_gather", (address(source), address(target), source.size, number_of(source)), target, (source,), wait,
                           timeout, algorithm)

    def all_gather_v(self, array: npt.ArrayLike, counts: Sequence[int], *, out: Array | None = None, wait: bool = True,
                     timeout: float | None = None) -> Array | Work:
        """Arrays of counts[r] elements, equal on all ranks, one after another."""
        source = readable(array)
        self._check_counts(source, counts)
        target = result(out, (sum(counts),), source)
        given = counts_of(counts)
        return self._start("gw_all_gather_v", (address(source), address(target), given, number_of(source)), target, (source,), wait, timeout)

    def gather(self, array: npt.ArrayLike, root: int = 0, *, out: Array | None = None, wait: bool = True,
               timeout: float | None = None) -> Array | Work | None:
        """As all_gather(), on root alone; None elsewhere."""
        source = readable(array)
        target = result(out, (self.size, *source.shape), source) if self.rank == root else None
        return self._start("gw_gather", (address(source), address(target), source.size, number_of(source), root), target, (source,), wait,
                           timeout)

    def scatter(self, array: npt.ArrayLike | None, out: Array, root: int = 0, *, wait: bool = True,
                timeout: float | None = None) -> Array | Work:
        """Row r of root's array into rank r's `out`; elsewhere `array` may be None."""
        source = self._rows(array) if self.rank == root else None
        target = writable(out, "out")
        if source is not None and (source.dtype != target.dtype or source.size != target.size * self.size):
            raise InvalidArgument(f"out has {target.size} elements of {target.dtype} (a row of the array wanted)")
        return self._start("gw_scatter", (address(source), address(target), target.size, number_of(target), root), target, (source,), wait,
                           timeout)

    def all_to_all(self, array: npt.ArrayLike, *, out: Array | None = None, wait: bool = True,
                   timeout: float | None = None) -> Array | Work:
        """Row r goes to rank r; row r of the result came from it."""
        source = self._rows(array)
        target = result(out, source.shape, source)
        return self._start("gw_all_to_all", (address(source), address(target), source.size // self.size, number_of(source)), target,
                           (source,), wait, timeout)

    def exclusive_scan(self, array: npt.ArrayLike, op: str = "sum", *, out: Array | None = None, wait: bool = True,
                       timeout: float | None = None) -> Array | Work:
        """On rank r the reduction of ranks 0 to r - 1; on rank 0 what changes nothing."""
        source = readable(array)
        target = result(out, source.shape, source)
        return self._start("gw_exclusive_scan", (address(source), address(target), source.size, number_of(source), reduction_of(op)),
                           target, (source,), wait, timeout)

    def barrier(self, *, wait: bool = True, timeout: float | None = None) -> Work | None:
        """Ends when all ranks have come."""
        return self._start("gw_barrier", (), None, (), wait, timeout)  # type: ignore[return-value]

    def send(self, array: npt.ArrayLike, peer: int, tag: int = 0, *, wait: bool = True, timeout: float | None = None) -> Work | None:
        """To another rank's recv() of that tag."""
        source = readable(array)
        return self._start("gw_send", (address(source), source.size, number_of(source), peer), None, (source,), wait, timeout,
                           tag=tag)  # type: ignore[return-value]

    def recv(self, array: Array, peer: int = ANY_SOURCE, tag: int = 0, *, wait: bool = True,
             timeout: float | None = None) -> Array | Work:
        """Into `array`, of the sender's size and type. With ``wait=False``, Work.source says who it was."""
        target = writable(array, "array")
        return self._start("gw_recv", (address(target), target.size, number_of(target), peer), target, (), wait, timeout, tag=tag)

    def probe(self, peer: int = ANY_SOURCE, tag: int = 0, *, timeout: float = 0) -> int | None:
        """Who has sent something that no recv() has taken; None when nobody has within `timeout` seconds."""
        source = c.c_int(-1)
        options = s.OpOptions(factor=1, tag=tag)
        call("gw_probe", self._handle, peer, float(timeout), c.byref(options), c.byref(source))
        return None if source.value < 0 else source.value

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Collective: ranks of one color form a group, ordered by key; None for a negative color."""
        handle = c.c_void_p()
        call("gw_comm_split", self._handle, color, key, c.byref(handle))
        return Communicator(handle, self._keep) if handle else None

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """Collective over all: the group of these ranks, in this order; None on the others."""
        handle = c.c_void_p()
        members = (c.c_int * len(ranks))(*ranks)
        call("gw_comm_group", self._handle, members, len(ranks), c.byref(handle))
        return Communicator(handle, self._keep) if handle else None

    def shrink(self, timeout: float = 0) -> Communicator:
        """After a failure: a communicator of the ranks that are left, in the old order."""
        handle = c.c_void_p()
        call("gw_comm_shrink", self._handle, float(timeout), c.byref(handle))
        return Communicator(handle, self._keep)

    def abort(self, reason: str = "aborted by its caller") -> None:
        """Ends all operations here with Cancelled, and those of the other ranks, which are told the reason."""
        call("gw_comm_abort", self._handle, reason.encode())

    def close(self) -> None:
        """Says goodbye. What is under way ends with Cancelled. Closed twice is closed."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            load().gw_comm_free(handle)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _rows(self, array: npt.ArrayLike | None) -> Array:
        rows = readable(array)  # type: ignore[arg-type]
        if rows.ndim == 0 or rows.shape[0] != self.size:
            raise InvalidArgument(f"an array of shape {rows.shape} (a row for each of {self.size} ranks wanted)")
        return rows

    def _check_counts(self, own: Array, counts: Sequence[int]) -> None:
        if len(counts) != self.size or counts[self.rank] != own.size:
            raise InvalidArgument(f"counts {list(counts)} for {own.size} elements on rank {self.rank} of {self.size} "
                                  "(one a rank, this rank's being its array's size, wanted)")


def _options(liveness: float, timeout: float, rendezvous_timeout: float, transport: str | None, interface: str | None,
             algorithm: str | None, job: str | None, checksums: bool, log: Callable[[str, str], None] | None,
             log_level: str) -> tuple[s.CommOptions, tuple[object, ...]]:
    options = s.CommOptions(liveness_seconds=liveness, timeout_seconds=timeout, rendezvous_seconds=rendezvous_timeout,
                            transport=text(transport), interface_name=text(interface), algorithm=text(algorithm), job=text(job),
                            checksums=int(checksums))
    if log is None:
        return options, ()
    if log_level not in _LEVELS:
        raise InvalidArgument(f"log_level '{log_level}' (one of {', '.join(_LEVELS)} wanted)")
    names = list(_LEVELS)
    options.log_level = _LEVELS[log_level]
    options.log = s.LOG(lambda _, level, line: log(names[level], line.decode(errors="replace")))
    return options, (options.log,)


def init(*, rank: int | None = None, size: int | None = None, rendezvous: str | None = None, liveness: float = 0,
         timeout: float = 0, rendezvous_timeout: float = 0, transport: str | None = None, interface: str | None = None,
         algorithm: str | None = None, job: str | None = None, checksums: bool = False,
         log: Callable[[str, str], None] | None = None, log_level: str = "info") -> Communicator:
    """The communicator of all ranks that the launcher started (alone without one). Blocks until all are there.

    rank, size: both, instead of what a launcher says; rendezvous: where to meet, "host:port" of rank 0 or "file://" and a folder that
    all ranks see (None: GRADWIRE_RENDEZVOUS, else the launcher's).
    liveness: seconds within which a dead or stopped rank is noticed (0: GRADWIRE_DEADLINE, else 15). timeout: seconds that an
    operation may take whose ranks all live (0: 300). transport: "auto", "shm", "ucx", "tcp", "nccl" or "nccl:N" (None: GRADWIRE_TRANSPORT,
    else "auto"). log: called with a level and a line. Raises Unsupported, naming the library, where UCX is wanted and missing.
    """
    options, keep = _options(liveness, timeout, rendezvous_timeout, transport, interface, algorithm, job, checksums, log, log_level)
    if rank is not None and size is not None:
        if not 0 <= rank < size:
            raise InvalidArgument(f"rank {rank} of {size} ranks (0 to size - 1 wanted)")
        options.rank, options.size = rank, size
    elif rank is not None or size is not None:
        raise InvalidArgument(f"rank {rank} and size {size} (both or neither wanted)")
    options.rendezvous = text(rendezvous)
    handle = c.c_void_p()
    call("gw_init_env", c.byref(options), c.byref(handle))
    return Communicator(handle, keep)


def threads(size: int, *, timeout: float = 0, algorithm: str | None = None) -> list[Communicator]:
    """`size` ranks as threads of this process, for tests and trials: element r belongs to the thread that plays rank r."""
    options, keep = _options(0, timeout, 0, None, None, algorithm, None, False, None, "info")
    handles = (c.c_void_p * max(size, 1))()
    call("gw_init_threads", size, c.byref(options), handles)
    return [Communicator(c.c_void_p(handle), keep) for handle in handles[:size]]
