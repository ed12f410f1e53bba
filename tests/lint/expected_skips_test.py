#!/usr/bin/env python3
"""What ./check counts: a skip that expected_skips.toml does not expect on this machine is a failure. And what that list names is there.

usage: expected_skips_test.py SOURCE BUILD
"""
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

SOURCE, BUILD = (pathlib.Path(word) for word in sys.argv[1:3])
sys.path.insert(0, str(SOURCE / "tests/support"))
import count_tests  # noqa: E402
import machine  # noqa: E402

DATA = {
    "conditions": {"gpu": {"probe": "device", "ci": True}, "slurm": {"probe": "all of slurmd", "ci": False}},
    "skips": [{"suite": "gpu", "tests": ["*"], "needs": ["gpu"], "why": "."},
              {"tests": ["slurm", "report: no Chromium"], "needs": ["slurm"], "why": "."}],
}
PASSED = '<testcase name="gradwire:unit / philox" classname="gradwire"/>'
SKIPPED = '<testcase name="gradwire:{}" classname="gradwire"><skipped/><system-out>skipped: a reason</system-out></testcase>'
CASE = ('<testcase name="gradwire:unit / report" classname="gradwire"><system-err>test_a (T.test_a) ... ok\n'
        "test_b (T.test_b)\nA docstring. ... skipped 'no Chromium'\n\nOK (skipped={})</system-err></testcase>")


def unexpected(cases, lacking=(), in_ci=False):
    """The names of the skips that are not expected where what `lacking` names is not there."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "testlog.junit.xml"
        path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
        skips = count_tests.count(path)[2]
    probes = {DATA["conditions"][name]["probe"] for name in lacking}
    expected = count_tests.Expected(DATA, "", in_ci, lambda probe, folder: probe not in probes)
    return [skip.name for skip in skips if expected.why_not(skip)]


def counted(*cases, words=()):
    """What the program makes of files with these cases, one each, and of words before them."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / str(number) / "meson-logs/testlog.junit.xml" for number in range(len(cases))]
        for path, case in zip(paths, cases):
            path.parent.mkdir(parents=True)
            path.write_text(f"<testsuites>{case}</testsuites>")
        return subprocess.run([sys.executable, SOURCE / "tests/support/count_tests.py", *words, *paths], capture_output=True, text=True,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, timeout=60)


class ExpectedSkips(unittest.TestCase):
    def test_what_nobody_expects_is_a_failure(self):
        case = SKIPPED.format("unit / philox")
        self.assertEqual(unexpected([PASSED, case], ["gpu", "slurm"]), ["philox"])

    def test_a_skip_is_expected_where_what_it_needs_is_lacking(self):
        case = SKIPPED.format("multiprocess / slurm")
        self.assertEqual(unexpected([case], ["slurm"]), [])
        self.assertEqual(unexpected([case], ["gpu"]), ["slurm"])
        self.assertEqual(unexpected([case], ["slurm"], in_ci=True), ["slurm"])

    def test_a_suite_is_the_test_s_own(self):
        self.assertEqual(unexpected([SKIPPED.format("gpu / gpu_topk")], ["gpu"], in_ci=True), [])
        self.assertEqual(unexpected([SKIPPED.format("unit+devices / gpu_topk")], ["gpu"]), ["gpu_topk"])

    def test_a_case_that_a_program_skips_by_itself_counts(self):
        self.assertEqual(unexpected([CASE.format(1)], ["slurm"]), [])
        self.assertEqual(unexpected([CASE.format(1)]), ["report: no Chromium"])
        self.assertEqual(len(unexpected([CASE.format(2)], ["slurm"])), 1)  # one without a word

    def test_a_case_of_googletest_counts(self):
        self.assertEqual(unexpected(['<testcase name="Case" classname="Suite" status="notrun"/>']), ["Suite.Case"])

    def test_a_file_without_tests_is_a_failure_beside_one_with_tests(self):
        done = counted(PASSED, "")
        self.assertEqual((done.returncode, done.stdout), (1, "1 passed, 1 failed, 0 skipped\n"))
        self.assertRegex(done.stderr, r"no test results \(.*1/meson-logs/testlog\.junit\.xml: no test in it\)")

    def test_the_program_fails(self):
        done = counted(PASSED + SKIPPED.format("unit / philox"))
        self.assertEqual((done.returncode, done.stdout), (1, "1 passed, 1 failed, 0 skipped\n"))
        self.assertIn("unexpected skip of philox", done.stderr)

    def test_what_broke_beside_the_tests_is_a_failure(self):
        done = counted(PASSED, words=["--broken", "one thing", "--broken", "another"])
        self.assertEqual((done.returncode, done.stdout), (1, "1 passed, 2 failed, 0 skipped\n"))
        self.assertIn("error: another\n", done.stderr)

    def test_what_failed_is_named_with_what_it_said_last(self):
        done = counted(PASSED + '<testcase name="gradwire:lint / naming"><failure/><system-out>first\n2 findings\n</system-out></testcase>'
                       '<testcase name="Case" classname="Suite"><failure message="m">a.cc:3\nExpected: 1</failure></testcase>')
        self.assertEqual((done.returncode, done.stdout), (1, "1 passed, 2 failed, 0 skipped\n"))
        self.assertRegex(done.stderr, r"error: naming failed \(.*meson-logs/testlog\.txt\); it says: first\n2 findings\n")
        self.assertIn("it says: the message alone\n", counted('<testcase name="a"><failure message="the message alone"/></testcase>').stderr)
        self.assertRegex(done.stderr, r"error: Suite\.Case failed \(.*\); it says: a\.cc:3\nExpected: 1\n")


class TheList(unittest.TestCase):
    def setUp(self):
        self.data = tomllib.loads(count_tests.EXPECTED.read_text())

    def test_every_condition_is_one_and_is_used(self):
        used = {name for entry in self.data["skips"] for name in entry["needs"]}
        self.assertEqual(used, set(self.data["conditions"]))
        for entry in self.data["skips"]:
            self.assertTrue(entry["why"])

    def test_every_probe_answers(self):
        for name, condition in self.data["conditions"].items():
            with self.subTest(name):
                self.assertIn(machine.has(condition["probe"], BUILD), (True, False))

    def test_every_name_is_a_test(self):
        names = {test["name"] for test in machine.introspected(BUILD, "tests")}
        cases = {".".join(case) for path in machine.PROJECT.glob("tests/**/*_test.cc")
                 for case in re.findall(r"^TEST(?:_F)?\((\w+), (\w+)\)", path.read_text(), re.M)}
        for entry in self.data["skips"]:
            if entry.get("suite") == "gpu":  # of builds with CUDA
                continue
            if not all(machine.has(self.data["conditions"][name]["probe"], BUILD) for name in entry["needs"]):
                continue  # what builds on it may be left out
            for pattern in entry["tests"]:
                with self.subTest(pattern):
                    self.assertTrue(fnmatch.filter(names | cases, pattern.split(":")[0]), pattern)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
