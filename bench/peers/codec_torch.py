#!/usr/bin/env python3
"""What PyTorch takes for the work of the codecs, on one thread.

    bench/peers/codec_torch.py [ELEMENTS [ROUNDS]]          a table
    bench/peers/codec_torch.py serve ELEMENTS               for codec_goals: a name a line in, seconds out

Milliseconds, medians; GB/s of fp32 input. Needs torch (pip install torch, or python3-torch). The same input as codec_goals:
1e-3 N(0, 1), buckets of 512 elements. torch.topk is asked for places in no order, as codec_goals' selection gives them.
"""
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("codec_torch.py: error: no module torch (see its first lines)")

BUCKET = 512
SIDE = 4096


def int8_nearest(x):
    buckets = x.view(-1, BUCKET)
    scale = buckets.abs().amax(dim=1, keepdim=True) / 127
    return (buckets / scale).round().to(torch.int8), scale


def int8_stochastic(x):
    buckets = x.view(-1, BUCKET)
    scale = buckets.abs().amax(dim=1, keepdim=True) / 127
    return (buckets / scale + torch.rand_like(buckets)).floor().to(torch.int8), scale


def int8_reduce(codes, scale, x):
    return int8_nearest((codes.float() * scale).view(-1) + x)


def sign_pack(x):
    bits = (x < 0).view(-1, 8).to(torch.uint8)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
    return (bits * weights).sum(dim=1, dtype=torch.uint8), x.abs().mean()


def powersgd(m, q):
    p = torch.linalg.qr(m @ q)[0]
    q = m.t() @ p
    return p @ q.t()


class FeedbackStep:
    """With error feedback, operation by operation as torch's own powerSGD_hook, which works in the gradient's memory."""

    def __init__(self, m, q):
        self.m = m.clone()
        self.error = torch.zeros_like(m)
        self.p = m @ q
        self.q = q.clone()

    def __call__(self):
        self.m.add_(self.error)
        copy = torch.clone(self.m).detach()
        torch.matmul(self.m, self.q, out=self.p)
        self.p.copy_(torch.linalg.qr(self.p)[0])
        torch.matmul(self.m.t(), self.p, out=self.q)
        torch.matmul(self.p, self.q.t(), out=self.m)
        self.error = copy - self.m


def works(elements):
    """Name -> (its input, what to run)."""
    x = torch.randn(elements // BUCKET * BUCKET) * 1e-3
    codes, scale = int8_nearest(x)
    halves = x.to(torch.bfloat16)
    side = SIDE if elements >= SIDE * SIDE else 256
    m = x[: side * side].view(side, side)
    q = torch.randn(side, 4)
    p = m @ q
    thin = torch.randn(SIDE, 32)
    return {
        "topk:ratio=0.01": (x, lambda: torch.topk(x.abs(), elements // 100, sorted=False)),
        "topk:ratio=0.001": (x, lambda: torch.topk(x.abs(), elements // 1000, sorted=False)),
        "int8 nearest": (x, lambda: int8_nearest(x)),
        "int8 stochastic": (x, lambda: int8_stochastic(x)),
        "int8 decode": (x, lambda: codes.float() * scale),
        "int8 reduce": (x, lambda: int8_reduce(codes, scale, x)),
        "sign pack": (x, lambda: sign_pack(x)),
        "to bf16": (x, lambda: x.to(torch.bfloat16)),
        "to fp16": (x, lambda: x.to(torch.float16)),
        "from bf16": (x, lambda: halves.to(torch.float32)),
        "P = M Q": (m, lambda: m @ q),
        "Q = M^T P": (m, lambda: m.t() @ p),
        "D = P Q^T": (m, lambda: p @ q.t()),
        "powersgd": (m, lambda: powersgd(m, q)),
        "powersgd, feedback": (m, FeedbackStep(m, q)),
        "qr": (thin, lambda: torch.linalg.qr(thin)),
    }


def seconds_of(work):
    """Of this thread on a processor, as codec_goals counts."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def serve(elements):
    named = works(elements)
    print(torch.__version__, flush=True)
    for line in sys.stdin:
        print(seconds_of(named[line.strip()][1]), flush=True)


def table(elements, rounds):
    print(f"torch {torch.__version__}, one thread, {elements} elements, {rounds} rounds")
    for name, (data, work) in works(elements).items():
        work()
        seconds = statistics.median(seconds_of(work) for _ in range(rounds))
        print(f"{name:28} {1e3 * seconds:9.3f} ms {data.numel() * 4e-9 / seconds:8.2f} GB/s")


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if sys.argv[1:2] == ["serve"]:
        return serve(int(sys.argv[2]))
    table(int(sys.argv[1]) if len(sys.argv) > 1 else 25_000_000, int(sys.argv[2]) if len(sys.argv) > 2 else 7)


if __name__ == "__main__":
    main()
