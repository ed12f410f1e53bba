#!/usr/bin/env python3
"""compress() and its hook: exact where nothing is lost, one mean on all ranks, residuals that belong to parameters."""

import os
import pickle
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import emulated
import gradwire.torch
import ranks
import training

warnings.filterwarnings("ignore")

# Without these two keys tensors as small as here travel as they are.
ALL = ",dense_1d=false,min_elems=0"
TOP_K = "topk:ratio=0.1,ef=ef14" + ALL
# On a device also three.
SIZES = (2,) if emulated.DEVICE == "cpu" else (2, 3)
METHODS = ["cast:bf16" + ALL, "qsgd:bits=4,ef=ef14" + ALL, TOP_K, "powersgd:rank=2,ef=ef14,min_elems=0", "signsgd:scale=l1,ef=ef14" + ALL]


def wrapped_mlp(seed=1, **settings):
    return DistributedDataParallel(training.mlp(seed), **settings)


def lossless_is_ddp(rank, size):
    wanted = training.train_ddp(rank, size)
    for settings in ({}, {"bucket_cap_mb": 0.001}, {"gradient_as_bucket_view": True}):
        wrapped = wrapped_mlp(**settings)
        compression = gradwire.torch.compress(wrapped, "none")
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)
        for step in range(5):
            training.step_of(wrapped, optimizer, rank, step)
        training.close(training.parameters_of(wrapped.module), wanted, 1e-6, f"spec none, {settings}")
        assert compression.stats()["steps"] == 5, compression.stats()


def top_k_by_hand(rank, size):
    """Top-k with error feedback, against the formula on every rank's gradients."""
    model = torch.nn.Linear(8, 5, bias=False)
    torch.manual_seed(4)
    torch.nn.init.normal_(model.weight)
    wrapped = DistributedDataParallel(model)
    gradwire.torch.compress(wrapped, TOP_K)
    errors = [torch.zeros(40) for _ in range(size)]
    for step in range(4):
        wrapped.zero_grad()
        wrapped(training.batch(rank, step, columns=8)).sum().backward()
        total = torch.zeros(40)
        for r in range(size):
            gradient = training.batch(r, step, columns=8).sum(0).repeat(5)  # d sum(x W^T) / dW
            corrected = gradient + errors[r]
            kept = torch.zeros(40)
            # Ties go to the lower index.
            order = torch.sort(-corrected.abs(), stable=True).indices[:4]
            kept[order] = corrected[order]
            errors[r] = corrected - kept
            total += kept
        seen = model.weight.grad.view(-1)
        assert torch.allclose(seen, total / size, atol=1e-5), f"step {step}: {seen} seen, {total / size} wanted"


def methods(rank, size, make):
    for spec in METHODS:
        model, batches = (training.mlp(), training.batch) if make == "mlp" else (training.Attention(), training.tokens)
        wrapped = DistributedDataParallel(model)
        compression = gradwire.torch.compress(wrapped, spec)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.02)
        for step in range(10):
            training.step_of(wrapped, optimizer, rank, step, batches)
        training.same_on_all(rank, size, wrapped.module, spec)
        stats = compression.stats()
        assert stats["steps"] == 10 and 0 < stats["payload_bytes"], f"{spec}: {stats}"


def buckets(rank, size):
    """Residuals are by parameter: any cutting into buckets gives the same parameters."""
    results = []
    for settings in ({}, {"bucket_cap_mb": 0.0005}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
        wrapped = wrapped_mlp(**settings)
        compression = gradwire.torch.compress(wrapped, TOP_K)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
        for step in range(6):
            with wrapped.no_sync():  # accumulates, without the hook
                (wrapped(training.batch(rank, 100 + step)) ** 2).mean().backward()
            (wrapped(training.batch(rank, step)) ** 2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert compression.stats()["steps"] == 6, compression.stats()
        results.append(training.parameters_of(wrapped.module))
    for other in results[1:]:
        training.close(other, results[0], 0, "other buckets")


def sixteen_bits(rank, size):
    """Gradients of bfloat16 are averaged as they come, compressed or not."""

    def batches(rank, step):
        return training.batch(rank, step).to(torch.bfloat16)

    for spec in ("none", TOP_K, "qsgd:bits=4,ef=ef14" + ALL):
        wrapped = DistributedDataParallel(training.mlp().to(torch.bfloat16))
        compression = gradwire.torch.compress(wrapped, spec)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
        before = training.hash_of(wrapped.module)
        for step in range(5):
            training.step_of(wrapped, optimizer, rank, step, batches)
        assert training.same_on_all(rank, size, wrapped.module, f"bfloat16, {spec}") != before
        assert all(parameter.grad.dtype == torch.bfloat16 for parameter in wrapped.parameters())
        stats = compression.stats()
        assert stats["steps"] == 5 and (spec == "none" or stats["payload_bytes"] < stats["gradient_bytes"]), stats


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.one, self.two = torch.nn.Linear(12, 4), torch.nn.Linear(12, 4)
        self.use = 0

    def forward(self, x):
        return self.one(x) if self.use == 0 else self.two(x)


def unused(rank, size):
    wrapped = DistributedDataParallel(Branches(), find_unused_parameters=True)
    gradwire.torch.compress(wrapped, "topk:ratio=0.25,ef=ef14" + ALL)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for step in range(6):
        wrapped.module.use = step % 2
        training.step_of(wrapped, optimizer, rank, step)
    training.same_on_all(rank, size, wrapped.module, "unused parameters")


def rules(rank, size):
    wrapped = wrapped_mlp()
    compression = gradwire.torch.compress(wrapped, "*.bias=none;*=" + TOP_K)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    training.step_of(wrapped, optimizer, rank, 0)
    names = set(compression.state_dict()["gradients"]["tensors"])
    assert any(name.startswith("0.weight") for name in names), names
    assert not any(".bias" in name for name in names), names
    try:
        gradwire.torch.compress(wrapped_mlp(), "topk:ratio=2")
        raise AssertionError("topk:ratio=2 was taken")
    except ValueError as error:
        assert "ratio" in str(error), error


def resumed(rank, size, share):
    """Save after 3 steps, 3 more = 6 steps, through a file, bit for bit; and a state_dict for another number of ranks."""

    def trained(model, compression, first, last):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(first, last):
            training.step_of(model, optimizer, rank, step)

    whole = wrapped_mlp()
    trained(whole, gradwire.torch.compress(whole, TOP_K), 0, 6)
    half = wrapped_mlp()
    compression = gradwire.torch.compress(half, TOP_K)
    trained(half, compression, 0, 3)
    place = os.path.join(share, f"{rank}.pt")
    torch.save({"model": half.module.state_dict(), "compression": compression.state_dict()}, place)
    dist.barrier()
    saved = torch.load(place)
    again = wrapped_mlp(seed=8)
    again.module.load_state_dict(saved["model"])
    compression = gradwire.torch.compress(again, TOP_K)
    compression.load_state_dict(saved["compression"])
    trained(again, compression, 3, 6)
    training.close(training.parameters_of(again.module), training.parameters_of(whole.module), 0, "resumed")


def other_ranks(rank, size, share, old):
    states = [torch.load(os.path.join(share, f"{r}.pt")) for r in range(old)]
    wrapped = wrapped_mlp()
    compression = gradwire.torch.compress(wrapped, TOP_K)
    compression.load_state_dict([state["compression"] for state in states])
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.0)
    for parameter in wrapped.parameters():  # a step of zero gradients shows the residuals' mean
        parameter.requires_grad_(True)
    (wrapped(torch.zeros(2, 12)) * 0).sum().backward()
    optimizer.step()
    now = compression.state_dict()["gradients"]["tensors"]
    before = [state["compression"]["gradients"]["tensors"] for state in states]
    checked = 0
    for name, tensor in now.items():
        if not name.endswith(".error"):
            continue
        parameter = dict(wrapped.module.named_parameters())[name.removesuffix(".error")]
        mean_before = sum(state[name] for state in before) / old
        mean_now = tensor.clone()
        dist.all_reduce(mean_now)
        mean_now = mean_now / size + parameter.grad.to(mean_now.device).view(mean_now.shape)  # what is left, and what was sent
        assert torch.allclose(mean_now, mean_before, atol=1e-6), name
        checked += 1
    assert checked > 0, list(now)
    try:
        compression.load_state_dict(states[0]["compression"])
        raise AssertionError("one state of another number of ranks was taken")
    except ValueError as error:
        assert "rank" in str(error), error


def hook_of_frameworks(rank, size):
    """A state that was pickled on its way, as Lightning and Accelerate do."""
    wanted = wrapped_mlp()
    gradwire.torch.compress(wanted, TOP_K)
    wrapped = wrapped_mlp()
    state = pickle.loads(pickle.dumps(gradwire.torch.HookState(TOP_K)))
    wrapped.register_comm_hook(state, gradwire.torch.hook)
    for model in (wanted, wrapped):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(4):
            training.step_of(model, optimizer, rank, step)
    training.close(training.parameters_of(wrapped.module), training.parameters_of(wanted.module), 0, "a pickled state")
    assert "0.weight.error" in state.state_dict()["tensors"], set(state.state_dict()["tensors"])
    copied = pickle.loads(pickle.dumps(state))
    assert set(copied.state_dict()["tensors"]) == set(state.state_dict()["tensors"]) != set()


def mixed_precision(rank, size):
    wrapped = wrapped_mlp()
    scaler = torch.amp.GradScaler(emulated.here(), init_scale=1024.0, growth_interval=2)
    compression = gradwire.torch.compress(wrapped, TOP_K, scaler=scaler)
    plain = wrapped_mlp()
    gradwire.torch.compress(plain, TOP_K)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in (wrapped, plain)]
    for step in range(6):
        scale_then = scaler.get_scale()
        for model, optimizer in zip((wrapped, plain), optimizers):
            optimizer.zero_grad()
            loss = (model(training.batch(rank, step)) ** 2).mean()
            if model is plain:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
    assert scaler.get_scale() > 1024.0, scaler.get_scale()
    training.close(training.parameters_of(wrapped.module), training.parameters_of(plain.module), 1e-5, "scaled losses")
    before = compression.state_dict()["gradients"]["tensors"]
    scale_now = scaler.get_scale()
    optimizers[0].zero_grad()
    scaler.scale((wrapped(training.batch(rank, 9) * (float("inf") if rank == 0 else 1.0)) ** 2).mean()).backward()
    parameters = training.parameters_of(wrapped.module)
    scaler.step(optimizers[0])
    scaler.update()
    training.close(training.parameters_of(wrapped.module), parameters, 0, "a skipped step")
    after = compression.state_dict()["gradients"]["tensors"]
    for name, tensor in before.items():
        if name.endswith(".error"):
            wanted = tensor * (scale_now / scale_then)  # powers of two: exact
            assert torch.equal(after[name], wanted), f"{name} changed in a skipped step"
    assert compression.stats()["skipped_steps"] == 1, compression.stats()


def sharded(rank, size, spec, relative):
    """Values of parameters as without compress(), or, of a method with a loss, what has been added to them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard

    def trained(model, optimizer):
        for step in range(3):
            training.step_of(model, optimizer, rank, step)

    def full(model):
        return {name: parameter.full_tensor().detach() for name, parameter in model.named_parameters()}

    def added(results, start):
        return results if spec == "none" else [{name: one - start[name] for name, one in result.items()} for result in results]

    start = {name: one.detach().clone() for name, one in training.mlp().named_parameters()}
    results = []
    for compressed in (False, True):
        model = training.mlp()
        mesh = init_device_mesh(emulated.here(), (size,))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        if compressed:
            compression = gradwire.torch.compress(model, spec)
            model[0].set_custom_all_gather(gradwire.torch.AllGather("none"))
        trained(model, torch.optim.SGD(model.parameters(), lr=0.05))
        results.append(full(model))
    ours = added(results, start)
    training.close(ours[1], ours[0], relative, "FSDP2")
    check_stats(compression, spec)
    results = []
    for compressed in (False, True):
        model = FullyShardedDataParallel(training.mlp(), device_id=torch.device(emulated.here()))
        if compressed:
            compression = gradwire.torch.compress(model, spec)
        trained(model, torch.optim.SGD(model.parameters(), lr=0.05))
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            results.append(dict(model.state_dict()))
    ours = added(results, start)
    training.close(ours[1], ours[0], relative, "FSDP1")
    check_stats(compression, spec)
    for refusing in (model, fully_shard(training.mlp(), mesh=init_device_mesh(emulated.here(), (size,)))):
        try:
            gradwire.torch.compress(refusing, TOP_K)
            raise AssertionError("top-k was taken for shards")
        except ValueError as error:
            assert "element by element" in str(error), error


def check_stats(compression, spec):
    stats = compression.stats()
    assert stats["steps"] == 3, stats
    # Flat tensors are not the vectors that travel as they are.
    assert spec == "none" or stats["payload_bytes"] < stats["gradient_bytes"] / 2, stats


def beside_gloo(rank, size):
    wrapped = wrapped_mlp()
    gradwire.torch.compress(wrapped, TOP_K)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for step in range(3):
        training.step_of(wrapped, optimizer, rank, step)
    training.same_on_all(rank, size, wrapped.module, "beside Gloo")


class Compression(unittest.TestCase):
    def test_lossless_is_what_ddp_does(self):
        for size in SIZES:
            ranks.run(size, lossless_is_ddp)

    def test_top_k_by_hand(self):
        for size in (2, 3):
            ranks.run(size, top_k_by_hand)

    def test_methods_leave_replicas_alike(self):
        for make in ("mlp", "transformer"):
            ranks.run(3, methods, make, seconds=120 if emulated.DEVICE == "cpu" else 600)

    def test_buckets_do_not_matter(self):
        for size in SIZES:
            ranks.run(size, buckets)

    def test_unused_parameters(self):
        for size in SIZES:
            ranks.run(size, unused)

    def test_rules_by_the_modules_names(self):
        for size in SIZES:
            ranks.run(size, rules)

    def test_state_resumes_and_moves_to_fewer_ranks(self):
        import tempfile

        with tempfile.TemporaryDirectory() as share:
            ranks.run(3, resumed, share)
            ranks.run(2, other_ranks, share, 3)

    def test_a_pickled_state(self):
        for size in SIZES:
            ranks.run(size, hook_of_frameworks)

    def test_gradients_of_sixteen_bits(self):
        for size in (2, 3):
            ranks.run(size, sixteen_bits)

    def test_mixed_precision(self):
        for size in SIZES:
            ranks.run(size, mixed_precision)

    def test_sharded_training(self):
        for size in SIZES:
            ranks.run(size, sharded, "none", 1e-6)
        for size in SIZES:
            ranks.run(size, sharded, "qsgd:bits=8,ef=ef14,min_elems=0", 0.05)

    def test_beside_a_group_of_gloo(self):
        for size in SIZES:
            ranks.run(size, beside_gloo, backend="gloo")


if __name__ == "__main__":
    unittest.main()
