"""Who is measured: gradwire, Open MPI at its settings, Gloo; on one host or on the hosts of a laboratory."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile

# Without these two, pml/ucx refuses machines that have no Mellanox card.
ANY_UCX = ["--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]
LIMIT = 600  # seconds for one run of one contender


class Failed(Exception):
    """A contender that did not end well, with what it said."""


def mpi_settings(where, interface):
    """name -> (mpirun arguments, environment). The best known to us for each way, and on links what people get who set
    nothing (btl, ucx) and who leave out the yield (btl-spin)."""
    idle = [["--mca", "mpi_yield_when_idle", str(yields)] for yields in (0, 1)]
    if where == "shm":
        settings = {}
        for words, name in zip(idle, ("spin", "yield")):
            settings[f"ob1-vader-{name}"] = (["--mca", "pml", "ob1", "--mca", "btl", "vader,self"] + words, {})
            ucx = ["--mca", "pml", "ucx"] + ANY_UCX + words
            settings[f"ucx-posix-{name}"] = (ucx, {"UCX_TLS": "posix,self"})
            settings[f"ucx-posix-cma-{name}"] = (ucx, {"UCX_TLS": "posix,cma,self"})
        return settings
    btl = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", interface]
    ucx = ["--mca", "pml", "ucx"] + ANY_UCX
    net = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": interface}
    return {
        "btl-links2": (btl + ["--mca", "btl_tcp_links", "2"] + idle[1], {}),
        "ucx-eager": (ucx + idle[1], {**net, "UCX_RNDV_THRESH": "inf"}),
        "btl": (btl + idle[1], {}),
        "ucx": (ucx + idle[1], net),
        "btl-spin": (btl + idle[0], {}),
    }


def rows_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def finish(processes, what):
    """Standard output of the first, when all have ended well."""
    try:
        out, err = processes[0].communicate(timeout=LIMIT)
        for process in processes[1:]:
            process.wait(timeout=30)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{what} did not end") from error
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if any(process.returncode for process in processes):
        raise Failed(f"{what} exited {[process.returncode for process in processes]}:\n{out}{err}")
    return out


class Place:
    """One host: shared memory or loopback."""

    def __init__(self, where, ranks, build):
        self.where, self.ranks, self.build = where, ranks, build
        self.interface = "lo"
        self.mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]

    def start_ranks(self, command_of, environment):
        return [self.start(0, command_of(rank), {**environment, "RANK": str(rank)}) for rank in range(self.ranks)]

    def start(self, host, command, environment):
        return subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, preexec_fn=os.setpgrp)

    def start_gradwire(self, words):
        return [self.start(0, [*words, "--ranks", str(self.ranks)], {})]


class LabPlace(Place):
    """One rank on each host of a laboratory."""

    def __init__(self, lab, build):
        super().__init__("lab", lab.hosts, build)
        self.lab = lab
        self.interface = "eth0"
        self.port = 29400
        hosts = ",".join(f"{lab.address(host)}:1" for host in range(lab.hosts))
        remote = str(pathlib.Path(__file__).resolve().parent.parent / "lab_rsh")
        self.mpirun = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--host", hosts, "--mca", "plm_rsh_agent", remote,
                       "--mca", "oob_tcp_if_include", "eth0", "-x", "PATH"]

    def start(self, host, command, environment):
        return self.lab.start(host, command, {"LAB_BASE": self.lab.base, **environment}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def start_ranks(self, command_of, environment):
        return [self.start(rank, command_of(rank), environment) for rank in range(self.ranks)]

    def start_gradwire(self, words):
        self.port += 2
        secret = os.urandom(16).hex()
        return [self.start(rank, words, self.lab.rank_environment(rank, self.port, secret)) for rank in range(self.ranks)]


def gradwire_range(place, operation, first, last, seconds, words):
    """One program takes all sizes from the first to the last."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "rows.jsonl"
        command = [str(place.build / "apps/gradwire"), "bench", operation, "--min", str(first), "--max", str(last),
                   "--seconds", str(seconds), "--json", str(out), *words]
        finish(place.start_gradwire(command), "gradwire")
        return rows_of(out.read_text())


def gradwire(place, operation, sizes, seconds, words):
    rows = []
    for size in sizes:
        rows += gradwire_range(place, operation, size, size, seconds, words)
    return rows


def open_mpi(place, operation, sizes, seconds, arguments, environment):
    passed = [word for name in environment for word in ("-x", name)]
    # A folder of its own for each run: it is named after process numbers, which repeat in a laboratory.
    with tempfile.TemporaryDirectory() as folder:
        command = [*place.mpirun, "--mca", "orte_tmpdir_base", folder, *arguments, *passed,
                   str(place.build / "bench/peers/mpi_collective"), "mpi", operation, str(seconds),
                   *[str(size) for size in sizes]]
        return rows_of(finish([place.start(0, command, environment)], " ".join(command)))


def gloo(place, sizes, seconds):
    program = str(place.build / "bench/peers/gloo_all_reduce")
    with tempfile.TemporaryDirectory() as folder:
        def command_of(rank):
            return [program, str(rank), str(place.ranks), place.interface, folder, "gloo", str(seconds),
                    *[str(size) for size in sizes]]
        return rows_of(finish(place.start_ranks(command_of, {}), "gloo"))
