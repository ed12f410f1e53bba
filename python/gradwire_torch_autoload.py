"""The backend's name for PyTorch, without the backend: what PyTorch's entry points call.

PyTorch 2.5 and later run the entry points of ``torch.backends`` at the end of ``import torch``, and 2.14 and later those of
``torch.distributed.backends`` when they look for a name. A failure here would make ``import torch`` fail, so nothing is imported
beyond torch.distributed, nothing is compiled, and nothing is raised: the first process group does all that. (The package gradwire
itself loads its library, which is why this module lies beside it.)
"""


def create(group, options):
    """The creator that PyTorch calls for a process group of this backend (extended API)."""
    from gradwire import torch as adapter

    return adapter._create(group, options)


def registered():
    """PyTorch's creator for "gradwire", or None."""
    import torch.distributed as dist

    plugin = dist.Backend._plugins.get("GRADWIRE")
    return None if plugin is None else plugin.creator_fn


def register():
    """Registers "gradwire" for tensors of the CPU and of CUDA devices, once. RuntimeError: another package has that name."""
    import torch.distributed as dist

    creator = registered()
    if creator is create:
        return
    if creator is not None:
        module = getattr(creator, "__module__", "?")
        raise RuntimeError(
            f'gradwire: a backend named "gradwire" is registered with torch.distributed already, by {module} '
            "(expected that package or gradwire, not both)"
        )
    dist.Backend.register_backend("gradwire", create, extended_api=True, devices=["cpu", "cuda"])


def autoload():
    """The entry point of ``torch.backends``."""
    try:
        register()
    except Exception:  # noqa: BLE001: import torch would fail with it
        pass
