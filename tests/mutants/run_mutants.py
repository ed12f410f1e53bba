#!/usr/bin/env python3
"""Switches mutants (mutants.py) one by one and runs tests until one fails: a mutant that no test finds has survived.

  run_mutants.py BUILD [--sample N] [--seconds S] [--again] [--without TEXT] [NUMBER...]
  run_mutants.py --programs     what it runs and what that loads, a target of Ninja's in each line (tests of PyTorch use .cache/torch, where that is)

BUILD is a build folder of the tree that mutants.py writes, and has the programs of PROGRAMS (programs that it has not are left
out). First every test runs once without a mutant, which tells how long it takes and which switches it comes to
(BUILD/mutants-reached.json, for as long as the program is the same). Then each mutant has the tests that come to its switch, the
shortest first, until one fails or hangs twice. What has been tried stands in BUILD/mutants.jsonl, a line for each, and is not tried again
while its source is the same (--again: what survived is). Ends with 1 where a mutant survives that survivors.toml does not name."""
import argparse
import ast
import collections
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import mutants

# (program, arguments), those that find most in the shortest time first. A test in Python has the program as its library; its arguments
# are the file and the cases that are wanted, all without them.
PROGRAMS = [
    ("tests/emulation/emulation_tests", []),
    ("tests/emulation/waits_test", []),
    ("tests/gpu/nccl/nccl_path_test", []),
    ("tests/gpu/nccl/nccl_wait_on_test", []),
    ("tests/gpu/nccl/nccl_capture_test", []),
    ("tests/comm/nccl/nccl_comm_test", []),
    ("tests/gpu/messages/device_message_tests", ["--file=staging_test"]),
    ("tests/gpu/messages/device_message_tests", ["--file=staging_held_test"]),
    ("tests/gpu/messages/device_message_tests", ["--file=aggregate_end_test"]),
    ("tests/gpu/emulated_tests", ["--file=device_ops_test"]),
    ("tests/gpu/emulated_tests", ["--file=sparse_test"]),
    ("tests/gpu/emulated_tests", ["--file=factors_test"]),
    ("tests/gpu/library/c_device_gradients_test", ["3", "tcp"]),
    ("tests/gpu/nccl/nccl_laws", []),
    ("tests/gpu/messages/device_laws_inproc", []),
    ("tests/gpu/messages/device_laws_ucx_direct", []),
    ("tests/gpu/messages/device_message_tests", ["--file=narrow_aggregate_test"]),
    ("tests/gpu/messages/device_message_tests", ["--file=aggregate_test"]),
    ("tests/gpu/nccl/nccl_two_levels_test", []),
    ("tests/gpu/nccl/nccl_sums_on_levels_test", []),
    ("tests/gpu/library/libgradwire_emulated.so", ["tests/torch/device_test.py"]),
    ("tests/gpu/library/libgradwire_emulated.so", ["tests/torch/compression_test.py", "Compression.test_top_k_by_hand"]),
    ("tests/gpu/library/libgradwire_emulated.so", ["tests/torch/nccl_test.py"]),
    ("tests/gpu/library/libgradwire_emulated.so", ["tests/torch/modes_test.py", "Modes.test_the_environment_chooses_blocking"]),
]
BESIDE = ["tests/comm/nccl/libnccl.so.2"]  # what they load: the substitute for NCCL by NCCL's own name
WITHOUT_GOOGLETEST = ("tests/gpu/library/",)  # such a program, or test in Python, is one test
SKIPPED = 77  # exit status
# A mutant may hang: so many times what the tests take by themselves, and so many seconds.
TIMES, MORE_SECONDS = 5, 15
ROUNDS = 3  # what is left to chance has another seed in each
AT_ONCE = 12  # tests of a program in one process; what they take by themselves is bounded, too
SECONDS_AT_ONCE = 5
# Of a mutant: the longest tests are left out beyond that. Cases in Python, each of which begins by starting ranks, have more.
SECONDS_OF_A_ROUND, SECONDS_IN_PYTHON = 60, 300


def name_of(program):
    return " ".join([program[0].split("/")[-1], *program[1]])


def is_python(program):
    return program[0].endswith(".so")


def is_one_test(program):
    return program[0].startswith(WITHOUT_GOOGLETEST) and not is_python(program)


def wanted_tests(program, tests):
    """The arguments that have a program run these alone."""
    if is_one_test(program):
        return []
    return list(tests) if is_python(program) else ["--gtest_filter=" + ":".join(tests)]


def cases_of(build, program):
    """Of a test in Python: those that are given, or its methods."""
    if program[1][1:]:
        return program[1][1:]
    code = ast.parse((build.parent / program[1][0]).read_text())
    return [f"{one.name}.{method.name}" for one in code.body if isinstance(one, ast.ClassDef)
            for method in one.body if isinstance(method, ast.FunctionDef) and method.name.startswith("test")]


def command_of(build, program):
    if not is_python(program):
        return [build / program[0], *program[1]]
    tree = build.parent
    return [sys.executable, tree / "tests/torch/in_environment.py", build / program[0], tree / program[1][0], "--failfast"]


def run(build, program, environment, limit, more=()):
    """Its exit status, None where it did not end, and the seconds that it took."""
    environment = os.environ | {"UCX_RNDV_THRESH": "inf", "GTEST_FAIL_FAST": "1", "GRADWIRE_TEST_DEVICE": "emulated"} | environment
    begin = time.monotonic()
    with subprocess.Popen([*command_of(build, program), *more], env=environment, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(process.pid, 9)  # its ranks, where they are processes
        except ProcessLookupError:
            pass
    return status, time.monotonic() - begin


def learn_cases(build, program):
    """learn() of a test in Python: each method in a process of its own."""
    learned = []
    run(build, program, {}, 3600, cases_of(build, program)[:1])  # what is compiled once is not counted
    for case in cases_of(build, program):
        with tempfile.TemporaryDirectory() as folder:
            reached = pathlib.Path(folder) / "reached"
            status, took = run(build, program, {"GRADWIRE_MUTANTS_REACHED": str(reached), "GRADWIRE_EMULATION_SEED": "1"}, 3600, [case])
            if status == SKIPPED:
                return None
            if status != 0:
                raise SystemExit(f"{name_of(program)} {case} fails without a mutant")
            switches = {int(line.partition(" ")[0]) for line in reached.read_text().splitlines()} if reached.exists() else set()
            learned.append({"test": case, "seconds": took, "switches": sorted(switches)})
    return learned


def learn(build, program):
    """Of each test of the program: its seconds, and the switches that it comes to. None where it is skipped."""
    if is_python(program):
        return learn_cases(build, program)
    with tempfile.TemporaryDirectory() as folder:
        said, reached = pathlib.Path(folder) / "said.json", pathlib.Path(folder) / "reached"
        status, took = run(build, program, {"GRADWIRE_MUTANTS_REACHED": str(reached), "GRADWIRE_EMULATION_SEED": "1"}, 3600,
                           [] if is_one_test(program) else [f"--gtest_output=json:{said}"])
        if status == SKIPPED:
            return None
        if status != 0:
            raise SystemExit(f"{name_of(program)} fails without a mutant")
        switches = collections.defaultdict(set)
        for line in reached.read_text().splitlines() if reached.exists() else []:
            number, _, test = line.partition(" ")
            switches[test].add(int(number))
        if is_one_test(program):
            return [{"test": "", "seconds": took, "switches": sorted(set().union(*switches.values()))}]
        return [{"test": f"{suite['name']}.{test['name']}", "seconds": float(test["time"].rstrip("s")),
                 "switches": sorted(switches[f"{suite['name']}.{test['name']}"])}
                for suite in json.loads(said.read_text())["testsuites"] for test in suite["testsuite"]]


def learn_all(build, without):
    """By program, those left out whose name has that text in it."""
    kept_at = build / "mutants-reached.json"
    kept = json.loads(kept_at.read_text()) if kept_at.exists() else {}
    known = {}
    for program in PROGRAMS:
        file = build / program[0]
        if not file.exists() or without and without in name_of(program):
            continue
        name, stamp = name_of(program), file.stat().st_mtime
        if kept.get(name, {}).get("stamp") != stamp:
            begin = time.monotonic()
            learned = learn(build, program)
            if learned is None:
                print(f"{name} is skipped", flush=True)
                continue
            kept[name] = {"stamp": stamp, "tests": learned}
            kept_at.write_text(json.dumps(kept))
            print(f"{time.monotonic() - begin:6.1f} s  {name}: {len(kept[name]['tests'])} tests", flush=True)
        known[name] = (program, kept[name]["tests"])
    return known


def portions(known, number):
    """(program, tests, their seconds) for a mutant, in the order in which they run: the shortest test of each program, then the rest."""
    first, rest = [], []
    spent = {False: 0.0, True: 0.0}  # by whether it is Python
    for program, tests in known.values():
        own = sorted((test["seconds"], test["test"]) for test in tests if number in test["switches"])
        if not own:
            continue
        first.append((own[0][0], program, [own[0][1]]))
        kind = is_python(program)
        spent[kind] += own[0][0]
        portion, length = [], 0.0
        for seconds, test in own[1:]:
            if spent[kind] + seconds > (SECONDS_IN_PYTHON if kind else SECONDS_OF_A_ROUND):
                break
            spent[kind] += seconds
            portion.append(test)
            length += seconds
            if len(portion) == AT_ONCE or length > SECONDS_AT_ONCE:
                rest.append((length, program, portion))
                portion, length = [], 0.0
        if portion:
            rest.append((length, program, portion))
    order = lambda one: one[0]
    return [(program, tests, seconds) for seconds, program, tests in sorted(first, key=order) + sorted(rest, key=order)]


def try_mutant(build, number, known, stop):
    """What became of it: found by a test, survived, reached by none; None where the time is over."""
    to_run = portions(known, number)
    if not to_run:
        return {"outcome": "not reached"}
    for round_number in range(1, ROUNDS + 1):
        for program, tests, seconds in to_run:
            if time.monotonic() > stop:
                return None
            status, _ = run(build, program, {"GRADWIRE_MUTANT": str(number), "GRADWIRE_EMULATION_SEED": str(round_number)},
                            TIMES * seconds + MORE_SECONDS, wanted_tests(program, tests))
            if status is None and time.monotonic() < stop:  # once more, with more time: the machine may have been busy
                status, _ = run(build, program, {"GRADWIRE_MUTANT": str(number), "GRADWIRE_EMULATION_SEED": str(round_number)},
                                2 * (TIMES * seconds + MORE_SECONDS), wanted_tests(program, tests))
            if status != 0:
                return {"outcome": "found", "by": f"{name_of(program)} {tests[0]}" + (" ..." if len(tests) > 1 else ""),
                        "round": round_number}
    return {"outcome": "survived"}


def main():
    if sys.argv[1:] == ["--programs"]:
        print("\n".join(dict.fromkeys([*(program for program, _ in PROGRAMS), *BESIDE])))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--sample", type=int, default=0, help="so many mutants, drawn from sample.toml")
    parser.add_argument("--seconds", type=float, default=3 * 3600, help="begin no test after so many seconds")
    parser.add_argument("--again", action="store_true", help="try what survived again")
    parser.add_argument("--without", default="", help="leave out programs that have this in their name")
    parser.add_argument("numbers", type=int, nargs="*", help="these mutants alone")
    given = parser.parse_args()
    begin = time.monotonic()
    stop = begin + given.seconds
    given.build = given.build.resolve()
    book = given.build / "mutants.jsonl"
    tried = {line["key"]: line for line in map(json.loads, book.read_text().splitlines())} if book.exists() else {}
    hashes = {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in mutants.sources().items()}
    aside, survivors = mutants.set_aside(), mutants.survivors()
    wanted = [mutant for mutant in mutants.all_mutants() if mutant.key not in aside]
    if given.numbers:
        wanted = [mutant for mutant in wanted if mutant.number in given.numbers]
    known = learn_all(given.build, given.without)
    if given.sample:
        drawn_from = mutants.sample()
        wanted = [mutant for mutant in wanted if mutant.key in drawn_from]
        wanted = random.Random(time.time()).sample(wanted, min(given.sample, len(wanted)))
    counts = collections.Counter()
    missing = 0
    began, new = time.monotonic(), 0
    for at, mutant in enumerate(wanted):
        line = tried.get(mutant.key)
        fresh = line is None or line["source"] != hashes[mutant.file] or given.numbers or given.sample
        if fresh or given.again and line["outcome"] != "found":
            outcome = try_mutant(given.build, mutant.number, known, stop)
            if outcome is None:
                counts["not tried"] += 1
                continue
            new += 1
            line = {"key": mutant.key, "place": mutant.place, "source": hashes[mutant.file]} | outcome
            with book.open("a") as out:
                out.write(json.dumps(line) + "\n")
        counts[line["outcome"]] += 1
        missing += line["outcome"] != "found" and mutant.key not in survivors
        left = (time.monotonic() - began) / max(new, 1) * (len(wanted) - at - 1)
        print(f"[{at + 1}/{len(wanted)}, {left / 60:.0f} min left] {line['outcome']} {mutant.place} {mutant.kind} {mutant.text[:60]}"
              f" {line.get('by', '')}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) +
          f", {len(aside)} set aside; {missing} neither found nor named by tests/mutants/survivors.toml")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
