"""gradwire for PyTorch: the process-group backend "gradwire", exact always, and compressed gradients where they are asked for.

    import gradwire.torch
    torch.distributed.init_process_group("gradwire")
    gradwire.torch.compress(ddp, "topk:ratio=0.01,ef=ef14")

Importing this registers the backend and, the first time for a version of PyTorch, compiles it (``python -m gradwire.torch.build``
does so ahead).
"""

from gradwire.torch._versions import require_torch

require_torch()

import gradwire_torch_autoload  # noqa: E402
from gradwire.torch._compression import Compression, HookState, compress, hook  # noqa: E402
from gradwire.torch._groups import Options, describe  # noqa: E402
from gradwire.torch._groups import create as _create  # noqa: E402
from gradwire.torch._sharded import AllGather, ReduceScatter  # noqa: E402

__all__ = ["AllGather", "Compression", "HookState", "Options", "ReduceScatter", "compress", "describe", "hook", "register"]


def register():
    """Registers the backend, which importing has done; twice is harmless."""
    gradwire_torch_autoload.register()


register()
