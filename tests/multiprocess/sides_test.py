#!/usr/bin/env python3
"""Two hosts that lose each other, or one of which ends: exactly one side of the job goes on, and the other says why not.

usage: sides_test.py PATH/TO/sides_rank BENCH_FOLDER TRANSPORT[,TRANSPORT...]

Hosts are namespaces of this machine, each with its own process table. Exit status 77 where there are none, or no iptables,
which resets connections between live ranks.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

RANK, BENCH, TRANSPORTS = str(pathlib.Path(sys.argv.pop(1)).resolve()), sys.argv.pop(1), sys.argv.pop(1).split(",")
sys.path.insert(0, BENCH)
import lab_network  # noqa: E402

LIMIT = 120  # seconds, for what takes ten


def wait_until(condition, what):
    until = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited {LIMIT} s for {what}")
        time.sleep(0.02)


class Job:
    """Ranks, `per_host` on each of two hosts. `flags`: further ones of the program."""

    def __init__(self, lab, folder, transport, per_host, store=False, lone=False, flags=()):
        self.folder, self.per_host, self.size = pathlib.Path(folder), per_host, 2 * per_host
        self.victims = []  # ranks of whom no report is to be waited for
        (self.folder / "meet").mkdir()
        self.processes = []
        for rank in range(self.size):
            host = rank // per_host
            environment = {"GRADWIRE_RANK": str(rank), "GRADWIRE_WORLD_SIZE": str(self.size), "SIDES_TRANSPORT": transport,
                           "GRADWIRE_RENDEZVOUS": f"file://{self.folder}/meet", "GRADWIRE_IFNAME": "eth0",
                           "GRADWIRE_NODE": f"host{host}"}
            if store:
                environment["GRADWIRE_LAUNCHER_STORE"] = f"file://{self.folder}/tokens"
            if lone:
                environment["GRADWIRE_ALLOW_LONE_SURVIVOR"] = "1"
            with open(self.folder / f"output-{rank}", "w") as output:
                self.processes.append(lab.start(host, [RANK, "--folder", str(self.folder), *flags],
                                                environment, stdout=output, stderr=output))
        wait_until(lambda: all((self.folder / f"ready-{rank}").exists() for rank in range(self.size)), "the ranks to meet")

    def reports(self):
        """Of each rank that is no victim: whom it went on with, the code's name, the words, and those of what failed first."""
        living = [rank for rank in range(self.size) if rank not in self.victims]
        wait_until(lambda: all((self.folder / f"report-{rank}").exists() for rank in living), "the reports")
        found = {}
        for rank in living:
            survivors, code, words, failure = (self.folder / f"report-{rank}").read_text().split("|", 3)
            found[rank] = ([int(word) for word in survivors.split()], code.strip(), words.strip(), failure.strip())
        return found

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Sides(unittest.TestCase):
    def play(self, fault, transport, per_host, **more):
        with tempfile.TemporaryDirectory() as folder, lab_network.Lab(2, "none") as lab:
            for host in range(2):
                lab.open(host)
            job = Job(lab, folder, transport, per_host, **more)
            try:
                fault(lab, job)
                return job.reports()
            finally:
                job.end()

    @staticmethod
    def ends(host):
        """The host's process 1 ends, and the kernel all others with it: no rank there lives to see another one dead, and to
        tell."""
        def fault(lab, job):
            job.victims = list(range(host * job.per_host, (host + 1) * job.per_host))
            os.kill(lab.keepers[host], signal.SIGKILL)
        return fault

    @staticmethod
    def abort(_, job):
        (job.folder / "abort").touch()

    @staticmethod
    def reset(lab, _):
        """Every packet from the other host is answered with a reset; all ranks live."""
        for host in range(2):
            words = ["iptables", "-A", "INPUT", "-p", "tcp", "-s", lab.address(1 - host), "-j", "REJECT", "--reject-with",
                     "tcp-reset"]
            subprocess.run(["ip", "netns", "exec", lab.name(host), *words], check=True, capture_output=True, timeout=60)

    def expect(self, reports, going):
        """The ranks in `going` went on together; all others ended with "peer lost", and name who may go on."""
        for rank, (survivors, code, words, _) in reports.items():
            if rank in going:
                self.assertEqual((survivors, code), (going, "ok"), (rank, reports))
            else:
                self.assertEqual((survivors, code), ([], "peer lost"), (rank, reports))
                self.assertRegex(words, "isolated|go on without", (rank, reports))

    def test_the_host_of_rank_0_ends_and_the_launchers_store_lets_the_other_one_go_on(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                reports = self.play(self.ends(0), transport, 2, store=True)
                self.expect(reports, [2, 3])
                for rank in (2, 3):  # which side goes on is not known before one has asked
                    self.assertNotIn("isolated", reports[rank][3])

    def test_the_host_of_rank_0_ends_and_without_a_store_nobody_goes_on(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                self.expect(self.play(self.ends(0), transport, 2), [])

    def test_the_other_host_ends_and_the_half_with_rank_0_goes_on(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                self.expect(self.play(self.ends(1), transport, 2), [0, 1])

    def test_of_ranks_that_reset_each_other_the_half_with_rank_0_goes_on(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                self.expect(self.play(self.reset, transport, 2), [0, 1])

    def test_of_ranks_that_reset_each_other_one_side_gets_the_token(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                reports = self.play(self.reset, transport, 2, store=True)
                self.expect(reports, [0, 1] if reports[0][1] == "ok" else [2, 3])

    def test_one_ends_while_its_side_asks_for_the_token(self):
        """Whatever its side had by then: of the others, exactly one side goes on."""
        def fault(lab, job):
            job.victims = [3]
            self.reset(lab, job)
        for transport in TRANSPORTS:
            for after in ("0", "60", "200"):
                with self.subTest(transport, after=after):
                    reports = self.play(fault, transport, 2, store=True, flags=("--dying", "3", "--after", after))
                    going = [0, 1] if reports[0][1] == "ok" else reports[2][0]
                    self.assertIn(going, ([0, 1], [2], [2, 3]), reports)  # it may have gone on and ended with rank 3 there
                    self.expect(reports, going)

    def test_one_that_lives_but_does_not_shrink_is_another_side(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                self.expect(self.play(self.abort, transport, 1, flags=("--idle", "1")), [])
                self.expect(self.play(self.abort, transport, 1, store=True, flags=("--idle", "1")), [0])
                self.expect(self.play(self.abort, transport, 2, flags=("--idle", "3")), [0, 1, 2])

    def test_one_alone_does_not_go_on_unasked(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                reports = self.play(self.ends(1), transport, 1)
                self.expect(reports, [])
                self.assertNotIn(" lost in ", reports[0][3])  # but: isolated
                reports = self.play(self.ends(1), transport, 1, lone=True)
                self.expect(reports, [0])
                self.assertNotIn("isolated", reports[0][3])
                self.expect(self.play(self.ends(0), transport, 1, store=True), [1])

    def test_two_that_reset_each_other_do_not_both_go_on(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                self.expect(self.play(self.reset, transport, 1), [])
                reports = self.play(self.reset, transport, 1, store=True)
                self.expect(reports, [0] if reports[0][1] == "ok" else [1])


if __name__ == "__main__":
    try:
        lab_network.check_machine()
        if shutil.which("iptables") is None:
            raise lab_network.LabUnavailable("no program 'iptables'")
    except lab_network.LabUnavailable as error:
        print(error)
        sys.exit(77)
    unittest.main(verbosity=2)
