"""The exceptions of the library. Their text names the rank, the operation and the elapsed time, or the argument and what was expected."""

from __future__ import annotations


class GradwireError(RuntimeError):
    """The base of all failures. ``status``: the gw_status number of gradwire/c.h."""

    status = 9


class InvalidArgument(GradwireError, ValueError):
    """Wrong input from the caller; a retry with the same input fails again."""

    status = 1


class Unsupported(GradwireError):
    """Valid input that this build or machine cannot serve."""

    status = 2


class OutOfMemory(GradwireError, MemoryError):
    """No memory is left."""

    status = 3


class PeerLost(GradwireError, ConnectionError):
    """A rank ended, stopped or closed; the communicator is unusable."""

    status = 4


class TimedOut(GradwireError, TimeoutError):
    """An operation timed out (the communicator is unusable), or Work.wait() did (the operation continues)."""

    status = 5


class Cancelled(GradwireError):
    """abort() was called here or on another rank, or the communicator was closed."""

    status = 6


class CorruptPayload(GradwireError):
    """Received bytes contradict their own header or checksum."""

    status = 7


class RankMismatch(GradwireError):
    """Ranks passed different operations, sizes or element types."""

    status = 8


class InternalError(GradwireError):
    """A bug in gradwire."""

    status = 9


_BY_STATUS = {kind.status: kind for kind in (InvalidArgument, Unsupported, OutOfMemory, PeerLost, TimedOut, Cancelled, CorruptPayload,
                                             RankMismatch, InternalError)}


def error_for(status: int, sentence: str) -> GradwireError:
    """The exception for a gw_status other than GW_OK, with that text. Returns it; never raises."""
    return _BY_STATUS.get(status, InternalError)(sentence)
