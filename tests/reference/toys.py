"""The optimisation toys of tests/compress/toys/ and what residuals settle at in ef14_laws_test.cc, computed by other means: from
the papers' formulas in NumPy, without gradwire. constants() gives every figure that stands in those files as it is written there, with
the value found here and how far the two may be apart; as a program it prints them. Figures that come of draws have other draws here.
"""
import math

import numpy as np

MANY = 40  # seeds


def sign(x):
    """With sign(0) = +1, as one bit has it."""
    return np.where(x < 0, -1.0, 1.0)


def scaled_sign(x):
    return np.mean(np.abs(x), axis=-1, keepdims=True) * sign(x)


def top_one(x):
    """Of each row, the first of equals."""
    chosen = np.argmax(np.abs(x), axis=-1)
    out = np.zeros_like(x)
    np.put_along_axis(out, chosen[..., None], np.take_along_axis(x, chosen[..., None], -1), -1)
    return out


class Memory:
    """What workers send of steps g, one a row, and keep."""

    def __init__(self, compress, kind, like):
        self.compress, self.kind, self.kept = compress, kind, np.zeros_like(like)

    def mean(self, g):
        if self.kind == "ef14":
            p = self.kept + g
            sent = self.compress(p)
            self.kept = p - sent
        elif self.kind == "ef21":
            self.kept = self.kept + self.compress(g - self.kept)
            sent = self.kept
        else:
            sent = self.compress(g)
        return sent.mean(axis=0)


def same(x):
    return x


# ---- T1: x/4 on [-1, 1] by g = 4 once in four, else -1; the mean over the second half, of signs and of gradients

def t1(step, by_sign):
    random = np.random.default_rng(1)
    x, total, steps = np.zeros(MANY), np.zeros(MANY), 40000
    for t in range(steps):
        g = np.where(random.random(MANY) < 0.25, 4.0, -1.0)
        x = np.clip(x - step * (np.sign(g) if by_sign else g), -1, 1)
        if t >= steps // 2:
            total += x
    return np.mean(total) / (steps / 2), np.std(total / (steps / 2))


# ---- T2: |x1 + x2|/2 + |x1 - x2| in steps of 0.1/sqrt(t + 1)

def t2(compress, kind):
    x, memory = np.array([1.2, 0.8]), None
    memory = Memory(compress, kind, x[None])
    for t in range(20000):
        a, b = (0.5 if x[0] + x[1] >= 0 else -0.5), (1.0 if x[0] - x[1] >= 0 else -1.0)
        x = x - memory.mean(0.1 / math.sqrt(t + 1) * np.array([[a + b, a - b]]))
    return abs(x[0] + x[1]) / 2 + abs(x[0] - x[1])


# ---- T3b: two workers, <a_i, x>^2

def t3b(compress, kind, x):
    a = np.array([[1.5, -0.5], [-0.5, 1.5]])
    x, f, memory = np.array(x), {}, Memory(compress, kind, a)
    for t in range(1, 201):
        x = x - memory.mean(0.05 * 2 * (a @ x)[:, None] * a)
        f[t] = np.sum((a @ x) ** 2) / 2
    return [f[t] for t in (1, 10, 100, 200)]


# ---- T4: three workers, <a_i, x>^2 + |x|^2/4, top-1

def t4(compress, kind):
    a = np.array([[-3.0, 2, 2], [2, -3, 2], [2, 2, -3]])
    x, length, memory = np.ones(3), {}, Memory(compress, kind, a)
    for t in range(1, 1001):
        x = x - memory.mean(0.01 * (2 * (a @ x)[:, None] * a + x / 2))
        length[t] = np.linalg.norm(x)
    return [length[t] for t in (1, 2, 10, 100, 1000)]


# ---- T5: eight least-squares problems, top-1

class Eight:
    def __init__(self):
        w, i, j = np.ogrid[:8, :30, :20]
        self.a = np.cos(1 + 3.7 * i + 2.3 * j * j + 5.1 * w + 0.9 * i * j) / math.sqrt(30)
        w, i = np.ogrid[:8, :30]
        self.b = np.sin(1.3 * i + 2.9 * w) * (1 + w) / math.sqrt(30)
        self.h = np.einsum("wij,wik->wjk", self.a, self.a)
        self.c = np.einsum("wij,wi->wj", self.a, self.b)
        self.mean = self.h.mean(axis=0)
        self.best = np.linalg.solve(self.mean, self.c.mean(axis=0))
        self.smoothness = np.linalg.eigvalsh(self.mean)[-1]
        self.least = np.mean(np.sum((self.a @ self.best - self.b) ** 2, axis=1)) / 2

    def end(self, compress, kind, share):
        x, total, memory = np.zeros(20), 0.0, Memory(compress, kind, self.c)
        for t in range(40000):
            x = x - memory.mean(share / self.smoothness * (self.h @ x - self.c))
            if t >= 35000:
                d = x - self.best
                total += d @ self.mean @ d / 2 / 5000
        return total


# ---- T6: x_i = sin(1 + i); expectations, exactly

SINES = np.sin(1.0 + np.arange(1000))


def top_error(k):
    squares = np.sort(SINES ** 2)
    return squares[:1000 - k].sum() / squares.sum()


def level_variance(levels, norm, bucket=1000):
    """Of stochastic rounding to whole multiples of norm/levels: p (1 - p) (norm/levels)^2 an element."""
    total = 0.0
    for first in range(0, 1000, bucket):
        x = np.abs(SINES[first:first + bucket])
        step = norm(x) / levels
        p = x / step - np.floor(x / step)
        total += np.sum(p * (1 - p)) * step ** 2
    return total / np.sum(SINES ** 2)


def natural_variance():
    x = np.abs(SINES)
    low = 2.0 ** np.floor(np.log2(x))
    return np.sum((x - low) * (2 * low - x)) / np.sum(x ** 2)


# ---- T7: PowerSGD on one matrix

def t7_start(rank):
    i, j = np.ogrid[:64, :rank]
    return np.cos(1.0 + i + 7 * j) if rank <= 2 else np.cos(1.0 + (i + 1) * (j + 1))


def t7_matrix():
    i, j = np.ogrid[:48, :64]
    return np.cos(0.3 * i + 0.11 * j * j) / (1 + np.abs(i - j))


def power_step(m, q):
    p = np.linalg.qr(m @ q)[0]
    q = m.T @ p
    return p @ q.T, q


def t7(rank):
    m, q, error = t7_matrix(), t7_start(rank), {}
    for step in range(1, 201):
        got, q = power_step(m, q)
        error[step] = np.linalg.norm(got - m) / np.linalg.norm(m)
    best = math.sqrt(np.sum(np.linalg.svd(m, compute_uv=False)[rank:] ** 2)) / np.linalg.norm(m)
    assert error[200] < best + 1e-6
    return [error[step] for step in (1, 2, 5, 20, 200)]


def t7_feedback(rank):
    m, q = t7_matrix(), t7_start(rank)
    kept, total = np.zeros_like(m), np.zeros_like(m)
    for _ in range(100):
        got, q = power_step(kept + m, q)
        kept = kept + m - got
        total += got / 100
    return np.linalg.norm(total - m) / np.linalg.norm(m)


# ---- T10: more unknowns than samples; medians over ten seeds

def wilson(seed):
    random = np.random.default_rng(seed)
    rows, y = np.zeros((200, 1200)), np.where(random.random(200) < 0.6, 1.0, -1.0)
    for i in range(200):
        rows[i, 0], rows[i, 1:3] = y[i], 1
        rows[i, 3 + 5 * i:3 + 5 * i + (1 if y[i] > 0 else 5)] = 1
    order = random.permutation(200)
    return rows[order], y[order]


def t10(update):
    """update(p, t) -> what is sent and whether the rest is kept; p is 0.3 g, and what was kept."""
    ends = []
    for seed in range(1, 11):
        rows, y = wilson(seed)
        a, used = rows[:100], np.flatnonzero(np.any(rows[:100] != 0, axis=0))
        w, kept = np.zeros(1200), np.zeros(1200)
        narrow = a[:, used]  # of all others the gradient is 0
        for t in range(4000):
            g = np.zeros(1200)
            g[used] = narrow.T @ (narrow @ w[used] - y[:100]) / 100
            sent, keeps = update(0.3 * g + kept, t)
            kept = 0.3 * g + kept - sent if keeps else kept
            w -= sent
        basis = np.linalg.qr(a.T)[0]
        ends.append((np.mean((rows[100:] @ w - y[100:]) ** 2), np.mean((rows[100:] @ w) * y[100:] > 0),
                     np.linalg.norm(w - basis @ (basis.T @ w)) / np.linalg.norm(w)))
    return np.median(np.array(ends), axis=0)


def falling(t):
    return 0.005 * (1 - t / 4000)


# ---- ef14_laws_test.cc: |e| / |g| on fresh Gaussian gradients of 8,192 elements

def top_share(x):
    k = math.ceil(0.01 * x.size)
    out, chosen = np.zeros_like(x), np.argpartition(np.abs(x), -k)[-k:]
    out[chosen] = x[chosen]
    return out


def one_level(random):
    def compress(x):
        blocks = x.reshape(-1, 512)
        norm = np.linalg.norm(blocks, axis=1, keepdims=True)
        return (np.sign(blocks) * norm * (random.random(blocks.shape) < np.abs(blocks) / norm)).ravel()
    return compress


def steady(compress, scale, steps):
    random = np.random.default_rng(7)
    e = np.zeros(8192)
    for _ in range(steps):
        g = random.standard_normal(8192)
        p = e + g
        e = p - scale * compress(p)
    return np.linalg.norm(e) / np.linalg.norm(g)


def digits(file, literals, values):
    """Figures that agree in all digits that are written."""
    for literal, value in zip(literals.split(), values, strict=True):
        mantissa, _, power = literal.partition("e")
        unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
        yield file, literal, float(value), 0.5000001 * unit


def within(file, literal, value, tolerance):
    return file, literal, float(value), tolerance


def constants():
    toys, stall, error, power, wide = (f"toys/toys{name}_test.cc" for name in ("", "_stall", "_error", "_powersgd", "_wilson"))
    for step, signs, gradients, deviation in ((0.1, "0.94994", "-0.390", 0.023), (0.02, "0.98999", "-0.843", 0.015)):
        for literal, by_sign, spread in ((signs, True, 0.0017 if step == 0.1 else 0.0003), (gradients, False, deviation)):
            yield within(toys, literal, t1(step, by_sign)[0], spread)
    yield from digits(toys, "0.0007 0.00035", [t2(scaled_sign, "ef14"), t2(same, "none")])
    yield from digits(toys, "0.9025 3.584859e-1 3.505267e-5 1.228689e-9", t3b(same, "none", [1.0, 1.0]))
    yield from digits(toys, "1.0625 3.4188287e-1 2.4741766e-5 6.3224650e-10", t3b(scaled_sign, "ef14", [1.2, 0.7]))
    yield from digits(toys, "6.151711867625", [(1 + 11 * 0.01 / 6) ** 100])
    yield from digits(toys, "1.763805 1.711903 1.608281 0.5527285 1.270721e-5", t4(top_one, "ef14"))
    yield from digits(toys, "1.763805 1.769234 1.607590 0.5522304 1.263033e-5", t4(top_one, "ef21"))
    yield from digits(toys, "1.711844 1.691872 1.540264 0.5356794 1.386767e-5", t4(same, "none"))
    eight = Eight()
    yield from digits(stall, "1.439444 6.503114369", [eight.smoothness, eight.least])
    for literal, share in (("8.3e-3", 0.2), ("2.1e-3", 0.1), ("5.1e-4", 0.05)):
        yield within(stall, literal, eight.end(top_one, "ef14", share), 0.05 * float(literal))
    yield within(stall, "0.137", eight.end(top_one, "none", 0.2), 0.01 * 0.137)
    yield within(stall, "1e-14", eight.end(top_one, "ef21", 0.2), 1e-14)
    yield from digits(error, "500.192572013", [np.sum(SINES ** 2)])
    yield from digits(error, "0.980010 0.801703 0.189183", [top_error(10), top_error(100), 1 - np.mean(np.abs(SINES)) ** 2 / np.mean(SINES ** 2)])
    l2, most = np.linalg.norm, np.max
    yield from digits(error, "27.474854 6.118714 0.779678 0.0110698 1.251146 2.0411e-5 0.00638260 0.273177 0.0490884",
                      [level_variance(1, l2), level_variance(4, l2), level_variance(16, l2), level_variance(127, l2), level_variance(4, l2, 100),
                       level_variance(127, most), level_variance(7, most), level_variance(1, most), natural_variance()])
    yield from digits(power, "0.975310532 0.934017190 0.890228276 0.882228543 0.882211310", t7(1))
    yield from digits(power, "0.896421299 0.819790433 0.776561803 0.773955802 0.773955802", t7(2))
    yield from digits(power, "0.816203911 0.677418787 0.650838216 0.648882403 0.648879712", t7(4))
    yield from digits(power, "0.682335297 0.504757363 0.464971548 0.464343148 0.464342944", t7(8))
    for rank, literal in ((1, "0.200467"), (2, "0.093397"), (4, "0.047633")):
        yield within(power, literal, t7_feedback(rank), 1e-4 * float(literal))
    fed, signs, scaled, one_bit, bare = (
        t10(lambda p, t: (scaled_sign(p), True)), t10(lambda p, t: (falling(t) * np.sign(p), False)),
        t10(lambda p, t: (np.mean(np.abs(p)) * np.sign(p), False)), t10(lambda p, t: (scaled_sign(p), False)),
        t10(lambda p, t: (falling(t) * sign(p), False)))
    yield within(wide, "1.6e-3", fed[0], 0.4e-3)
    for ends in (signs, scaled):
        yield within(wide, "0.66", ends[0], 0.1)
        yield within(wide, "0.97", ends[2], 0.02)
    yield within(wide, "0.15", one_bit[0], 0.05)
    yield within(wide, "0.99", one_bit[2], 0.01)
    yield within(wide, "0.40", bare[1], 0.06)
    laws, random = "ef14_laws_test.cc", np.random.default_rng(8)
    yield within(laws, "0.76", steady(scaled_sign, 1, 60), 0.05 * 0.76)
    yield within(laws, "4.0", steady(top_share, 1, 400), 0.1 * 4.0)
    yield within(laws, "4.2", steady(one_level(random), 1 / (1 + math.sqrt(512)), 200), 0.1 * 4.2)


if __name__ == "__main__":
    for name, text, found, apart in constants():
        print(f"{name}: {text}: {found:.15g} (within {apart:.3g})")
