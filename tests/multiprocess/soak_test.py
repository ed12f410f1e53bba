#!/usr/bin/env python3
"""Four ranks, random operations, sizes and communicators, with faults at random, for a while: no wrong element, no growth
of memory.

usage: soak_test.py PATH/TO/soak_rank TRANSPORT SECONDS [SEED]

TRANSPORT: ucx, tcp (messages alone), auto (the host's memory is shared); with "-nodes", the first two ranks count as one
node and the other two as a second. With "auto" the first half of the time has no faults: there is one arena all the while, and a
new one after each.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

RANKS = 4
SHRINKS = 3  # from so many on growth under faults is seen; a soak lasts until it is, for a minute more at most
LOOKS = 2  # at memory without faults, as well
GROWTH = 24  # MiB that a rank may use more than after its second shrink: pools grow to the largest sizes drawn


def judge_growth(report, calm):
    """What is wrong with how a rank's memory grew, or with how little was seen of it; says what was looked at."""
    rank, faults = report["rank"], []
    phases = [("under faults", report["shrinks"], SHRINKS, "shrinks", report["first_mib"], report["most_mib"])]
    if calm:
        phases.append(("without faults", report["calm_looks"], LOOKS, "looks", report["calm_first_mib"], report["calm_most_mib"]))
    for when, seen, wanted, what, first, most in phases:
        if seen < wanted:
            faults.append(f"rank {rank}: growth {when} was not checked ({seen} {what} seen; {wanted} wanted)")
            continue
        print(f"rank {rank}: {most - first:+.1f} MiB {when} over {seen} {what} (at most {GROWTH})")
        if most > first + GROWTH:
            faults.append(f"rank {rank} grew from {first} to {most} MiB {when}")
    return faults


def judge_rank(rank, code, report, calm):
    """What is wrong with how a rank ended and with what it reports; `report`: None if it left none."""
    if rank == RANKS - 1:  # kills itself at the end, as the loss that the others are to survive
        return [] if code == -signal.SIGKILL else [f"rank {rank} ended with {code} (by its own SIGKILL wanted)"]
    faults = [] if code == 0 else [f"rank {rank} ended with {code} (0 wanted)"]  # a sanitizer's findings show here
    if report is None:
        return [*faults, f"rank {rank} left no report"]
    if report["trouble"]:
        faults.append(f"rank {rank}: {report['trouble']}")
    return faults + judge_growth(report, calm)


def main():
    program, transport, seconds = os.path.abspath(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    seed = sys.argv[4] if len(sys.argv) > 4 else "1"
    if not transport:
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "store").mkdir()
        # Under ASan: what is freed is kept for a while, which looks like growth.
        environment = {"ASAN_OPTIONS": "quarantine_size_mb=4", **os.environ}
        ranks = []
        for rank in range(RANKS):
            flags = {"rank": rank, "size": RANKS, "store": folder / "store", "transport": transport, "seconds": seconds,
                     "seed": seed, "report": folder / f"report-{rank}"}
            if transport.endswith("-nodes"):
                flags |= {"transport": transport.removesuffix("-nodes"), "per-node": RANKS // 2}
            if transport.startswith("auto"):
                flags["calm"] = seconds / 2
            words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
            ranks.append(subprocess.Popen([program, *words], env=environment))
        faults = []
        for rank, process in enumerate(ranks):
            try:
                process.wait(seconds + 180)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                faults.append(f"rank {rank} did not end")
        for rank in range(RANKS):
            path = folder / f"report-{rank}"
            report = json.loads(path.read_text()) if path.exists() else None
            if report is not None:
                print(f"{transport}, {seconds:g} s, seed {seed}: {report}")
            faults += judge_rank(rank, ranks[rank].returncode, report, transport.startswith("auto"))
        for fault in faults:
            print(f"FAILED {fault}")
        return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
