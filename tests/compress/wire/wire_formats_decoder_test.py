#!/usr/bin/env python3
"""Payloads that the program wrote decode, by docs/wire_formats.md alone, to what the program says that they hold; and those of methods
that draw are what that page says of the elements, byte for byte.

usage: wire_formats_decoder_test.py GRADWIRE
"""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "reference"))
import wire_formats as page  # noqa: E402

GRADWIRE = os.path.abspath(sys.argv.pop(1))
PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/wire_formats.md"
ELEMS = 700  # two blocks or buckets of 256 and a rest of 128 + 32 + 16 + 8 + 4
SEED = 12345678901
TENSOR = page.hash_of("gradient")  # as gradwire inspect names it


def inspect(*words):
    done = subprocess.run([GRADWIRE, "inspect", *words], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class Payload:
    """One that the program wrote: its rounds, the elements that it was made of, and what the program decodes."""

    def __init__(self, spec, elems=ELEMS):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "payload")
            inspect("encode", spec, "--elements", str(elems), "--seed", str(SEED), "--out", path)
            header, data = pathlib.Path(path).read_bytes().split(b"end\n", 1)
            said = inspect("payload", path)
        self.shape = [int(word) for word in re.search(rb"^shape (.*)$", header, re.M).group(1).split()]
        lengths = [int(word) for word in re.search(rb"^rounds (.*)$", header, re.M).group(1).split()]
        self.rounds = [data[sum(lengths[:i]):sum(lengths[:i + 1])] for i in range(len(lengths))]
        stream = page.Stream(SEED, "test", 0, 0, 0, 0)
        self.x = [page.f32(stream.normal(e)) for e in range(elems)]
        number = r"(-?[0-9.e+-]+)"
        found = re.search(rf"^decoded +(\d+) of {elems} elements are not 0; from {number} to {number}, mean {number}, norm {number}$", said, re.M)
        self.nonzero, self.least, self.most, self.mean, self.norm = (float(word) for word in found.groups())
        self.first = {int(place): float(value) for place, value in re.findall(rf"\[(\d+)\] {number}", said)}


class Decoder(unittest.TestCase):
    def assert_is(self, payload, decoded):
        """The summary has six digits; sums of a few hundred numbers of fp32 differ less."""
        close = {"rel_tol": 2e-5, "abs_tol": 2e-6}
        for name, own in (("least", min(decoded)), ("most", max(decoded)), ("mean", math.fsum(decoded) / ELEMS),
                          ("norm", math.sqrt(math.fsum(v * v for v in decoded)))):
            self.assertTrue(math.isclose(getattr(payload, name), own, **close), (name, getattr(payload, name), own))
        self.assertEqual(len(payload.first), 6)
        for place, value in payload.first.items():
            self.assertTrue(math.isclose(value, decoded[place], **close), (place, value, decoded[place]))

    def test_the_generator_is_philox(self):
        """Random123's own answers for a counter and a key of zeros and of pi's digits."""
        stream = page.Stream(0, "test", 0, 0, 0, 0)
        stream.key = (0, 0)
        self.assertEqual(stream.block(0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])
        stream = page.Stream(0, "test", 0, 0, 0, 0x03707344 << 32 | 0x13198A2E)
        stream.key = (0xA4093822, 0x299F31D0)
        self.assertEqual(stream.block(0x85A308D3 << 32 | 0x243F6A88), [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1])

    def test_randomk(self):
        for ratio in (0.05, 0.5):
            payload = Payload(f"randomk:ratio={ratio}")
            chosen = page.places(SEED, TENSOR, 0, ELEMS, page.count_of(ratio, ELEMS))
            self.assertEqual(len(set(chosen)), math.ceil(ratio * ELEMS))
            sent = page.floats(payload.rounds[0], 0, len(chosen))
            for place, value in zip(chosen, sent):  # those of the elements, at the places drawn here
                self.assertTrue(math.isclose(value, payload.x[place], rel_tol=1e-6), place)
            self.assert_is(payload, page.randomk(payload.rounds[0], ELEMS, ratio, SEED, TENSOR))
            self.assertEqual(payload.nonzero, len(chosen))

    def test_hadamard(self):
        for bits, rounding in ((3, "nearest"), (4, "stochastic")):
            for method in ("minmax", "absmax"):
                with self.subTest(method=method, bits=bits):
                    payload = Payload(f"{method}:bits={bits},bucket=256,rounding={rounding},transform=hadamard")
                    decoded = page.uniform(payload.rounds[0], ELEMS, bits, 256, method == "minmax", SEED, TENSOR)
                    self.assert_is(payload, decoded)
                    # Close to the elements, which were transformed: a wrong sign or order would be far away.
                    error = sum((a - b) ** 2 for a, b in zip(decoded, payload.x))
                    self.assertLess(error, 0.1 * sum(v * v for v in payload.x))

    def test_thc(self):
        for grid in (15, 31):
            with self.subTest(grid=grid):
                payload = Payload(f"thc:grid={grid},block=256")
                self.assert_is(payload, page.thc(payload.rounds, ELEMS, grid, 256, 2.154, SEED, TENSOR))
                norms = page.floats(payload.rounds[0], 0, len(page.thc_blocks(ELEMS, 256)))
                sent = page.thc_words(payload.rounds[1], ELEMS, grid)
                drawn = page.thc_codes(payload.x, norms, grid, 256, 2.154, SEED, tensor=TENSOR)
                for e, (code, margin) in enumerate(drawn):  # in fp32 a draw may fall on the other side of a number that it nearly is
                    self.assertTrue(code == sent[e] or margin < 1e-4, (e, code, sent[e], margin))
                self.assertLess(sum(code != other for (code, _), other in zip(drawn, sent)), 5)


class Encoder(unittest.TestCase):
    def test_qsgd(self):
        for bits, elems in ((2, 3000), (4, 20000), (8, 3000)):
            with self.subTest(bits=bits):
                payload = Payload(f"qsgd:bits={bits},bucket=256", elems)
                sent, seconds = page.qsgd(payload.x, bits, 256, SEED, TENSOR)
                self.assertEqual(payload.rounds, [sent])
                self.assertGreater(seconds, elems / 512)  # one element in 256, on average

    def test_minmax(self):
        payload = Payload("minmax:bits=3,bucket=256,rounding=stochastic")
        self.assertEqual(payload.rounds, [page.minmax(payload.x, 3, 256, SEED, TENSOR)])

    def test_natural(self):
        payload = Payload("natural")
        self.assertEqual(payload.rounds, [page.natural(payload.x, SEED, TENSOR)])

    def test_terngrad(self):
        for spec, clip in (("terngrad", 2.5), ("terngrad:clip=0", math.inf)):
            with self.subTest(spec):
                payload = Payload(spec)
                self.assertEqual(payload.rounds, list(page.terngrad(payload.x, clip, SEED, TENSOR)))

    def test_global_qsgd(self):
        payload = Payload("global_qsgd:bits=4,bucket=256")
        self.assertEqual(payload.rounds, list(page.global_qsgd(payload.x, 4, 256, SEED, TENSOR)))

    def assert_near(self, payload, columns):
        sent = page.floats(payload, 0, len(payload) // 4)
        wanted = [v for column in columns for v in column]
        self.assertEqual(len(sent), len(wanted))
        most = max(map(abs, wanted))
        for a, b in zip(sent, wanted):
            self.assertLess(abs(a - b), 1e-5 * most)

    def test_powersgd(self):
        payload = Payload("powersgd:rank=3,min_rate=0")
        _, c = payload.shape
        p = page.product(payload.x, c, page.start(c, 3, SEED, TENSOR, 0))
        self.assert_near(payload.rounds[0], p)
        self.assert_near(payload.rounds[1], page.transposed(payload.x, c, page.orthonormal(p)))

    def test_acpsgd(self):
        payload = Payload("acpsgd:rank=3,min_rate=0")
        _, c = payload.shape
        q = page.start(c, 3, SEED, TENSOR, 3)
        self.assert_near(payload.rounds[0], page.product(payload.x, c, page.orthonormal(q)))


class Defaults(unittest.TestCase):
    def test_the_page_has_those_of_the_program(self):
        stated = re.search(r"^```defaults\n(.*?)^```$", PAGE.read_text(), re.M | re.S).group(1)
        rows = [json.loads(line) for line in inspect("compressors", "--json").splitlines()]
        wanted = {row["name"]: {key["name"]: key["default"] for key in row["keys"] if key["default"]}
                  for row in rows if row["kind"] == "compressor"}
        found = {name: dict(word.split("=") for word in words.split()) for name, words in
                 (line.split(":", 1) for line in stated.splitlines())}
        self.assertEqual(found, {name: keys for name, keys in wanted.items() if keys})


if __name__ == "__main__":
    unittest.main(verbosity=2)
