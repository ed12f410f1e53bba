#!/usr/bin/env python3
"""gradwire run: what a job of local ranks prints, how it ends, and that it always ends.

usage: run_test.py PATH/TO/gradwire
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
LIMIT = 60  # seconds; nothing here takes a quarter of it
# A shell starts what it runs in the background deaf to it, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def command(ranks, script, *flags):
    return [GRADWIRE, "run", "-n", str(ranks), *flags, "--", "sh", "-c", script]


def run(ranks, script, *flags, **more):
    return subprocess.run(command(ranks, script, *flags), capture_output=True, text=True, timeout=LIMIT, **more)


def last_line(done):
    return done.stderr.rstrip("\n").split("\n")[-1]


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(condition, what):
    end = time.monotonic() + LIMIT / 2
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.02)


class Output(unittest.TestCase):
    def test_every_line_has_its_rank_and_its_stream(self):
        done = run(3, "echo out $GRADWIRE_RANK; echo err $GRADWIRE_RANK >&2")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"rank {r} | out {r}" for r in range(3)])
        self.assertEqual(sorted(done.stderr.splitlines()), [f"rank {r} | err {r}" for r in range(3)])

    def test_lines_of_ranks_are_never_mixed(self):
        done = run(4, "i=0; while [ $i -lt 500 ]; do echo $GRADWIRE_RANK $GRADWIRE_RANK; i=$((i+1)); done")
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 2000)
        for line in lines:
            self.assertRegex(line, r"^rank (\d) \| \1 \1$")

    def test_a_last_line_without_newline_is_not_lost(self):
        done = run(1, "printf 'a\\nb'; printf c >&2")
        self.assertEqual(done.stdout, "rank 0 | a\nrank 0 | b\n")
        self.assertEqual(done.stderr, "rank 0 | c\n")

    def test_a_very_long_line_goes_out_in_pieces_and_loses_nothing(self):
        done = run(2, "head -c 300000 /dev/zero | tr '\\0' x; echo; echo end")
        lines = done.stdout.splitlines()
        for rank in range(2):
            mine = [line[len("rank 0 | "):] for line in lines if line.startswith(f"rank {rank} | ")]
            self.assertEqual(mine[-1], "end")
            self.assertEqual("".join(mine[:-1]), "x" * 300000)

    def test_much_output_arrives_whole_at_a_slow_reader(self):
        process = subprocess.Popen(command(2, "head -c 4000000 /dev/zero | tr '\\0' '\\n'"), stdout=subprocess.PIPE)
        time.sleep(0.5)  # the pipe and the launcher's queue are full by then
        out, _ = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(out.count(b"rank 0 | \n"), 4000000)
        self.assertEqual(out.count(b"rank 1 | \n"), 4000000)

    def test_ends_when_nobody_reads_any_more(self):
        process = subprocess.Popen(command(2, "yes"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=LIMIT), 128 + signal.SIGPIPE)

    def test_standard_input_is_empty(self):
        done = run(1, "cat; echo done", stdin=subprocess.PIPE)
        self.assertEqual(done.stdout, "rank 0 | done\n")


class Environment(unittest.TestCase):
    def test_ranks_know_who_they_are(self):
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "RENDEZVOUS", "JOB", "SECRET", "DEADLINE")
        script = "echo " + " ".join(f"$GRADWIRE_{name}" for name in names)
        done = run(2, script, "--deadline", "2.5")
        seen = [line.split(" | ")[1].split() for line in sorted(done.stdout.splitlines())]
        for rank, words in enumerate(seen):
            self.assertEqual(words[:3], [str(rank), "2", str(rank)])
            self.assertRegex(words[3], r"^127\.0\.0\.1:\d+$")
            self.assertEqual(words[3:], seen[0][3:])
            self.assertGreaterEqual(len(words[5]), 64)
            self.assertEqual(words[6], "2.5")
        again = run(1, script).stdout.split()
        self.assertNotEqual(again[-3:-1], seen[0][4:6])  # another job, another secret

    def test_the_secret_comes_from_a_file_that_only_its_owner_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "secret"
            path.write_text("correct horse battery staple\n")
            path.chmod(0o600)
            done = run(1, 'echo "<$GRADWIRE_SECRET>"', "--secret-file", str(path))
            self.assertEqual(done.stdout, "rank 0 | <correct horse battery staple>\n")
            path.chmod(0o644)
            done = run(1, "echo no", "--secret-file", str(path))
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, rf"{path}.*\b644\b.*\b600\b")

    def refused_once(self, done, text):
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count(text), 1, done.stderr)

    def test_a_folder_that_no_flight_record_can_be_in_is_refused_before_the_ranks_start(self):
        text = "'/proc/nothing'"
        self.refused_once(run(2, "echo ran", "--flight", "/proc/nothing"), text)
        self.refused_once(run(2, "echo ran", env={**os.environ, "GRADWIRE_FLIGHT": "/proc/nothing"}), text)
        with tempfile.TemporaryDirectory() as folder:
            records = pathlib.Path(folder) / "new" / "records"
            self.assertEqual(run(1, "echo ran", "--flight", str(records)).stdout, "rank 0 | ran\n")
            self.assertEqual(list(records.iterdir()), [])

    def test_settings_that_no_rank_takes_are_refused_before_the_ranks_start(self):
        tcp = {"GRADWIRE_TRANSPORT": "tcp"}
        for more, text in ((tcp | {"GRADWIRE_TCP_CONGESTION": "zap"}, "GRADWIRE_TCP_CONGESTION: got 'zap'"),
                           (tcp | {"GRADWIRE_TCP_RATE": "zap"}, "GRADWIRE_TCP_RATE (got 'zap'"),
                           ({"GRADWIRE_TRANSPORT": "auto", "GRADWIRE_TCP_RATE": "1gbit"}, "GRADWIRE_TCP_RATE (got '1gbit'"),
                           ({"GRADWIRE_TRANSPORT": "pigeon"}, "unknown transport 'pigeon'"),
                           ({"GRADWIRE_LINKS": "zap"}, "GRADWIRE_LINKS (got 'zap'")):
            with self.subTest(text):
                self.refused_once(run(2, "echo ran", env={**os.environ, **more}), text)

    def test_the_launchers_own_name_means_itself(self):
        done = subprocess.run([GRADWIRE, "run", "-n", "2", "--", "gradwire", "version"], capture_output=True, text=True,
                              timeout=LIMIT, env={**os.environ, "PATH": "/usr/bin:/bin"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^(rank \d \| gradwire [\d.]+\n){2}$")


class Failures(unittest.TestCase):
    def run_with_file(self, ranks, script, *flags):
        """$0 of the script is the path of a file that does not exist yet."""
        with tempfile.TemporaryDirectory() as folder:
            words = command(ranks, script, "--timeout", str(LIMIT - 10), *flags) + [folder + "/file"]
            return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)

    def test_status_of_the_first_rank_that_failed(self):
        # The others fail when rank 1 has been reaped.
        script = """if [ $GRADWIRE_RANK = 1 ]; then echo $$ > "$0".part; mv "$0".part "$0"; exit 3; fi
            until [ -e "$0" ] && [ ! -e /proc/$(cat "$0") ]; do sleep 0.05; done; exit 4"""
        done = self.run_with_file(3, script, "--deadline", "20")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(last_line(done), r"^gradwire: error: rank 1\b.*\b3$")

    def test_the_last_line_repeats_what_the_rank_said(self):
        done = run(2, "echo 'gradwire: error: no data (seen: 0)' >&2; echo bye >&2; exit 1", "--deadline", "1")
        self.assertRegex(last_line(done), r"rank \d\b.*\b1\b.* no data \(seen: 0\)$")

    def test_a_killed_rank(self):
        done = run(4, "if [ $GRADWIRE_RANK = 2 ]; then kill -9 $$; fi; exec sleep 60", "--deadline", "0.5")
        self.assertEqual(done.returncode, 137)
        self.assertRegex(last_line(done), r"^gradwire: error: rank 2\b.*\b9 \(SIGKILL\)$")

    def test_others_have_the_deadline_and_two_seconds_to_report(self):
        script = "if [ $GRADWIRE_RANK = 0 ]; then exit 9; fi; sleep 2; echo reported; exit 1"
        done = run(2, script, "--deadline", "20")
        self.assertEqual(done.returncode, 9)
        self.assertEqual(done.stdout, "rank 1 | reported\n")

    def test_a_rank_that_ignores_sigterm_is_killed(self):
        script = "if [ $GRADWIRE_RANK = 0 ]; then exit 5; fi; trap '' TERM; while :; do sleep 0.1; done"
        self.assertEqual(run(2, script, "--deadline", "0.2").returncode, 5)

    def test_a_failed_rank_is_reaped_at_once(self):
        script = """if [ $GRADWIRE_RANK = 0 ]; then echo $$; exit 7; fi
            exec sleep 60"""
        process = subprocess.Popen(command(2, script, "--deadline", "50"), stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        pid = int(process.stdout.readline().split()[-1])
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the zombie to go")
        self.assertIsNone(process.poll())  # rank 1 is still there
        process.terminate()
        process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 7)

    def test_a_stopped_rank_is_named_before_those_that_waited_for_it(self):
        script = """if [ $GRADWIRE_RANK = 2 ]; then echo $$ > "$0".part; mv "$0".part "$0"; kill -STOP $$; fi
            until [ -e "$0" ] && grep -q ') T ' /proc/$(cat "$0")/stat; do sleep 0.05; done
            echo "gradwire: error: rank 2 lost" >&2; exit 6"""
        done = self.run_with_file(4, script, "--deadline", "60")
        self.assertEqual(done.returncode, 6)
        self.assertRegex(last_line(done),
                         r"^gradwire: error: rank 2\b.*\b19 \(SIGSTOP\).*\brank [013]\b.*\b6\b.* rank 2 lost$")

    def test_a_rank_that_was_stopped_and_goes_on_is_not_blamed(self):
        script = """if [ $GRADWIRE_RANK = 1 ]; then
              (until grep -q ') T ' /proc/$$/stat; do sleep 0.05; done; sleep 0.3; kill -CONT $$) & kill -STOP $$; wait; touch "$0"; exit 0
            fi
            until [ -e "$0" ]; do sleep 0.05; done; exit 6"""
        self.assertRegex(last_line(self.run_with_file(2, script, "--deadline", "1")), r"^gradwire: error: rank 0\b.*\b6$")

    def test_what_cannot_be_executed(self):
        done = subprocess.run([GRADWIRE, "run", "-n", "2", "--", "no-such-program"], capture_output=True, text=True,
                              timeout=LIMIT)
        self.assertEqual(done.returncode, 127)
        self.assertRegex(done.stderr, r"'no-such-program' \(No such file or directory")
        done = subprocess.run([GRADWIRE, "run", "-n", "2", "--", "/etc/passwd"], capture_output=True, text=True,
                              timeout=LIMIT)
        self.assertEqual(done.returncode, 126)

    def test_bad_command_lines(self):
        for words, message in ((["-n", "0", "--", "true"], "got '0'"), (["--", "true"], "-n "),
                               (["-n", "2"], "PROGRAM"), (["-n", "2", "--"], "PROGRAM"),
                               (["-n", "2", "--timeout", "soon", "--", "true"], "--timeout must be a number from 0 to 1e+09 (got 'soon')"),
                               (["-n2", "true"], "unexpected argument 'true'")):
            done = subprocess.run([GRADWIRE, "run", *words], capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(message, done.stderr)


class Ends(unittest.TestCase):
    def test_timeout_names_the_ranks_that_still_ran(self):
        script = "if [ $GRADWIRE_RANK = 1 ]; then exit 0; fi; exec sleep 60"
        done = run(3, script, "--timeout", "8")
        self.assertEqual(done.returncode, 124)
        self.assertRegex(last_line(done), r"^gradwire: error: .*\b8 s \(--timeout\).*: ranks 0, 2$")

    def test_a_signal_after_the_timeout_kills_those_that_do_not_end(self):
        process = subprocess.Popen(command(2, "trap 'echo told' TERM; while :; do sleep 0.1; done", "--timeout", "8", "--deadline", "300"),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertIn("told", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 124)

    def test_timeout_ends_stopped_ranks_too(self):
        done = run(2, "trap '' TERM; kill -STOP $$; sleep 60", "--timeout", "8", "--deadline", "1")
        self.assertEqual(done.returncode, 124)
        self.assertRegex(last_line(done), r"ranks 0, 1 \(ranks 0, 1 stopped\)")

    def test_a_signal_to_the_launcher_reaches_the_ranks(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            name = number.name[3:]
            process = subprocess.Popen(command(2, f"trap 'echo got {name}; exit 1' {name}; echo up; while :; do sleep 0.1; done"),
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            ups = [process.stdout.readline(), process.stdout.readline()]
            self.assertTrue(all("up" in line for line in ups), ups)
            process.send_signal(number)
            out, err = process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, 128 + number)
            self.assertEqual(sorted(out.splitlines()), [f"rank {r} | got {name}" for r in range(2)])
            self.assertIn(f"signal {int(number)} ({number.name})", err)

    def test_ranks_that_ignore_the_signal_are_killed(self):
        # They have the deadline and 2 s to end by themselves.
        script = "trap '' INT TERM; echo up; while :; do sleep 0.1; done"
        process = subprocess.Popen(command(2, script, "--deadline", "1"),
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 130)

    def test_ranks_have_the_deadline_to_end_well(self):
        script = "trap 'sleep 4; echo saved; exit 143' TERM; echo up; while :; do sleep 0.1; done"
        process = subprocess.Popen(command(2, script, "--deadline", "20"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2):
            self.assertIn("up", process.stdout.readline())
        process.terminate()
        out, _ = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 143)
        self.assertEqual(sorted(out.splitlines()), ["rank 0 | saved", "rank 1 | saved"])

    def test_the_ranks_die_with_the_launcher(self):
        process = subprocess.Popen(command(2, "echo $$; exec sleep 60"), stdout=subprocess.PIPE, text=True)
        pids = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
        process.kill()
        process.communicate(timeout=LIMIT)
        wait_until(lambda: not any(alive(pid) for pid in pids), "the ranks to die")

    def test_what_a_rank_leaves_behind_dies_with_it(self):
        done = run(1, "sleep 300 & echo $!")
        self.assertEqual(done.returncode, 0)
        pid = int(re.search(r"\d+$", done.stdout.strip()).group())
        wait_until(lambda: not alive(pid), "the orphan to die")

    def test_output_held_open_by_an_escaped_process_does_not_hold_the_launcher(self):
        # It has left the rank's group when it leads a session (field 6 of its stat) of its own.
        done = run(1, "setsid sleep 60 & until [ \"$(cut -d' ' -f6 /proc/$!/stat)\" = $! ]; do sleep 0.05; done; echo $!")
        self.assertEqual(done.returncode, 0)
        pid = int(done.stdout.split()[-1])
        self.assertTrue(alive(pid))
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    unittest.main(verbosity=1)
