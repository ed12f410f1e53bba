#!/usr/bin/env python3
"""Prints the targets, as ninja has them, that tests of a build folder start.

usage: targets_of.py FOLDER TEST ... | FOLDER --suite NAME

A name that is no test, or no suite, is an error: a sample must not shrink when a test is renamed.
"""
import os
import sys

import machine


def main(folder, *names):
    folder = os.path.realpath(folder)
    tests = {}  # by name; two parts of the tree may each have a test of one name
    for test in machine.introspected(folder, "tests"):
        tests.setdefault(test["name"], []).append(test)
    if names[:1] == ("--suite",):
        def in_suite(test):
            return any(suite.split(":")[-1] == names[1] for suite in test["suite"])
        tests = {name: named for name, alike in tests.items() if (named := list(filter(in_suite, alike)))}
        names = list(tests) or names[1:]
    unknown = [name for name in names if name not in tests]
    if unknown:
        print(f"gradwire: error: no such test in {folder} ({', '.join(unknown)})", file=sys.stderr)
        return 1
    files = {target["id"]: target["filename"] for target in machine.introspected(folder, "targets")}
    targets = {os.path.relpath(file, folder)
               for name in names for test in tests[name] for target in test["depends"] for file in files[target]}
    print("\n".join(sorted(targets)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
