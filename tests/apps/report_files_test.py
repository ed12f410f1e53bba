"""The files of gradwire report: event files read by a reader of this test's own, curves, and pictures where there is a
Chromium. usage: report_files_test.py GRADWIRE"""
import csv
import json
import os
import pathlib
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def run(*words, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
    return subprocess.run([GRADWIRE, *words], capture_output=True, text=True, timeout=200, cwd="/",
                          env={**environment, **variables})


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """A record file's contents; every checksum is checked."""
    while data:
        length, crc = struct.unpack("<QI", data[:12])
        body, (own,) = data[12:12 + length], struct.unpack("<I", data[12 + length:16 + length])
        assert masked_crc32c(data[:8]) == crc and masked_crc32c(body) == own, "checksum"
        yield body
        data = data[16 + length:]


def fields(data):
    """Number and value of a protocol buffer's fields, of the wire types varint, 64 bit, bytes and 32 bit."""
    def varint():
        nonlocal data
        value, shift = 0, 0
        while True:
            byte, data = data[0], data[1:]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while data:
        key = varint()
        size = {0: 0, 1: 8, 2: None, 5: 4}[key & 7]
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = varint() if size is None else size
        raw, data = data[:size], data[size:]
        yield key >> 3, struct.unpack({1: "<d", 5: "<f"}[key & 7], raw)[0] if key & 7 != 2 else raw


def scalars(path):
    """{tag: {step: value}} of an event file."""
    version, *events = records(path.read_bytes())
    assert dict(fields(version))[3] == b"brain.Event:2"
    found = {}
    for event in map(dict, map(fields, events)):
        value = dict(fields(dict(fields(event[5]))[1]))
        found.setdefault(value[1].decode(), {})[event.get(2, 0)] = value[2]
    return found


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.out = cls.root / "out"
        study = cls.root / "study.toml"
        study.write_text("""
            title = "a small study"
            seeds = 2
            inproc = 2
            [train]
            data = "digits"
            hidden = "16"
            steps = 30
            batch = 32
            eval-every = 10
            measure-every = 7
            [[row]]
            name = "none"
            compressor = "none"
            [[row]]
            name = "top-k 10 %"
            compressor = "topk:ratio=0.1,ef=ef14,min_elems=0"
            """)
        done = run("sweep", str(study), "--out", str(cls.out), "--quiet")
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def metrics(self, row, seed):
        for path in self.out.glob("runs/*/run.json"):
            record = json.loads(path.read_text())
            if record["row"] == row and record["spec"]["seed"] == seed:
                lines = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
                return lines[:-1]
        self.fail(f"no run of {row}, seed {seed}")

    def test_event_files_hold_the_metrics(self):
        done = run("report", str(self.out), "--tensorboard", str(self.root / "tb"))
        self.assertEqual(done.returncode, 0, done.stderr)
        (path,) = (self.root / "tb" / "top-k_10__" / "seed2").glob("events.out.tfevents.*.gradwire")
        found, steps = scalars(path), self.metrics("top-k 10 %", 2)
        self.assertEqual(len(steps), 30)
        self.assertEqual(list(found["loss"]), [line["step"] for line in steps])
        for line in steps:
            self.assertAlmostEqual(found["loss"][line["step"]], line["loss"], delta=1e-6 * line["loss"])
        self.assertEqual(list(found["accuracy"]), [9, 19, 29])
        self.assertEqual(list(found["error/nmse"]), [0, 7, 14, 21, 28])
        self.assertEqual(found["bytes/sent_in_all"][29], sum(line["bytes_sent"] for line in steps))
        self.assertEqual(len(list((self.root / "tb").rglob("events.out.*"))), 4)

    def test_what_was_measured_is_plausible(self):
        for line in self.metrics("none", 1):
            self.assertEqual("nmse" in line, line["step"] % 7 == 0)
            if "nmse" in line:
                self.assertLess(line["nmse"], 1e-12)  # two orders of adding floats
                self.assertNotIn("residual_norm", line)
        measured = [line for line in self.metrics("top-k 10 %", 1) if "nmse" in line]
        self.assertEqual(len(measured), 5)
        for line in measured:
            self.assertGreater(line["nmse"], 1e-3)
            self.assertGreater(line["residual_norm"], 0)
            self.assertGreater(line["exact_norm"], 0)
        # Of the first step all that was not sent is kept: |average - mean| <= root mean square of the residuals.
        first = measured[0]
        self.assertLessEqual(first["nmse"] ** 0.5 * first["exact_norm"], first["residual_norm"] * (1 + 1e-5))

    def test_measuring_is_outside_the_bytes(self):
        # Steps 7 and 14 were measured; replicas are compared at the 10th and 20th, accuracy at the 9th and 19th.
        steps = self.metrics("none", 1)
        self.assertEqual(len({line["bytes_sent"] for line in steps[1:9] + steps[11:19]}), 1)

    def test_classes_of_traffic_add_up(self):
        done = run("report", str(self.out), "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        data = json.loads((self.out / "report.json").read_text())
        rows = [row for setting in data["settings"] for row in setting["rows"]]
        self.assertTrue(rows)
        for row in rows:
            by_class = row["traffic_bytes_per_step"]
            self.assertEqual(set(by_class), {"gradients", "statistics"}, row["row"])
            self.assertAlmostEqual(sum(by_class.values()), row["sent_bytes_per_step"]["mean"], delta=0.5)
        with open(self.out / "table.csv", newline="", encoding="utf-8") as file:
            table = {row["name"]: row for row in csv.DictReader(file)}
        for row in rows:
            for name, value in row["traffic_bytes_per_step"].items():
                self.assertAlmostEqual(float(table[row["row"]][f"{name}_bytes_per_step"]), value, delta=1e-5 * value)
        self.assertIn("sent per step, by class", (self.out / "report.html").read_text())
        smallest = min(rows, key=lambda row: row["traffic_bytes_per_step"]["gradients"])
        self.assertNotEqual(smallest["row"], "none", "compressed gradients are fewer bytes")

    def test_curves_as_csv(self):
        done = run("report", str(self.out), "--csv", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.out / "curves.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        accuracy = [row for row in rows if row["quantity"] == "accuracy" and row["row"] == "none"]
        self.assertEqual([row["step"] for row in accuracy], ["10", "20", "30"])
        last = [100 * self.metrics("none", seed)[-1]["accuracy"] for seed in (1, 2)]
        self.assertAlmostEqual(float(accuracy[-1]["mean"]), sum(last) / 2, places=3)
        self.assertAlmostEqual(float(accuracy[-1]["least"]), min(last), places=3)

    def test_data_beside_the_page(self):
        done = run("report", str(self.out), "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        data = json.loads((self.out / "report.json").read_text())
        rows = {row["row"]: row for row in data["settings"][0]["rows"]}
        with open(self.out / "table.csv", newline="", encoding="utf-8") as file:
            table = {row["name"]: row for row in csv.DictReader(file)}
        self.assertEqual(rows.keys(), table.keys())
        for name, row in rows.items():
            self.assertEqual(row["test_samples"], 360)
            last = [100 * self.metrics(name, seed)[-1]["accuracy"] for seed in (1, 2)]
            self.assertAlmostEqual(row["accuracy_percent"]["mean"], sum(last) / 2, places=5)
            self.assertAlmostEqual(row["accuracy_percent"]["most"], max(last), places=5)
            for cell, value in (("accuracy_least", row["accuracy_percent"]["least"]), ("nmse", row["nmse"]),
                                ("step_ms_most", row["milliseconds_per_step"]["step"]["most"]),
                                ("hidden_ms", row["milliseconds_per_step"]["hidden"]["mean"])):
                self.assertAlmostEqual(float(table[name][cell]), value, delta=1e-4 * abs(value) + 1e-9)
            times = row["milliseconds_per_step"]
            parts = times["compute"]["mean"] + times["exposed"]["mean"] + times["other"]
            self.assertAlmostEqual(parts, times["step"]["mean"], delta=0.02 * parts)
        self.assertRegex(data["headline"], r"^mlp on digits \(360 test samples\), 2 compressors × 2 seeds: 30 steps of batch 32 ")
        self.assertIn(data["headline"], (self.out / "report.html").read_text())

    def test_standard_output_is_markdown_or_json_alone(self):
        done = run("report", str(self.out), "--markdown")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, (self.out / "table.md").read_text())
        self.assertRegex(done.stdout.splitlines()[0], r"^\| compressor \| test accuracy, % \|")
        done = run("report", str(self.out), "--json")
        self.assertEqual(json.loads(done.stdout), json.loads((self.out / "report.json").read_text()))
        done = run("report", str(self.out), "--json", "--markdown")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("--markdown and --json exclude each other", done.stderr)

    def test_compare_prints_markdown(self):
        out = self.root / "compared"
        done = run("compare", "--inproc", "2", "--data", "digits", "--steps", "3", "--compressors", "none;cast:bf16",
                   "--out", str(out), "--markdown", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, (out / "table.md").read_text())
        self.assertIn("| `none` |", done.stdout)
        self.assertTrue((out / "report.json").exists())

    def on_terminal(self, **variables):
        """What report prints where standard output is a terminal."""
        ours, theirs = pty.openpty()
        environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
        process = subprocess.Popen([GRADWIRE, "report", str(self.out)], stdout=theirs, stderr=subprocess.DEVNULL,
                                   env={**environment, "TERM": "xterm", **variables})
        os.close(theirs)
        written = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # its other end is closed
                break
            if not chunk:
                break
            written += chunk
        os.close(ours)
        self.assertEqual(process.wait(timeout=60), 0)
        return written

    def test_colours_are_for_terminals(self):
        self.assertIn(b"\x1b[", self.on_terminal())
        self.assertNotIn(b"\x1b[", self.on_terminal(NO_COLOR="1"))
        self.assertNotIn(b"\x1b[", self.on_terminal(TERM="dumb"))
        self.assertNotIn("\x1b[", run("report", str(self.out)).stdout)

    def test_a_target_can_be_given(self):
        done = run("report", str(self.out), "--target", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.out / "table.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["seeds_at_target"] for row in rows], ["2", "2"])
        self.assertRegex(run("report", "/nonexistent").stderr, "gradwire: error: .*/nonexistent")

    def test_a_report_of_no_run_at_all_says_what_was_looked_for(self):
        empty = self.root / "empty"
        empty.mkdir(exist_ok=True)
        shutil.copy(self.out / "study.json", empty)
        for make in (lambda: None, (empty / "runs").mkdir):
            make()
            done = run("report", str(empty))
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stderr.splitlines()[-1], rf"gradwire: error: .*\b4 run.*{empty}/runs\b")
            self.assertEqual(done.stderr.count("no result of row"), 4)
            self.assertTrue("4 of 4 runs have no result" in (empty / "report.html").read_text())

    def test_no_browser_is_said_after_the_page_is_written(self):
        (self.out / "report.html").unlink(missing_ok=True)
        done = run("report", str(self.out), "--png", "--quiet", PATH="/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "gradwire: error: .*PNG.*GRADWIRE_CHROMIUM")
        self.assertTrue((self.out / "report.html").exists())

    @unittest.skipUnless(any(map(shutil.which, BROWSERS)), "no Chromium")
    def test_pictures(self):
        done = run("report", str(self.out), "--png", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("report", "pareto-0", "time-0", "loss-0", "accuracy-0"):
            data = (self.out / f"{name}.png").read_bytes()
            self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n", name)
            width, height = struct.unpack(">II", data[16:24])
            self.assertEqual(width, 1600)
            self.assertGreater(height, 300)


class RecordedSweep(unittest.TestCase):
    def test_runs_of_before_are_kept_by_a_sweep_that_goes_on(self):
        """But those whose flags a study asks for otherwise by now: measurements of a method that has none."""
        recorded = pathlib.Path(__file__).resolve().parent / "recorded/sweep"
        with tempfile.TemporaryDirectory() as folder:
            out = shutil.copytree(recorded, pathlib.Path(folder) / "out")
            done = run("sweep", str(recorded / "study.toml"), "--out", str(out), "--resume", "--any-build", "--jobs", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            told = done.stdout + done.stderr
            self.assertIn("6 finished before and kept", told)
            self.assertIn("8 complete", told)
            plan = json.loads((out / "study.json").read_text())
            before = json.loads((recorded / "study.json").read_text())
            for row in range(3):
                self.assertEqual(plan["runs"][row], before["runs"][row])
                for name in plan["runs"][row]:
                    self.assertEqual((out / "runs" / name / "metrics.jsonl").read_bytes(),
                                     (recorded / "runs" / name / "metrics.jsonl").read_bytes())


if __name__ == "__main__":
    unittest.main(verbosity=2)
