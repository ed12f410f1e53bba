#!/usr/bin/env python3
"""A rank's link goes down, or to 10 kbit/s, before, in the midst of and after an operation, between hosts that are namespaces
of this machine (bench/lab): the side that is larger, or has the lowest rank, names the other and goes on; the other is isolated.

usage: faults_links_test.py PATH/TO/fault_rank TRANSPORT[,TRANSPORT...] BENCH_FOLDER [--whole]

Without --whole a sample of 8 cases. Exit status 77 where there are no namespaces.
"""
import itertools
import json
import pathlib
import re
import sys
import tempfile
import time

DEADLINE = 5.0  # seconds of an operation
LIMIT = 90  # seconds
SAMPLE = 8


def wait_until(condition, what):
    until = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited {LIMIT} s in vain for {what}")
        time.sleep(0.02)


def sides(size, victim):
    """Who goes on, and who is isolated, when the victim's link is cut."""
    others = [rank for rank in range(size) if rank != victim]
    going = others if len(others) > 1 else []  # one alone does not go on: the other may do so
    return going, [rank for rank in range(size) if rank not in going]


def faults_of(report, rank, going, isolated):
    if report is None:
        return [f"rank {rank} left no report"]
    faults = []
    if report["fail"] - report["stalled"] > DEADLINE + 1:
        faults.append("late")
    if rank in going:
        named = re.match(r"ranks? ([\d, ]+) lost in ", report["verdict"])
        accused = {int(word) for word in named[1].split(",")} if named else set()
        if not accused or not accused <= set(isolated):
            faults.append(f"names {sorted(accused)}")
        if report["trouble"] or report["survivors"] != going:
            faults.append("cannot go on")
    elif report["survivors"] or not re.search(r"isolated|go on without", report["trouble"]):
        faults.append("is not isolated")
    return [f"rank {rank} {fault}: {report}" for fault in faults]


def run(lab_network, program, case):
    transport, how, when, operation, size, victim = case
    with tempfile.TemporaryDirectory() as name, lab_network.Lab(size, "100mbit") as lab:
        folder = pathlib.Path(name)
        (folder / "store").mkdir()
        reports = [folder / f"report-{rank}" for rank in range(size)]
        ranks = []
        for rank in range(size):
            flags = {"rank": rank, "size": size, "store": folder / "store", "transport": transport, "operation": operation,
                     "when": when, "how": "link", "deadline": DEADLINE, "victims": victim, "report": reports[rank],
                     "flight": folder / "flight"}
            words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
            with open(folder / f"output-{rank}", "w") as output:
                ranks.append(lab.start(rank, [program, *words], {}, stdout=output, stderr=output))

        def cut():
            if how == "down":
                lab.set_link(victim, False)
            else:
                lab.shape(victim, 1e4)

        def all_have(suffix):
            return all(pathlib.Path(f"{report}.{suffix}").exists() for report in reports)

        wait_until(lambda: all_have("ready"), "the ranks to connect")
        if when == "before":
            cut()
        (folder / "go").touch()
        if when == "during":
            time.sleep(0.03)
            cut()
        elif when == "after":
            wait_until(lambda: all_have("once"), "an operation")
            cut()
            (folder / "on").touch()
        wait_until(lambda: all(report.exists() for report in reports), "the reports")
        going, isolated = sides(size, victim)
        seen = [json.loads(report.read_text()) if report.exists() else None for report in reports]
        faults = [fault for rank in range(size) for fault in faults_of(seen[rank], rank, going, isolated)]
        for process in ranks:
            process.kill()
            process.wait()
        return seen, faults


def main():
    words = [word for word in sys.argv[1:] if word != "--whole"]
    program, transports = str(pathlib.Path(words[0]).resolve()), [name for name in words[1].split(",") if name]
    sys.path.insert(0, words[2])
    import lab_network
    try:
        lab_network.check_machine()
    except lab_network.LabUnavailable as error:
        print(error)
        return 77
    product = itertools.product(transports, ("down", "slow"), ("before", "during", "after"),
                                ("all_reduce", "all_to_all", "broadcast", "barrier", "split"), (2, 4))
    # The few bytes of these pass a slow link in time, so nothing fails.
    cases = [(*values, number % values[-1]) for number, values in enumerate(product)
             if values[1] == "down" or values[3] not in ("barrier", "split")]
    if "--whole" not in sys.argv:
        cases = [cases[i * 17 % len(cases)] for i in range(SAMPLE)]
    start, failed, times = time.monotonic(), 0, []
    for case in cases:
        try:
            seen, faults = run(lab_network, program, case)
            times += [report["fail"] for report in seen if report]
        except AssertionError as error:
            faults = [str(error)]
        failed += bool(faults)
        for fault in faults:
            print(f"FAILED {case}: {fault}", flush=True)
    times.sort()
    print(f"{len(cases)} cases, {failed} failed, {time.monotonic() - start:.0f} s; verdicts after "
          f"{times[0]:.2f} / {times[len(times) // 2]:.2f} / {times[-1]:.2f} s (deadline {DEADLINE} s)" if times else "no verdicts")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
