"""Which PyTorch this is, and whether it can be served."""

import re

OLDEST = (2, 5)


def require_torch():
    """The module torch. ImportError: there is none, or one that is too old."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "gradwire.torch needs PyTorch 2.5 or later, found none (pip install torch)"
        ) from error
    version = str(torch.__version__)
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        raise ImportError(f"gradwire.torch needs PyTorch 2.5 or later, found {version}")
    if not torch.distributed.is_available():
        raise ImportError(f"gradwire.torch needs a PyTorch with torch.distributed, found {version} without")
    return torch
