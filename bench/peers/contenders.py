"""Who is measured: gradwire, Open MPI at its settings, Gloo; on one host or on the hosts of a laboratory."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

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
        self.port = 29400
        self.mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]

    def address(self, _host):
        return "127.0.0.1"

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
        hosts = ",".join(f"{lab.address(host)}:1" for host in range(lab.hosts))
        remote = str(pathlib.Path(__file__).resolve().parent.parent / "lab_rsh")
        self.mpirun = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--host", hosts, "--mca", "plm_rsh_agent", remote,
                       "--mca", "oob_tcp_if_include", "eth0", "-x", "PATH"]

    def address(self, host):
        return self.lab.address(host)

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


def messages_of(size):
    """Under way at once each way, of a send_recv."""
    return min(64, max(1, (256 << 20) // size))


def window_row(size, bytes_per_second):
    """As of an operation: so many messages of that size."""
    return {"bytes": size, "wrong": 0, "time_us_p50": messages_of(size) * size / bytes_per_second * 1e6}


def served(place, what, server, client, environment):
    """Standard output of a client on the first host whose server runs on the last one."""
    processes = [None, place.start(place.ranks - 1, server, environment)]
    time.sleep(0.5)  # until it listens
    processes[0] = place.start(0, client, environment)
    return finish(processes, what)


def ucx_perftest(place, sizes, seconds):
    """One way, tagged: the messages that a second carries at UCX's own settings."""
    nets = {"UCX_TLS": "posix,cma,self"} if place.where == "shm" else {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": place.interface}
    rows = []
    for size in sizes:
        count = int(max(4 * messages_of(size), min(4e5, 1.5e9 / size) * seconds))
        words = ["-t", "tag_bw", "-s", str(size), "-n", str(count), "-w", str(messages_of(size)), "-O", str(messages_of(size)), "-f"]
        place.port += 1
        server = ["ucx_perftest", "-p", str(place.port)]
        out = served(place, "ucx_perftest", server, [*server, place.address(place.ranks - 1), *words], nets)
        overall = out.split()[-3]  # of the last line: MB/s on the whole, before two message rates
        rows.append(window_row(size, float(overall) * (1 << 20)))
    return rows


def iperf3(place, sizes, seconds):
    """One way over TCP, in writes of that size, or of 1 MiB, its largest."""
    rows = []
    for size in sizes:
        place.port += 1
        words = ["iperf3", "-p", str(place.port)]
        client = [*words, "-c", place.address(place.ranks - 1), "-t", str(max(1, round(seconds))), "-l", str(min(size, 1 << 20)), "-J"]
        out = served(place, "iperf3", [*words, "-s", "-1"], client, {})
        rows.append(window_row(size, json.loads(out)["end"]["sum_received"]["bits_per_second"] / 8))
    return rows


def gloo(place, sizes, seconds):
    program = str(place.build / "bench/peers/gloo_all_reduce")
    with tempfile.TemporaryDirectory() as folder:
        def command_of(rank):
            return [program, str(rank), str(place.ranks), place.interface, folder, "gloo", str(seconds),
                    *[str(size) for size in sizes]]
        return rows_of(finish(place.start_ranks(command_of, {}), "gloo"))
