"""Compressed reduce-scatter and all-gather for FSDP2 (fully_shard), for set_custom_reduce_scatter() and set_custom_all_gather()."""

import torch
import torch.distributed as dist

from gradwire.torch._averaging import ALL_GATHER, GRADIENTS, PARAMETERS, REDUCE_SCATTER, Averaging, checked_options

try:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather as AllGatherBase
    from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter as ReduceScatterBase
except ImportError:  # before 2.8
    FSDPModule = None
    AllGatherBase = ReduceScatterBase = object


class _Sharded:
    def __init__(self, spec, form, traffic, name, options):
        if FSDPModule is None:
            raise RuntimeError(f"gradwire: torch {torch.__version__} has no custom communication for fully_shard (needs 2.8 or later)")
        self._averaging = Averaging(spec, checked_options(options), form, traffic)
        self._name = name
        self._elements = None

    def allocate(self, size, *, dtype, device):
        """Memory for FSDP2's buffers: a tensor of shape size, in elements."""
        return torch.empty(*size, dtype=dtype, device=device)

    def state_dict(self):
        """This rank's residuals and other state, between steps."""
        return self._averaging.state_dict()

    def load_state_dict(self, state):
        """Restores this rank's state_dict(), or a list of every old rank's. Raises ValueError as HookState.load_state_dict()."""
        self._averaging.load_state_dict(state)

    def stats(self):
        """Counters of this rank since the first step: steps, bytes, seconds."""
        return self._averaging.stats()

    def _submit(self, whole, group):
        if not self._averaging.started:
            self._elements = whole.numel()
            self._averaging.start_flat(group, self._name, whole)
        if whole.numel() != self._elements:
            raise ValueError(f"gradwire: {type(self).__name__} was given {whole.numel()} elements after {self._elements}; give each module an object of its own")
        self._averaging.begin_step()
        return self._averaging.submit([0], [whole], whole)


class ReduceScatter(_Sharded, ReduceScatterBase):
    """Compressed gradients: ``module.set_custom_reduce_scatter(gradwire.torch.ReduceScatter(spec))``, one object for each module.

    spec and options: as HookState's. name: what rules match, and the prefix of the saved state. Raises ValueError for a bad spec or
    combination; RuntimeError if PyTorch is older than 2.8.
    """

    def __init__(self, spec, *, name="gradient", **options):
        super().__init__(spec, REDUCE_SCATTER, GRADIENTS, name, options)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        """Called by FSDP2: output_tensor receives this rank's shard of the average (op AVG) or sum (op SUM). Raises ValueError for
        another op, or another number of elements than in the first step."""
        factor = _factor_of(op, group.size())
        summed = self._submit(input_tensor, group)

        def take_shard(done):
            done.value()  # raises what has gone wrong
            begin, end = self._averaging.shard(input_tensor.numel())
            output_tensor.copy_(input_tensor.view(-1)[begin:end].view_as(output_tensor))
            if factor != 1:
                output_tensor.mul_(factor)
            return output_tensor

        return _ended(summed, take_shard, async_op)


class AllGather(_Sharded, AllGatherBase):
    """Compressed parameters: ``module.set_custom_all_gather(gradwire.torch.AllGather(spec))``, one object for each module.

    All ranks, the owner included, compute with the decoded parameters, so replicas are equal; the owner updates its exact shard. Tensors
    of bytes (parameters of several types at once) are sent uncompressed. spec, name, options and errors: as ReduceScatter, which raises
    ValueError or RuntimeError.
    """

    def __init__(self, spec, *, name="parameter", **options):
        super().__init__(spec, ALL_GATHER, PARAMETERS, name, options)

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        """Called by FSDP2: output_tensor receives all ranks' input_tensor, as decoded. Raises ValueError for another number of elements
        than in the first step."""
        if not input_tensor.is_floating_point():
            return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)
        own = output_tensor.view(-1).narrow(0, group.rank() * input_tensor.numel(), input_tensor.numel())
        if own.data_ptr() != input_tensor.data_ptr():
            own.copy_(input_tensor.view(-1))
        return _ended(self._submit(output_tensor, group), lambda done: done.value(), async_op)


def _factor_of(op, size):
    """The factor of the average that makes it the reduction `op`. Raises ValueError for another one than AVG and SUM."""
    if op == dist.ReduceOp.AVG:
        return 1
    if op == dist.ReduceOp.SUM:
        return size
    raise ValueError(f"gradwire: a compressed reduce-scatter by {op} (expected AVG or SUM: no set_gradient_divide_factor())")


def _ended(future, last, async_op):
    if async_op:
        return torch._C._distributed_c10d._create_work_from_future(future.then(last))
    future.wait()
    last(future)
    return None


def units_of(module):
    """The modules on which fully_shard() was called, by name."""
    if FSDPModule is None:
        return {}
    return {name or "root": unit for name, unit in module.named_modules() if isinstance(unit, FSDPModule)}


def compress_units(units, spec, options):
    parts, said = {name: ReduceScatter(spec, name=name, **options) for name in units}, {}
    for name, unit in units.items():
        parts[name]._averaging.said = said
        unit.set_custom_reduce_scatter(parts[name])
    return parts
