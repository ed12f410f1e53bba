"""Compressed gradients for DistributedDataParallel and FSDP: compress(), and the communication hook that it registers."""

import gc

import torch

from gradwire.torch._averaging import ALL_REDUCE, REDUCE_SCATTER, Averaging, checked_options


class HookState:
    """State for ``ddp.register_comm_hook(state, gradwire.torch.hook)``, and for libraries that register a hook (Lightning, Accelerate).

    spec: a compressor, "topk:ratio=0.01,ef=ef14", or rules by name and size, "*.bias=none;*=powersgd:rank=4,ef=ef14".
    module: the module whose parameter names the rules and the saved state use. None: the DistributedDataParallel that has the parameters,
        which the first step finds.
    process_group: that of the DDP module; None: the default one.
    options: seed (of the random numbers; 0), threads (number of threads that encode and decode; 1), bucket_bytes (bytes that are exchanged
        together; 0: 4 MiB), allow_unsafe (False; True: warn of combinations that fail or may diverge instead of refusing them),
        nonfinite ("fail"; or "skip": all ranks skip a step in which any rank has an element that is not finite, residuals are not
        changed, and the gradients become NaN, which loss scalers notice), scaler (a GradScaler: nonfinite defaults to "skip", and
        residuals follow its scale), optimizer (residuals follow its learning rate if the spec has ef_rescale_lr=true; if it has a momentum, specs
        with a momentum of their own, dgc, are refused).

    Equal on all ranks. Residuals belong to parameters, so DDP may rebuild its buckets. Pickling keeps spec, options and this rank's state,
    but not the module, scaler, optimizer and group. Raises ValueError for a bad spec or combination, with the reason and what to write
    instead; TypeError for an unknown option.
    """

    def __init__(self, spec, *, module=None, process_group=None, **options):
        self._averaging = Averaging(spec, checked_options(options))
        self._names = {} if module is None else _names_of(module)
        self._group = process_group
        self._index = {}  # of a parameter in the averaging
        self._waiting = []  # buckets of the first step, which together say what there is

    @property
    def spec(self):
        """The spec or the rules, as given."""
        return self._averaging.spec

    def state_dict(self):
        """This rank's residuals and other state, as plain tensors by name; between steps. Every rank saves its own."""
        return self._averaging.state_dict()

    def load_state_dict(self, state):
        """Restores this rank's state_dict(); or, if the number of ranks has changed, a list of every old rank's, equal on all ranks.
        Raises ValueError for a state of another version, or a rank that is missing or listed twice."""
        self._averaging.load_state_dict(state)

    def stats(self):
        """Counters of this rank since the first step: steps, skipped_steps; gradient_bytes (uncompressed), dense_ring_bytes (what
        this rank would have sent uncompressed with a ring all-reduce), payload_bytes (what it encoded), wire_bytes (what it sent, headers
        included); encode_seconds, exchange_seconds (waiting), decode_seconds. Empty before the first step."""
        return self._averaging.stats()

    def average(self, bucket):
        """Starts averaging a GradBucket in place; returns a future of its buffer. Raises ValueError for sparse gradients, or for
        parameters that the first step did not have; the future has the errors of the exchange."""
        if bucket.buffer().is_sparse:
            raise ValueError("gradwire: a bucket of sparse gradients (expected dense ones; set sparse=False in its embedding)")
        if not self._averaging.started:
            return self._first_step(bucket)
        if bucket.index() == 0:
            self._averaging.begin_step()
        return self._submit(bucket.parameters(), bucket.gradients(), bucket.buffer())

    def _submit(self, parameters, gradients, buffer):
        try:
            indices = [self._index[parameter] for parameter in parameters]
        except KeyError:
            raise ValueError("gradwire: a bucket has a parameter that the first step did not have; make a new HookState") from None
        return self._averaging.submit(indices, gradients, buffer)

    def _first_step(self, bucket):
        if bucket.index() == 0:
            self._waiting = []
        device = bucket.buffer().device
        future = torch.futures.Future(devices=[] if device.type == "cpu" else [device])
        self._waiting.append((bucket.parameters(), bucket.gradients(), bucket.buffer(), future))
        if bucket.is_last():
            waiting, self._waiting = self._waiting, []
            self._start([parameters for parameters, *_ in waiting])
            started = [(self._submit(parameters, gradients, buffer), promised) for parameters, gradients, buffer, promised in waiting]
            # Nothing is left to overlap with. An error is raised here, because DDP does not raise those of a future made in Python:
            # it reports that the exception cannot be cast to a tensor.
            for source, promised in started:
                promised.set_result(source.wait())
        return future

    def _start(self, buckets):
        # DDP's first buckets are in the reverse of the module's order, each in that order itself.
        parameters = [parameter for bucket in reversed(buckets) for parameter in bucket]
        names = self._names or _names_of(_wrapper_of(parameters))
        if not set(parameters) <= set(names):
            raise ValueError("gradwire: the module of a HookState lacks parameters that its hook is called with; pass the DDP module itself")
        named = [(names[parameter], parameter.detach()) for parameter in parameters]
        self._averaging.start(self._group, named)
        self._index = {parameter: i for i, parameter in enumerate(parameters)}
        self._averaging.begin_step()

    def __getstate__(self):
        kept = {**self._averaging.options, "scaler": None, "optimizer": None}
        return {"spec": self.spec, "options": kept, "state": self.state_dict()}

    def __setstate__(self, saved):
        self.__init__(saved["spec"], **saved["options"])
        self.load_state_dict(saved["state"])


def _names_of(module):
    inner = module.module if isinstance(module, torch.nn.parallel.DistributedDataParallel) else module
    return {parameter: name for name, parameter in inner.named_parameters()}


def _wrapper_of(parameters):
    """The DistributedDataParallel that has these parameters: its hook receives buckets only."""
    wanted = set(parameters)
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.nn.parallel.DistributedDataParallel) and wanted <= set(thing.parameters()):
            return thing
    raise ValueError("gradwire: the module of a hook's parameters was not found; pass HookState(spec, module=...)")


def hook(state, bucket, output=None):
    """The communication hook: for DDP with a HookState, for FSDP through compress().

    With DDP it returns a future of the averaged bucket. FSDP calls it with (state, gradient) or (state, gradient, shard), plain tensors.
    Raises TypeError if FSDP's state does not come from compress(); the errors of HookState.average().
    """
    if isinstance(bucket, torch.Tensor):
        if not isinstance(state, FlatState):
            raise TypeError(
                "gradwire: FSDP does not say which parameters it averages; gradwire.torch.compress(fsdp_module, spec) registers a "
                f"state for each of its units (got {type(state).__name__}, expected FlatState)"
            )
        return state.average(bucket, output)
    return state.average(bucket)


class FlatState:
    """The state of one FSDP unit, whose parameters form one flat tensor."""

    def __init__(self, name, spec, options, group, said):
        self.name = name
        self._spec, self._options, self._group, self._said = spec, options, group, said
        self.averaging = None
        self._loaded = None

    def average(self, gradient, shard):
        """Averages the gradient over ranks: in place, or this rank's shard of the average into `shard`."""
        if self.averaging is None:
            self.averaging = Averaging(self._spec, self._options, ALL_REDUCE if shard is None else REDUCE_SCATTER)
            self.averaging.said = self._said
            if self._loaded is not None:
                self.averaging.load_state_dict(self._loaded)
        if not self.averaging.started:
            self.averaging.start_flat(self._group, self.name, gradient)
        self.averaging.begin_step()
        self.averaging.submit([0], [gradient], gradient).wait()
        if shard is not None:
            begin, end = self.averaging.shard(gradient.numel())
            shard.copy_(gradient.view(-1)[begin:end].view_as(shard))

    def state_dict(self):
        return {"version": 1, "rank": 0, "ranks": 0, "tensors": {}} if self.averaging is None else self.averaging.state_dict()

    def load_state_dict(self, state):
        self._loaded = state
        if self.averaging is not None:
            self.averaging.load_state_dict(state)

    def stats(self):
        return {} if self.averaging is None else self.averaging.stats()


class Compression:
    """The result of compress(): state and statistics. Training does not need to keep it."""

    def __init__(self, parts):
        self._parts = parts  # name -> HookState, FlatState, ReduceScatter

    def state_dict(self):
        """This rank's residuals and other state; between steps. Every rank saves its own."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, state):
        """Restores this rank's state_dict(); or, if the number of ranks has changed, a list of every old rank's, equal on all ranks.
        Raises ValueError for a state of another module, or a rank that is missing."""
        if not isinstance(state, (dict, list, tuple)):
            raise TypeError(f"gradwire: the state is a {type(state).__name__} (expected what state_dict() returned, or a list of every old rank's)")
        states = [state] if isinstance(state, dict) else list(state)
        for given in states:
            if set(given) != set(self._parts):
                raise ValueError(f"gradwire: a state with the entries {sorted(given)} (expected {sorted(self._parts)}, as state_dict() returns them)")
        for name, part in self._parts.items():
            part.load_state_dict(state[name] if isinstance(state, dict) else [given[name] for given in states])

    def stats(self):
        """Counters of this rank since the first step, as HookState.stats(); bytes and seconds are those of all parts together."""
        total = {}
        for part in self._parts.values():
            for key, value in part.stats().items():
                total[key] = max(total.get(key, 0), value) if key.endswith("steps") else total.get(key, 0) + value
        return total


def compress(module, spec, **options):
    """Compresses the gradients of a wrapped module: DistributedDataParallel, FullyShardedDataParallel, or one on which fully_shard() was
    called. Call it before the first backward, with equal arguments on all ranks. HookState describes spec and options.

    Returns a Compression. Raises ValueError for a bad spec or combination, with the reason and what to write instead; TypeError for
    another module or an unknown option.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel

    from gradwire.torch import _sharded

    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        state = HookState(spec, module=module, process_group=module.process_group, **options)
        module.register_comm_hook(state, hook)
        return Compression({"gradients": state})
    if isinstance(module, FullyShardedDataParallel):
        return Compression(_compress_flat(module, spec, checked_options(options)))
    units = _sharded.units_of(module)
    if units:
        return Compression(_sharded.compress_units(units, spec, options))
    raise TypeError(
        f"gradwire: compress() was given a {type(module).__name__} (expected DistributedDataParallel, FullyShardedDataParallel or a module of "
        "fully_shard())"
    )


def _compress_flat(module, spec, options):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    form = ALL_REDUCE if module.sharding_strategy == ShardingStrategy.NO_SHARD else REDUCE_SCATTER
    Averaging(spec, options, form)  # refuses now what the first backward would refuse
    module.register_comm_hook(None, hook)  # checks that this is a root, without a hook, and not a hybrid
    parts, said = {}, {}
    for name, unit in module.named_modules():
        if isinstance(unit, FullyShardedDataParallel):
            state = FlatState(name.replace("_fsdp_wrapped_module.", "") or "root", spec, options, unit.process_group, said)
            unit._comm_hook_state = state
            parts[state.name] = state
    return parts
