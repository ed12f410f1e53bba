#!/usr/bin/env python3
"""Names, sizes and formatting: one class in one source, at most 60 lines per function and 40 files per folder, no vague names,
clang-format's layout."""
import pathlib
import re
import shutil
import subprocess
import sys

import sources

VAGUE = re.compile(r"(^|_)(helpers?|utils?|common|misc|manager|impl2)(_|\.|$)")
UNFINISHED = re.compile(r"\b(FIX" r"ME|XX" r"X|HA" r"CK)\b|TO" r"DO(?!\([a-z]+\): )")
FUNCTION_LIMIT = 60
FOLDER_LIMIT = 40
# Classes that several sources define, and why.
CUT = {
    "CudaLayerKernels": "a kernel's file is compiled by nvcc for every architecture, side by side with the others",
    "UniformKernel": "a source of SIMD code is compiled once for every target, side by side with the others",
}
# To be mended when their rooms are rebuilt.
STILL_CUT = {"GradwireBackend", "ShardedHook", "Engine", "Trainer"}
# Data, a file for each program or target that is named like it.
DATA = ("bench/results", "tests/fuzz/corpus")
MEMBER = re.compile(r"^(?=\S)(?!return\b)(?:[\w:<>,&*\s\[\]]+?[ &*])?([A-Z]\w*)::(?:\w+::)*(?:~?\w+|operator\S+)\(")


def cut_classes(root, code):
    """A member function is defined at the left margin, as clang-format lays it out: `Type Class::name(`."""
    sources_of = {}
    for path in code:
        if path.suffix in (".cc", ".cu") and path.parts[0] not in ("tests", "examples"):
            for line in (root / path).read_text().split("\n"):
                if match := MEMBER.match(line):
                    sources_of.setdefault((path.parent, match.group(1)), set()).add(path.name)
    for (folder, name), files in sorted(sources_of.items()):
        if len(files) > 1 and name not in CUT and name not in STILL_CUT:
            yield f"{folder}: {name} is defined in {', '.join(sorted(files))} (expected one source)"


def full_folders(root):
    counts = {}
    for path in sources.tracked(root):
        counts[str(path.parent)] = counts.get(str(path.parent), 0) + 1
    for folder, count in sorted(counts.items()):
        if count > FOLDER_LIMIT and not folder.startswith(DATA):
            yield f"{folder}: {count} files (at most {FOLDER_LIMIT})"


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
        if VAGUE.search(path.name):
            errors.append(f"{path}: the name says nothing; name the noun")
        for number, line in enumerate(lines, 1):
            if UNFINISHED.search(line):
                errors.append(f"{path}:{number}: unfinished: {line.strip()}")
        if path.suffix in sources.CODE:
            errors += long_functions(path, lines)
    errors += [*cut_classes(root, code), *full_folders(root)]
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
