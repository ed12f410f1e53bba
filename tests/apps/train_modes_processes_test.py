"""`gradwire train --mode` over processes and UCX, and a worker that is killed. usage:
train_modes_processes_test.py GRADWIRE UCX_VERSION|none (none: skipped, 77)"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from lost_rank_test import ranks_of

PATIENCE = 90  # seconds after which the test gives up: far above anything that is promised
COMMON = ["--batch", "48", "--hidden", "32,16", "--seed", "7"]


def train(ranks, *flags):
    words = [GRADWIRE, "train", "--quiet", *COMMON, *flags]
    if ranks > 1:
        words = [GRADWIRE, "run", "-n", str(ranks), "--timeout", str(PATIENCE), "--", *words]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE + 30, env=os.environ | {"GRADWIRE_TRANSPORT": "ucx"})


class ModesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name):
        return str(pathlib.Path(self.folder.name) / name)

    def totals(self):
        return json.loads(pathlib.Path(self.file("m")).read_text().splitlines()[-1])

    def check(self, ranks, *flags):
        done = train(ranks, "--steps", "20", "--metrics", self.file("m"), *flags)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("ucx", self.totals()["transport"])
        return self.totals()

    def test_p1_sync_servers_equal_accumulation_bit_for_bit(self):
        self.assertEqual(train(1, "--steps", "20", "--accumulate", "2", "--save-params", self.file("one")).returncode, 0)
        for servers in (1, 2):
            self.check(2 + servers, "--mode", "ps-sync", "--servers", str(servers), "--save-params", self.file("many"))
            self.assertEqual(pathlib.Path(self.file("one")).read_bytes(), pathlib.Path(self.file("many")).read_bytes())

    def test_async_servers(self):
        totals = self.check(4, "--mode", "ps-async", "--staleness", "1", "--staleness-lr", "--compressor",
                            "topk:ratio=0.1,ef=ef14", "--pull-compressor", "topk:ratio=0.2")
        self.assertGreaterEqual(totals["staleness_most"], 0)

    def test_elastic_modes(self):
        self.check(3, "--mode", "easgd")
        self.check(3, "--mode", "sync-easgd")
        self.check(3, "--mode", "eamsgd", "--period", "4", "--momentum", "0.5")

    def test_fedavg(self):
        self.check(3, "--mode", "fedavg", "--local-steps", "6", "--compressor", "qsgd:bits=8")

    def test_hogwild_wants_threads(self):
        done = train(2, "--steps", "1", "--mode", "hogwild")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout + done.stderr, "gradwire: error: .*hogwild")

    def test_a_killed_worker_is_named_by_servers_and_workers(self):
        words = [GRADWIRE, "run", "-n", "4", "--deadline", "6", "--", GRADWIRE, "train", "--quiet", *COMMON, "--mode", "ps-async",
                 "--steps", "1000000", "--metrics", self.file("m")]
        job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            until = time.monotonic() + PATIENCE
            metrics = pathlib.Path(self.file("m"))
            while not (metrics.exists() and metrics.stat().st_size > 2000):
                self.assertLess(time.monotonic(), until, "the job does not train")
                self.assertIsNone(job.poll(), "the job ended by itself")
                time.sleep(0.05)
            os.kill(ranks_of(job.pid)[2], signal.SIGKILL)
            output, _ = job.communicate(timeout=PATIENCE)
        finally:
            job.kill()
            job.wait()
        self.assertEqual(job.returncode, 128 + signal.SIGKILL, output)
        for rank in (0, 1, 3):
            self.assertRegex(output, re.compile(rf"^rank {rank} \| gradwire: error: .*rank 2 lost", re.M))


if __name__ == "__main__":
    GRADWIRE = sys.argv[1]
    if sys.argv[2] == "none":
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
