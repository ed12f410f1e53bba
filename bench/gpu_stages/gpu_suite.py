"""The suite `gpu`, test by test, and compute-sanitizer over some of it, for bench/gpu."""
import concurrent.futures
import json
import os
import shutil

from timed_rows import say

AT_A_TIME = 2
SKIPPED = 77
LEAST_SECONDS = 5  # that are worth beginning a test
# What takes hundreds of steps, by test: for --full.
LONG = {"gpu_laws": "-*ErrorIsWithinItsBound*:*UnbiasedIfClaimed*"}
SANITIZER_SECONDS = 240
ERRORS_FOUND = 9
MOST_SAID = 2000  # characters of a message that a row keeps
# Tool, test, and its cases: racecheck is slow, so it is given one or two of each kind of kernel with shared memory.
CHECKED = (
    ("memcheck", "gpu_device_ops", "*"),
    ("memcheck", "gpu_payloads", "*"),
    ("memcheck", "gpu_topk", "*"),
    ("memcheck", "gpu_layers", "*"),
    ("racecheck", "gpu_payloads", "DevicePayloads.AreTheHostsBytes:DevicePayloads.AreReadAndAddedAsTheHostDoes"),
    ("racecheck", "gpu_topk", "DeviceTopk.BitmapsAreTheHosts"),
    ("racecheck", "gpu_layers", "*ComputeWhatTheHostComputes/*_norm:*ComputeWhatTheHostComputes/attention:*LossesThere*"),
)


def tests_of(run):
    """As Meson knows them; empty where the build has none."""
    return [test for test in run.build.introspect("--tests") if any(suite.split(":")[-1] == "gpu" for suite in test["suite"])]


def run_suite(run):
    run.stage = "building the suite"
    tests = tests_of(run)
    if not tests:
        run.rows.add_failed("the suite", {"bench": "test", "suite": "gpu"}, "the build has no tests (install GoogleTest and GoogleMock)")
        return
    made = run.make("gpu_tests")
    run.stage = "the suite"
    apart = [test for test in tests if not test.get("is_parallel", True)]
    pool = concurrent.futures.ThreadPoolExecutor(AT_A_TIME)
    waiting = [pool.submit(run.attempt, test["name"], run_test, run, test, made) for test in tests if test not in apart]
    try:
        for one in waiting:
            one.result()
    except BaseException:  # what runs is ended after the last row
        for one in waiting:
            one.cancel()
        raise
    finally:
        pool.shutdown(wait=False)
    for test in apart:
        run.attempt(test["name"], run_test, run, test, made)


def run_test(run, test, made):
    name = test["name"]
    row = {"bench": "test", "suite": "gpu", "test": name}
    program = test["cmd"][0]
    if name in LONG and not run.options.full:
        row["filter"] = LONG[name]
    if run.earlier.has(row):
        return
    if not made and not run.build.is_made(program):
        if any(what.startswith("build of gpu_tests") for what in run.rows.left_out):
            run.rows.add_left_out(name, row, "its program was not built in time")
        else:
            run.rows.add_failed(name, row, "its program was not built")
        return
    limit = min(test["timeout"] or run.clock.seconds, run.clock.left())
    if limit < LEAST_SECONDS:
        run.rows.add_left_out(name, row, run.time_is_over())
        return
    say(f"test {name}")
    outcome = run_cases(run, test, row, [], limit)
    judge(run, name, row, outcome, limit < (test["timeout"] or run.clock.seconds))


def run_cases(run, test, row, before, limit):
    """Runs a test's program, or what stands `before` it, with the row's filter; the row learns what became of its cases."""
    report = str(run.build.folder / f"{test['name']}.cases.json")
    if os.path.exists(report):
        os.remove(report)  # an older run's
    command = [*before, *test["cmd"], f"--gtest_output=json:{report}"]
    if "filter" in row:
        command.append(f"--gtest_filter={row['filter']}")
    outcome = run.commands.run(command, limit, env={**run.build.env, **test["env"]})
    row["seconds"] = outcome.seconds
    row.update(cases_in(report))
    return outcome


def judge(run, name, row, outcome, cut_short):
    if outcome.status == 0 and row.get("cases") == 0:
        run.rows.add_failed(name, {**row, "outcome": "failed"}, "no case ran")
    elif outcome.status == 0:
        run.rows.add({**row, "outcome": "passed"})
    elif outcome.status == SKIPPED:
        why = next((line.split("skipped: ", 1)[1] for line in outcome.lines if "skipped: " in line), outcome.why())
        if run.has_gpu and ("cudaError" in why or "no CUDA device" in why):
            run.rows.add_failed(name, {**row, "outcome": "failed"}, f"a GPU is here, and CUDA finds none: {why}")
        else:
            run.rows.add({**row, "outcome": "skipped", "skipped": why})
    elif outcome.timed_out and cut_short:
        run.rows.add_left_out(name, row, f"{outcome.why()}, of --seconds {run.clock.seconds:g}")
    else:
        said = "\n".join(outcome.lines)
        say(said)
        run.rows.add_failed(name, {**row, "outcome": "failed", "output": said[-4 * MOST_SAID:]}, outcome.why())


def cases_in(report):
    """How many cases ran, and which failed and what they said first, as GoogleTest wrote it; empty where it did not come to that."""
    try:
        with open(report, encoding="utf-8") as file:
            suites = json.load(file)["testsuites"]
    except (OSError, ValueError, KeyError):
        return {}
    cases = [(f"{suite['name']}.{case['name']}", case) for suite in suites for case in suite["testsuite"] if case["status"] == "RUN"]
    failed = {name: case["failures"][0].get("failure", "")[:MOST_SAID] for name, case in cases if "failures" in case}
    return {"cases": len(cases), "failed_cases": failed}


def sanitizer_program():
    for place in ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer"):
        if shutil.which(place):
            return shutil.which(place)
    return ""


def run_sanitizer(run):
    program = sanitizer_program()
    for why, holds in (("compute-sanitizer is missing (expected in PATH, or in /usr/local/cuda/bin)", not program),
                       (f"there is no GPU: {run.no_device}", run.no_device)):
        if holds:
            run.rows.add_left_out("compute-sanitizer", {"bench": "sanitizer"}, why)
            return
    tests = {test["name"]: test for test in tests_of(run)}
    for tool, name, cases in CHECKED:
        run.stage = f"{tool} of {name}"
        row = {"bench": "sanitizer", "tool": tool, "test": name, "filter": cases}
        if run.earlier.has(row):
            continue
        limit = min(SANITIZER_SECONDS, run.clock.left())
        if limit < LEAST_SECONDS or name not in tests or not os.path.exists(tests[name]["cmd"][0]):
            why = run.time_is_over() if limit < LEAST_SECONDS else "its program was not built"
            run.rows.add_left_out(run.stage, row, why)
            continue
        say(run.stage)
        checks = [program, "--tool", tool, "--error-exitcode", str(ERRORS_FOUND)]
        outcome = run_cases(run, tests[name], row, checks, limit)
        row["errors"] = outcome.status == ERRORS_FOUND
        row["summary"] = next((line.strip("= ") for line in reversed(outcome.lines) if "SUMMARY" in line), "")
        if outcome.timed_out:
            run.rows.add_left_out(run.stage, row, outcome.why())
        else:
            judge(run, run.stage, row, outcome, False)
