#!/usr/bin/env python3
"""Ranks that are killed, stopped or left as zombies, before, during and after an operation: the others name them within
the deadline + 1 s, shrink, and sum a hundred times.

usage: faults_matrix_test.py PATH/TO/fault_rank TRANSPORT[,TRANSPORT...] [--whole]

Without --whole a sample of 40 cases, in which every value of every dimension comes up. Ends with the number of cases
and their times. Exit status 77 when no transport is given.
"""
import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

DEADLINE = 3.0  # seconds of an operation
LIMIT = 90  # seconds, for what takes ten on an idle machine
SAMPLE = 40
HOWS = ("kill", "stop", "zombie")
WHENS = ("before", "during", "after")
OPERATIONS = ("all_reduce", "all_to_all", "broadcast", "barrier", "split")
SIZES = (2, 4)
DELAYS = (0, 300, 1000, 4000)  # microseconds into the operation


@dataclasses.dataclass(frozen=True)
class Case:
    number: int
    transport: str
    how: str
    when: str
    operation: str
    size: int

    @property
    def victims(self):
        """Every rank in turn; of four ranks sometimes two."""
        first = (self.number // 2 + self.number // 10) % self.size
        if self.size == 4 and self.number % 7 == 3:
            return sorted({first, (first + 2) % 4})
        return [first]

    def __str__(self):
        return f"{self.transport} {self.how} {self.when} {self.operation} on {self.size} ranks, victims {self.victims}"


def all_cases(transports):
    product = itertools.product(transports, HOWS, WHENS, OPERATIONS, SIZES)
    return [Case(number, *values) for number, values in enumerate(product)]


def sample(cases, count):
    """A stride that shares no factor with the dimensions walks through all of their values."""
    stride = 7
    while any(len(cases) % factor == 0 and stride % factor == 0 for factor in range(2, stride + 1)):
        stride += 4
    return [cases[i * stride % len(cases)] for i in range(min(count, len(cases)))]


class Ranks:
    """The processes of one case. Whoever is to be a zombie is not waited for until the end."""

    def __init__(self, program, case, folder):
        self.case = case
        self.reports = [pathlib.Path(folder) / f"report-{rank}" for rank in range(case.size)]
        environment = dict(os.environ)
        transport = case.transport
        if transport == "ucx-tcp":
            transport, environment["UCX_TLS"] = "ucx", "tcp,self"
        store = pathlib.Path(folder) / "store"
        store.mkdir()
        self.processes = []
        for rank in range(case.size):
            flags = {"rank": rank, "size": case.size, "store": store, "transport": transport, "operation": case.operation,
                     "when": case.when, "how": "stop" if case.how == "stop" else "kill", "deadline": DEADLINE,
                     "victims": ",".join(map(str, case.victims)), "report": self.reports[rank],
                     "flight": pathlib.Path(folder) / "flight", "delay-us": DELAYS[case.number % len(DELAYS)]}
            words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
            output = open(pathlib.Path(folder) / f"output-{rank}", "w")
            self.processes.append(subprocess.Popen([program, *words], stdout=output, stderr=output, env=environment))
            output.close()

    def wait(self):
        """Until the survivors have ended, or the time is over."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            waited = [process.poll() for rank, process in enumerate(self.processes)
                      if not (self.case.how == "zombie" and rank in self.case.victims)]
            expected = 1 if self.case.how == "stop" else 0
            if waited.count(None) <= expected * len(self.case.victims):
                return True
            time.sleep(0.05)
        return False

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def faults_of(case, rank, report):
    """What is wrong with a survivor's report."""
    if report is None:
        return ["left no report"]
    faults = []
    named = re.match(r"ranks? ([\d, ]+) lost in ", report["verdict"])
    accused = {int(word) for word in named[1].split(",")} if named else set()
    if not accused or not accused <= set(case.victims):
        faults.append(f"names {sorted(accused)}")
    if report["fail"] - report["stalled"] > DEADLINE + 1:
        faults.append("late")
    if report["trouble"]:
        faults.append("cannot go on")
    survivors = [r for r in range(case.size) if r not in case.victims]
    if report["survivors"] != survivors:
        faults.append(f"went on with {report['survivors']}")
    return faults


def run(program, case):
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks(program, case, folder)
        try:
            in_time = ranks.wait()
            faults = [] if in_time else [f"not over after {LIMIT} s"]
            reports = {}
            for rank in range(case.size):
                if rank in case.victims:
                    continue
                path = ranks.reports[rank]
                reports[rank] = json.loads(path.read_text()) if path.exists() else None
                for fault in faults_of(case, rank, reports[rank]):
                    faults.append(f"rank {rank} {fault}: {reports[rank]}")
            if faults:
                for path in sorted(pathlib.Path(folder).glob("output-*")):
                    faults.append(f"{path.name}: {path.read_text()[-500:]}")
            return case, [report for report in reports.values() if report], faults
        finally:
            ranks.end()


def spread(reports, key):
    values = sorted(report[key] for report in reports)
    return f"{key} {values[0]:.2f} / {values[len(values) // 2]:.2f} / {values[-1]:.2f} s" if values else f"{key} -"


def main():
    words = [word for word in sys.argv[1:] if word != "--whole"]
    program, transports = os.path.abspath(words[0]), [name for name in words[1].split(",") if name]
    if not transports:
        return 77
    cases = all_cases(transports)
    if "--whole" not in sys.argv:
        cases = sample(cases, SAMPLE)
    start = time.monotonic()
    failed, reports = 0, []
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("GRADWIRE_FAULT_JOBS", "6"))) as pool:
        for case, seen, faults in pool.map(lambda case: run(program, case), cases):
            reports += seen
            failed += bool(faults)
            for fault in faults:
                print(f"FAILED {case}: {fault}", flush=True)
    print(f"{len(cases)} cases, {failed} failed, {time.monotonic() - start:.0f} s; least / median / most of "
          f"{len(reports)} survivors: {spread(reports, 'fail')} (deadline {DEADLINE} s), {spread(reports, 'shrink')}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
