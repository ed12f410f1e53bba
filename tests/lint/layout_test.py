#!/usr/bin/env python3
"""Sizes, names and formatting of files: at most 400 lines, 60 per function, no vague names, clang-format's layout."""
import pathlib
import re
import shutil
import subprocess
import sys

import sources

VAGUE = re.compile(r"(^|_)(helpers?|utils?|common|misc|manager|impl2)(_|\.|$)")
UNFINISHED = re.compile(r"\b(FIX" r"ME|XX" r"X|HA" r"CK)\b|TO" r"DO(?!\([a-z]+\): )")
FUNCTION_LIMIT = 60
FILE_LIMIT = 400


def long_functions(path, lines):
    """A function body opens on a line that ends with ') {' (or with const, noexcept, ...) at namespace or class depth,
    as clang-format lays it out, and closes on the first '}' of the same indentation."""
    opening = re.compile(r"^( *)(?!if|for|while|switch|else|do|namespace|class|struct|enum|union|extern|return)\S.*\)[^;]*\{$")
    for start, line in enumerate(lines):
        match = opening.match(line)
        if not match or len(match.group(1)) > 2:
            continue
        indent = match.group(1)
        for end in range(start + 1, len(lines)):
            if lines[end].startswith(indent + "}"):
                if end - start + 1 > FUNCTION_LIMIT:
                    yield f"{path}:{start + 1}: a function of {end - start + 1} lines (at most {FUNCTION_LIMIT})"
                break


def main():
    root = pathlib.Path(sys.argv[1])
    errors = []
    code = sources.code(root)
    for path in code + [p for p in sources.tracked(root) if p.suffix == ".py"]:
        lines = (root / path).read_text().split("\n")
        if len(lines) - 1 > FILE_LIMIT:
            errors.append(f"{path}: {len(lines) - 1} lines (at most {FILE_LIMIT})")
        if VAGUE.search(path.name):
            errors.append(f"{path}: the name says nothing; name the noun")
        for number, line in enumerate(lines, 1):
            if UNFINISHED.search(line):
                errors.append(f"{path}:{number}: unfinished: {line.strip()}")
        if path.suffix in sources.CODE:
            errors += long_functions(path, lines)
    if shutil.which("clang-format"):
        names = [str(root / p) for p in code]
        run = subprocess.run(["clang-format", "--dry-run", "--Werror", *names], capture_output=True, text=True, cwd=root)
        errors += sorted({re.sub(r":\d+: error.*", ": clang-format would change it", line)
                          for line in run.stderr.split("\n") if ": error:" in line})
    else:
        errors.append("clang-format is not installed (Debian: clang-format)")
    sources.finish(errors)


if __name__ == "__main__":
    main()
