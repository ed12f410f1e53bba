#!/usr/bin/env python3
"""Ranks that are killed, stopped or left as zombies, before, during and after an operation: the others name them within
the deadline + 1 s, shrink, and sum a hundred times. And gradwire run, killed at the same moments: all of its ranks say
so, and have ended within the deadline + 1 s.

usage: faults_matrix_test.py PATH/TO/fault_rank PATH/TO/gradwire TRANSPORT[,TRANSPORT...] [--whole]

Without --whole a sample of 40 cases, in which every value of every dimension comes up, and of 3 launchers. Ends with the
number of cases and their times. Exit status 77 when no transport is given.
"""
import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

DEADLINE = 3.0  # seconds of an operation
PATIENCE = 12.0  # the same where the launcher dies, which ends no sooner by it: a starved machine has that long first
LIMIT = 90  # seconds, for what takes ten on an idle machine
SAMPLE = 40
LAUNCHERS = 3  # a sample of those
HOWS = ("kill", "stop", "zombie")
WHENS = ("before", "during", "after")
OPERATIONS = ("all_reduce", "all_to_all", "broadcast", "barrier", "split")
SIZES = (2, 4)
DIED = "launcher"  # whose death a rank names
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


def all_cases(transports, hows):
    product = itertools.product(transports, hows, WHENS, OPERATIONS, SIZES)
    return [Case(number, *values) for number, values in enumerate(product)]


def sample(cases, count):
    """A stride that shares no factor with the dimensions walks through all of their values."""
    stride = 7
    while any(len(cases) % factor == 0 and stride % factor == 0 for factor in range(2, stride + 1)):
        stride += 4
    return [cases[i * stride % len(cases)] for i in range(min(count, len(cases)))]


def flags_of(case, folder, **more):
    """The words of fault_rank's command that all ranks share, then `more`; and the environment."""
    environment = dict(os.environ)
    transport = case.transport
    if transport == "ucx-tcp":
        transport, environment["UCX_TLS"] = "ucx", "tcp,self"
    flags = {"store": folder / "store", "transport": transport, "operation": case.operation, "when": case.when,
             "how": "kill" if case.how == "zombie" else case.how, "deadline": DEADLINE,
             "victims": ",".join(map(str, case.victims)), "flight": folder / "flight",
             "delay-us": DELAYS[case.number % len(DELAYS)]} | more
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))], environment


class Ranks:
    """The processes of one case. Whoever is to be a zombie is not waited for until the end."""

    def __init__(self, program, case, folder):
        self.case = case
        folder = pathlib.Path(folder)
        self.reports = [folder / f"report-{rank}" for rank in range(case.size)]
        (folder / "store").mkdir()
        self.processes = []
        for rank in range(case.size):
            words, environment = flags_of(case, folder, rank=rank, size=case.size, report=self.reports[rank])
            with open(folder / f"output-{rank}", "w") as output:
                self.processes.append(subprocess.Popen([program, *words], stdout=output, stderr=output, env=environment))

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


def processes_of(folder):
    """Those in whose command the folder is; none has it once it has ended, whether anybody reaps it or not."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(folder) in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass  # it ended just now
    return found


def seconds_to_end(folder):
    """Until none of them is left; less the time in which the machine let not even this loop run."""
    start = last = time.monotonic()
    stalled = 0
    while processes_of(folder) and last < start + LIMIT:
        time.sleep(0.05)
        now = time.monotonic()
        stalled += max(0, now - last - 0.2)
        last = now
    return last - start - stalled


def faults_after_launcher(case, folder):
    """What is wrong with what its ranks left."""
    faults = []
    for rank in range(case.size):
        said = folder / f"report-{rank}.said"
        text = said.read_text() if said.exists() else "nothing"
        if DIED not in text:
            faults.append(f"rank {rank} said {text}")
        path = folder / f"report-{rank}"
        if not path.exists():
            continue  # no operation ran any more
        report = json.loads(path.read_text())
        # A rank that did not run for so long may have seen another one end first.
        if DIED not in report["verdict"] and (report["trouble"] or report["stalled"] < 0.5):
            faults.append(f"rank {rank} reports {report}")
    return faults


def run_launcher(program, launcher, case):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "store").mkdir()
        words, environment = flags_of(case, folder, report=folder / "report", deadline=PATIENCE)
        command = [launcher, "run", "-n", str(case.size), "--plain", "--timeout", str(LIMIT), "--", program, *words]
        with open(folder / "output", "w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            status = process.wait(2 * LIMIT)
            took = seconds_to_end(name)
            faults = [] if took <= DEADLINE + 1 else [f"the ranks had not ended after {took:.1f} s"]
            faults += faults_after_launcher(case, folder)
            if status != -signal.SIGKILL:
                faults.append(f"the launcher ended with {status}: {(folder / 'output').read_text()[-500:]}")
            told = sum((folder / f"report-{rank}").exists() for rank in range(case.size))
            return case, {"end": took, "told": told}, faults
        finally:
            process.kill()
            process.wait()
            for pid in processes_of(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


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


def say(case, faults):
    for fault in faults:
        print(f"FAILED {case}: {fault}", flush=True)
    return bool(faults)


def main():
    words = [word for word in sys.argv[1:] if word != "--whole"]
    program, launcher = map(os.path.abspath, words[:2])
    transports = [name for name in words[2].split(",") if name]
    if not transports:
        return 77
    cases, launchers = all_cases(transports, HOWS), all_cases(transports, ["launcher"])
    if "--whole" not in sys.argv:
        cases, launchers = sample(cases, SAMPLE), sample(launchers, LAUNCHERS)
    start = time.monotonic()
    failed, reports, ends = 0, [], []
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("GRADWIRE_FAULT_JOBS", "6"))) as pool:
        for case, seen, faults in pool.map(lambda case: run(program, case), cases):
            reports += seen
            failed += say(case, faults)
        for case, end, faults in pool.map(lambda case: run_launcher(program, launcher, case), launchers):
            ends.append(end)
            failed += say(case, faults)
    print(f"{len(cases)} cases, {failed} failed, {time.monotonic() - start:.0f} s; least / median / most of "
          f"{len(reports)} survivors: {spread(reports, 'fail')} (deadline {DEADLINE} s), {spread(reports, 'shrink')}; "
          f"of {len(ends)} launchers killed, all ranks: {spread(ends, 'end')}, operations that ended with it: "
          f"{sum(end['told'] for end in ends)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
