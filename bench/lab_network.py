"""Hosts as namespaces of this machine, joined by links of a given rate through a switch. Needs root.

Each host has its own network, process, IPC, host name and /dev/shm, so that nothing but its link leads to the others.
A command is all that runs on its host, process 1 there, unless the host is open()ed: then commands share it.
A link is shaped on both of its ends (as a switch's port and a host's network adapter are), in both directions independently.
Every namespace of a laboratory is named gwlab-PID-START-..., which is the process that owns it. When that is gone,
however it went, the next laboratory removes what it left.
"""
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

PREFIX = "gwlab"
UNITS = {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
MTU = 1500
PR_SET_PDEATHSIG = 1


class LabError(Exception):
    """What is wrong, in words for the user."""


class LabUnavailable(LabError):
    """This machine, or this user, cannot have a laboratory."""


def bits_of(rate):
    """100mbit -> 1e8; None for "none", a link that is not shaped."""
    if rate == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)", rate)
    if not match or float(match[1]) <= 0:
        raise LabError(f"rate '{rate}' (expected 100mbit, 1gbit, 10kbit, ..., or none)")
    return float(match[1]) * UNITS[match[2]]


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise LabError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def namespaces():
    return [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.startswith(PREFIX + "-")]


def remove(names):
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)


def started(pid):
    """When a process started, in ticks since boot; None when there is none. With the number it names one process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


def owner_lives(name):
    pid, start = name.split("-")[1:3]
    return started(pid) == start


def check_machine():
    if os.geteuid() != 0:
        raise LabUnavailable("a laboratory needs root (network namespaces)")
    for tool in ("ip", "tc", "unshare", "nsenter"):
        if shutil.which(tool) is None:
            raise LabUnavailable(f"no program '{tool}' (Debian: iproute2, util-linux)")
    probe = f"{PREFIX}-{os.getpid()}-{started(os.getpid())}-probe"
    try:
        run("ip", "netns", "add", probe)
        run("ip", "-n", probe, "link", "add", "name", "end0", "type", "veth", "peer", "name", "end1")
        run("ip", "-n", probe, "link", "add", "name", "switch", "type", "bridge")
        run("tc", "-n", probe, "qdisc", "add", "dev", "end0", "root", "tbf", "rate", "1mbit", "burst", "10k", "limit",
            "10k")
    except LabError as error:
        raise LabUnavailable(f"no namespaces, bridges or shaping here: {error}") from error
    finally:
        remove([probe])


def become_child():
    """A process group of its own, and the end of its parent is its own. No session of its own: Linux may give each session
    an equal share of the processors, in which case yielding to the ranks of others would do nothing."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Lab:
    """with Lab(4, "1gbit") as lab: lab.start(0, ["program"], {"NAME": "value"})"""

    def __init__(self, hosts, rate):
        if not 1 <= hosts <= 250:
            raise LabError(f"got {hosts} hosts, expected 1 to 250")
        self.hosts = hosts
        self.rate = rate
        self.bits = bits_of(rate)
        self.base = f"{PREFIX}-{os.getpid()}-{started(os.getpid())}"
        self.switch = f"{self.base}-switch"
        self.keepers = {}  # host -> the process that keeps it open

    def name(self, host):
        return f"{self.base}-{host}"

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def __enter__(self):
        check_machine()
        remove([name for name in namespaces() if not owner_lives(name)])
        try:
            self.build()
        except BaseException:
            self.tear_down()
            raise
        return self

    def __exit__(self, *_):
        self.tear_down()

    def build(self):
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "add", "name", "switch", "type", "bridge")
        run("ip", "-n", self.switch, "link", "set", "switch", "up")
        for host in range(self.hosts):
            name = self.name(host)
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "add", "name", "eth0", "mtu", str(MTU), "type", "veth",
                "peer", "name", f"port{host}", "netns", self.switch)
            run("ip", "-n", self.switch, "link", "set", f"port{host}", "mtu", str(MTU), "master", "switch", "up")
            run("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            if self.bits:
                self.shape(host, self.bits)

    def ends(self, host):
        return ((self.name(host), "eth0"), (self.switch, f"port{host}"))

    def shape(self, host, bits):
        """Sets the rate of a host's link, both directions. A queue drains in 1/20 s at least."""
        # A burst must exceed the largest packet that segmentation offload makes, or tbf splits these and throughput
        # falls; it should also be short, since an idle link lets a burst through at once: 1/8 ms of the link's time.
        segments = int(min(max(bits / 8 * 125e-6, 3 * MTU), 65536))
        burst = segments + 2 * MTU
        limit = int(max(bits / 8 * 0.05, 4 * burst, 256 * 1024))
        for namespace, device in self.ends(host):
            run("ip", "-n", namespace, "link", "set", device, "gso_max_size", str(segments))
            run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "handle", "1:", "tbf",
                "rate", f"{int(bits)}bit", "burst", str(burst), "limit", str(limit))

    def set_link(self, host, up):
        """Pulls a host's cable, or puts it in."""
        run("ip", "-n", self.switch, "link", "set", f"port{host}", "up" if up else "down")

    def open(self, host):
        """From now on commands on a host are processes of one host, until the laboratory ends."""
        keeper = self.start(host, ["sleep", "infinity"], {}, stdin=subprocess.DEVNULL)
        children = pathlib.Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")
        for _ in range(1000):
            inner = children.read_text().split()
            # The shell has mounted and named everything when it has become the sleep.
            if inner and pathlib.Path(f"/proc/{inner[0]}/comm").read_text().strip() == "sleep":
                self.keepers[host] = int(inner[0])
                return
            time.sleep(0.01)
        raise LabError(f"host {host} did not open in 10 s")

    def inside(self, host, command):
        """The words that run `command` on a host."""
        if host in self.keepers:
            return ["nsenter", "--target", str(self.keepers[host]), "--uts", "--ipc", "--pid", "--mount", "--net",
                    f"--wd={os.getcwd()}", "--", *command]
        script = f'hostname {PREFIX}{host}; mount -t tmpfs tmpfs /dev/shm; exec "$@"'
        return ["ip", "netns", "exec", self.name(host), "unshare", "--uts", "--ipc", "--pid", "--mount", "--mount-proc",
                "--fork", "--kill-child=KILL", "sh", "-c", script, "sh", *command]

    def start(self, host, command, environment, **more):
        """A Popen of `command` on a host, in a process group of its own; it ends when this process does."""
        return subprocess.Popen(self.inside(host, command), env={**os.environ, **environment},
                                preexec_fn=become_child, **more)

    def rank_environment(self, rank, port, secret, per_host=1):
        """What `gradwire run` tells its ranks, and what torch and Gloo programs read. Ranks fill one host after another."""
        size, local = str(self.hosts * per_host), str(rank % per_host)
        return {"GRADWIRE_RANK": str(rank), "GRADWIRE_LOCAL_RANK": local, "GRADWIRE_WORLD_SIZE": size,
                "GRADWIRE_RENDEZVOUS": f"{self.address(0)}:{port}", "GRADWIRE_JOB": self.base, "GRADWIRE_SECRET": secret,
                "GRADWIRE_IFNAME": "eth0", "RANK": str(rank), "WORLD_SIZE": size, "LOCAL_RANK": local,
                "MASTER_ADDR": self.address(0), "MASTER_PORT": str(port + 1)}

    def tear_down(self):
        for name in namespaces():
            if not name.startswith(self.base + "-"):
                continue
            for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            remove([name])
