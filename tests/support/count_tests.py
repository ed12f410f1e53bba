#!/usr/bin/env python3
"""Adds up JUnit files of `meson test` and prints, last, "N passed, N failed, N skipped".

A GoogleTest program counts by its test cases, any other test as one. A file that is missing or
holds no test is a failure: a suite that did not run must not look like one that passed.
"""
import sys
import xml.etree.ElementTree as tree


def count(path):
    passed = failed = skipped = 0
    for case in tree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed += 1
        elif "skipped" in kinds or case.get("status") == "notrun":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main(paths):
    total = [0, 0, 0]
    for path in paths:
        try:
            counts = count(path)
        except (OSError, tree.ParseError) as error:
            print(f"gradwire: error: no test results ({path}: {error})", file=sys.stderr)
            counts = (0, 1, 0)
        total = [a + b for a, b in zip(total, counts)]
    if sum(total) == 0:
        total[1] = 1
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
