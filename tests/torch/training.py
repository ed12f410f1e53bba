"""Models and training loops of the tests: the same on every backend, with a hash of what came out."""

import copy
import hashlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import emulated


def mlp(seed=1, widths=(12, 32, 16, 4)):
    torch.manual_seed(seed)
    layers = []
    for i in range(len(widths) - 1):
        layers += [torch.nn.Linear(widths[i], widths[i + 1]), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


class Attention(torch.nn.Module):
    """A small transformer: embedding, one block, a head."""

    def __init__(self, seed=2, width=32, words=20):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = torch.nn.Embedding(words, width)
        self.block = torch.nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.block(self.embed(tokens)))


def batch(rank, step, rows=8, columns=12):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(rows, columns, generator=generator, device="cpu").to(emulated.here())


def tokens(rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randint(0, 20, (4, 10), generator=generator, device="cpu").to(emulated.here())


def hash_of(module):
    digest = hashlib.sha256()
    for tensor in module.state_dict().values():
        digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()


def parameters_of(module):
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def step_of(wrapped, optimizer, rank, step, make=batch):
    optimizer.zero_grad()
    output = wrapped(make(rank, step))
    (output.float() ** 2).mean().backward()
    optimizer.step()


def train_ddp(rank, size, steps=5, seed=1, **settings):
    """Parameters after some steps of DDP on the group's backend."""
    wrapped = DistributedDataParallel(mlp(seed), **settings)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        step_of(wrapped, optimizer, rank, step)
    return parameters_of(wrapped.module)


def close(seen, wanted, relative, what):
    """Equal names and shapes, and values: bit for bit where relative is 0."""
    assert seen.keys() == wanted.keys(), f"{what}: {sorted(seen)} and {sorted(wanted)}"
    for name, tensor in seen.items():
        if relative == 0:
            assert torch.equal(tensor, wanted[name]), f"{what}: {name} differs"
        else:
            error = (tensor - wanted[name]).norm() / wanted[name].norm().clamp_min(1e-30)
            assert error <= relative, f"{what}: {name} differs by {error}"


def same_on_all(rank, size, module, what):
    hashes = [None] * size
    dist.all_gather_object(hashes, hash_of(module))
    assert len(set(hashes)) == 1, f"{what}: replicas differ"
    return copy.copy(hashes[0])
