#!/usr/bin/env python3
"""bench/lab: hosts are apart, ranks find each other over its links, and nothing of it stays behind.

usage: lab_test.py PATH/TO/bench/lab PATH/TO/gradwire     (77 where there are no namespaces or no root)
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LAB = os.path.abspath(sys.argv.pop(1))
GRADWIRE = os.path.abspath(sys.argv.pop(1))
LIMIT = 100  # seconds; nothing here takes a fifth of it


def lab(hosts, rate, *command):
    return subprocess.run([LAB, str(hosts), rate, "--timeout", "60", "--", *command], capture_output=True, text=True,
                          timeout=LIMIT)


def namespaces_of(pid):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=LIMIT).stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith(f"gwlab-{pid}-")]


def wait_until(condition, what):
    end = time.monotonic() + LIMIT / 2
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.05)


class Lab(unittest.TestCase):
    def test_ranks_of_two_hosts_sum_over_their_link(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "rows.jsonl"
            done = lab(2, "100mbit", GRADWIRE, "bench", "all_reduce", "--transport", "tcp", "--min", "1K", "--max", "256K",
                       "--factor", "16", "--seconds", "0.1", "--json", str(out))
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertEqual([row["bytes"] for row in rows], [1024, 16384, 262144])
        for row in rows:
            self.assertEqual((row["wrong"], row["ranks"], row["transport"]), (0, 2, "tcp"))
        self.assertIn("eth0 10.77.0.1", done.stdout)

    def test_a_rank_sees_its_own_host_alone(self):
        done = lab(3, "none", "sh", "-c", "echo $(hostname) $GRADWIRE_RANK $RANK $$ $(ip -4 -o addr show eth0 | wc -l)")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         ["gwlab0 0 0 1 1", "rank 1 | gwlab1 1 1 1 1", "rank 2 | gwlab2 2 2 1 1"])

    def test_several_ranks_of_a_host_share_it(self):
        done = subprocess.run([LAB, "2", "none", "--ranks", "2", "--timeout", "60", "--", "sh", "-c",
                               "echo $(hostname) $RANK $LOCAL_RANK $WORLD_SIZE $(readlink /proc/self/ns/pid)"],
                              capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = sorted(line.split(" | ")[-1].split() for line in done.stdout.splitlines())
        self.assertEqual([line[:4] for line in lines], [["gwlab0", "0", "0", "4"], ["gwlab0", "1", "1", "4"],
                                                        ["gwlab1", "2", "0", "4"], ["gwlab1", "3", "1", "4"]])
        self.assertEqual([lines[0][4] == line[4] for line in lines], [True, True, False, False])

    def test_ranks_find_their_hosts(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "rows.jsonl"
            done = subprocess.run([LAB, "2", "1gbit", "--ranks", "2", "--timeout", "60", "--", GRADWIRE, "bench", "all_reduce",
                                   "--transport", "tcp", "--algorithm", "two_level", "--min", "1K", "--max", "256K", "--factor",
                                   "16", "--seconds", "0.1", "--json", str(out)], capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertEqual([(row["ranks"], row["nodes"], row["wrong"]) for row in rows], [(4, 2, 0)] * 3)
        self.assertIn("4 ranks on 2 nodes", done.stdout)

    def test_memory_inside_hosts_and_messages_between_them(self):
        for operation in ("all_reduce", "broadcast", "all_gather"):
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "rows.jsonl"
                done = subprocess.run([LAB, "2", "1gbit", "--ranks", "2", "--timeout", "60", "--", GRADWIRE, "bench", operation,
                                       "--transport", "auto", "--min", "1K", "--max", "1M", "--factor", "32", "--seconds", "0.1",
                                       "--json", str(out)], capture_output=True, text=True, timeout=LIMIT)
                self.assertEqual(done.returncode, 0, done.stderr)
                rows = [json.loads(line) for line in out.read_text().splitlines()]
            self.assertEqual([(row["ranks"], row["nodes"], row["wrong"]) for row in rows], [(4, 2, 0)] * 3)
            for row in rows:
                self.assertEqual((row["algorithm"], row["transport"][:4]), ("two_level", "shm+"), row)
            self.assertIn("shared memory inside 2 hosts", done.stdout)

    def test_the_first_failure_is_its_status(self):
        done = lab(2, "1gbit", "sh", "-c", "test $RANK = 0 && exec sleep 100; exit 7")
        self.assertEqual(done.returncode, 7, done.stderr)

    def test_nonsense_is_refused(self):
        for words in ([], ["2"], ["2", "1gbit"], ["2", "fast", "--", "true"], ["0", "none", "--", "true"]):
            done = subprocess.run([LAB, *words], capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(done.returncode, 2, words)
            self.assertTrue(done.stderr.strip(), words)

    def test_what_a_killed_laboratory_leaves_goes_with_the_next(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            first = subprocess.Popen([LAB, "2", "none", "--", "sleep", "100"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            wait_until(lambda: len(namespaces_of(first.pid)) == 3, "two hosts and a switch")
            first.send_signal(number)
            first.wait(timeout=LIMIT)
            self.assertEqual(lab(1, "none", "true").returncode, 0)
            self.assertEqual(namespaces_of(first.pid), [], number)


if __name__ == "__main__":
    probe = lab(1, "none", "true")
    if probe.returncode == 77:
        print(probe.stderr.strip())
        sys.exit(77)
    unittest.main(verbosity=2)
