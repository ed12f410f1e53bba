"""A Slurm of one node for tests: one controller, one node, one MUNGE, by hand in a folder of the caller's, gone when the `with` ends."""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

LIMIT = 120  # seconds, for whatever is waited for
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo")


def missing():
    """Why there can be no Slurm here; empty when there can."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"{', '.join(lacking)} not installed (Debian: slurm-wlm, munge)" if lacking else ""


def free_ports(count):
    holders = [socket.socket() for _ in range(count)]
    for holder in holders:
        holder.bind(("127.0.0.1", 0))
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


def wait_until(condition, what):
    until = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited {LIMIT} s for {what}")
        time.sleep(0.1)


class Slurm:
    def __init__(self, folder):
        self.folder, self.daemons = pathlib.Path(folder), []
        self.folder.chmod(0o755)
        for name in ("state", "spool", "munge"):
            (self.folder / name).mkdir(mode=0o755)
        self.environment = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"))
        host = socket.gethostname().split(".")[0]
        node = re.search(r"CPUs=\S+.*RealMemory=\d+", subprocess.run(["slurmd", "-C"], capture_output=True, text=True, timeout=LIMIT).stdout)
        controller_port, node_port = free_ports(2)
        (self.folder / "slurm.conf").write_text(f"""
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge/socket
SlurmUser=root
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
SlurmctldPort={controller_port}
SlurmdPort={node_port}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
NodeName={host} NodeAddr=127.0.0.1 {node[0]} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP OverSubscribe=FORCE:8
""")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        munge = self.folder / "munge"
        self.start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key", f"--socket={munge}/socket",
                   f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        wait_until((munge / "socket").exists, "munged")
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D")
        wait_until(self.is_up, "the node")

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def start(self, *words):
        with open(self.folder / f"{words[0]}.log", "w") as log:
            self.daemons.append(subprocess.Popen(words, env=self.environment, stdout=log, stderr=log))

    def is_up(self):
        seen = subprocess.run(["sinfo", "--noheader", "--format=%t"], env=self.environment, capture_output=True, text=True, timeout=LIMIT)
        return seen.stdout.strip() == "idle"

    def srun(self, ranks, *words):
        return ["srun", "--overcommit", "--kill-on-bad-exit=0", "-n", str(ranks), *words]

    def salloc(self, *words):
        """One task is all that the node's processors allow; launchers inside start as many as they are told."""
        return ["salloc", "--quiet", "--overcommit", "-n", "4", *words]
