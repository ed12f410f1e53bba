"""A language model on the command line: the perplexity of a whole validation text is that of an evaluation in NumPy of the parameters
that were saved. usage: language_model_test.py GRADWIRE"""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: no NumPy (Debian: python3-numpy)")
    sys.exit(77)

GRADWIRE = os.path.abspath(sys.argv.pop(1))
CONTEXT, WIDTH, LAYERS, HEADS = 16, 32, 2, 4
WORDS = "the a king queen of and to speaks walks , . sword crown never again night".split()


def run(*words, folder, code=0):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
    done = subprocess.run([GRADWIRE, *map(str, words)], capture_output=True, timeout=200, cwd=folder, env=environment)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


def text_of(lines, seed):
    """Lines of words, drawn by a small congruential generator, so that there is something to learn."""
    state, text = seed, []
    for _ in range(lines):
        words = []
        for _ in range(4 + state % 5):
            state = (1103515245 * state + 12345) % 2**31
            words.append(WORDS[((state >> 16) % 3 + len(words) * 3) % len(WORDS)] if words else "the")
        text.append(" ".join(words) + "\n")
    return "".join(text)


def read_safetensors(path):
    """Tensors by name, of 32-bit floats."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    return {name: np.frombuffer(body[slice(*facts["data_offsets"])], "<f4").reshape(facts["shape"]).astype(np.float64)
            for name, facts in header.items() if name != "__metadata__"}


def norm(x, p, name):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def linear(x, p, name):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def log_probabilities(tokens, p):
    """Of all tokens, after each of `tokens`."""
    n = len(tokens)
    x = p["embed.token"][tokens] + p["embed.position"][:n]
    for block in range(1, LAYERS + 1):
        name = f"block{block}.attention"
        qkv = linear(norm(x, p, name + ".norm"), p, name + ".qkv")
        q, k, v = (part.reshape(n, HEADS, -1).swapaxes(0, 1) for part in np.split(qkv, 3, axis=-1))
        scores = q @ k.swapaxes(1, 2) / math.sqrt(WIDTH / HEADS)
        scores[:, np.triu_indices(n, 1)[0], np.triu_indices(n, 1)[1]] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        heads = weights / weights.sum(-1, keepdims=True) @ v
        x = x + linear(heads.swapaxes(0, 1).reshape(n, WIDTH), p, name + ".out")
        name = f"block{block}.mlp"
        x = x + linear(gelu(linear(norm(x, p, name + ".norm"), p, name + ".fc")), p, name + ".out")
    logits = norm(x, p, "norm") @ p.get("head.weight", p["embed.token"]).T
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def perplexity(tokens, p):
    """Windows one behind another; each token but the first is predicted once."""
    loss = 0.0
    for begin in range(0, len(tokens) - 1, CONTEXT):
        window, labels = tokens[begin:begin + CONTEXT], tokens[begin + 1:begin + CONTEXT + 1]
        window = window[:len(labels)]
        loss -= log_probabilities(window, p)[np.arange(len(labels)), labels].sum()
    return math.exp(loss / (len(tokens) - 1))


class LanguageModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.train, cls.valid = text_of(300, 1), text_of(40, 7)
        (cls.folder / "train.txt").write_text(cls.train)
        (cls.folder / "valid.txt").write_text(cls.valid)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def trained(self, *more):
        """The totals of a run, and the parameters that it saved."""
        run("train", "--model", "gpt", "--data", "text", "--text-file", "train.txt", "--text-valid", "valid.txt", "--eval", "full",
            "--context", CONTEXT, "--width", WIDTH, "--layers", LAYERS, "--heads", HEADS, "--batch", 16, "--steps", 30, "--optimizer",
            "adamw", "--lr", "0.01", "--init", "gpt2", "--metrics", "m.jsonl", "--save-params", "p.safetensors", *more,
            folder=self.folder)
        totals = json.loads((self.folder / "m.jsonl").read_text().splitlines()[-1])
        return totals, read_safetensors(self.folder / "p.safetensors")

    def test_perplexity_is_that_of_another_evaluation(self):
        characters = sorted(set(self.train + self.valid))
        tokens = [characters.index(c) for c in self.valid]
        for more in ((), ("--tied",), ("--parallel", "dp=2"), ("--parallel", "pp=2", "--accumulate", "2")):
            with self.subTest(" ".join(more)):
                totals, parameters = self.trained(*more)
                self.assertEqual("head.weight" in parameters, "--tied" not in more)
                self.assertEqual(totals["test_samples"], len(tokens) - 1)
                self.assertLess(totals["perplexity"], 0.8 * len(characters))
                self.assertAlmostEqual(totals["perplexity"], perplexity(tokens, parameters), delta=1e-4)

    def test_perplexity_of_words(self):
        split = [line.split() + ["<eos>"] for line in (self.train + self.valid).splitlines()]
        counted = [word for line in split[:300] for word in line]
        vocabulary = ["<unk>"] + sorted(set(counted), key=lambda word: (-counted.count(word), word.encode()))
        tokens = [vocabulary.index(word) for line in split[300:] for word in line]
        totals, parameters = self.trained("--tokens", "words")
        self.assertEqual(parameters["embed.token"].shape, (len(vocabulary), WIDTH))
        self.assertAlmostEqual(totals["perplexity"], perplexity(tokens, parameters), delta=1e-4)


if __name__ == "__main__":
    unittest.main()
