#!/usr/bin/env python3
"""A job starts although strangers knock: garbage, half-open connections and wrong secrets at every port it listens on.

usage: rendezvous_scan_test.py PATH/TO/gradwire [CONNECTIONS]

The strangers come in equal parts to the rendezvous of rank 0 and to whatever else the ranks listen on, from before the
job's start to its end. Prints how long the jobs took with and without them; CONNECTIONS (2000 by default) is how many
come at least while jobs start, of which there are eight or more.
"""
import concurrent.futures
import hashlib
import hmac
import os
import pathlib
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
CONNECTIONS = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 2000
JOBS = 8
RANKS = 3
LIMIT = 120  # seconds; nothing here takes a quarter of it
SCANNERS = 8
PAUSE = 0.005  # seconds; some 1000 knocks a second at most


def reserve_port():
    """A bound socket that does not listen: rank 0 may listen on its port, and no stranger's connection gets it for its own end."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder, holder.getsockname()[1]


def text(value):
    return struct.pack("<H", len(value)) + value


def frame(kind, body):
    return struct.pack("<IB", len(body) + 1, kind) + body


def hello(job, rank):
    """As comm/rendezvous/messages.h has it, with a claim to know the secret."""
    return frame(1, struct.pack("<IBBII", 0x5A525747, 1, 1, rank, RANKS) + os.urandom(16) + text(job))


class Strangers:
    """Each knocks once, in one of five ways; half-open ones keep their connection until the end."""

    def __init__(self, job, seed):
        self.job = job
        self.random = random.Random(seed)
        self.kept = []
        self.knocks = 0
        self.lock = threading.Lock()

    def knock(self, port):
        with self.lock:
            way = self.random.randrange(5)
            noise = self.random.randbytes(self.random.randrange(1, 3000))
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=2)
        except OSError:
            return  # nobody listens there yet, or not any more
        with self.lock:
            self.knocks += 1
        try:
            if way == 0:
                connection.sendall(noise)
            elif way == 1:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            elif way == 2:
                connection.sendall(hello(self.job, 1)[:20])  # and not a byte more
            elif way == 3:
                self.claim(connection)
            if way in (2, 4):  # half open: says little or nothing, and stays
                self.keep(connection)
                return
        except OSError:
            pass  # thrown out, as it should be
        connection.close()

    def claim(self, connection):
        """Plays a rank that has another secret."""
        connection.settimeout(1)
        connection.sendall(hello(self.job, 1))
        challenge = connection.recv(4096)
        proof = hmac.new(b"a guess", challenge, hashlib.sha256).digest()
        connection.sendall(frame(3, proof))
        connection.recv(4096)

    def keep(self, connection):
        with self.lock:
            self.kept.append(connection)
            old = self.kept.pop(0) if len(self.kept) > 400 else None
        if old:
            old.close()

    def close(self):
        for connection in self.kept:
            connection.close()


def listening_ports(pids):
    """TCP ports that these processes listen on."""
    inodes = set()
    for pid in pids:
        try:
            for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(fd)))
        except OSError:
            pass  # it has ended
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return ports


class Job:
    """RANKS ranks that meet, connect and reduce, each a process; started by hand, so that the port is known."""

    def __init__(self, port, transport):
        self.name = f"scan-{os.getpid()}-{port}"
        self.start = time.monotonic()
        self.ranks = []
        for rank in range(RANKS):
            environment = dict(os.environ, GRADWIRE_RANK=str(rank), GRADWIRE_WORLD_SIZE=str(RANKS), GRADWIRE_LOCAL_RANK=str(rank),
                               GRADWIRE_RENDEZVOUS=f"127.0.0.1:{port}", GRADWIRE_JOB=self.name, GRADWIRE_SECRET="a secret of 16 bytes or so",
                               GRADWIRE_TRANSPORT=transport)
            self.ranks.append(subprocess.Popen([GRADWIRE, "doctor", "--json"], env=environment, text=True,
                                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT))

    def pids(self):
        return [rank.pid for rank in self.ranks]

    def running(self):
        return any(rank.poll() is None for rank in self.ranks)

    def finish(self):
        """Seconds from the start; what went wrong, or ""."""
        faults = ""
        for number, rank in enumerate(self.ranks):
            try:
                out, _ = rank.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                rank.kill()
                out, _ = rank.communicate()
                faults += f"rank {number} did not end\n"
            if rank.returncode != 0:
                faults += f"rank {number} ended with {rank.returncode}: ...{out[-1500:]}\n"
        return time.monotonic() - self.start, faults


def undisturbed(transport):
    holder, port = reserve_port()
    with holder:
        seconds, faults = Job(port, transport).finish()
    if faults:
        raise AssertionError(faults)
    return seconds


def under_scan(transport):
    """The job's seconds, its faults, how many knocked in that time and at how many ports."""
    holder, port = reserve_port()
    ports = [port]
    over = threading.Event()
    strangers = Strangers(b"scan-" + str(os.getpid()).encode() + b"-" + str(port).encode(), 7)

    def scan(_):
        while not over.is_set():
            for target in list(ports):
                strangers.knock(target)
                time.sleep(PAUSE)  # the strangers' own work is not to be what slows the job

    with concurrent.futures.ThreadPoolExecutor(SCANNERS) as pool:
        scanners = [pool.submit(scan, number) for number in range(SCANNERS)]
        job = Job(port, transport)
        seen = {port}
        while job.running() and time.monotonic() - job.start < LIMIT:
            seen |= listening_ports(job.pids())
            ports[:] = sorted(seen)
            time.sleep(0.02)
        seconds, faults = job.finish()
        met = strangers.knocks
        over.set()
        for scanner in scanners:
            scanner.result(timeout=LIMIT)
    strangers.close()
    holder.close()
    return seconds, faults, met, len(seen)


class Scan(unittest.TestCase):
    def scan(self, transport):
        calm = min(undisturbed(transport) for _ in range(2))
        total, times, ports = 0, [], 0
        while (total < CONNECTIONS or len(times) < JOBS) and len(times) < 200:
            seconds, faults, knocks, seen = under_scan(transport)
            self.assertFalse(faults, faults)
            times.append(seconds)
            total += knocks
            ports = max(ports, seen)
        print(f"{transport}: {calm:.2f} s undisturbed; {len(times)} jobs under {total} connections to up to {ports} ports: "
              f"{min(times):.2f} to {max(times):.2f} s, {sorted(times)[len(times) // 2]:.2f} s in the middle", flush=True)

    def test_ucx(self):
        self.scan("ucx")

    def test_tcp(self):
        self.scan("tcp")


if __name__ == "__main__":
    unittest.main(verbosity=2)
