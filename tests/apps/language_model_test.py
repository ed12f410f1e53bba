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
        for more in ((), ("--tied",), ("--parallel", "dp=2"), ("--parallel", "pp=2", "--accumulate", "2"), ("--parallel", "dp=2,tp=2"),
                     ("--parallel", "tp=4/megatron[sequence=on]", "--tied"), ("--parallel", "pp=2,tp=2", "--accumulate", "2", "--tied")):
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


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.text = text_of(300, 1)
        (cls.folder / "train.txt").write_text(cls.text)
        for name, more in (("letters", ()), ("words", ("--tokens", "words")), ("stages", ("--parallel", "dp=2,pp=2", "--accumulate", "2")),
                           ("tensors", ("--parallel", "dp=2,tp=2", "--tied")),
                           ("shards", ("--parallel", "dp=2,zero=2", "--precision", "bf16"))):
            run("train", "--model", "gpt", "--data", "text", "--text-file", "train.txt", "--context", CONTEXT, "--width", WIDTH,
                "--layers", LAYERS, "--heads", HEADS, "--batch", 16, "--steps", 30, "--optimizer", "adamw", "--lr", "0.01",
                "--checkpoint", name, "--save-params", name + ".safetensors", *more, folder=cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def generated(self, *words, launcher=()):
        done = run(*launcher, *((GRADWIRE,) if launcher else ()), "generate", *words, folder=self.folder)
        return "\n".join(line.split(" | ", 1)[-1] for line in done.stdout.decode().split("\n")) if launcher else done.stdout.decode()

    def test_the_same_text_on_any_ranks(self):
        for name in ("letters", "words", "stages", "tensors", "shards"):
            words = (name, "--prompt", "the king", "--tokens", 60, "--temperature", 0.7, "--top-k", 5, "--seed", 11)
            text = self.generated(*words)
            self.assertTrue(text.startswith("the king"), text)
            self.assertNotEqual(text, self.generated(*words[:-1], 12))
            for parallel in ("pp=2", "pp=4", "tp=2", "tp=4/megatron[sequence=on]", "pp=2,tp=2"):
                with self.subTest(f"{name}, {parallel}"):
                    self.assertEqual(self.generated(*words, "--parallel", parallel), text)
            with self.subTest(f"{name}, processes"):
                self.assertEqual(self.generated(*words, launcher=("run", "-n", 2, "--")), text)
                self.assertEqual(self.generated(*words, "--parallel", "tp=2", launcher=("run", "-n", 2, "--")), text)

    def test_drawn_from_all_tokens_and_the_most_likely_alike(self):
        """Where ranks divide the vocabulary, unevenly, the first of equals and the end of the distribution too."""
        for more in (("--temperature", 0), ("--temperature", 1.3, "--seed", 4)):
            words = ("letters", "--prompt", "a queen", "--tokens", 2 * CONTEXT, *more)
            text = self.generated(*words)
            for parallel in ("tp=2", "tp=4", "pp=3,tp=2"):
                with self.subTest(f"{more}, {parallel}"):
                    self.assertEqual(self.generated(*words, "--parallel", parallel), text)

    def test_what_does_not_divide_is_refused(self):
        for parallel, said in (("tp=3", "4 heads among 3 ranks"), ("dp=2,tp=2", "one replica"), ("tp=2/hybrid", "megatron"),
                               ("tp=2,pp=2/gpipe", "without a schedule"), ("tp=16,pp=8", "128 ranks.*at most")):
            with self.subTest(parallel):
                done = run("generate", "letters", "--parallel", parallel, folder=self.folder, code=1)
                self.assertRegex(done.stderr.decode(), "--parallel " + parallel.split(",")[0].split("/")[0] + ".*" + said)
        done = run("run", "-n", 2, "--", GRADWIRE, "generate", "letters", "--parallel", "tp=2,pp=2", folder=self.folder, code=1)
        self.assertRegex(done.stderr.decode(), "2 ranks.*expected 4")

    def test_greedy_text_is_what_numpy_finds_the_most_likely(self):
        """Beyond the context, too: a window slides over the text."""
        characters = sorted(set(self.text))
        parameters = read_safetensors(self.folder / "letters.safetensors")
        tokens = [characters.index(c) for c in "a queen"]
        for _ in range(3 * CONTEXT):
            tokens.append(int(log_probabilities(tokens[-CONTEXT:], parameters)[-1].argmax()))
        text = self.generated("letters", "--prompt", "a queen", "--tokens", 3 * CONTEXT, "--temperature", 0)
        self.assertEqual(text, "".join(characters[t] for t in tokens) + "\n")

    def test_the_best_checkpoint_stays(self):
        """A rate that is far too high from the middle on spoils what was learnt."""
        words = ("train", "--model", "gpt", "--data", "text", "--text-file", "train.txt", "--context", CONTEXT, "--width", WIDTH,
                 "--batch", 16, "--lr", "0.1", "--lr-schedule", "step:0.5:6", "--eval", "4", "--eval-every", 2, "--checkpoint", "spoilt",
                 "--checkpoint-best", "--checkpoint-keep", 1, "--checkpoint-every", 2, "--metrics", "spoilt.jsonl")
        run(*words, "--steps", 12, folder=self.folder)
        lines = [json.loads(line) for line in (self.folder / "spoilt.jsonl").read_text().splitlines()]
        losses = {line["step"] + 1: line["test_loss"] for line in lines[:-1] if "test_loss" in line}
        best = min(losses, key=losses.get)
        self.assertLess(best, 10)
        self.assertEqual((lines[-1]["best_step"], lines[-1]["best_test_loss"]), (best, losses[best]))
        self.assertEqual(os.listdir(self.folder / "spoilt/best"), [f"step-{best:010}"])
        self.assertFalse((self.folder / f"spoilt/step-{best:010}").exists())
        again = [str(word).replace("step:0.5:6", "constant") for word in words]
        run(*again, "--steps", 14, "--resume", folder=self.folder)
        self.assertEqual(json.loads((self.folder / "spoilt.jsonl").read_text().splitlines()[-1])["best_step"], best)
        self.assertEqual(os.listdir(self.folder / "spoilt/best"), [f"step-{best:010}"])
        others = [3 if word == "4" else word for word in again]  # another part of the text
        done = run(*others, "--steps", 16, "--resume", folder=self.folder, code=1)
        self.assertRegex(done.stderr.decode(), r"was judged on \d+ labels \(expected \d+.*remove spoilt/best")

    def test_what_is_no_language_model_is_refused(self):
        run("train", "--steps", 1, "--checkpoint", "digits", folder=self.folder)
        done = run("generate", "digits", folder=self.folder, code=1)
        self.assertRegex(done.stderr.decode(), "model 'mlp'.*gpt")
        done = run("generate", "nowhere", folder=self.folder, code=1)
        self.assertIn("no complete checkpoint in nowhere", done.stderr.decode())
        done = run("generate", "letters", "--prompt", "#", folder=self.folder, code=1)
        self.assertIn("'#'", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
