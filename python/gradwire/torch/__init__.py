"""gradwire for PyTorch: the process-group backend "gradwire", which is always exact, and compressed gradients for wrapped modules.

    import gradwire.torch
    torch.distributed.init_process_group("gradwire")
    gradwire.torch.compress(ddp, "topk:ratio=0.01,ef=ef14")

Importing this registers the backend. Where the package has no compiled extension for this version of PyTorch, the first import
compiles it (``python -m gradwire.torch.build`` does so ahead of time).
"""

import sys

from gradwire.torch._versions import require_torch

require_torch()

import gradwire_torch_autoload  # noqa: E402

# `python -m gradwire.torch.build` imports this package before it runs the module, which works without an extension, or with a broken one.
_building = sys.argv[:1] == ["-m"] and "gradwire.torch.build" in getattr(sys, "orig_argv", ())

if not _building:
    from gradwire.torch._compression import Compression, HookState, compress, hook
    from gradwire.torch._groups import Options, describe
    from gradwire.torch._groups import create as _create
    from gradwire.torch._sharded import AllGather, ReduceScatter

__all__ = ["AllGather", "Compression", "HookState", "Options", "ReduceScatter", "compress", "describe", "hook", "register"]


def register():
    """Registers the backend, as importing this package has done; twice is harmless. Raises RuntimeError if another package has registered
    a backend of that name."""
    gradwire_torch_autoload.register()


if not _building:
    register()
