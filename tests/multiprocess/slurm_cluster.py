"""A Slurm of one node for tests: one controller, one node, one MUNGE, by hand in a folder of the caller's, gone when the `with` ends, or
the test, however it does."""
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

LIMIT = 120  # seconds, for whatever is waited for
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo", "unshare")
OWN_PROCESSES = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def missing():
    """Why there can be no Slurm here; empty when there can."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed (Debian: slurm-wlm, munge)"
    return "" if subprocess.run([*OWN_PROCESSES, "true"], capture_output=True, timeout=LIMIT).returncode == 0 else "this system gives no process namespace"


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


def end_with_parent():
    """Between fork and exec: the daemon is killed when the test is."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Slurm:
    def __init__(self, folder):
        self.folder, self.daemons = pathlib.Path(folder), []
        self.folder.chmod(0o755)
        for name in ("state", "spool", "munge", "tmp"):
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
TmpFS={self.folder}/tmp
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
        # As an exception, so that the `with` ends.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
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
        # In a process namespace of its own, which takes its tasks and their supervisors along when it ends.
        self.start(*OWN_PROCESSES, "slurmd", "-D")
        wait_until(self.is_up, "the node")

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGKILL if daemon.args[0] == "unshare" else signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def start(self, *words):
        with open(self.folder / f"{words[-2] if words[0] == 'unshare' else words[0]}.log", "w") as log:
            self.daemons.append(subprocess.Popen(words, env=self.environment, stdout=log, stderr=log, preexec_fn=end_with_parent))

    def is_up(self):
        seen = subprocess.run(["sinfo", "--noheader", "--format=%t"], env=self.environment, capture_output=True, text=True, timeout=LIMIT)
        return seen.stdout.strip() == "idle"

    def srun(self, ranks, *words):
        return ["srun", "--overcommit", "--kill-on-bad-exit=0", "-n", str(ranks), *words]

    def salloc(self, *words):
        """One task is all that the node's processors allow; launchers inside start as many as they are told."""
        return ["salloc", "--quiet", "--overcommit", "-n", "4", *words]
