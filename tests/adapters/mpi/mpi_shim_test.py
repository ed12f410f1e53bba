#!/usr/bin/env python3
"""An unmodified MPI program under libgradwire_mpi_NAME.so: its answers, what was carried, what fell through, how it ends.

usage: mpi_shim_test.py PATH/TO/mpi_program PATH/TO/libgradwire_mpi_NAME.so TRANSPORT,TRANSPORT,... openmpi|mpich [Answers|Ways]
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

MPI = sys.argv.pop(4)
TRANSPORTS = sys.argv.pop(3).split(",")
SHIM = os.path.abspath(sys.argv.pop(2))
PROGRAM = os.path.abspath(sys.argv.pop(1))
CACHE = tempfile.TemporaryDirectory()  # of the links that the shim measures
LIMIT = 240  # seconds; a run takes some five
if MPI == "openmpi":
    # One host, and messages that need both ends: MPI may not copy from process to process.
    MPIRUN = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "vader,self",
              "--mca", "btl_vader_single_copy_mechanism", "none"]
else:
    MPIRUN = ["mpirun.mpich"]
# Calls of which the program makes some on a communicator of which nothing blocking was asked before.
NONBLOCKING = ("Iallreduce", "Ireduce", "Ibcast", "Iallgather", "Ibarrier")
BLOCKING = ("Bcast", "Reduce", "Allgather", "Allgatherv", "Reduce_scatter", "Reduce_scatter_block", "Alltoall", "Alltoallv", "Gather",
            "Gatherv", "Scatter", "Scatterv", "Scan", "Exscan", "Barrier")
# Of the 20 communicators that the program makes besides MPI_COMM_WORLD, which is carried, 15 find room.
OF_MANY = 15


def run(ranks, *words, shim=True, program=PROGRAM, **settings):
    """The program's exit status and output; settings: environment variables."""
    command = [*MPIRUN, "-n", str(ranks)]
    if shim:
        settings = {"LD_PRELOAD": SHIM, "GRADWIRE_MPI_VERBOSE": "1", **settings}
    for name, value in settings.items():
        command += ["-x", f"{name}={value}"] if MPI == "openmpi" else ["-genv", name, value]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
    environment.update(XDG_CACHE_HOME=CACHE.name, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    process = subprocess.Popen([*command, program, *words], env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        out, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # mpirun ends its ranks
        out, _ = process.communicate(timeout=30)
        raise AssertionError(f"{' '.join(words)} on {ranks} ranks did not end:\n{out}")
    return process.returncode, out


class Outcome:
    """What the ranks and the shim have said."""

    def __init__(self, ranks, *words, **settings):
        self.code, self.text = run(ranks, *words, **settings)
        self.checks = {int(rank): (int(made), int(failed), int(plain)) for rank, made, failed, plain in
                       re.findall(r"rank (\d+): (\d+) checks, (\d+) failed; (\d+) plain all-reduces", self.text)}
        self.carried, self.left = {}, {}
        for name, *numbers in re.findall(
                r"gradwire mpi: MPI_(\w+): carried (\d+) calls, (\d+) bytes; fell through (\d+) calls, (\d+) bytes",
                self.text):
            numbers = [int(number) for number in numbers]
            self.carried[name], self.left[name] = tuple(numbers[:2]), tuple(numbers[2:])


class Case(unittest.TestCase):
    def assert_right(self, outcome, ranks):
        self.assertEqual(outcome.code, 0, outcome.text)
        self.assertEqual(sorted(outcome.checks), list(range(ranks)), outcome.text)
        for _, failed, _ in outcome.checks.values():
            self.assertEqual(failed, 0, outcome.text)

    def assert_carried(self, outcome, ranks):
        """The program's own count of its all-reduces, of all kinds that gradwire has, is the shim's."""
        self.assert_right(outcome, ranks)
        plain = outcome.checks[0][2]
        self.assertGreater(plain, 200)
        self.assertEqual(outcome.carried["Allreduce"][0], plain + OF_MANY, outcome.text)
        # What is left to MPI: five communicators of many, types and operations that gradwire lacks.
        self.assertGreater(outcome.left["Allreduce"][0], 5)
        for name in (*BLOCKING, *NONBLOCKING):
            self.assertGreater(outcome.carried[name][0], 0, outcome.text)
        for name in NONBLOCKING:
            self.assertGreater(outcome.left[name][0], 0)
        self.assertNotIn("gradwire mpi: warning", outcome.text)


class Answers(Case):
    def test_without_the_shim_the_program_passes_and_hears_nothing_of_gradwire(self):
        outcome = Outcome(3, "check", shim=False)
        self.assert_right(outcome, 3)
        self.assertNotIn("gradwire", outcome.text)

    def test_two_ranks(self):
        self.assert_carried(Outcome(2, "check", "single"), 2)

    def test_three_ranks_and_two_threads_each(self):
        self.assert_carried(Outcome(3, "check", "multiple"), 3)

    def test_four_ranks(self):
        self.assert_carried(Outcome(4, "check"), 4)

    def test_messages_alone(self):
        for transport, level in zip(TRANSPORTS, ("", "funneled", "serialized")):
            if transport == "auto":
                continue
            with self.subTest(transport=transport):
                outcome = Outcome(3, "check", level, GRADWIRE_MPI_TRANSPORT=transport)
                self.assert_carried(outcome, 3)
                self.assertRegex(outcome.text, rf"communicators carried: \d+, the first over {transport}")
                self.assertNotIn("collectives in shared memory", outcome.text)
                links = os.path.join(CACHE.name, "gradwire", "links")
                self.assertTrue(os.path.isfile(links))
                os.remove(links)
                given = {"GRADWIRE_MPI_TRANSPORT": transport, "GRADWIRE_LINKS": "default"}
                self.assert_carried(Outcome(3, "check", level, **given), 3)
                self.assertFalse(os.path.isfile(links))


class Ways(Case):
    def test_types_and_operations_that_gradwire_lacks_fall_through(self):
        outcome = Outcome(3, "foreign")
        self.assert_right(outcome, 3)
        self.assertEqual(outcome.carried["Allreduce"], (0, 0))
        self.assertEqual(outcome.left["Allreduce"][0], 3 * 4 * 2 + 3)

    def test_one_rank_is_left_to_mpi(self):
        outcome = Outcome(1, "check")
        self.assert_right(outcome, 1)
        self.assertIn("communicators carried: 0", outcome.text)

    def test_the_environment_says_which_calls(self):
        for calls, carried, communicators in (("bcast,barrier", 2, 1), ("bcast,allreduce", 0, 1), ("none", 0, 0)):
            with self.subTest(calls=calls):
                outcome = Outcome(2, "pending", GRADWIRE_MPI_OPS=calls)
                self.assert_right(outcome, 2)
                self.assertEqual((outcome.carried["Barrier"][0], outcome.left["Barrier"][0]), (carried, 2 - carried))
                self.assertIn(f"communicators carried: {communicators}", outcome.text)

    def test_nonsense_in_the_environment_ends_the_job_with_a_message(self):
        for name, value in (("GRADWIRE_MPI_OPS", "bcast,gossip"), ("GRADWIRE_MPI_TRANSPORT", "pigeon"),
                            ("GRADWIRE_MPI_VERBOSE", "yes"), ("GRADWIRE_LINKS", "guessed"), ("GRADWIRE_DEADLINE", "soon")):
            with self.subTest(name=name):
                code, text = run(2, "foreign", **{name: value})
                self.assertNotEqual(code, 0)
                self.assertRegex(text, rf"gradwire mpi: error: .*{name}\b.*'{value}'")

    def test_it_is_silent_unless_asked(self):
        outcome = Outcome(2, "foreign", GRADWIRE_MPI_VERBOSE="0")
        self.assert_right(outcome, 2)
        self.assertNotIn("gradwire", outcome.text)

    def test_mpi_goes_on_while_a_rank_waits(self):
        outcome = Outcome(2, "pending")
        self.assert_right(outcome, 2)
        self.assertEqual(outcome.carried["Barrier"][0], 2)

    def test_a_failure_goes_to_the_error_handler_and_names_the_call(self):
        code, text = run(2, "late", GRADWIRE_DEADLINE="8")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^in time: gradwire: MPI_Allreduce: .*rank")
        self.assertRegex(text, r"(?m)^late: gradwire: MPI_Allreduce: .*rank")

    def test_nothing_but_mpi_functions_is_exported(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", SHIM], capture_output=True, text=True, check=True).stdout
        # A linker may keep local symbols in the table (a type in lower case): no other object can bind to them.
        names = [line.split()[-1] for line in symbols.splitlines() if line.split()[-2].isupper()]
        self.assertIn("MPI_Allreduce", names)
        # Fortran's names among them, of functions that do not come to the C ones.
        self.assertIn("mpi_init_" if MPI == "openmpi" else "mpi_init_f08_", names)
        self.assertEqual("mpi_allreduce_" in names, MPI == "openmpi")
        self.assertEqual([name for name in names if not re.fullmatch("MPI_.*|mpi_.*_|ompi_.*_f", name)], [])


if __name__ == "__main__":
    if shutil.which(MPIRUN[0]) is None:
        print(f"{MPIRUN[0]} is not installed (Debian: {'openmpi-bin' if MPI == 'openmpi' else 'mpich'})")
        sys.exit(77)
    works, said = run(2, shim=False, program="true")
    if works != 0:
        print(f"{MPIRUN[0]} cannot start two processes here:\n{said}")
        sys.exit(77)
    unittest.main(verbosity=2)
