#!/usr/bin/env python3
"""What the programs do where the machine gives them less than they ask for: files that are none, disks that are full,
memory and threads that are refused. Each says so and ends with a status; none hangs, none aborts.

usage: limits_test.py PATH/TO/gradwire
"""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
LIMIT = 60  # seconds; nothing here takes a quarter of it
FULL = "/dev/full"  # every write to it fails with ENOSPC
QUICK = ["--steps", "2", "--batch", "48"]


def gradwire(*words, **more):
    more.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([GRADWIRE, *words], stderr=subprocess.PIPE, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL, **more)


class Folder(unittest.TestCase):
    def setUp(self):
        self.at = tempfile.TemporaryDirectory()
        self.addCleanup(self.at.cleanup)
        self.path = pathlib.Path(self.at.name)

    def refused(self, done, *texts):
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue(done.stderr.splitlines()[-1].startswith("gradwire: error: "), done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)


class Files(Folder):
    READ = [["train", *QUICK, "--config", "{}"],
            ["train", *QUICK, "--model", "gpt", "--data", "text", "--text-file", "{}"],
            ["train", *QUICK, "--model", "gpt", "--data", "text", "--text-file", __file__, "--tokens", "words", "--vocabulary", "{}"],
            ["train", *QUICK, "--load-params", "{}"],
            ["inspect", "payload", "{}"],
            ["inspect", "nmse", "--recipe", "{}"],
            ["inspect", "data", "text", "--text-file", "{}"],
            ["sweep", "{}", "--list"],
            ["run", "-n", "1", "--secret-file", "{}", "--", "true"]]
    WRITTEN = [["train", *QUICK, "--metrics", "{}"],
               ["train", *QUICK, "--trace", "{}"],
               ["train", *QUICK, "--save-params", "{}"],
               ["plan", "--params", "1000", "--json", "{}"],
               ["sim", "all_reduce", "--ranks", "4", "--json", "{}"],
               ["sim", "all_reduce", "--ranks", "4", "--html", "{}"],
               ["inspect", "encode", "qsgd:bits=4", "--elements", "16", "--out", "{}"],
               ["bench", "all_reduce", "--inproc", "2", "--max", "4K", "--json", "{}"],
               ["bench", "all_reduce", "--inproc", "2", "--max", "4K", "--csv", "{}"]]

    def in_place_of_a_file(self, make):
        name = self.path / "odd"
        make(name)
        name.chmod(0o700 if name.is_dir() else 0o600)
        for words in self.READ + self.WRITTEN:
            with self.subTest(" ".join(words)):
                self.refused(gradwire(*(word.format(name) for word in words)), str(name))

    def test_a_fifo_in_place_of_a_file_is_refused_and_not_waited_for(self):
        self.in_place_of_a_file(os.mkfifo)

    def test_a_folder_in_place_of_a_file_is_refused(self):
        self.in_place_of_a_file(os.mkdir)

    def test_a_file_in_place_of_a_sweeps_folder_is_named(self):
        study, out = self.path / "study.toml", self.path / "out"
        study.write_text('inproc = 1\n[train]\nsteps = 2\n[[row]]\ncompressor = "none"\n')
        self.refused(gradwire("sweep", str(study), "--out", str(study), "--resume"), f"'{study}'")
        out.mkdir()
        for name in ("runs", "checks"):
            (out / name).write_text("a file")
            for more in ([], ["--resume"], ["--fresh"]):
                with self.subTest(name=name, more=more):
                    self.refused(gradwire("sweep", str(study), "--out", str(out), *more), f"'{out}/{name}'")
            (out / name).unlink()

    def test_a_fifo_in_a_sweeps_or_a_runs_way_is_not_waited_for(self):
        study, out = self.path / "study.toml", self.path / "out"
        study.write_text('inproc = 1\n[train]\nsteps = 2\n[[row]]\ncompressor = "none"\n')
        (out / "checks").mkdir(parents=True)
        for name in ("results.jsonl", "study.json.new", "checks/0000.txt", "checks/0000.jsonl"):
            with self.subTest(name):
                os.mkfifo(out / name)
                done = gradwire("sweep", str(study), "--out", str(out), "--resume")
                self.assertEqual((done.returncode, f"{out}/{name}" in done.stderr), (1, True), done.stderr)
                (out / name).unlink()
        metrics, kept = self.path / "metrics", self.path / "kept"
        words = ["train", *QUICK, "--checkpoint", str(kept), "--metrics", str(metrics)]
        self.assertEqual(gradwire(*words).returncode, 0)
        os.mkfifo(f"{metrics}.part")
        self.refused(gradwire(*words, "--resume"), f"{metrics}.part")
        params = self.path / "params"
        os.mkfifo(f"{params}.part")
        self.refused(gradwire("train", *QUICK, "--save-params", str(params)), f"{params}.part")

    def test_the_ranks_secret_is_no_fifo(self):
        os.mkfifo(self.path / "secret", 0o600)
        done = gradwire("train", *QUICK, env={**os.environ, "GRADWIRE_RANK": "0", "GRADWIRE_WORLD_SIZE": "2",
                                              "GRADWIRE_RENDEZVOUS": "127.0.0.1:9",
                                              "GRADWIRE_SECRET_FILE": str(self.path / "secret")})
        self.refused(done, "GRADWIRE_SECRET_FILE", str(self.path / "secret"))

    def test_a_checkpoint_whose_tensors_are_a_fifo_is_not_waited_for(self):
        folder = self.path / "kept"
        self.assertEqual(gradwire("train", *QUICK, "--checkpoint", str(folder)).returncode, 0)
        for tensors in [path for path in folder.rglob("*") if path.is_file()]:
            tensors.unlink()
            os.mkfifo(tensors)
        done = gradwire("train", *QUICK, "--quiet", "--checkpoint", str(folder), "--resume")
        self.assertIn(done.returncode, (0, 1))  # whether it starts anew is the checkpoints' business: it ends

    def test_pipes_that_the_shell_gives_are_read_and_written(self):
        read = subprocess.run(["bash", "-c", f"{GRADWIRE} train --quiet --config <(printf 'steps = 1\\nbatch = 16\\n')"],
                              capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(read.returncode, 0, read.stderr)
        written = subprocess.run(["bash", "-c", f"{GRADWIRE} train --quiet --steps 2 --metrics >(cat) | cat"],
                                 capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(len(written.stdout.splitlines()), 3, written.stderr)  # two steps and the totals

    def test_a_fifo_with_a_reader_takes_metrics(self):
        fifo = self.path / "metrics"
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        done = gradwire("train", "--quiet", "--steps", "2", "--metrics", str(fifo))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(os.read(reader, 1 << 16).splitlines()), 3)


class Text(Folder):
    def test_inspect_data_reads_a_users_text(self):
        file = self.path / "text"
        file.write_text("abcd" * 1000)
        done = gradwire("inspect", "data", "text", "--text-file", str(file))
        self.assertEqual(done.returncode, 0, done.stderr)
        # Nine tenths of 4,000 bytes train; four of them differ.
        self.assertIn("3600 tokens of 4 for training, 400 for testing", done.stdout)

    def test_the_file_and_the_set_belong_together(self):
        self.refused(gradwire("inspect", "data", "text"), "--text-file")
        self.refused(gradwire("inspect", "data", "digits", "--text-file", "/dev/null"), "--text-file")


class FullDisk(unittest.TestCase):
    def fails(self, *words):
        with open(FULL, "w", encoding="utf-8") as full:
            done = gradwire(*words, stdout=full)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(os.strerror(28), done.stderr)  # ENOSPC

    def test_every_program_says_that_its_output_is_lost(self):
        for words in (["version"], ["--help"], ["train", "--help"], ["train", *QUICK], ["train", *QUICK, "--dry-run"],
                      ["inspect", "compressors"], ["plan", "--params", "1000"], ["sim", "all_reduce", "--ranks", "4"],
                      ["bench", "all_reduce", "--inproc", "2", "--max", "4K"]):
            with self.subTest(" ".join(words)):
                self.fails(*words)

    def test_so_does_the_launcher(self):
        with self.subTest("a rank that goes on"):
            self.fails("run", "-n", "2", "--", "sh", "-c", "echo lost; sleep 30")
        with self.subTest("a rank that has ended"):
            self.fails("run", "-n", "1", "--", "echo", "lost")

    def test_an_output_that_is_closed_is_lost_too(self):
        for closed, to in ((">&-", ""), ("2>&-", ">&2")):
            with self.subTest(closed):
                done = subprocess.run(["bash", "-c", f"{GRADWIRE} run -n 1 -- sh -c 'echo lost {to}' {closed}"], timeout=LIMIT,
                                      capture_output=True)
                self.assertEqual(done.returncode, 1, done.stderr)

    def test_a_status_of_the_ranks_own_stays(self):
        with open(FULL, "w", encoding="utf-8") as full:
            done = gradwire("run", "-n", "1", "--", "sh", "-c", "exit 7", stdout=full)
        self.assertEqual(done.returncode, 7, done.stderr)


class Memory(Folder):
    BIG = ["--hidden", "65536,65536"]  # 4.3e9 parameters, 16 GiB

    # Of one program, which must end with 0.
    def peak_bytes(self, *words):
        child = subprocess.Popen([GRADWIRE, *words], stdout=subprocess.DEVNULL)
        end = time.monotonic() + LIMIT
        pid = 0
        while pid == 0:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid == 0 and time.monotonic() > end:
                child.kill()
            time.sleep(0.01)
        child.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(child.returncode, 0)
        return usage.ru_maxrss * 1024

    def test_a_dry_run_says_what_a_run_would_take_and_takes_none(self):
        # Two layers of 8192 and one of 10 over 64 pixels: 64 * 8192 + 8192 + 8192 * 8192 + 8192 + 8192 * 10 + 10.
        parameters = 67731466
        metrics = self.path / "metrics"
        methods = [["--optimizer", name] for name in ("onebit_adam", "zero_one_adam", "onebit_lamb", "demo", "diloco")]
        modes = [["--mode", name] for name in ("ps-sync", "hogwild", "easgd", "sync-easgd", "eamsgd", "fedavg")]
        for more in ([], ["--zero", "2"], ["--precision", "bf16"], ["--offload", "optimizer"], ["--measure-every", "1"],
                     ["--zero", "3", "--measure-every", "1"], *methods, *modes):
            with self.subTest(more):
                peak = self.peak_bytes("train", "--dry-run", "--inproc", "2", "--hidden", "8192,8192", "--metrics", str(metrics), *more)
                self.assertLess(peak, 4 * parameters)  # not even one rank's parameters
        self.assertIn(f'"parameters":{parameters}', metrics.read_text())
        # Payloads of 4.3e9 parameters are 134 MB, of which a rank has its own and both that have come.
        peak = self.peak_bytes("train", "--dry-run", "--inproc", "2", *self.BIG, "--optimizer", "demo", "--allow-overcommit")
        self.assertLess(peak, 4 * parameters)

    def test_a_dry_run_plans_what_a_run_holds(self):
        metrics = self.path / "metrics"
        words = ["train", "--quiet", "--inproc", "2", "--hidden", "512", "--steps", "1", "--batch", "256", "--momentum", "0"]
        self.assertEqual(gradwire(*words, "--dry-run", "--metrics", str(metrics)).returncode, 0)
        # Parameters and gradients: two vectors of 64 * 512 + 512 + 512 * 10 + 10 floats on each of two ranks; and activations.
        planned = json.loads(metrics.read_text())["planned_bytes"]
        self.assertGreater(planned, 2 * 2 * 4 * 38410)
        self.assertEqual(gradwire(*words, "--memory", "--metrics", str(metrics)).returncode, 0)
        held = json.loads(metrics.read_text().splitlines()[-1])["memory_bytes"]["device"]
        self.assertEqual(planned, 2 * sum(one["planned"] for name, one in held.items() if name != "communication"))

    def test_a_run_that_does_not_fit_says_so_before_it_takes_anything(self):
        megabytes = 1000
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
        for words in (["--inproc", "4", "--hidden", "8192,8192"], [*self.BIG], [*self.BIG, "--dry-run"],
                      ["--mode", "hogwild", "--inproc", "2", *self.BIG], ["--optimizer", "onebit_adam", *self.BIG]):
            with self.subTest(" ".join(words)):
                start = time.monotonic()
                self.refused(gradwire("train", *words, preexec_fn=limit), "ulimit -v", "--allow-overcommit")
                self.assertLess(time.monotonic() - start, 20)
        with self.subTest("asked to try all the same"):
            # A warning, and then what the system says.
            tried = gradwire("train", *self.BIG, "--allow-overcommit", preexec_fn=limit)
            self.refused(tried, "[warning]", "does not fit", "none left")
            self.assertNotIn("--allow-overcommit", tried.stderr)  # which has been given

    def test_memory_or_threads_refused_at_the_start_are_an_error(self):
        for kilobytes in (40000, 60000, 80000, 96000, 100000, 130000, 160000):
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (kilobytes << 10, kilobytes << 10))
            for words in (["train", *QUICK], ["train", *QUICK, "--inproc", "8"], ["train", *QUICK, "--threads", "512"],
                          ["run", "-n", "2", "--", GRADWIRE, "train", "--transport", "tcp", *QUICK],
                          ["run", "-n", "2", "--", GRADWIRE, "train", "--transport", "ucx", *QUICK]):
                with self.subTest(kilobytes=kilobytes, words=words):
                    done = gradwire(*words, preexec_fn=limit)
                    # UCX itself ends a process (134: abort) when its page table cannot grow; which limit meets that place depends
                    # on the size of the program.
                    if "ucx" in words and "Fatal: Failed to allocate page table" in done.stderr:
                        self.assertEqual(done.returncode, 134, done.stderr)
                        continue
                    self.assertIn(done.returncode, (0, 1, 127), done.stderr)  # 127: not even the loader had enough

    def test_more_threads_than_a_process_can_have_are_refused(self):
        self.refused(gradwire("train", "--threads", "1024", "--inproc", "64", "--batch", "64"), "--threads 1024", "65536")

    def test_many_threads_work(self):
        done = gradwire("train", "--threads", "64", "--inproc", "4", "--compressor", "qsgd:bits=4", *QUICK)
        self.assertEqual(done.returncode, 0, done.stderr)


class DeadBeforeItJoins(unittest.TestCase):
    def ended(self, script, status, seconds):
        start = time.monotonic()
        done = gradwire("run", "-n", "3", "--", "sh", "-c", script)
        took = time.monotonic() - start
        self.assertEqual(done.returncode, status, done.stderr)
        # The ranks' own deadline is 15 s: nobody waited for it.
        self.assertLess(took, seconds, done.stderr)
        return done.stderr

    def test_a_rank_without_a_stack_ends_the_others(self):
        for rank in (0, 2):
            with self.subTest(rank=rank):
                script = f'[ "$GRADWIRE_RANK" = {rank} ] && ulimit -s 64; exec {GRADWIRE} train --batch 48'
                text = self.ended(script, 128 + signal.SIGSEGV, 10)
                self.assertIn(f"rank {rank} failed first", text)

    def test_a_rank_that_leaves_by_itself_ends_the_others(self):
        text = self.ended(f'[ "$GRADWIRE_RANK" = 1 ] && exit 3; exec {GRADWIRE} train --batch 48', 3, 10)
        self.assertIn("rank 1 failed first", text)

    def test_a_rank_that_ends_well_without_joining_ends_the_others(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                text = self.ended(f'[ "$GRADWIRE_RANK" = {rank} ] && exit 0; exec {GRADWIRE} train --batch 48', 1, 10)
                self.assertIn(f"rank {rank} ended with exit status 0 without joining", text)

    def test_programs_that_join_nobody_end_as_they_like(self):
        self.ended('[ "$GRADWIRE_RANK" = 1 ] && exit 0; sleep 3', 0, 10)

    def test_those_who_come_later_are_ended_too(self):
        script = f'[ "$GRADWIRE_RANK" = 1 ] && exit 3; [ "$GRADWIRE_RANK" = 2 ] && sleep 4; exec {GRADWIRE} train --batch 48'
        self.ended(script, 3, 12)

    def test_a_rank_that_has_joined_and_dies_leaves_the_others_time_to_report(self):
        # Rank 1 is killed by its own watcher once it trains; the others say who was lost.
        script = (f'if [ "$GRADWIRE_RANK" = 1 ]; then {GRADWIRE} train --batch 48 --steps 100000 --quiet & sleep 4; kill -9 $!; '
                  f'wait $!; exit 9; fi; exec {GRADWIRE} train --batch 48 --steps 100000 --quiet')
        text = self.ended(script, 9, 40)
        self.assertIn("rank 1", text)
        self.assertIn("rank 0 | gradwire: error: ", text)


if __name__ == "__main__":
    unittest.main()
