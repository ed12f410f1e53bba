"""gradwire sweep and compare, end to end on the carried digits: resumed after a kill, with cases that fail, over real
processes. usage: sweep_resume_test.py GRADWIRE UCX_VERSION"""
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GRADWIRE, UCX = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
SECONDS = 120


def run(*words, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GRADWIRE_", "UCX_"))}
    return subprocess.run([GRADWIRE, *words], capture_output=True, text=True, timeout=SECONDS, cwd="/",
                          env={**environment, **variables})


class Sweep(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.out = self.root / "out"

    def study(self, text):
        path = self.root / "study.toml"
        path.write_text(text)
        return str(path)

    def assert_names(self, text, *words):
        for word in words:
            self.assertIn(word, text)

    def records(self):
        return {path.parent.name: json.loads(path.read_text()) for path in self.out.glob("runs/*/run.json")}

    def results(self):
        return [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]

    SMALL = """
        seeds = 2
        transport = "inproc"
        [train]
        data = "digits"
        hidden = "8"
        steps = 6
        batch = 32
        measure-every = 2
        [grid]
        compressor = ["none", "topk:ratio=0.1,ef=ef14,min_elems=0"]
        ranks = [1, 2]
        """

    def test_every_cell_runs_once_with_its_provenance(self):
        study = self.study(self.SMALL)
        done = run("sweep", study, "--out", str(self.out))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("8 complete, 0 diverged, 0 failed", done.stdout)
        cells = set()
        for line in self.results():
            self.assertEqual(line["outcome"], "complete")
            spec, totals = line["spec"], line["totals"]
            cells.add((spec["compressor"], spec["ranks"], spec["seed"]))
            self.assertEqual((totals["ranks"], totals["seed"], totals["steps"]), (spec["ranks"], spec["seed"], 6))
            self.assertEqual(line["machine"]["commit"], totals["commit"])
            for key in ("cpu", "cores", "kernel", "gradwire", "compiler", "ucx"):
                self.assertTrue(line["machine"][key], key)
            self.assertRegex(line["started"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertTrue(line["host"])
            # The command repeats the run: the same parameters to the last bit.
            self.assertTrue(line["command"].startswith("gradwire train --inproc "))
        self.assertEqual(len(cells), 8)
        again = self.root / "again.jsonl"
        words = line["command"].replace("'", "").split()[1:] + ["--metrics", str(again)]
        self.assertEqual(run(*words).returncode, 0)
        self.assertEqual(json.loads(again.read_text().splitlines()[-1])["params_hash"], totals["params_hash"])

    def test_finished_runs_are_kept_and_half_ones_thrown_away(self):
        study = self.study(self.SMALL)
        self.assertEqual(run("sweep", study, "--out", str(self.out)).returncode, 0)
        before = self.records()
        refused = run("sweep", study, "--out", str(self.out))
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--resume", refused.stderr)
        half, failed, *_ = sorted(before)
        (self.out / "runs" / half / "run.json").unlink()
        path = self.out / "runs" / failed / "run.json"
        path.write_text(path.read_text().replace('"outcome": "complete"', '"outcome": "failed"'))
        done = run("sweep", study, "--out", str(self.out), "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_names(done.stderr, "6 finished", "1 incomplete", "1 failed")
        after = self.records()
        self.assertEqual(set(after), set(before))
        for name in set(before) - {half, failed}:
            self.assertEqual(after[name], before[name], name)
        self.assertEqual(len(self.results()), 8)

    def test_metrics_that_are_not_whole_are_named_left_out_and_measured_again(self):
        study = self.study(self.SMALL.replace("ranks = [1, 2]", "ranks = [1]"))
        self.assertEqual(run("sweep", study, "--out", str(self.out)).returncode, 0)
        whole = run("report", str(self.out))
        self.assertEqual(whole.returncode, 0, whole.stderr)
        names = sorted(self.records())
        for cut in (lambda lines: lines[:3], lambda lines: lines[:-1], lambda lines: lines[:-1] + [lines[-1][:30]],
                    lambda lines: lines[1:], lambda lines: [],
                    *(lambda lines, key=key: [line.replace(f'"{key}":', f'"{key}":"x","was":') for line in lines]
                      for key in ("loss", "step", "total", "accuracy"))):
            path = self.out / "runs" / names[0] / "metrics.jsonl"
            before = path.read_text()
            path.write_text("".join(cut(before.splitlines(keepends=True))))
            report = run("report", str(self.out))
            self.assertEqual(report.returncode, 1, report.stderr)
            self.assertIn(str(path), report.stderr)
            with open(self.out / "table.csv", newline="", encoding="utf-8") as file:
                self.assertEqual(sorted(row["runs"] for row in csv.DictReader(file)), ["1", "2"])
            again = run("sweep", study, "--out", str(self.out), "--resume")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assert_names(again.stderr, "3 finished", "1 with incomplete metrics")
            hashes = [json.loads(text.splitlines()[-1])["params_hash"] for text in (before, path.read_text())]
            self.assertEqual(hashes[0], hashes[1])
        self.assertEqual(run("report", str(self.out)).returncode, 0)
        (self.out / "runs" / names[0] / "run.json").write_text("[1]")
        report = run("report", str(self.out))
        self.assertEqual((report.returncode, f"{names[0]}/run.json" in report.stderr), (1, True), report.stderr)

    def test_a_run_that_a_signal_ended_is_done_again(self):
        study = self.study(self.SMALL.replace("steps = 6", "steps = 400000").replace("seeds = 2", "seeds = 1")
                           .replace("ranks = [1, 2]", "ranks = [1]"))
        with open(self.root / "log", "w", encoding="utf-8") as log:
            sweep = subprocess.Popen([GRADWIRE, "sweep", study, "--out", str(self.out)], stdout=log, stderr=log, cwd="/")
        self.addCleanup(sweep.wait, SECONDS)
        self.addCleanup(sweep.kill)
        ended = set()
        end = time.monotonic() + SECONDS
        while sweep.poll() is None and time.monotonic() < end:
            for process, words in self.training().items():
                if process in ended or "--metrics" not in words:
                    continue
                metrics = pathlib.Path(words[words.index("--metrics") + 1])
                if "runs" in metrics.parts and metrics.exists() and metrics.read_text().count("\n") > 2:
                    os.kill(process, signal.SIGTERM)
                    ended.add(process)
            time.sleep(0.02)
        self.assertEqual(sweep.wait(SECONDS), 1, (self.root / "log").read_text())
        self.assertEqual([record["outcome"] for record in self.records().values()], ["failed"] * 2)
        self.assertEqual([record["exit_status"] for record in self.records().values()], [143] * 2)
        short = self.study(self.SMALL.replace("seeds = 2", "seeds = 1").replace("ranks = [1, 2]", "ranks = [1]"))
        done = run("sweep", short, "--out", str(self.out), "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 complete, 0 diverged, 0 failed", done.stdout)

    def training(self):
        """The command lines of gradwire train that this sweep has started, by process."""
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[1:2] == ["train"] and any(str(self.out) in word for word in words):
                found[int(path.parent.name)] = words
        return found

    def test_what_no_run_can_have_is_refused_before_the_first(self):
        for line in ("[train]\nlr = \"abc\"", "[train]\nsteps = 1e99", "inproc = 2"):
            study = self.study(f"ranks = 2\n{line}\n[[row]]\ncompressor = \"none\"\n")
            for words in (["sweep", study, "--list"], ["sweep", study, "--out", str(self.out)],
                          ["compare", study, "--out", str(self.out)]):
                refused = run(*words)
                self.assertEqual(refused.returncode, 1, refused.stdout)
                self.assertIn("study.toml, line ", refused.stderr)
                self.assertEqual(refused.stdout, "")
            self.assertFalse(self.out.exists())

    def test_runs_of_another_build_are_kept_only_if_asked_for(self):
        study = self.study(self.SMALL.replace("seeds = 2", "seeds = 1"))
        self.assertEqual(run("sweep", study, "--out", str(self.out)).returncode, 0)
        name = sorted(self.records())[0]
        path = self.out / "runs" / name / "run.json"
        record = json.loads(path.read_text())
        record["machine"]["commit"] = "other"
        path.write_text(json.dumps(record))
        kept = run("sweep", study, "--out", str(self.out), "--resume", "--any-build")
        self.assert_names(kept.stderr, "4 finished")
        self.assertEqual(self.records()[name]["machine"]["commit"], "other")
        done = run("sweep", study, "--out", str(self.out), "--resume")
        self.assert_names(done.stderr, "1 of another build")
        self.assertNotEqual(self.records()[name]["machine"]["commit"], "other")

    def test_a_killed_sweep_takes_its_runs_along_and_goes_on(self):
        study = self.study(self.SMALL.replace("steps = 6", "steps = 400000").replace("seeds = 2", "seeds = 1"))
        with open(self.root / "log", "w", encoding="utf-8") as log:
            sweep = subprocess.Popen([GRADWIRE, "sweep", study, "--out", str(self.out)], stdout=log, stderr=log, cwd="/")
        try:
            end = time.monotonic() + SECONDS
            while not list(self.out.glob("runs/*/metrics.jsonl")) and time.monotonic() < end:
                self.assertIsNone(sweep.poll(), (self.root / "log").read_text())
                time.sleep(0.02)
            # Another sweep keeps away from a folder in use.
            self.assert_names(run("sweep", study, "--out", str(self.out), "--resume").stderr, str(self.out), "in use")
        finally:
            sweep.send_signal(signal.SIGKILL)
            sweep.wait(SECONDS)
        while self.trainers() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.trainers(), [])
        self.assertEqual(self.records(), {})
        short = self.study(self.SMALL.replace("seeds = 2", "seeds = 1"))
        done = run("sweep", short, "--out", str(self.out), "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)

    def trainers(self):
        """Processes that write into this sweep's folder."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(self.out) in words and "train" in words:
                found.append(words)
        return found

    def test_failures_are_listed_and_the_rest_runs(self):
        study = self.study("""
            transport = "inproc"
            ranks = 2
            [train]
            data = "digits"
            hidden = "8"
            batch = 32
            steps = 20
            [[row]]
            compressor = "none"
            [[row]]
            name = "illegal"
            compressor = "signsgd:vote=majority,ef=ef14"
            [[row]]
            name = "diverges"
            compressor = "randomk:ratio=0.01,unbiased=true,ef=ef14,ef_scale=none,min_elems=0,dense_1d=false"
            allow-unsafe = true
            steps = 300
            """)
        done = run("sweep", study, "--out", str(self.out), "--jobs", "3")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"'illegal' cannot run: signsgd:vote")
        self.assertRegex(done.stderr, r"(?m)failed: .*'illegal', seed 1\b")
        self.assertIn("1 complete, 1 diverged, 1 failed", done.stdout)
        # The report shows what there is.
        report = run("report", str(self.out))
        self.assertEqual(report.returncode, 0, report.stderr)
        self.assertRegex(report.stderr, r"no result .*'illegal', seed 1\b")
        self.assertIn("1 of 3 runs", (self.out / "report.html").read_text())
        # A comparison stops before it has spent time on a study that cannot be done.
        compare = run("compare", study, "--out", str(self.root / "compare"))
        self.assertEqual(compare.returncode, 1)
        self.assert_names(compare.stderr, "gradwire: error: ", "'illegal'")
        self.assertFalse(list((self.root / "compare").glob("runs/*")))

    def test_a_run_that_takes_too_long_is_ended(self):
        # More steps than the time allows on any machine.
        study = self.study("""
            transport = "inproc"
            ranks = 2
            [train]
            data = "digits"
            hidden = "8"
            batch = 32
            steps = 100000000
            [[row]]
            compressor = "none"
            """)
        done = run("sweep", study, "--out", str(self.out), "--run-timeout", "1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"(?m)failed: .*'none', seed 1: .*\b1 s\b")
        self.assertIn("0 complete, 0 diverged, 1 failed", done.stdout)

    def test_the_same_runs_are_done_once(self):
        study = self.study("""
            transport = "inproc"
            ranks = 1
            [train]
            data = "digits"
            hidden = "8"
            steps = 3
            [[row]]
            compressor = "none"
            [[row]]
            name = "the same"
            compressor = "none"
            """)
        done = run("sweep", study, "--out", str(self.out))
        self.assertIn("2 cases, 1 seed, 1 run", done.stderr)
        self.assertIn("2 complete", done.stdout)

    def test_modes_are_a_dimension_like_any_other(self):
        study = self.study("""
            transport = "inproc"
            ranks = 3
            [train]
            data = "digits"
            hidden = "8"
            steps = 4
            batch = 30
            [grid]
            compressor = ["none"]
            mode = ["sync", "ps-sync", "hogwild", "fedavg"]
            """)
        done = run("sweep", study, "--out", str(self.out))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("4 complete", done.stdout)
        # The trials train nothing, in any mode.
        plans = [json.loads(path.read_text()) for path in self.out.glob("checks/*.jsonl")]
        self.assertEqual([plan["planned_steps"] for plan in plans], [4] * 4)

    def test_list_prints_commands_and_runs_nothing(self):
        done = run("sweep", self.study(self.SMALL), "--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 8)
        self.assertFalse(self.out.exists())

    def test_real_ranks_send_what_threads_send(self):
        grid = 'transport = ["inproc", "tcp", "shm"]' + (' \n' if UCX == "none" else "")
        if UCX != "none":
            grid = grid.replace("]", ', "ucx"]')
        study = self.study(f"""
            ranks = 2
            [train]
            data = "digits"
            hidden = "8"
            steps = 4
            batch = 32
            algorithm = "canonical"
            [grid]
            compressor = ["none"]
            {grid}
            """)
        done = run("sweep", study, "--out", str(self.out))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = self.results()
        self.assertEqual(len({line["totals"]["params_hash"] for line in lines}), 1)
        for line in lines:
            if line["spec"]["transport"] != "inproc":
                self.assertIn("GRADWIRE_TRANSPORT=" + line["spec"]["transport"], line["command"])

    def test_a_comparison_judges_its_rules(self):
        study = self.study("""
            inproc = 2
            seeds = 2
            [train]
            data = "digits"
            hidden = "16"
            steps = 40
            batch = 32
            eval-every = 10
            [[row]]
            compressor = "none"
            [[row]]
            compressor = "cast:bf16"
            [[accept]]
            text = "bf16 keeps up"
            row = "cast:bf16"
            minus = "none"
            at_least = -5
            [[accept]]
            text = "better than possible"
            row = "none"
            at_least = 101
            """)
        done = run("compare", study, "--out", str(self.out))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"accepted +[+-]\d+\.\d\d +>= -5 +bf16 keeps up")
        self.assertRegex(done.stdout, r"REFUSED +\+\d+\.\d\d +>= 101 +better than possible")
        kept = run("compare", study, "--out", str(self.out))
        self.assert_names(kept.stderr, "4 finished")
        self.assertEqual(kept.stdout, done.stdout)

    def test_a_laboratory_that_cannot_be_is_explained(self):
        done = run("compare", "--lab", "2x1gbit", "--ranks", "3", "--compressors", "none", "--out", str(self.out))
        self.assertEqual(done.returncode, 1)
        self.assert_names(done.stderr, "gradwire: error: ", "2x1gbit", "3 ranks", "2 hosts")
        if os.geteuid() == 0:
            done = run("compare", "--lab", "2x1gbit", "--compressors", "none", "--out", str(self.out),
                       GRADWIRE_LAB="/nonexistent/lab")
            self.assert_names(done.stderr, "gradwire: error: ", "/nonexistent/lab")
        else:
            done = run("compare", "--lab", "2x1gbit", "--compressors", "none", "--out", str(self.out))
            self.assert_names(done.stderr, "gradwire: error: ", "root")
        both = run("compare", "--lab", "2x1gbit", "--inproc", "2", "--compressors", "none", "--out", str(self.out))
        self.assert_names(both.stderr, "gradwire: error: ", "--lab", "--inproc")


if __name__ == "__main__":
    unittest.main()
