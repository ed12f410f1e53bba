#!/usr/bin/env python3
"""Adds up JUnit files of `meson test`, names what failed, and prints, last, "N passed, N failed, N skipped".

usage: count_tests.py [--ci] [--broken TEXT] ... FOLDER/meson-logs/NAME.junit.xml ...

A GoogleTest program counts by its test cases, any other test as one. A file that is missing or
holds no test is a failure: a suite that did not run must not look like one that passed. So is a
skip, also that of a single case in a Python program, that expected_skips.toml does not expect on
this machine; with --ci it expects those alone that continuous integration may have. What --broken says is a
failure, too: a part of a run that no test of Meson's stands for.
"""
import argparse
import fnmatch
import pathlib
import re
import sys
import tomllib
import xml.etree.ElementTree as tree

import machine

EXPECTED = pathlib.Path(__file__).with_name("expected_skips.toml")
CASE = re.compile(r"\.\.\. skipped (['\"])(.*)\1$", re.M)
CASES = re.compile(r"\((?:.*, )?skipped=(\d+)", re.M)


SHOWN = 600  # characters of what a test said


class Ended:
    """A test that was skipped or failed: the suites that it is in, its name, and what it said."""

    def __init__(self, suites, name, said):
        self.suites, self.name, self.said = suites, name, said


def cases_of(suites, name, said):
    """The cases that a program skipped by itself."""
    reasons = [found.group(2) for found in CASE.finditer(said)]
    missing = sum(int(number) for number in CASES.findall(said)) - len(reasons)
    reasons += ["no reason printed (unittest.main(verbosity=2) wanted)"] * max(missing, 0)
    return [Ended(suites, f"{name}: {reason}", reason) for reason in reasons]


def count(path):
    """How many passed, those that failed, and those that were skipped."""
    passed, failed, skips = 0, [], []
    for case in tree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        said = "\n".join(child.text or child.get("message") or "" for child in case if child.tag.startswith("system-") or child.tag in ("failure", "error"))
        whole = re.fullmatch(r"\S+?:(\S+) / (.*)", case.get("name", ""))
        suites = whole.group(1).split("+") if whole else []
        name = whole.group(2) if whole else f"{case.get('classname')}.{case.get('name')}"
        if kinds & {"failure", "error"}:
            failed.append(Ended(suites, name, said.strip()))
        elif "skipped" in kinds or case.get("status") == "notrun":
            skips.append(Ended(suites, name, said.strip()))
        else:
            passed += 1
            skips += cases_of(suites, name, said)
    return passed, failed, skips


class Expected:
    """expected_skips.toml, for the tests of one build folder."""

    def __init__(self, data, folder, in_ci, has=machine.has):
        self.conditions, self.skips = data["conditions"], data["skips"]
        self.folder, self.in_ci, self.has = folder, in_ci, has
        self.lacking = {}

    def may_lack(self, name):
        if self.in_ci and not self.conditions[name]["ci"]:
            return False
        if name not in self.lacking:
            self.lacking[name] = not self.has(self.conditions[name]["probe"], self.folder)
        return self.lacking[name]

    def why_not(self, skip):
        """Why the skip is not expected; empty if it is."""
        met = []
        for entry in self.skips:
            if "suite" in entry and entry["suite"] not in skip.suites:
                continue
            if not any(fnmatch.fnmatchcase(skip.name, pattern) for pattern in entry["tests"]):
                continue
            if any(self.may_lack(name) for name in entry["needs"]):
                return ""
            met += entry["needs"]
        if not met:
            return f"it is not in {EXPECTED.name}"
        where = "continuous integration must not lack" if self.in_ci else "this machine does not lack"
        return f"{where} {', '.join(dict.fromkeys(met))}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--broken", action="append", default=[])
    parser.add_argument("paths", nargs="*")
    given = parser.parse_args()
    data = tomllib.loads(EXPECTED.read_text())
    total = [0, len(given.broken), 0]
    for words in given.broken:
        print(f"gradwire: error: {words}", file=sys.stderr)
    for path in given.paths:
        expected = Expected(data, pathlib.Path(path).parents[1], given.ci)
        try:
            passed, failed, skips = count(path)
            if not passed + len(failed) + len(skips):
                raise OSError("no test in it")
        except (OSError, tree.ParseError) as error:
            print(f"gradwire: error: no test results ({path}: {error})", file=sys.stderr)
            passed, failed, skips = 0, [], []
            total[1] += 1
        # Again, below all that passed: the end of a long log is what people see of it.
        for test in failed:
            print(f"gradwire: error: {test.name} failed ({path.removesuffix('.junit.xml')}.txt); it says: {test.said[-SHOWN:] or 'nothing'}", file=sys.stderr)
        unexpected = [(skip, why) for skip in skips if (why := expected.why_not(skip))]
        for skip, why in unexpected:
            print(f"gradwire: error: unexpected skip of {skip.name}: {why}; it says: {skip.said[-SHOWN:] or 'nothing'}", file=sys.stderr)
        counts = (passed, len(failed) + len(unexpected), len(skips) - len(unexpected))
        total = [a + b for a, b in zip(total, counts)]
    if sum(total) == 0:  # no file was given
        total[1] = 1
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
