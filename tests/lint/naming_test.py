#!/usr/bin/env python3
"""clang-tidy with the project's .clang-tidy (naming above all) over every library and program source.

Tests are left to the compiler and to review: gtest's macros make names of their own.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys


def tidy(job):
    root, build, path = job
    run = subprocess.run(["clang-tidy", "-p", str(build), "--quiet", "--extra-arg=-Wno-unknown-warning-option", str(path)],
                         capture_output=True, text=True, cwd=root, timeout=600)
    found = re.findall(r"^\S+:\d+:\d+: (?:warning|error): .*$", run.stdout, re.M)
    # A source that clang cannot parse at all would hide every finding in it.
    if run.returncode != 0 and not found:
        found = [f"{path}: clang-tidy failed: {run.stderr.strip()[-300:]}"]
    return found


def main():
    root, build = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
    if not shutil.which("clang-tidy"):
        print("clang-tidy is not installed (Debian: clang-tidy)")
        sys.exit(1)
    jobs = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        if path.is_relative_to(root) and not path.is_relative_to(build) and path.relative_to(root).parts[0] != "tests":
            jobs.append((root, build, path))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        findings = sorted({re.sub(r"^(\.\./)+", "", line.replace(f"{build}/../", "").replace(f"{root}/", "")) for lines in pool.map(tidy, sorted(set(jobs))) for line in lines})
    print("\n".join(findings))
    print(f"{len(set(jobs))} sources, {len(findings)} findings")
    sys.exit(1 if findings or not jobs else 0)


if __name__ == "__main__":
    main()
