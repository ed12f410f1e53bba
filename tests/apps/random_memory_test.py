#!/usr/bin/env python3
"""What a run is predicted to hold is what its arena counts, on random configurations of all axes: model, replicas, ranks that
share tensors, stages (also by hand) and schedules, ZeRO, micro-batches, precision, optimizer, activation checkpointing,
offload, compressor. Of those that `gradwire plan` can be asked for, it says the same, and --device-mem refuses what exceeds it
and nothing that fits. In a search for the same model, ranks and batch a mesh like it is foretold with all that a run of its plan
holds, what exchanges keep included; one byte less, and the search leaves it out.

usage: random_memory_test.py PATH/TO/gradwire

A seed is a configuration; a failure names its command. A sample of them, and all 60 where GRADWIRE_TEST_FULL is set.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
LIMIT = 120  # seconds for one command
CONFIGURATIONS = 60
SAMPLE = 10
FULL = os.environ.get("GRADWIRE_TEST_FULL") is not None
V_FORMS = ("zb-v", "zb-v-half", "zb-v-min")
STREAMS = ("pipedream", "2bw")
CHUNKED = ("interleaved", "breadth-first")
OPTIMIZERS = ("sgd", "nesterov", "adamw", "lamb")  # the last one wants a flush, and whole tensors
ELEMENTWISE = ("none", "cast:fp16", "qsgd:bits=4", "signsgd:ef=ef14")  # that shards are compressed by
COMPRESSORS = (*ELEMENTWISE, "topk:ratio=0.1,ef=ef14", "powersgd:rank=2,ef=ef14")
SCHEDULES = ("gpipe", "1f1b", "zb-h1", *CHUNKED, *V_FORMS, "chimera", *STREAMS)
# What the 60 have between them.
AXES = {"model": ("gpt", "mlp", "cnn", "resnet8"), "dp": (1, 2), "tp": (1, 2), "pp": (1, 2, 3, 4), "chunks": (1, 2, 4),
        "layout": ("", "/megatron[sequence=on]", "/hybrid", "/spatial[1x2]"), "zero": (0, 1, 2, 3), "rows": (8, 12, 16),
        "micro_batches": (1, 2, 3, 4, 6, 8), "precision": ("fp32", "bf16", "fp16"), "optimizer": OPTIMIZERS,
        "recompute": ("none", "full", "selective", "2"), "tied": (True, False), "compressor": COMPRESSORS,
        "offload": ("none", "optimizer", "parameters")}


def gradwire(*words):
    values = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
    return subprocess.run([GRADWIRE, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT, env=values)


def sums_to(draw, total, parts):
    """So many numbers from 1 that add up to the total."""
    cuts = sorted(draw.sample(range(1, total), parts - 1))
    return [end - begin for begin, end in zip([0, *cuts], [*cuts, total])]


class Configuration:
    """One that runs: what does not go together is drawn again (docs/parallelism.md has the table)."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.uneven = seed // 2 % 2 == 1  # devices that are planned for
        self.model = draw.choice(("gpt", "gpt", "mlp", "cnn", "resnet8"))
        self.words = ["--model", self.model, "--data", "grammar" if self.model == "gpt" else "digits"]
        self.blocks, self.width = draw.choice((3, 4)), draw.choice((16, 24, 32))
        self.hidden = [draw.choice((12, 16, 20, 24)) for _ in range(draw.choice((4, 5)))]
        self.draw_mesh(draw, seed)
        self.micro_batches = 1 if self.schedule == "pipedream" else draw.choice((4, 6, 8)) if self.pp > 1 else draw.choice((1, 2, 3))
        if self.schedule == "chimera":
            self.micro_batches += self.micro_batches % 2
        self.rows = draw.choice((8, 12, 16))  # samples of a micro-batch
        flush = self.schedule not in STREAMS
        self.zero = draw.choice((0, 1, 2, 3)) if flush and self.schedule != "chimera" else draw.choice((0, 1))
        self.precision = draw.choice(("fp32", "bf16", "fp16") if flush else ("fp32", "bf16"))
        self.optimizer = draw.choice(OPTIMIZERS if flush else OPTIMIZERS[:-1])
        splits = self.schedule == "zb-h1" or self.schedule in V_FORMS
        self.recompute = "none" if splits else draw.choice(("none", "none", "full", "selective", "2"))
        self.tied = self.model == "gpt" and flush and self.schedule != "chimera" and draw.random() < 0.5
        self.offload = draw.choice(("none", "none", "optimizer", "parameters")) if flush else "none"
        self.compressor = draw.choice(COMPRESSORS if self.zero == 0 else ELEMENTWISE)
        if self.optimizer == "lamb":
            self.offload = "none"
        if self.offload == "parameters" and self.zero in (1, 2):
            self.offload = "optimizer"
        if seed % 2 == 0:  # such as gradwire plan can be asked for
            self.offload = self.compressor = "none"
            self.optimizer = draw.choice(("sgd", "adamw"))
            self.tied = self.model == "gpt" and flush
            self.recompute = {"2": "full"}.get(self.recompute, self.recompute)

    def draw_mesh(self, draw, seed):
        self.dp = draw.choice((1, 2))
        self.tp, self.layout, self.pp, self.schedule, self.chunks = draw.choice((1, 1, 2)), "", 1, "1f1b", 1
        images = self.model in ("cnn", "resnet8")
        if self.tp == 2:
            self.layout = draw.choice(("/hybrid", "/spatial[1x2]") if images else ("", "/megatron[sequence=on]"))
            if self.model == "mlp":
                self.layout = ""
        if not (images and self.tp == 2):
            self.pp = draw.choice((1, 2, 2, 3, 4) if self.model == "gpt" else (1, 2, 2, 3))
            if seed % 2 == 0:  # gradwire plan has stages of a gpt alone
                self.pp = draw.choice((2, 3, 4)) if self.model == "gpt" else 1
        if self.pp == 1:
            return
        served = [one for one in SCHEDULES if one != "chimera" or self.pp == 2]
        if self.model in ("cnn", "resnet8", "mlp"):  # few layers with parameters
            served = [one for one in served if self.pp == 2 or one not in (*CHUNKED, *V_FORMS)]
        if self.model == "cnn":
            self.pp, served = 2, ["gpipe", "1f1b", "zb-h1", *STREAMS]
        self.schedule = served[seed // 2 % len(served)]  # each has its turn
        self.chunks = 2 if self.schedule in (*CHUNKED, *V_FORMS) else 1
        if self.schedule in CHUNKED and self.model == "gpt" and self.pp == 2:
            self.chunks = 4
        self.by_hand = None
        if self.model == "gpt" and draw.random() < 0.5:
            while self.by_hand is None or self.by_hand[-1] == 1:  # a tied head has no parameters of its own
                self.by_hand = sums_to(draw, 3 + 2 * self.blocks, self.pp * self.chunks)

    def parallel(self):
        items = [f"dp={self.dp}", f"tp={self.tp}{self.layout}"]
        if self.pp > 1:
            keys = [] if self.schedule not in CHUNKED else [f"chunks={self.chunks}"]
            keys += [] if self.by_hand is None else ["stages=" + "+".join(map(str, self.by_hand))]
            items.append(f"pp={self.pp}/{self.schedule}" + ("[" + ",".join(keys) + "]" if keys else ""))
        return ",".join(items)

    def replicas(self):
        return self.dp * (2 if self.schedule == "chimera" and self.pp > 1 else 1)

    def run_words(self):
        shape = []
        if self.model == "gpt":
            shape = ["--layers", str(self.blocks), "--width", str(self.width), "--heads", "2", "--context", "16"]
        if self.model == "mlp":
            shape = ["--hidden", ",".join(map(str, self.hidden))]
        batch = self.rows * self.micro_batches * self.dp
        return [*self.words, *shape, "--parallel", self.parallel(), "--accumulate", str(self.micro_batches), "--batch", str(batch),
                "--zero", str(self.zero), "--precision", self.precision, "--optimizer", self.optimizer, "--recompute", self.recompute,
                "--offload", self.offload, "--compressor", self.compressor, *(["--tied"] if self.tied else []), "--steps", "3",
                "--lr", "0.001"]

    def plan_words(self, vocabulary):
        """None: `gradwire plan` has no such question, or answers it by a closed form of whole layers."""
        flush = self.schedule not in STREAMS
        if self.offload != "none" or self.optimizer == "nesterov" or self.compressor != "none" or self.recompute == "2":
            return None
        if self.model == "gpt" and (self.pp == 1 or self.tied != flush):
            return None
        if self.model != "gpt" and self.pp > 1:
            return None
        shape = ["--layers", str(self.blocks), "--width", str(self.width), "--heads", "2", "--sequence", "16", "--vocabulary",
                 str(vocabulary)]
        if self.model != "gpt":
            shape = ["--model", self.model, "--image", "1x8x8", "--hidden", ",".join(map(str, self.hidden))]
            if self.model != "mlp":
                shape = shape[:-2]
        optimizer = {"sgd": "momentum"}.get(self.optimizer, self.optimizer)
        return [*shape, "--parallel", self.parallel(), "--accumulate", str(self.micro_batches), "--micro-batch", str(self.rows),
                "--zero", str(self.zero), "--precision", self.precision, "--optimizer", optimizer, "--recompute", self.recompute,
                "--memory"]


    def search_words(self, vocabulary):
        shape = ["--model", self.model, "--image", "1x8x8"]
        if self.model == "gpt":
            shape = ["--layers", str(self.blocks), "--width", str(self.width), "--heads", "2", "--sequence", "16", "--vocabulary",
                     str(vocabulary)]
        if self.model == "mlp":
            shape += ["--hidden", ",".join(map(str, self.hidden))]
        choice = [] if self.compressor == "none" else ["--compressors", self.compressor]
        return [*shape, "--batch", str(self.rows * self.micro_batches * self.dp), "--precision", self.precision, "--optimizer",
                {"sgd": "momentum"}.get(self.optimizer, self.optimizer), *choice, "--rows", "100",
                # What is compressed has whole replicas in a search.
                *(["--zero", str(self.zero)] if self.replicas() > 1 and self.compressor == "none" else []),
                *(["--allow-stale"] if self.schedule in STREAMS else [])]

    def likeness(self, row):
        same = [row[axis] == getattr(self, axis) for axis in ("zero", "pp", "tp", "recompute", "compressor")]
        timed = self.uneven and "stages=" in row["schedule"]
        return sum(same) + 2 * (self.pp > 1 and row["schedule"].startswith(self.schedule)) + timed


CLUSTER = """[device.cpu]
memory = "1G"
macs_per_second = 1e9
[device.old]
memory = "1G"
macs_per_second = 3e8
[link.wire]
latency = 1e-5
bandwidth = 1e8
"""
NODE = """[[node]]
name = "%s"
devices = %d
device = "%s"
link = "wire"
uplink = "wire"
"""


def cluster_of(devices, uneven):
    """Where devices are uneven a search cuts stages by their time, too; where their memory is too small for some, by memory."""
    old = devices // 2 if uneven else 0
    return CLUSTER + NODE % ("new", devices - old, "cpu") + (NODE % ("old", old, "old") if old else "")


def vocabulary_of():
    done = gradwire("inspect", "data", "grammar", "--json")
    return json.loads(done.stdout)["vocabulary"]


class RandomMemory(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.at = tempfile.TemporaryDirectory()
        self.addCleanup(self.at.cleanup)
        self.file = str(pathlib.Path(self.at.name) / "m.jsonl")

    def held(self, one):
        """The tables of all ranks that hold a part."""
        done = gradwire("train", *one.run_words(), "--memory", "--metrics", self.file)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        last = json.loads(pathlib.Path(self.file).read_text().splitlines()[-1])
        return last["memory_bytes_by_stage"] if "memory_bytes_by_stage" in last else [last["memory_bytes"]]

    def compare(self, tables):
        compared = 0
        for rank, table in enumerate(tables):
            for place in ("device", "host"):
                for what, bytes_of in table.get(place, {}).items():
                    with self.subTest(rank=rank, place=place, what=what):
                        if what == "activations":
                            self.assertLessEqual(abs(bytes_of["planned"] - bytes_of["held"]), 0.01 * bytes_of["held"])
                        elif what != "communication":
                            self.assertEqual(bytes_of["planned"], bytes_of["held"])
                    compared += 1
        self.assertGreater(compared, 3)

    def plan_agrees(self, one, words, tables):
        totals = [sum(bytes_of["held"] for what, bytes_of in table["device"].items() if what != "communication") for table in tables]
        most = max(totals)
        done = gradwire("plan", *words, "--device-mem", str(most), "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        if one.pp > 1:
            planned = [row["total_bytes"] for row in rows if row["kind"] == "rank"]
            self.assertEqual(planned if one.tp == 1 else max(planned), totals if one.tp == 1 else most)
        else:
            self.assertEqual([row["total_bytes"] for row in rows if row["zero"] == one.zero], [most])
        refused = gradwire("plan", *words, "--device-mem", str(most - 1))
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("does not fit", refused.stdout + refused.stderr)

    def searched(self, one, vocabulary, *more):
        """Rows of meshes, and the other lines."""
        cluster = pathlib.Path(self.at.name) / "c.toml"
        cluster.write_text(cluster_of(one.dp * one.tp * one.pp, one.uneven))
        done = gradwire("plan", "--cluster", str(cluster), *one.search_words(vocabulary), "--json", "-", *more)
        if done.returncode == 1 and "fit" in done.stderr:
            return [], []
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [line for line in lines if line["kind"] == "mesh"], [line for line in lines if line["kind"] != "mesh"]

    def run_holds(self, one, vocabulary, rows, place, *more):
        """A run of the plan of a row holds what the row says; the tables of memory of the run's ranks."""
        row, plan = rows[place], str(pathlib.Path(self.at.name) / "plan.toml")
        _, others = self.searched(one, vocabulary, "--why", str(place + 1), "--write", plan, *more)
        data = ["--data", "grammar" if one.model == "gpt" else "digits", "--steps", "3", "--lr", "0.001"]
        done = gradwire("train", "--plan", plan, *data, "--memory", "--metrics", self.file)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        last = json.loads(pathlib.Path(self.file).read_text().splitlines()[-1])
        tables = last.get("memory_bytes_by_stage") or [last["memory_bytes"]]
        ranks = [line for line in others if line["kind"] == "rank"]
        self.assertEqual(len(ranks) * row["tp"], len(tables))
        for at, rank in enumerate(ranks):
            of_tensors = tables[at * row["tp"]:(at + 1) * row["tp"]]
            table = max(of_tensors, key=lambda one: sum(line["held"] for line in one["device"].values()))
            for what in [key.removesuffix("_bytes") for key in rank if key.endswith("_bytes") and key != "total_bytes"]:
                held = table["device"].get(what, {"held": 0})["held"]
                with self.subTest(mesh=row["parallel"], rank=rank["rank"], what=what):
                    if what == "activations":
                        self.assertLessEqual(abs(rank["activations_bytes"] - held), 0.01 * held)
                    else:
                        self.assertEqual(rank[what + "_bytes"], held)
        self.assertEqual(row["memory_bytes"], max(rank["total_bytes"] for rank in ranks))
        return tables

    @staticmethod
    def outdoes(found, row):
        """Whether the search says nothing of `row` beside `found`, whose stages were cut by memory: but for ZeRO stage, recompute and
        layers of stages it is the same mesh, no slower, and needs less."""
        same = [found[axis] == row[axis] for axis in ("dp", "tp", "pp", "accumulate", "micro_batch", "compressor")]
        order, other = (re.sub(r"[\[,]stages=[0-9+]+\]?", "", one["schedule"]) for one in (found, row))
        return (all(same) and order == other and "stages=" in found["schedule"] and "stages=" in row["schedule"]
                and found["seconds"] <= row["seconds"] and found["needed_bytes"] < row["needed_bytes"])

    def search_agrees(self, one, vocabulary):
        """The ZeRO stage of the mesh that was run, whether its stages were cut by their time, and whether the search had others,
        with one byte less, whose stages were cut for that, and which hold what it says."""
        rows, _ = self.searched(one, vocabulary)
        place = max(range(len(rows)), key=lambda at: (one.likeness(rows[at]), -at))
        row = rows[place]
        tables = self.run_holds(one, vocabulary, rows, place)
        # Beside what is held gradients are on their way, under ZeRO 2 and 3 alone: a device has room for both.
        needed = row["needed_bytes"]
        gradients = [table["device"].get("gradients", {"held": 0, "peak": 0}) for table in tables]
        self.assertLessEqual(max(line["peak"] - line["held"] for line in gradients) if row["zero"] >= 2 and row["accumulate"] == 1 else 0,
                             needed - row["memory_bytes"])
        # Where it has room it is a row, unless stages that are cut by memory gave another one that outdoes it.
        fitting, _ = self.searched(one, vocabulary, "--device-mem", str(needed))
        self.assertTrue(any({**found, "device_bytes": row["device_bytes"]} == row or self.outdoes(found, row) for found in fitting), row)
        tight = ["--device-mem", str(needed - 1)]
        less, _ = self.searched(one, vocabulary, *tight)
        for found in less:
            self.assertLess(found["needed_bytes"], needed)
        known = {found["parallel"] for found in rows}
        recut = [at for at, found in enumerate(less) if "stages=" in found["schedule"] and found["parallel"] not in known]
        if recut:
            self.run_holds(one, vocabulary, less, recut[0], *tight)
        return row["zero"], "stages=" in row["schedule"], bool(recut)

    def test_a_search_foretells_all_that_its_plan_holds(self):
        vocabulary = vocabulary_of()
        stages, by_time, by_memory = set(), 0, 0
        for seed in range(CONFIGURATIONS if FULL else SAMPLE // 2):
            one = Configuration(seed)
            with self.subTest(seed=seed, search=" ".join(one.search_words(vocabulary))):
                zero, timed, recut = self.search_agrees(one, vocabulary)
                stages.add(zero)
                by_time += timed
                by_memory += recut
        self.assertGreaterEqual(len(stages), 4 if FULL else 2, stages)
        self.assertGreaterEqual(by_time, 5 if FULL else 1)
        self.assertGreaterEqual(by_memory, 5 if FULL else 1)

    def test_every_value_of_every_axis_is_drawn(self):
        drawn = [Configuration(seed) for seed in range(CONFIGURATIONS)]
        self.assertEqual(len({" ".join(one.run_words()) for one in drawn}), CONFIGURATIONS)
        for axis, values in AXES.items():
            self.assertEqual({getattr(one, axis) for one in drawn}, set(values), axis)
        piped = [one for one in drawn if one.pp > 1]
        self.assertEqual({one.schedule for one in piped}, set(SCHEDULES))
        self.assertEqual({one.by_hand is None for one in piped}, {True, False})
        for one in (("dp", "tp"), ("dp", "pp"), ("tp", "pp")):  # meshes of two axes, and of three
            self.assertTrue(any(getattr(mesh, one[0]) > 1 and getattr(mesh, one[1]) > 1 for mesh in drawn), one)
        self.assertTrue(any(min(one.dp, one.tp, one.pp) > 1 for one in drawn))

    def test_what_is_predicted_is_what_is_held(self):
        vocabulary = vocabulary_of()
        planned = 0
        for seed in range(CONFIGURATIONS if FULL else SAMPLE):
            one = Configuration(seed)
            with self.subTest(seed=seed, command="gradwire train " + " ".join(one.run_words())):
                tables = self.held(one)
                self.compare(tables)
                words = one.plan_words(vocabulary)
                if words is not None:
                    self.plan_agrees(one, words, tables)
                    planned += 1
        self.assertGreater(planned, 0, "no configuration that gradwire plan can be asked for")


if __name__ == "__main__":
    unittest.main()
