#!/usr/bin/env python3
"""gradwire under srun: a Slurm of one node, made in a temporary folder, whose steps need no flag and no variable of gradwire's.

Arguments: GRADWIRE. Exit status 77 where Slurm's and MUNGE's daemons are missing (Debian: slurm-wlm), or this is not root.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

LIMIT = 120
DAEMONS = ("munged", "slurmctld", "slurmd")


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
    """One controller, one node, one MUNGE."""

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
        munge = self.folder / "munge"
        self.start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key", f"--socket={munge}/socket",
                   f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        wait_until((munge / "socket").exists, "munged")
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D")
        wait_until(self.is_up, "the node")
        return self

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


class Steps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.slurm = cls.enterClassContext(Slurm(cls.folder))

    def test_every_rank_takes_part(self):
        for ranks, transport in ((2, "auto"), (4, "tcp")):
            rows = pathlib.Path(self.folder) / f"{ranks}.jsonl"
            done = subprocess.run(self.slurm.srun(ranks, GRADWIRE, "bench", "all_reduce", "--transport", transport, "--max", "16K", "--json", str(rows)),
                                  env=self.slurm.environment, capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(done.returncode, 0, done.stderr)
            seen = [json.loads(line) for line in rows.read_text().splitlines()]
            self.assertGreater(len(seen), 3)
            self.assertEqual({(row["ranks"], row["wrong"]) for row in seen}, {(ranks, 0)})

    def test_a_killed_rank_is_named_by_the_others(self):
        metrics = pathlib.Path(self.folder) / "metrics.jsonl"
        step = subprocess.Popen(self.slurm.srun(3, GRADWIRE, "train", "--quiet", "--steps", "1000000", "--batch", "48", "--hidden", "16",
                                                "--metrics", str(metrics)),
                                env=self.slurm.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            wait_until(lambda: step.poll() is not None or (metrics.exists() and metrics.stat().st_size > 2000), "the training")
            self.assertIsNone(step.poll(), "the training ended by itself")
            victims = [pid for pid, environment in self.ranks().items() if b"SLURM_PROCID=1" in environment]
            self.assertEqual(len(victims), 1)
            os.kill(victims[0], signal.SIGKILL)
            said, _ = step.communicate(timeout=LIMIT)
        finally:
            step.kill()
            step.wait()
        self.assertNotEqual(step.returncode, 0)
        self.assertEqual(len(re.findall(r"^gradwire: error: .*rank 1 lost in ", said, re.M)), 2, said)

    def ranks(self):
        """pid -> environment, of the programs that train in this Slurm."""
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
                if f"SLURM_CONF={self.folder}/slurm.conf".encode() in environment and (process / "exe").resolve() == pathlib.Path(GRADWIRE).resolve():
                    found[int(process.name)] = environment
            except OSError:
                continue  # it ended meanwhile
        return found


if __name__ == "__main__":
    GRADWIRE = os.path.abspath(sys.argv.pop(1))
    if os.geteuid() != 0 or not all(map(shutil.which, (*DAEMONS, "srun", "sinfo"))):
        sys.exit(77)
    unittest.main(verbosity=2)
