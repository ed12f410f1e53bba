#!/usr/bin/env python3
"""Real launchers start a job of four ranks: each rank finds out by itself who it is and where the others are.

usage: launchers_test.py GRADWIRE [--whole] [LAUNCHER...]

One job per launcher (of those named, else of all, and "environments", which are played without one); --whole adds two jobs of each launcher at once, and what gradwire doctor says under
it. A launcher that is not installed counts as skipped, with what is missing; exit status 77 where that is so for all of them. torchrun
is GRADWIRE_TORCHRUN, else .cache/torch/bin/torchrun of this project, else that of PATH.
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import slurm_cluster

LIMIT = 120
RANKS = 4
PROJECT = pathlib.Path(__file__).resolve().parents[2]
# What decides about launchers, from whatever started this test.
LAUNCHERS = ("GRADWIRE_", "OMPI_", "PMI", "PALS_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "HYDRA_")
FOLDER = tempfile.TemporaryDirectory()


def torchrun():
    for path in (os.environ.get("GRADWIRE_TORCHRUN"), str(PROJECT / ".cache/torch/bin/torchrun"), shutil.which("torchrun")):
        if path and os.access(path, os.X_OK):
            return path
    return ""


def clean_environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return dict(kept, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1", XDG_CACHE_HOME=FOLDER.name,
                GRADWIRE_LINKS="default")


def finish(process):
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.terminate()  # launchers end their ranks
        out, err = process.communicate(timeout=30)
        raise AssertionError(f"{' '.join(process.args)} did not end:\n{out}\n{err}")
    return process.returncode, out, err


class Launcher:
    """How a command becomes a job of four ranks, what gradwire takes the launcher for, and what is missing for that."""

    def __init__(self, source, needs, words, in_slurm=False):
        self.source, self.needs, self.words, self.in_slurm = source, needs, words, in_slurm

    def command(self, *program):
        return [*self.words(), *program]

    def missing(self):
        if self.in_slurm and slurm_cluster.missing():
            return slurm_cluster.missing()
        for name, package in self.needs.items():
            if not (torchrun() if name == "torchrun" else shutil.which(name)):
                return f"{name} is not installed ({package})"
        return ""


def torchrun_words():
    return [torchrun(), "--standalone", "--nproc-per-node", str(RANKS), "--no-python", "--"]


OPEN_MPI = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", str(RANKS)]
HYDRA = ["mpirun.mpich", "-n", str(RANKS)]
SRUN = ["srun", "--overcommit", "-n", str(RANKS)]
SALLOC = ["salloc", "--quiet", "--overcommit", "-n", "1"]
TORCH_NEEDS = {"torchrun": "Python: torch==2.13.0"}
OPEN_MPI_NEEDS = {"mpirun.openmpi": "Debian: openmpi-bin"}
HYDRA_NEEDS = {"mpirun.mpich": "Debian: mpich"}
ALL = {
    "torchrun": Launcher("torchrun", TORCH_NEEDS, torchrun_words),
    "open_mpi": Launcher("Open MPI", OPEN_MPI_NEEDS, lambda: OPEN_MPI),
    "mpich": Launcher("PMI", HYDRA_NEEDS, lambda: HYDRA),
    "srun": Launcher("Slurm", {}, lambda: [*SRUN], True),
    "srun_pmi2": Launcher("PMI", {}, lambda: [*SRUN, "--mpi=pmi2"], True),
    "srun_pmix": Launcher("Slurm", {}, lambda: [*SRUN, "--mpi=pmix"], True),
    "torchrun_in_srun": Launcher("torchrun", TORCH_NEEDS, lambda: ["srun", "-n", "1", *torchrun_words()], True),
    "open_mpi_in_salloc": Launcher("Open MPI", OPEN_MPI_NEEDS, lambda: [*SALLOC, *OPEN_MPI], True),
    "mpich_in_salloc": Launcher("PMI", HYDRA_NEEDS, lambda: [*SALLOC, *HYDRA], True),
}


class Jobs(unittest.TestCase):
    """One test per launcher, made below."""
    slurm, names = None, ()

    @classmethod
    def setUpClass(cls):
        cls.environment = clean_environment()
        if any(ALL[name].in_slurm and not ALL[name].missing() for name in cls.names):
            folder = cls.enterClassContext(tempfile.TemporaryDirectory())
            cls.slurm = cls.enterClassContext(slurm_cluster.Slurm(folder))

    def start(self, launcher, *program):
        environment = dict(self.environment)
        if launcher.in_slurm:
            environment["SLURM_CONF"] = self.slurm.environment["SLURM_CONF"]
        return subprocess.Popen(launcher.command(*program), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=FOLDER.name)

    def start_bench(self, launcher, rows, *more):
        return self.start(launcher, GRADWIRE, "bench", "all_reduce", "--max", "4K", "--seconds", "0.01", "--json", str(rows), *more)

    def assert_right(self, launcher, process, rows):
        code, out, err = finish(process)
        self.assertEqual(code, 0, out + err)
        self.assertIn(f", launched by {launcher.source}\n", out)
        seen = [json.loads(line) for line in rows.read_text().splitlines()]
        self.assertGreater(len(seen), 2)
        self.assertEqual({(row["ranks"], row["wrong"]) for row in seen}, {(RANKS, 0)})

    def rows(self, name):
        return pathlib.Path(FOLDER.name) / f"{self.id()}.{name}.jsonl"

    def check(self, name):
        launcher = ALL[name]
        if launcher.missing():
            self.skipTest(launcher.missing())
        rows = self.rows("one")
        self.assert_right(launcher, self.start_bench(launcher, rows), rows)
        if WHOLE:
            self.check_two(launcher)
            self.check_doctor(launcher)

    def check_two(self, launcher):
        jobs = [(self.start_bench(launcher, self.rows(str(number)), "--transport", transport), self.rows(str(number)))
                for number, transport in enumerate(("auto", "tcp"))]
        for process, rows in jobs:
            self.assert_right(launcher, process, rows)
        transports = [{json.loads(line)["transport"] for line in rows.read_text().splitlines()} for _, rows in jobs]
        self.assertEqual(transports[1], {"tcp"})
        self.assertNotIn("tcp", transports[0])

    def check_doctor(self, launcher):
        code, out, err = finish(self.start(launcher, GRADWIRE, "doctor", "--json"))
        self.assertEqual(code, 0, out + err)
        said = json.loads(out)["launcher"]
        self.assertEqual((said["source"], said["rank"], said["ranks"]), (launcher.source, 0, RANKS))
        self.assertIn("=", said["reason"])
        self.assertRegex(said["root"], r"^127\.0\.0\.1:\d+$")


def make_tests(names):
    Jobs.names = names
    for name in names:
        setattr(Jobs, f"test_{name}", lambda self, name=name: self.check(name))


class HalfSet(unittest.TestCase):
    """Environments that say less or something else than they should: the message names the variable, the value seen and the one wanted."""

    def refused(self, message, **variables):
        done = subprocess.run([GRADWIRE, "bench", "all_reduce", "--max", "64"], env=clean_environment() | variables, capture_output=True, text=True,
                              timeout=LIMIT)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stderr, message)

    def test_the_variable_is_named(self):
        self.refused(r"OMPI_COMM_WORLD_SIZE\b.*\bOMPI_COMM_WORLD_RANK\b", OMPI_COMM_WORLD_RANK="0")
        self.refused(r"PMI_SIZE\b.*'many'.*\b65536\b", PMI_RANK="0", PMI_SIZE="many")
        self.refused(r"SLURM_PROCID\b.*\bSLURM_NTASKS\b", SLURM_STEP_ID="0", SLURM_NTASKS="4")
        self.refused(r"\bRANK\b.*\bLOCAL_RANK\b", LOCAL_RANK="1")
        self.refused(r"PMI_FD\b.*'1023'", PMI_RANK="0", PMI_SIZE="4", PMI_FD="1023")
        self.refused(r"PALS\b.*\b4 ranks\b.*\bGRADWIRE_RENDEZVOUS\b", PALS_RANKID="0", PALS_SIZE="4")
        self.refused(r"SLURM_STEP_NODELIST\b.*'n\[1-'", SLURM_STEP_ID="0", SLURM_NTASKS="4", SLURM_PROCID="0",
                     SLURM_STEP_NODELIST="n[1-")


class Kubernetes(unittest.TestCase):
    """The manifests' commands in the environment that Kubeflow's operators give their pods, with this host in the place of all pods."""

    def command(self, manifest):
        text = (PROJECT / "examples/kubernetes" / manifest).read_text()
        words = re.search(r"command: \[(.*)\]", text)[1].replace('"', "").split(", ")
        return [{"gradwire": GRADWIRE, "64M": "4K"}.get(word, word) for word in words]

    def test_pytorchjob(self):
        # Bound, so that nobody is given this port, and not listening, so that rank 0 may.
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 0))
            pods = [subprocess.Popen(self.command("pytorchjob.yaml"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     env=dict(clean_environment(), PYTHONUNBUFFERED="1", MASTER_PORT=str(held.getsockname()[1]), MASTER_ADDR="localhost",
                                              WORLD_SIZE=str(RANKS), RANK=str(rank), GRADWIRE_SECRET="of the cluster's own",
                                              KUBERNETES_SERVICE_HOST="10.96.0.1"))
                    for rank in range(RANKS)]
            said = [finish(pod) for pod in pods]
        self.assertEqual([code for code, _, _ in said], [0] * RANKS, said)
        self.assertIn("rank 0 of 4;", said[0][1])
        self.assertIn(", launched by RANK/WORLD_SIZE\n", said[0][1])

    def test_mpijob(self):
        if shutil.which("mpirun.openmpi") is None:
            self.skipTest("mpirun.openmpi is not installed (Debian: openmpi-bin)")
        hosts = pathlib.Path(FOLDER.name) / "hostfile"
        hosts.write_text("localhost slots=4\n")
        command = self.command("mpijob.yaml")
        command[0] = "mpirun.openmpi"
        environment = dict(clean_environment(), K_MPI_JOB_ROLE="launcher", OMPI_MCA_orte_default_hostfile=str(hosts),
                           OMPI_MCA_orte_keep_fqdn_hostnames="true", OMPI_MCA_plm_rsh_args="-o ConnectionAttempts=10")
        code, out, err = finish(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        self.assertEqual(code, 0, out + err)
        self.assertIn(", launched by Open MPI\n", out)


if __name__ == "__main__":
    GRADWIRE, WHOLE = os.path.abspath(sys.argv[1]), "--whole" in sys.argv
    wanted = [word for word in sys.argv[2:] if word != "--whole"] or ["environments", *ALL]
    launchers = [word for word in wanted if word != "environments"]
    if launchers == wanted:
        del HalfSet, Kubernetes
        if all(ALL[name].missing() for name in launchers):
            print("\n".join(f"{name}: {ALL[name].missing()}" for name in launchers))
            sys.exit(77)
    make_tests(launchers)
    unittest.main(argv=sys.argv[:1], verbosity=2)
