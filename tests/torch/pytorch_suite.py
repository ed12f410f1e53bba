#!/usr/bin/env python3
"""PyTorch's own DistributedTest over this backend, and over Gloo for comparison.

    pytorch_suite.py --ranks N [--backend gradwire|gloo|both] [--at-least COUNT] [--json FILE] [TEST ...]

The suite decides by the backend's name what it runs, so it is imported as for Gloo and told the other name afterwards; ranks are
forked, which takes a minute instead of an hour. With `both`, what Gloo passes and gradwire does not must be one of BY_NAME: tests
that ask for a backend called gloo, mpi or nccl. With --at-least, fewer tests that gradwire passes are a failure, too.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import unittest

BY_NAME = {
    "test_accumulate_gradients_no_sync",
    "test_accumulate_gradients_no_sync_grad_is_view",
    "test_accumulate_gradients_no_sync_allreduce_hook",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_ddp_logging_data_cpu",
    "test_monitored_barrier_gloo",
    "test_monitored_barrier_gloo_subgroup",
}
TEST_SECONDS = 180


class Outcomes(unittest.TestResult):
    """Each test's outcome by name."""

    def __init__(self):
        super().__init__()
        self.by_name = {}
        self.reasons = {}

    def _note(self, test, outcome, reason=""):
        name = test.id().split(".")[-1]
        self.by_name[name] = outcome
        if reason:
            self.reasons[name] = reason

    def addSuccess(self, test):
        self._note(test, "passed")

    def addSkip(self, test, reason):
        self._note(test, "skipped", reason)

    def addFailure(self, test, error):
        self._note(test, "failed", self._exc_info_to_string(error, test))

    def addError(self, test, error):
        self._note(test, "failed", self._exc_info_to_string(error, test))

    def addExpectedFailure(self, test, error):
        self._note(test, "passed")


def suite_of(backend):
    """The test case class; this process must not have a communicator or a thread of its own."""
    os.environ["BACKEND"] = "gloo"
    import torch.testing._internal.common_distributed as common
    import torch.testing._internal.distributed.distributed_test as suite
    from torch import multiprocessing

    common.TIMEOUT_DEFAULT = TEST_SECONDS
    if backend != "gloo":
        import gradwire.torch  # noqa: F401: registers
    suite.BACKEND = backend
    os.environ["BACKEND"] = backend

    class TestDistributed(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    return TestDistributed


def run(backend, ranks, names):
    """Outcomes by test, on this backend, in a process of its own for each call."""
    os.environ["WORLD_SIZE"] = str(ranks)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TEMP_DIR"] = folder
        open(os.path.join(folder, "barrier"), "w").close()
        case = suite_of(backend)
        wanted = names or unittest.TestLoader().getTestCaseNames(case)
        outcomes = Outcomes()
        for name in wanted:
            unittest.TestSuite([case(name)]).run(outcomes)
    return outcomes


def run_apart(backend, ranks, names):
    """run() in a child, because the suite can be imported for one backend only."""
    with tempfile.NamedTemporaryFile() as file:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                outcomes = run(backend, ranks, names)
                with open(file.name, "w", encoding="utf-8") as out:
                    json.dump({"outcomes": outcomes.by_name, "reasons": outcomes.reasons}, out)
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"the suite on {backend} ended with status {status}"
        return json.load(open(file.name, encoding="utf-8"))


def count(outcomes, wanted):
    return sum(outcome == wanted for outcome in outcomes.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--backend", default="both", choices=["gradwire", "gloo", "both"])
    parser.add_argument("--at-least", type=int, default=0)
    parser.add_argument("--json")
    parser.add_argument("tests", nargs="*")
    asked = parser.parse_args()
    results = {}
    for backend in ["gloo", "gradwire"] if asked.backend == "both" else [asked.backend]:
        started = time.monotonic()
        results[backend] = run_apart(backend, asked.ranks, asked.tests)
        outcomes = results[backend]["outcomes"]
        print(
            f"{backend}, {asked.ranks} ranks: {len(outcomes)} tests, {count(outcomes, 'passed')} passed, {count(outcomes, 'skipped')} "
            f"skipped, {count(outcomes, 'failed')} failed, {time.monotonic() - started:.0f} s",
            flush=True,
        )
        for name, outcome in sorted(outcomes.items()):
            if outcome == "failed" and not (backend == "gradwire" and name in BY_NAME):
                print(f"  failed: {name}\n{results[backend]['reasons'][name]}")
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    failed = {name for name, outcome in results.get("gradwire", {"outcomes": {}})["outcomes"].items() if outcome == "failed"}
    status = 1 if failed - BY_NAME else 0
    if "gradwire" in results and count(results["gradwire"]["outcomes"], "passed") < asked.at_least:
        print(f"gradwire: error: fewer passed than {asked.at_least}")
        status = 1
    if len(results) == 2:
        ours = results["gradwire"]["outcomes"]
        passed = {name for name, outcome in results["gloo"]["outcomes"].items() if outcome == "passed"}
        missing = {name for name in passed if ours.get(name) != "passed"}
        print(f"of {len(passed)} that Gloo passes, gradwire passes {len(passed - missing)}; by their name alone not: {len(missing & BY_NAME)}")
        for name in sorted(missing - BY_NAME):
            print(f"  missing: {name}: {results['gradwire']['reasons'].get(name, '')}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
