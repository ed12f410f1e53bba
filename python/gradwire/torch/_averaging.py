"""Named tensors that are averaged over a group's ranks, compressed, with their state."""

import difflib
import json
import logging
import re

import torch

from gradwire.torch._groups import backend_of, extension

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = 0, 1, 2
GRADIENTS, PARAMETERS = 0, 1

_log = logging.getLogger("gradwire")

_OPTIONS = {"seed": 0, "threads": 1, "bucket_bytes": 0, "allow_unsafe": False, "nonfinite": None, "scaler": None, "optimizer": None}
STATE_VERSION = 1


def checked_options(given):
    """All options, defaults included. TypeError names an unknown one."""
    unknown = sorted(set(given) - set(_OPTIONS))
    if unknown:
        near = difflib.get_close_matches(unknown[0], _OPTIONS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"gradwire: unknown option {unknown[0]!r}{hint} (expected one of {', '.join(_OPTIONS)})")
    options = {**_OPTIONS, **given}
    if options["nonfinite"] not in (None, "fail", "skip"):
        raise ValueError(f"gradwire: nonfinite={options['nonfinite']!r} (expected 'fail' or 'skip')")
    if options["nonfinite"] is None:
        options["nonfinite"] = "fail" if options["scaler"] is None else "skip"
    for name, attribute, wanted in (("optimizer", "param_groups", "a torch.optim.Optimizer"), ("scaler", "get_scale", "a GradScaler")):
        if options[name] is not None and not hasattr(options[name], attribute):
            raise TypeError(f"gradwire: {name} is a {type(options[name]).__name__} (expected {wanted})")
    return options


def checked_spec(given):
    """The spec. TypeError if it is no text."""
    if not isinstance(given, str):
        raise TypeError(f"gradwire: the spec is {given!r} (expected a text, such as 'topk:ratio=0.01,ef=ef14'; 'none' sends gradients as they are)")
    return given


def _check(spec, *settings):
    """Checks a spec on a matrix of some name, before there are parameters. Rules may do without one for that name: start() has the real names."""
    try:
        extension.check_spec(spec, *settings)
    except ValueError as refusal:
        try:
            extension.check_spec(f"{spec};*=none", *settings)
        except ValueError:
            raise refusal from None


def check_agreement(backend, settings):
    """Compares settings (values by name) over all ranks: collective. ValueError, on all ranks, names the first difference and both values."""
    if backend.size() == 1:
        return
    own = torch.frombuffer(bytearray(json.dumps(settings).encode()), dtype=torch.uint8)
    lengths = _gathered(backend, torch.tensor([own.numel()], device="cpu"), 1)
    padded = torch.zeros(int(max(lengths)), dtype=torch.uint8, device="cpu")
    padded[: own.numel()] = own
    texts = _gathered(backend, padded, padded.numel())
    everyone = [json.loads(bytes(text[: int(length)].tolist())) for text, length in zip(texts, lengths)]
    for rank, theirs in enumerate(everyone):
        for name, value in everyone[0].items():
            if theirs[name] != value:
                raise ValueError(
                    f"gradwire: compress: {name} differs between ranks: {theirs[name]!r} on rank {rank}, {value!r} on rank 0 "
                    "(expected equal arguments on all ranks)"
                )


def _gathered(backend, tensor, elements):
    outputs = [torch.empty(elements, dtype=tensor.dtype, device="cpu") for _ in range(backend.size())]
    backend.allgather([outputs], [tensor]).wait()
    return outputs


def momentum_of(optimizer):
    """The largest momentum of its parameter groups; None if it has none or is not known."""
    momenta = [group["momentum"] for group in optimizer.param_groups if "momentum" in group] if optimizer is not None else []
    return float(max(momenta)) if momenta else None


class Averaging:
    """One aggregator: start() creates it (collective), submit() runs its steps. Raises ValueError for a bad spec, or one that the form or
    the traffic class does not allow, with what to write instead."""

    def __init__(self, spec, options, form=ALL_REDUCE, traffic=GRADIENTS):
        self._momentum = momentum_of(options["optimizer"]) if traffic == GRADIENTS else None
        _check(checked_spec(spec), bool(options["allow_unsafe"]), form, traffic, self._momentum)
        self.spec = spec
        self.options = options
        self.form = form
        self.traffic = traffic
        self._averager = None
        self._loaded = None  # state that waits for start()
        self._rank, self._size = 0, 1
        self._seen = 0  # of its warnings
        self.said = {}  # kinds of warnings, and whose they are; averagings that share it say each kind once
        self._mark = object()

    @property
    def started(self):
        return self._averager is not None

    def start(self, group, tensors):
        """tensors: (name, tensor of that shape and type) in an order that is equal on all ranks."""
        backend = backend_of(group)
        self._rank, self._size = backend.rank(), backend.size()
        options = self.options
        compared = {name: options[name] for name in ("seed", "bucket_bytes", "nonfinite")}
        check_agreement(backend, {"spec": self.spec, **compared})
        self._averager = extension.Averager(
            backend, list(tensors), spec=self.spec, form=self.form, traffic=self.traffic, skip_nonfinite=options["nonfinite"] == "skip",
            allow_unsafe=options["allow_unsafe"], seed=options["seed"], threads=options["threads"], bucket_bytes=options["bucket_bytes"],
            momentum=self._momentum,
        )
        if self._loaded is not None:
            self._load(self._loaded)
            self._loaded = None

    def _load(self, by_rank):
        if None in by_rank and len(by_rank) != self._size:
            raise ValueError(
                f"gradwire: load_state_dict: a state that one of {len(by_rank)} ranks saved, in a job of {self._size} (expected a list of "
                "every old rank's)"
            )
        if by_rank.count(None) == len(by_rank) - 1 and by_rank[self._rank] is None:
            old = next(r for r, state in enumerate(by_rank) if state is not None)
            raise ValueError(f"gradwire: load_state_dict: the state of rank {old} on rank {self._rank} (expected this rank's own)")
        try:
            self._averager.load(by_rank)
        except ValueError as error:
            raise ValueError(f"{error} (expected a state of the same model and spec; the spec is {self.spec!r})") from None

    def start_flat(self, group, name, tensor):
        """start() of one tensor that holds many parameters in a row: no vector, which rules send as it is."""
        self.start(group, [(name, tensor.detach().view(1, -1))])

    def begin_step(self):
        """Passes the loss scale and the learning rate on, before a step's first submit."""
        scaler, optimizer = self.options["scaler"], self.options["optimizer"]
        if scaler is not None:
            self._averager.set_loss_scale(float(scaler.get_scale()))
        if optimizer is not None:
            self._averager.set_learning_rate(float(optimizer.param_groups[0]["lr"]))
        self._say_warnings()

    def submit(self, indices, parts, whole):
        """Starts averaging the parts in place; a future whose value is `whole`."""
        return self._averager.submit(indices, parts, whole)

    def shard(self, elements):
        """[begin, end): this rank's shard in the sharded forms."""
        return extension.shard_of(elements, self._rank, self._size)

    def _say_warnings(self):
        """Logs new warnings, on rank 0 only, so that a job logs each once."""
        if self._rank != 0:
            return
        for warning in self._averager.warnings()[self._seen :]:
            self._seen += 1
            if self.said.setdefault(re.sub(r"\d+", "", warning), self._mark) is self._mark:
                _log.warning("gradwire: warning: %s", warning)

    def stats(self):
        if not self.started:
            return {}
        return {name: value if name.endswith("seconds") else int(value) for name, value in self._averager.stats()}

    def state_dict(self):
        """This rank's state: plain tensors by name, with the rank and the number of ranks."""
        if self.started:
            return {"version": STATE_VERSION, "rank": self._rank, "ranks": self._size, "tensors": self._averager.save()}
        if self._loaded is not None:
            return {"version": STATE_VERSION, "rank": self._rank, "ranks": len(self._loaded), "tensors": self._loaded[self._rank] or {}}
        return {"version": STATE_VERSION, "rank": 0, "ranks": 0, "tensors": {}}

    def load_state_dict(self, states):
        """states: one rank's state_dict, on that rank, or a list of every old rank's, on all ranks (another number of ranks now)."""
        by_rank = in_rank_order(states)
        if not by_rank:
            return
        if self.started:
            self._load(by_rank)
        else:
            self._loaded = by_rank
            self._rank = next(r for r, state in enumerate(by_rank) if state is not None)


def in_rank_order(states):
    """Tensors of each old rank, None where it is not given. ValueError: ranks that are missing or do not fit."""
    single = isinstance(states, dict)
    if not single and not isinstance(states, (list, tuple)):
        raise TypeError(f"gradwire: the state is a {type(states).__name__} (expected what state_dict() returned, or a list of every old rank's)")
    all_states = [states] if single else list(states)
    for state in all_states:
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"gradwire: a state of version {state.get('version')} (expected {STATE_VERSION})")
    ranks = all_states[0]["ranks"] if all_states else 0
    if ranks == 0:
        return []
    by_rank = [None] * ranks
    for state in all_states:
        if state["ranks"] != ranks:
            raise ValueError(f"gradwire: a state of a job of {state['ranks']} ranks beside one of {ranks} (expected one checkpoint's)")
        if by_rank[state["rank"]] is not None:
            raise ValueError(f"gradwire: the state of old rank {state['rank']} of {ranks} is there twice (expected one of each rank)")
        by_rank[state["rank"]] = state["tensors"]
    if not single and None in by_rank:
        raise ValueError(f"gradwire: the state of old rank {by_rank.index(None)} of {ranks} is missing (expected a list of all)")
    return by_rank

