#!/usr/bin/env python3
"""gradwire mpi and gradwire record under mpirun: they take the library of the MPI that the program links, and refuse another's launcher.

usage: mpi_commands_test.py GRADWIRE NAME=PATH/TO/mpi_program_NAME...
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

LIMIT = 120
RANKS = 2
MPIRUN = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"], "mpich": ["mpirun.mpich"]}
TITLES = {"openmpi": "Open MPI", "mpich": "MPICH"}
FORTRAN = {"openmpi": "mpif90.openmpi", "mpich": "mpif90.mpich"}
HERE = pathlib.Path(__file__).resolve().parent
LAUNCHERS = ("GRADWIRE_", "OMPI_", "PMI", "PALS_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "HYDRA_")
FOLDER = tempfile.TemporaryDirectory()


def run(*words):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", XDG_CACHE_HOME=FOLDER.name)
    process = subprocess.Popen([str(word) for word in words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        out, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        raise AssertionError(f"{words} did not end:\n{out}")
    return process.returncode, out


def under(launcher, *words):
    return run(*MPIRUN[launcher], "-n", RANKS, *words)


class EachMpi(unittest.TestCase):
    def each(self):
        return [(name, program) for name, program in PROGRAMS.items() if shutil.which(MPIRUN[name][0])]

    def test_the_right_library_is_taken(self):
        for name, program in self.each():
            code, text = under(name, GRADWIRE, "mpi", "--verbose", "--", program, "pending")
            self.assertEqual(code, 0, text)
            self.assertIn("gradwire mpi: MPI_Barrier: carried 2 calls", text)
            self.assertIn("communicators carried: 1", text)

    def test_a_script_goes_by_its_launcher(self):
        for name, program in self.each():
            script = pathlib.Path(FOLDER.name) / f"{name}.sh"
            script.write_text(f"#!/bin/sh\nexec '{program}' pending\n")
            script.chmod(0o755)
            code, text = under(name, GRADWIRE, "mpi", "--verbose", "--", script)
            self.assertEqual(code, 0, text)
            self.assertIn("gradwire mpi: MPI_Barrier: carried 2 calls", text)

    def test_a_recording_leaves_the_work_to_mpi(self):
        for name, program in self.each():
            folder = pathlib.Path(FOLDER.name) / f"record-{name}"
            code, text = under(name, GRADWIRE, "record", "--out", folder, "--", program, "pending")
            self.assertEqual(code, 0, text)
            self.assertEqual(sorted(path.name for path in folder.iterdir()), ["rank-0.jsonl", "rank-1.jsonl"])
            for path in folder.iterdir():
                rows = [json.loads(line) for line in path.read_text().splitlines()]
                self.assertEqual(list(rows[0]), ["operation", "bytes", "ranks", "carried", "count", "seconds", "least_us", "most_us"])
                barriers = [row for row in rows if row["operation"] == "MPI_Barrier"]
                self.assertEqual([(row["bytes"], row["ranks"], row["carried"], row["count"]) for row in barriers], [(0, RANKS, False, 2)])
                self.assertGreaterEqual(barriers[0]["seconds"] * 1e6 + 1, barriers[0]["least_us"] + barriers[0]["most_us"])

    def test_a_recording_of_what_is_carried(self):
        for name, program in self.each():
            folder = pathlib.Path(FOLDER.name) / f"carried-{name}"
            code, text = under(name, GRADWIRE, "record", "--carry", "--out", folder, "--", program, "check")
            self.assertEqual(code, 0, text)
            rows = [json.loads(line) for line in (folder / "rank-1.jsonl").read_text().splitlines()]
            for operation, carried in (("MPI_Allreduce", {True, False}), ("MPI_Gatherv", {True}), ("MPI_Iallreduce", {True, False})):
                self.assertEqual({row["carried"] for row in rows if row["operation"] == operation}, carried, operation)
            keys = [(row["operation"], row["bytes"], row["ranks"], row["carried"]) for row in rows]
            self.assertEqual(len(keys), len(set(keys)))

    def test_fortran(self):
        for name, _ in self.each():
            if shutil.which(FORTRAN[name]) is None or shutil.which("gfortran") is None:
                self.skipTest(f"{FORTRAN[name]} is not installed (Debian: gfortran)")
            for source in ("fortran_old.f90", "fortran_new.f90"):
                program = pathlib.Path(FOLDER.name) / f"{source}.{name}"
                made = subprocess.run([FORTRAN[name], str(HERE / source), "-o", str(program)], capture_output=True, text=True, timeout=LIMIT, cwd=FOLDER.name)
                self.assertEqual(made.returncode, 0, made.stderr)
                code, text = under(name, GRADWIRE, "mpi", "--verbose", "--", program)
                self.assertEqual(code, 0, text)
                self.assertIn(f"sum {1000 * RANKS * (RANKS + 1) // 2} of {RANKS}\n", text)
                self.assertNotIn("is wrong", text)
                for calls in ("MPI_Allreduce: carried 1 calls, 8000 bytes", "MPI_Bcast: carried 1 calls, 16 bytes", "MPI_Barrier: carried 3 calls"):
                    self.assertIn(calls, text)


class Refusals(unittest.TestCase):
    def test_the_launcher_of_another_mpi(self):
        if not {"openmpi", "mpich"} <= PROGRAMS.keys() or not all(shutil.which(MPIRUN[name][0]) for name in PROGRAMS):
            self.skipTest("one MPI alone is installed (Debian: openmpi-bin, mpich)")
        for launcher, other in (("openmpi", "mpich"), ("mpich", "openmpi")):
            with self.subTest(launcher=launcher):
                code, text = under(launcher, GRADWIRE, "mpi", "--", PROGRAMS[other], "pending")
                self.assertNotEqual(code, 0)
                self.assertRegex(text, rf"{re.escape(PROGRAMS[other])}: .*{TITLES[other]} \(libmpi\S+\).*{TITLES[launcher]}.*"
                                       rf"mpirun\.{other}")

    def test_an_mpi_that_sees_fewer_ranks_than_were_launched(self):
        name = next(iter(PROGRAMS))
        program = PROGRAMS[name]
        shim = next((pathlib.Path(GRADWIRE).parent.parent / "adapters/mpi").glob(f"libgradwire_mpi_{name}.so"))
        code, text = run("env", f"LD_PRELOAD={shim}", "GRADWIRE_MPI_RANKS=3", program, "pending")
        self.assertNotEqual(code, 0)
        self.assertRegex(text, r"\b1 of\b.*\b3 processes\b.*MPI_COMM_WORLD")

    def test_what_is_missing(self):
        for words, named in ((["mpi"], "mpi: .*-- PROGRAM"), (["record", "--", "true"], r"record: .*--out\b"),
                             (["mpi", "--", "true"], "--mpi openmpi .*--mpi mpich"),
                             (["mpi", "--mpi", "openmpi", "--", "/no/such/program"], "'/no/such/program'")):
            code, text = run(GRADWIRE, *words)
            self.assertEqual(code, 1, text)
            self.assertRegex(text, named)


if __name__ == "__main__":
    GRADWIRE = os.path.abspath(sys.argv.pop(1))
    PROGRAMS = {}
    for pair in sys.argv[1:]:
        key, path = pair.split("=", 1)
        PROGRAMS[key] = os.path.abspath(path)
    if not any(shutil.which(MPIRUN[key][0]) for key in PROGRAMS):
        print("no mpirun is installed (Debian: openmpi-bin, mpich)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
