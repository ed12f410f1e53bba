#!/usr/bin/env python3
"""What PyTorch takes for the work of the codecs, on one thread, beside the program codec_goals.

    bench/peers/codec_torch.py [ELEMENTS [ROUNDS]]          needs torch (pip install torch, or python3-torch)

Milliseconds, medians; GB/s of fp32 input. The same input as codec_goals: 1e-3 N(0, 1), buckets of 512 elements.
"""
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("codec_torch.py: error: no module torch (see its first lines)")

BUCKET = 512


def int8_nearest(x):
    buckets = x.view(-1, BUCKET)
    scale = buckets.abs().amax(dim=1, keepdim=True) / 127
    return (buckets / scale).round().to(torch.int8), scale


def int8_stochastic(x):
    buckets = x.view(-1, BUCKET)
    scale = buckets.abs().amax(dim=1, keepdim=True) / 127
    return (buckets / scale + torch.rand_like(buckets)).floor().to(torch.int8), scale


def sign_pack(x):
    bits = (x < 0).view(-1, 8).to(torch.uint8)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
    return (bits * weights).sum(dim=1, dtype=torch.uint8), x.abs().mean()


def powersgd(m, q):
    p = torch.linalg.qr(m @ q)[0]
    q = m.t() @ p
    mean = p @ q.t()
    return mean, m - mean


def main():
    elements = int(sys.argv[1]) if len(sys.argv) > 1 else 25_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    torch.set_num_threads(1)
    torch.manual_seed(1)
    x = torch.randn(elements // BUCKET * BUCKET) * 1e-3
    codes, scale = int8_nearest(x)
    side = 4096 if elements >= 4096 * 4096 else 256
    m = x[: side * side].view(side, side)
    q = torch.randn(side, 4)
    thin = torch.randn(4096, 32)
    rows = [
        ("B1  topk(|x|) k = 1 %", x, lambda: torch.topk(x.abs(), elements // 100, sorted=False)),
        ("B1  topk(|x|) k = 0.1 %", x, lambda: torch.topk(x.abs(), elements // 1000, sorted=False)),
        ("B4  int8 nearest", x, lambda: int8_nearest(x)),
        ("B4  int8 stochastic", x, lambda: int8_stochastic(x)),
        ("B6  int8 decode", x, lambda: codes.float() * scale),
        ("B8  sign pack + mean", x, lambda: sign_pack(x)),
        ("B10 fp32 -> bf16", x, lambda: x.to(torch.bfloat16)),
        ("B10 fp32 -> fp16", x, lambda: x.to(torch.float16)),
        ("B11 powersgd r = 4, whole", m, lambda: powersgd(m, q)),
        ("B12 linalg.qr 4096 x 32", thin, lambda: torch.linalg.qr(thin)),
    ]
    print(f"torch {torch.__version__}, one thread, {x.numel()} elements, {rounds} rounds")
    for name, data, work in rows:
        work()
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        seconds = statistics.median(times)
        print(f"{name:28} {1e3 * seconds:9.3f} ms {data.numel() * 4e-9 / seconds:8.2f} GB/s")


if __name__ == "__main__":
    main()
