#!/usr/bin/env python3
"""Start-up time, memory and descriptors per rank against the number of ranks, on this machine.

    bench/scale.py GRADWIRE [--transports tcp,ucx,shm,inproc] [--ranks 4,16,64] [--inproc-ranks 4,64,512]
                   [--algorithm ring] [--seconds 2]

"start" is the wall time of a job that makes its communicator, does a few all-reduces of 4 bytes, and ends: the second of
two runs, so that files are in memory. Descriptors and private memory (Private_Dirty in /proc/PID/smaps_rollup: no pages that
ranks share) are the most that a process had while a job like it ran for --seconds; of ranks as threads (inproc) they are
the process's, divided by the ranks. shm takes its own algorithm. Ranks sleep while they wait. Prints a table.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time


def children(pid):
    """All processes below it."""
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                for child in map(int, file.read().split()):
                    found += [child, *children(child)]
    except OSError:
        pass  # it has ended
    return found


def held_by(pid):
    """Descriptors and KiB of private memory; None for a process that has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            kib = next(int(line.split()[1]) for line in file if line.startswith("Private_Dirty:"))
        return len(os.listdir(f"/proc/{pid}/fd")), kib
    except (OSError, StopIteration):
        return None


def command(gradwire, transport, ranks, algorithm, size, seconds):
    where = ["--inproc", str(ranks)] if transport == "inproc" else ["--ranks", str(ranks), "--transport", transport]
    way = [] if transport == "shm" else ["--algorithm", algorithm]
    return [gradwire, "bench", "all_reduce", *where, *way, "--min", size, "--max", size, "--seconds", str(seconds),
            "--deadline", "120", "--waiting", "sleep"]


def run(line, watch=None):
    """Runs it to its end within 300 s; returns its wall time."""
    begin = time.monotonic()
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        try:
            while watch and job.poll() is None and time.monotonic() - begin < 300:
                watch(job.pid)
                time.sleep(0.05)
            said, _ = job.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            job.kill()
            sys.exit(f"{' '.join(line)} did not end within 300 s")
    if job.returncode:
        sys.exit(f"{' '.join(line)} failed:\n{said}")
    return time.monotonic() - begin


def measure(gradwire, transport, ranks, algorithm, seconds):
    most = {}

    def watch(pid):
        for process in [pid] if transport == "inproc" else children(pid):
            held = held_by(process)
            if held:
                most[process] = tuple(map(max, held, most.get(process, (0, 0))))

    once = command(gradwire, transport, ranks, "recursive_doubling", "4", 0.001)
    run(once)
    start = run(once)
    # How long it takes follows from its slow first operations: it may be over before anybody has looked at all ranks.
    wanted = 1 if transport == "inproc" else ranks
    for factor in (1, 4, 16, 64):
        most.clear()
        run(command(gradwire, transport, ranks, algorithm, "64K", factor * seconds), watch)
        if len(most) >= wanted:
            break
    else:
        sys.exit(f"{len(most)} of {wanted} processes were seen of {ranks} ranks over {transport}; try a larger --seconds")
    share = ranks if transport == "inproc" else 1
    descriptors, kib = ([held[i] / share for held in most.values()] for i in (0, 1))
    return start, statistics.median(descriptors), max(descriptors), statistics.median(kib) / 1024, max(kib) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradwire")
    parser.add_argument("--transports", default="tcp,ucx,shm,inproc")
    parser.add_argument("--ranks", default="4,16,64")
    parser.add_argument("--inproc-ranks", default="4,64,512")
    parser.add_argument("--algorithm", default="ring")
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()
    print("| transport | ranks | start s | descriptors, median | most | private MiB, median | most |")
    print("|---|---|---|---|---|---|---|")
    for transport in args.transports.split(","):
        for ranks in (args.inproc_ranks if transport == "inproc" else args.ranks).split(","):
            start, *held = measure(args.gradwire, transport, int(ranks), args.algorithm, args.seconds)
            numbers = " | ".join(f"{number:.1f}" for number in held)
            print(f"| {transport} | {ranks} | {start:.2f} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
