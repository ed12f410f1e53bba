"""Compressed gradient exchange between ranks: exact collectives and compressed averaging of arrays: NumPy's, CuPy's, JAX's, PyTorch's.

    import numpy, gradwire
    comm = gradwire.init()                               # rank and size from the launcher
    total = comm.all_reduce(numpy.ones(1000, "f4"))      # the sum over ranks, on all of them

    gradients = {"weight": numpy.ones((100, 100), "f4")}
    aggregator = gradwire.Aggregator(comm, gradients, "topk:ratio=0.01,ef=ef14")
    aggregator.average(gradients)                        # in place: the mean over ranks, compressed between them

Ranks are started by `gradwire run`, torchrun, mpirun, srun, or another launcher that sets RANK and WORLD_SIZE. Times are seconds.
Failures raise the exceptions of `gradwire.errors`.
"""

from gradwire._library import version as _version
from gradwire.aggregator import Aggregator
from gradwire.communicator import ANY_SOURCE, Communicator, Launch, Work, init, launch, threads
from gradwire.errors import (Cancelled, CorruptPayload, GradwireError, InternalError, InvalidArgument, OutOfMemory, PeerLost,
                             RankMismatch, TimedOut, Unsupported)
from gradwire.specs import Method, SpecInfo, inspect, methods

__version__: str = _version()

__all__ = [
    "ANY_SOURCE", "Aggregator", "Cancelled", "Communicator", "CorruptPayload", "GradwireError", "InternalError", "InvalidArgument",
    "Launch", "Method", "OutOfMemory", "PeerLost", "RankMismatch", "SpecInfo", "TimedOut", "Unsupported", "Work", "init", "inspect",
    "launch", "methods", "threads",
]
