"""Process groups of this backend, and gradwire's communicators beside process groups of other backends."""

import atexit
import os
import weakref

import torch
import torch.distributed as dist

from gradwire.torch import _extension

extension = _extension.load()
_groups = extension.Groups()
# At the interpreter's end no callback may run any more; peers hear a goodbye.
atexit.register(_groups.close)
# Communicators beside groups of other backends, by group.
_beside = weakref.WeakKeyDictionary()


class Options(extension.Options):
    """Options of a process group: ``init_process_group("gradwire", pg_options=gradwire.torch.Options(...))``.

    blocking: True: an operation is complete when the call that starts it returns, and callbacks of its future run at once, in the same
        order on all ranks; for hooks that chain several operations. None: as GRADWIRE_BLOCKING says (1: True).
    liveness: seconds within which a dead or stopped rank is noticed (0: GRADWIRE_DEADLINE, else 15).
    rendezvous: seconds to wait for the slowest rank (0: the group's timeout).
    transport: "auto", "shm", "ucx", "tcp" or "nccl" ("": GRADWIRE_TRANSPORT, else "auto").
    interface_name: the network interface ("": GRADWIRE_IFNAME, else the first usable one).
    algorithm: of reductions ("": "auto").
    inter_node: over "nccl", what joins the nodes of a group in all_reduce, as the key of that name of compress(): "messages" (NCCL sums
        inside nodes, UCX or TCP between them, algorithm "two_level"), or "nccl" ("": "nccl").
    links: the link parameters by which "auto" selects algorithms: "default", "cached" or "measured" ("": GRADWIRE_LINKS, else "default").

    Equal on all ranks. Raises ValueError for a negative time, an inter_node that is none of these or does not go with the algorithm, or a
    GRADWIRE_BLOCKING other than 0 or 1.
    """

    def __init__(self, *, blocking=None, liveness=0.0, rendezvous=0.0, transport="", interface_name="", algorithm="", inter_node="", links=""):
        super().__init__()
        self.blocking = _blocking_by_environment() if blocking is None else bool(blocking)
        for name, seconds in (("liveness", liveness), ("rendezvous", rendezvous)):
            if not seconds >= 0:
                raise ValueError(f"gradwire: {name}={seconds} (expected seconds, 0 for the default)")
        self.liveness = float(liveness)
        self.rendezvous = float(rendezvous)
        self.transport = transport
        self.interface_name = interface_name
        self.algorithm = _algorithm_of(algorithm, inter_node)
        self.links = links


def _algorithm_of(algorithm, inter_node):
    if inter_node not in ("", "messages", "nccl"):
        raise ValueError(f"gradwire: inter_node={inter_node} (expected messages or nccl)")
    if inter_node != "messages":
        return algorithm
    if algorithm not in ("", "auto", "two_level"):
        raise ValueError(f"gradwire: inter_node=messages with algorithm={algorithm} (expected no algorithm, or two_level)")
    return "two_level"


def _blocking_by_environment():
    text = os.environ.get("GRADWIRE_BLOCKING", "0")
    if text not in ("", "0", "1"):
        raise ValueError(f"gradwire: GRADWIRE_BLOCKING={text} (expected 0 or 1)")
    return text == "1"


def create(group, options):
    """Creates the backend of a process group, as PyTorch's extended API calls it. Raises TypeError for options of another class."""
    if options is None:
        options = Options()
    if not isinstance(options, extension.Options):
        raise TypeError(f"gradwire: pg_options is a {type(options).__name__} (expected gradwire.torch.Options)")
    return _groups.create(group, options)


def backend_of(group=None):
    """gradwire's backend of a process group (None: the default one). For a group of another backend it is a communicator beside it, which
    the first call creates (collective). Raises ValueError if there is no process group."""
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise ValueError("gradwire: there is no process group (torch.distributed.init_process_group() first)")
    backend = None
    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:  # a group without one for CPU tensors
        pass
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    if backend is not None and extension.is_own(backend):
        return backend
    if group not in _beside:
        _beside[group] = _make_beside(group)
    return _beside[group]


def _make_beside(group):
    description = torch._C._distributed_c10d._DistributedBackendOptions()
    description.store = dist.PrefixStore("gradwire/", dist.distributed_c10d._world.pg_map[group][1])
    description.group_rank = group.rank()
    description.group_size = group.size()
    description.timeout = dist.distributed_c10d._get_default_timeout("gloo")
    description.group_id = "beside"
    description.global_ranks_in_group = []
    return _groups.create(description, Options())


def describe(group=None):
    """One line for people about a process group (None: the default one): ranks, transport, versions. Raises ValueError if there is none."""
    return extension.describe(backend_of(group))
