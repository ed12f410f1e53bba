"""Payloads as docs/wire_formats.md describes them, without gradwire: its random numbers, its bit streams, what payloads of randomk, of
minmax and absmax with the Hadamard transform, and of thc decode to, and what methods that draw send of given elements. Written from that
page alone: where the two differ, the page is wrong or the program is."""
import math
import struct

WORD = 0xFFFFFFFF
LONG = 0xFFFFFFFFFFFFFFFF
USES = {"dither": 1, "start": 2, "test": 5, "hadamard signs": 6, "residual rounding": 7, "atoms": 8, "places": 9}
ALL_RANKS = -1


# ---- Random numbers

def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & LONG
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & LONG
    x = (x ^ x >> 27) * 0x94D049BB133111EB & LONG
    return x ^ x >> 31


def hash_of(name):
    data = name.encode()
    h = mix(len(data))
    for at in range(0, len(data), 8):
        h = mix(h ^ int.from_bytes(data[at:at + 8], "little"))
    return h


class Stream:
    def __init__(self, seed, use, tensor, rank, stage, step):
        key = mix(mix(mix(seed) ^ tensor) ^ ((rank + 1) % 2**32) * 2**32 ^ USES[use] * 2**8 ^ stage)
        self.key, self.step, self.blocks = (key & WORD, key >> 32), step, {}

    def block(self, index, rounds=10):
        if (index, rounds) not in self.blocks:
            c = [index & WORD, index >> 32, self.step & WORD, self.step >> 32]
            k0, k1 = self.key
            for _ in range(rounds):
                a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
                c = [b >> 32 ^ c[1] ^ k0, b & WORD, a >> 32 ^ c[3] ^ k1, a & WORD]
                k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
            self.blocks[index, rounds] = c
        return self.blocks[index, rounds]

    def word(self, w):
        return self.block(w // 4)[w % 4]

    def half(self, e):
        """h of 16 bits."""
        return self.word(e // 2) >> 16 * (e % 2) & 0xFFFF

    def draw(self, e):
        """u of 16 bits."""
        return (self.half(e) + 0.5) / 2**16

    def normal(self, e):
        u, v = (self.word(2 * e) + 1) / 2**32, self.word(2 * e + 1) / 2**32
        return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)


# ---- Numbers of fp32: one operation in double, rounded, is one in fp32

def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def above(x):
    """x >= 0, rounded up to fp32."""
    near = f32(x)
    return near if near >= x else struct.unpack("<f", struct.pack("<I", bits_of(near) + 1))[0]


def times(x, levels, scale):
    """x levels / scale, as encoders compute it where scales are neither tiny nor huge."""
    return f32(x * f32(levels / scale))


def sum_of_squares(x):
    sums = [0.0] * 16
    for i, v in enumerate(x):
        sums[i % 16] += v * v
    for half in (8, 4, 2, 1):
        sums = [sums[j] + sums[j + half] for j in range(half)]
    return sums[0]


def buckets(x, bucket):
    return [(first, x[first:first + bucket]) for first in range(0, len(x), bucket)]


# ---- Bytes

def packed(codes_of, bits):
    """A bit stream, its last byte's free bits 0."""
    stream = sum(code << bits * i for i, code in enumerate(codes_of))
    return stream.to_bytes((len(codes_of) * bits + 7) // 8, "little")


def words(codes_of, most):
    """Lanes of 32-bit words, on one rank."""
    width = most.bit_length()
    lanes = 32 // width
    return b"".join(struct.pack("<I", sum(code << width * i for i, code in enumerate(codes_of[at:at + lanes])))
                    for at in range(0, len(codes_of), lanes))


def floats(data, at, count):
    return list(struct.unpack_from(f"<{count}f", data, at))


def codes(data, count, bits):
    stream = int.from_bytes(data, "little")
    return [stream >> bits * i & (1 << bits) - 1 for i in range(count)]


# ---- The Hadamard transform and its way back

def powers_of_two(count):
    """A length as the powers of two of its binary digits, the largest first."""
    return [1 << bit for bit in reversed(range(count.bit_length())) if count >> bit & 1]


def signs(stream, first, count):
    return [-1 if stream.word(e // 32) >> e % 32 & 1 else 1 for e in range(first, first + count)]


def hadamard(y):
    """H y / sqrt(n), by the definition: -1 at (i, j) where i and j share an odd number of set bits."""
    n = len(y)
    return [sum(-v if (i & j).bit_count() % 2 else v for j, v in enumerate(y)) / math.sqrt(n) for i in range(n)]


def transform(stream, first, x):
    flipped = [s * v for s, v in zip(signs(stream, first, len(x)), x)]
    return [v for part in parts_of(flipped) for v in hadamard(part)]


def transform_back(stream, first, y):
    back = [v for part in parts_of(y) for v in hadamard(part)]
    return [s * v for s, v in zip(signs(stream, first, len(y)), back)]


def parts_of(y):
    at = 0
    for length in powers_of_two(len(y)):
        yield y[at:at + length]
        at += length


# ---- randomk

def count_of(ratio, elems):
    return min(elems, max(1, math.ceil(ratio * elems)))


def places(seed, tensor, step, elems, k):
    stream = Stream(seed, "places", tensor, ALL_RANKS, 0, step)
    chosen = set()
    for i in range(k):
        j = elems - k + i
        high, low = stream.word(2 * i), stream.word(2 * i + 1)
        place = high * (j + 1) + (low * (j + 1) // 2**32) >> 32
        chosen.add(j if place in chosen else place)
    return sorted(chosen)


def randomk(payload, elems, ratio, seed, tensor, step=0):
    chosen = places(seed, tensor, step, elems, count_of(ratio, elems))
    assert len(payload) == 4 * len(chosen)
    x = [0.0] * elems
    for place, value in zip(chosen, floats(payload, 0, len(chosen))):
        x[place] = value
    return x


# ---- minmax and absmax, of 2 bits and more, with transform=hadamard

def uniform(payload, elems, bits, bucket, with_base, seed, tensor, step=0):
    signs_of = Stream(seed, "hadamard signs", tensor, ALL_RANKS, 0, step)
    at, x = 0, []
    for first in range(0, elems, bucket):
        n = min(bucket, elems - first)
        base = 0.0
        if with_base:
            base, = floats(payload, at, 1)
            at += 4
        scale, = floats(payload, at, 1)
        at += 4
        length = (n * bits + 7) // 8
        zero, most = (0, 2**bits - 1) if with_base else (2**(bits - 1) - 1,) * 2
        y = [base + scale * (code - zero) / most for code in codes(payload[at:at + length], n, bits)]
        at += length
        x += transform_back(signs_of, first, y)
    assert at == len(payload)
    return x


# ---- thc, of one rank

TABLES = {15: list(range(16)), 31: [0, 3, 5, 7, 9, 11, 13, 15, 16, 18, 20, 22, 24, 26, 28, 31]}


def thc_blocks(elems, block):
    return [block] * (elems // block) + powers_of_two(elems % block)


def thc_words(payload, elems, grid, ranks=1):
    width = (ranks * grid).bit_length()
    lanes = 32 // width
    words = struct.unpack(f"<{-(-elems // lanes)}I", payload)
    return [words[i // lanes] >> width * (i % lanes) & (1 << width) - 1 for i in range(elems)]


def thc(rounds, elems, grid, block, clip, seed, tensor, step=0):
    blocks = thc_blocks(elems, block)
    norms = floats(rounds[0], 0, len(blocks))
    sums = thc_words(rounds[1], elems, grid)
    stream = Stream(seed, "hadamard signs", tensor, ALL_RANKS, 0, step)
    first, x = 0, []
    for n, norm in zip(blocks, norms):
        half = norm * clip / (grid * math.sqrt(n))
        x += transform_back(stream, first, [(2 * s - grid) * half for s in sums[first:first + n]])
        first += n
    return x


def thc_codes(x, norms, grid, block, clip, seed, tensor, rank=0, step=0):
    """What a rank sends of its elements on the norms that all share: (code, how far the draw was from the other one)."""
    table = TABLES[grid]
    stream = Stream(seed, "hadamard signs", tensor, ALL_RANKS, 0, step)
    dither = Stream(seed, "dither", tensor, rank, 0, step)
    first, sent = 0, []
    for n, norm in zip(thc_blocks(len(x), block), norms):
        for i, y in enumerate(transform(stream, first, x[first:first + n])):
            place = min(max((y * math.sqrt(n) / (norm * clip) + 1) * grid / 2, 0), grid)
            low = max(number for number in table[:-1] if number <= place)
            gap = table[table.index(low) + 1] - low
            drawn = dither.draw(first + i) * gap
            sent.append((low + gap if drawn < place - low else low, abs(drawn - (place - low))))
        first += n
    return sent


# ---- What a rank sends of elements of fp32

def qsgd(x, bits, bucket, seed, tensor, rank=0, step=0):
    """The payload under the largest magnitude, and how often the second draw decided."""
    stream = Stream(seed, "dither", tensor, rank, 0, step)
    s, norms, sent, seconds = 2**(bits - 1) - 1, b"", [], 0
    for first, part in buckets(x, bucket):
        norm = max(map(abs, part))
        norms += struct.pack("<f", norm)
        for e, v in enumerate(part, first):
            a = times(v, f32(256 * s), norm)
            floor = math.floor(a)
            h = stream.block(e // 16, 7)[e % 16 // 4] >> 8 * (e % 4) & 0xFF
            c = 0
            if (floor + h) % 256 == 255:
                seconds += 1
                u = (stream.block(2**63 + e // 4, 7)[e % 4] >> 8) / 2**24
                near = 2**-22 * abs(a)
                if f32(a - floor) <= near:
                    c = 0
                elif f32(floor + 1 - a) <= near:
                    c = 1
                else:
                    c = int(u < f32(a - floor)) if a >= 0 else int(u >= f32(floor + 1 - a))
            level = (floor + h + c) // 256
            sent.append(abs(level) | (1 if level < 0 else 0) << (bits - 1))
    return norms + packed(sent, bits), seconds


def minmax(x, bits, bucket, seed, tensor, rank=0, step=0):
    """With rounding=stochastic."""
    stream = Stream(seed, "dither", tensor, rank, 0, step)
    payload, most = b"", 2**bits - 1
    for first, part in buckets(x, bucket):
        base = min(part)
        scale = above(max(part) - base)
        sent = []
        for e, v in enumerate(part, first):
            a = times(f32(v - base), most, scale)
            sent.append(min(most, math.floor(a) + (stream.draw(e) < f32(a - math.floor(a)))))
        payload += struct.pack("<ff", base, scale) + packed(sent, bits)
    return payload


def natural(x, seed, tensor, rank=0, step=0):
    stream = Stream(seed, "dither", tensor, rank, 0, step)
    return packed([v < 0 for v in x], 1) + bytes((bits_of(abs(v)) + 128 * stream.half(e) + 64) >> 23 for e, v in enumerate(x))


def levels(x, s, scale, clip, first, stream):
    """Of elements `first` and on."""
    for e, v in enumerate(x, first):
        a = min(times(min(abs(v), clip), s, scale), s)
        level = math.floor(a) + (stream.draw(e) < f32(a - math.floor(a)))
        yield -level if v < 0 else level


def terngrad(x, clip, seed, tensor, rank=0, step=0):
    stream = Stream(seed, "dither", tensor, rank, 0, step)
    s = above(min(max(map(abs, x)), clip * math.sqrt(sum_of_squares(x) / len(x))))
    return struct.pack("<f", s), words([1 + t for t in levels(x, 1, s, s, 0, stream)], 2)


def global_qsgd(x, bits, bucket, seed, tensor, rank=0, step=0):
    stream = Stream(seed, "dither", tensor, rank, 0, step)
    s, norms, sent = 2**(bits - 1) - 1, b"", []
    for first, part in buckets(x, bucket):
        norm = max(map(abs, part))
        norms += struct.pack("<f", norm)
        sent += [s + level for level in levels(part, s, norm, math.inf, first, stream)]
    return norms, words(sent, 2 * s)


# ---- powersgd and acpsgd at their first step. Matrices are lists of columns

def start(rows, rank, seed, tensor, stage):
    stream = Stream(seed, "start", tensor, ALL_RANKS, stage, 0)
    return [[f32(stream.normal(rows * k + i)) for i in range(rows)] for k in range(rank)]


def product(x, c, columns):
    """M times each column, M of rows of c elements."""
    return [[math.fsum(a * b for a, b in zip(x[i:i + c], column)) for i in range(0, len(x), c)] for column in columns]


def transposed(x, c, columns):
    return [[math.fsum(x[i * c + j] * v for i, v in enumerate(column)) for j in range(c)] for column in columns]


def orthonormal(columns):
    done = []
    for column in columns:
        for unit in done:
            along = math.fsum(a * b for a, b in zip(unit, column))
            column = [a - along * b for a, b in zip(column, unit)]
        length = math.sqrt(math.fsum(a * a for a in column))
        done.append([a / length for a in column])
    return done
