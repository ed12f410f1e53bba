"""Errors of the library, each with the sentence that names the rank, the operation and the time."""

from __future__ import annotations


class GradwireError(RuntimeError):
    """Any failure; ``status`` is the number of gradwire/c.h."""

    status = 9


class InvalidArgument(GradwireError, ValueError):
    """The caller's input; retrying cannot help."""

    status = 1


class Unsupported(GradwireError):
    """Valid, but not in this build or on this machine."""

    status = 2


class OutOfMemory(GradwireError, MemoryError):
    """There is no memory left."""

    status = 3


class PeerLost(GradwireError, ConnectionError):
    """A rank died, stopped or closed; the communicator is finished."""

    status = 4


class TimedOut(GradwireError, TimeoutError):
    """An operation's timeout, after which the communicator is finished; or a wait's, which harms nothing."""

    status = 5


class Cancelled(GradwireError):
    """Somebody called abort(), or the communicator is gone."""

    status = 6


class CorruptPayload(GradwireError):
    """Received bytes contradict their own header or checksum."""

    status = 7


class RankMismatch(GradwireError):
    """Ranks disagree about operation, size or type."""

    status = 8


class InternalError(GradwireError):
    """A bug in gradwire."""

    status = 9


_BY_STATUS = {kind.status: kind for kind in (InvalidArgument, Unsupported, OutOfMemory, PeerLost, TimedOut, Cancelled, CorruptPayload,
                                             RankMismatch, InternalError)}


def error_for(status: int, sentence: str) -> GradwireError:
    """The error of a gw_status that is not GW_OK."""
    return _BY_STATUS.get(status, InternalError)(sentence)
