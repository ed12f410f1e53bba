"""Stages of a pipeline, and ranks that share tensors, as processes: every schedule, over UCX and TCP, has the bits of one rank.
usage: train_stages_processes_test.py GRADWIRE UCX_VERSION|none [CASE...] (none: skipped, 77)"""

import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "zb-v-half", "zb-v-min", "breadth-first"]
TRAINED = ["--steps", "3", "--batch", "48", "--accumulate", "6", "--seed", "7", "--algorithm", "canonical", "--quiet"]
MLP = ["--hidden", "24,20,18,16,20,14,12,16"]
# The GPT of tests/adapters/pipeline/mesh_matrix.cc, 24 micro-batches of 4 rows a step over all replicas.
MESH_GPT = ["--model", "gpt", "--data", "grammar", "--width", "96", "--heads", "24", "--layers", "4", "--context", "8", "--tied",
            "--optimizer", "adamw", "--lr", "0.001"]
# (dp, tp, pp) of 2 to 4 ranks, and those of them that are tried unless GRADWIRE_TEST_FULL is set.
MESHES = [mesh for mesh in itertools.product(range(1, 5), repeat=3) if 2 <= mesh[0] * mesh[1] * mesh[2] <= 4]
SAMPLED = [(1, 2, 1), (1, 1, 3), (1, 2, 2), (2, 1, 2)]


def accumulating(micro_batches):
    return [micro_batches if word == "6" else word for word in TRAINED]


def totals(words, trained=TRAINED, timeout=120):
    """The last line of the metrics of a run."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "m.jsonl"
        model = [] if "--model" in words else MLP
        done = subprocess.run([*words, *model, *trained, "--metrics", metrics], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout)
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stdout}")
        return json.loads(metrics.read_text().splitlines()[-1])


class StagesAsProcesses(unittest.TestCase):
    def check(self, transport):
        alone = totals([GRADWIRE, "train"])
        for ranks in (2, 4):
            for schedule in SCHEDULES:
                with self.subTest(transport=transport, ranks=ranks, schedule=schedule):
                    stages = totals([GRADWIRE, "run", "-n", str(ranks), "--timeout", "60", "--", GRADWIRE, "train",
                                     "--transport", transport, "--parallel", f"pp={ranks}/{schedule}"])
                    for key in ("params_hash", "accuracy"):
                        self.assertEqual(stages[key], alone[key], key)
                    self.assertEqual(stages["ranks"], ranks)
                    self.assertIn(transport, stages["transport"])

    def test_ucx(self):
        self.check("ucx")

    def test_tcp(self):
        self.check("tcp")

    # The bits depend on nothing but the mesh: as threads and as processes, over every transport.
    def test_tensor_ranks(self):
        model = ["--model", "gpt", "--data", "grammar", "--width", "16", "--heads", "4", "--context", "8", "--tied"]
        quantised = ["--compressor", "qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false"]
        alone = totals([GRADWIRE, "train", *model])
        for mesh in ("tp=2", "tp=2/megatron[sequence=on]", "dp=1,tp=2,pp=2", "dp=2,tp=2", "dp=1,tp=4"):
            ranks = 4 if "dp" in mesh else 2
            gpt = model + (quantised if "dp=2" in mesh else [])
            threads = totals([GRADWIRE, "train", *gpt, "--parallel", mesh])
            for transport in ("ucx", "tcp"):
                with self.subTest(transport=transport, mesh=mesh):
                    there = totals([GRADWIRE, "run", "-n", str(ranks), "--timeout", "60", "--", GRADWIRE, "train", *gpt,
                                    "--transport", transport, "--parallel", mesh])
                    self.assertEqual(there["params_hash"], threads["params_hash"])
                    self.assertEqual(there["ranks"], ranks)
                    if gpt == model:
                        self.assertAlmostEqual(there["test_loss"], alone["test_loss"], delta=1e-4)

    # By samples and by tiles, whose halos are sent from rank to rank.
    def test_ranks_that_share_images(self):
        for model in ("cnn", "resnet8"):
            images = ["--model", model]
            alone = totals([GRADWIRE, "train", *images])
            for mesh in ("tp=2/hybrid", "tp=2/spatial[1x2]", "dp=1,tp=4/hybrid", "dp=1,tp=4/spatial[2x2]", "dp=2,tp=2/spatial[2x1]"):
                ranks = 4 if "dp" in mesh else 2
                threads = totals([GRADWIRE, "train", *images, "--parallel", mesh])
                with self.subTest(model=model, mesh=mesh):
                    there = totals([GRADWIRE, "run", "-n", str(ranks), "--timeout", "60", "--", GRADWIRE, "train", *images,
                                    "--transport", "ucx", "--parallel", mesh])
                    self.assertEqual(there["params_hash"], threads["params_hash"])
                    self.assertEqual(there["ranks"], ranks)
                    if "dp=2" not in mesh or model == "cnn":  # batch norm is of a replica's micro-batch
                        self.assertAlmostEqual(there["test_loss"], alone["test_loss"], delta=1e-4)

    # Two ranks hold each stage, and are the replicas.
    def test_both_directions(self):
        whole = totals([GRADWIRE, "run", "-n", "2", "--", GRADWIRE, "train", "--parallel", "dp=2"], accumulating("3"))
        for ranks in (2, 4):
            for transport in ("ucx", "tcp"):
                with self.subTest(transport=transport, ranks=ranks):
                    there = totals([GRADWIRE, "run", "-n", str(ranks), "--timeout", "60", "--", GRADWIRE, "train",
                                    "--transport", transport, "--parallel", f"pp={ranks}/chimera"])
                    self.assertEqual(there["params_hash"], whole["params_hash"])
        for ranks in (2, 4):
            with self.subTest(ranks=ranks, doubling="on"):
                flags = [GRADWIRE, "train", "--parallel", f"pp={ranks}/chimera[doubling=on]", "--transport", "ucx"]
                there = totals([GRADWIRE, "run", "-n", str(ranks), "--timeout", "60", "--", *flags], accumulating(str(2 * ranks)))
                halves = totals([GRADWIRE, "run", "-n", "2", "--", GRADWIRE, "train", "--parallel", "dp=2"], accumulating(str(ranks)))
                self.assertEqual(there["params_hash"], halves["params_hash"])

    def test_replicas_of_stages(self):
        whole = totals([GRADWIRE, "run", "-n", "2", "--", GRADWIRE, "train", "--parallel", "dp=2"])
        stages = totals([GRADWIRE, "run", "-n", "4", "--", GRADWIRE, "train", "--parallel", "dp=2,pp=2/zb-h1"])
        self.assertEqual(stages["params_hash"], whole["params_hash"])


class StreamsAsProcesses(unittest.TestCase):
    # In both directions, and without a flush, of ranks that share tensors.
    def test_streams_of_ranks_that_share_tensors(self):
        model = ["--model", "gpt", "--data", "grammar", "--width", "16", "--heads", "4", "--context", "8"]
        for schedule, accumulate in (("chimera", "4"), ("pipedream", "1"), ("2bw", "4")):
            with self.subTest(schedule=schedule):
                trained = accumulating(accumulate)
                alone = totals([GRADWIRE, "train", *model, "--parallel", f"dp=1,pp=2/{schedule}"], trained)
                shared = [GRADWIRE, "train", *model, "--parallel", f"dp=1,tp=2,pp=2/{schedule}"]
                threads = totals(shared, trained)
                there = totals([GRADWIRE, "run", "-n", "4", "--timeout", "60", "--", *shared, "--transport", "ucx"], trained)
                self.assertEqual(there["params_hash"], threads["params_hash"])
                self.assertAlmostEqual(there["test_loss"], alone["test_loss"], delta=1e-4)

    # All ranks hear of it while the stream goes on, drain and end with the same step.
    def test_a_loss_that_is_not_finite_ends_a_stream(self):
        words = [GRADWIRE, "run", "-n", "4", "--timeout", "60", "--", GRADWIRE, "train", "--parallel", "pp=4/pipedream", *MLP, "--lr", "1e6",
                 "--steps", "100000000", "--batch", "16", "--quiet", "--transport", "ucx"]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertEqual(done.returncode, 1, done.stdout)
        said = re.findall(r"^rank (\d) \| gradwire: error: train: the loss of step (\d+) is \S+ \(expected a finite", done.stdout, re.M)
        self.assertEqual(sorted(rank for rank, _ in said), list("0123"), done.stdout)
        self.assertEqual(len({step for _, step in said}), 1, done.stdout)

    # What a rank holds of a stream does not grow with its steps, and rows come while it goes on.
    def test_memory_of_a_stream_is_flat(self):
        for ranks, schedule, accumulate in ((2, "pipedream", "1"), (4, "2bw", "4")):
            with self.subTest(schedule=schedule), tempfile.TemporaryDirectory() as folder:
                metrics = pathlib.Path(folder) / "m.jsonl"
                words = [GRADWIRE, "run", "-n", str(ranks), "--timeout", "120", "--", GRADWIRE, "train", *MLP, "--transport", "ucx", "--steps",
                         "3000", "--batch", "16", "--accumulate", accumulate, "--parallel", f"pp={ranks}/{schedule}", "--metrics", metrics, "--quiet"]
                job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                try:
                    sizes = [self.sizes_after(job, metrics, steps) for steps in (500, 2500)]
                    output, _ = job.communicate(timeout=120)
                    self.assertEqual(job.returncode, 0, output)
                finally:
                    job.kill()
                    job.wait()
                self.assertEqual([len(at_once) for at_once in sizes], [ranks, ranks])
                for before, after in zip(*sizes):
                    self.assertLess(after - before, 256)  # KB: below 0.13 a step

    def sizes_after(self, job, metrics, steps):
        """KB of each rank's resident memory, in the order of their ranks, once so many rows are there."""
        until = time.monotonic() + 120
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < steps:
            self.assertIsNone(job.poll(), f"it ended before step {steps}")
            self.assertLess(time.monotonic(), until)
            time.sleep(0.005)
        sizes = {}
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                text = status.read_text()
                if f"\nPPid:\t{job.pid}\n" not in text:
                    continue
                entries = (status.parent / "environ").read_bytes().split(b"\0")
                rank = [int(entry.split(b"=")[1]) for entry in entries if entry.startswith(b"GRADWIRE_RANK=")]
                sizes[rank[0]] = int(text.split("VmRSS:")[1].split()[0])
            except (OSError, IndexError):
                continue  # it ended meanwhile, or is no rank
        return [sizes[rank] for rank in sorted(sizes)]

    def test_without_a_flush(self):
        for ranks in (2, 4):
            for schedule, accumulate in (("pipedream", "1"), ("pipedream[vertical_sync=on]", "1"), ("2bw", "6")):
                flags = [GRADWIRE, "train", "--parallel", f"pp={ranks}/{schedule}"]
                threads = totals(flags, accumulating(accumulate))
                with self.subTest(ranks=ranks, schedule=schedule):
                    there = totals([GRADWIRE, "run", "-n", str(ranks), "--timeout", "60", "--", *flags, "--transport", "ucx"],
                                   accumulating(accumulate))
                    self.assertEqual(there["params_hash"], threads["params_hash"])


class MeshesAsProcesses(unittest.TestCase):
    # Threads run the same meshes in tests/adapters/pipeline/mesh_matrix.cc, with more beside them.
    def test_meshes(self):
        steps = "20" if os.environ.get("GRADWIRE_TEST_FULL") else "4"

        def trained(replicas):
            return ["--steps", steps, "--batch", "96", "--accumulate", str(24 // replicas), "--seed", "7", "--algorithm", "canonical", "--quiet"]

        alone = totals([GRADWIRE, "train", *MESH_GPT], trained(1), 600)
        meshes = MESHES if os.environ.get("GRADWIRE_TEST_FULL") else SAMPLED
        self.assertLessEqual({*SAMPLED}, {*MESHES})
        for dp, tp, pp in meshes:
            mesh = f"dp={dp},tp={tp},pp={pp}"
            with self.subTest(mesh=mesh):
                threads = totals([GRADWIRE, "train", *MESH_GPT, "--parallel", mesh], trained(dp), 600)
                there = totals([GRADWIRE, "run", "-n", str(dp * tp * pp), "--timeout", "600", "--", GRADWIRE, "train", *MESH_GPT,
                                "--transport", "ucx", "--parallel", mesh], trained(dp), 600)
                self.assertEqual(there["params_hash"], threads["params_hash"])
                self.assertEqual(there["ranks"], dp * tp * pp)
                self.assertAlmostEqual(there["test_loss"], alone["test_loss"], delta=1e-4)
                if tp == 1 and dp == 1:
                    self.assertEqual(there["params_hash"], alone["params_hash"])


if __name__ == "__main__":
    if sys.argv[2] == "none":
        print("skipped: this build has no UCX")
        sys.exit(77)
    GRADWIRE = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
