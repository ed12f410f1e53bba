#!/usr/bin/env python3
"""The README's picture and table of results are what bench/readme_figures.py makes of the committed results, and its table of
compressors has the methods of docs/compressors.md. tests/lint/docs_test.py judges code blocks and links."""
import pathlib
import re
import subprocess
import sys

import sources


def methods(text, heading, columns):
    """Names of the specs in some columns (from 1) of the first table under a heading."""
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("|")][2:]
    return {name for row in rows for column in columns for name in re.findall(r"`([a-z]\w*)[^`]*`", row[column])}


def main():
    root = pathlib.Path(sys.argv[1])
    errors = []
    made = subprocess.run([sys.executable, str(root / "bench/readme_figures.py"), "--check"], capture_output=True, text=True, timeout=60)
    if made.returncode != 0:
        errors += made.stderr.splitlines() or ["bench/readme_figures.py: failed without a word"]
    short = methods((root / "README.md").read_text(), "All 24 compressors", [2])
    full = methods((root / "docs/compressors.md").read_text(), "Methods", [1])
    if short != full:
        errors.append(f"README.md: compressors {sorted(short - full)} are not in docs/compressors.md, {sorted(full - short)} are only there")
    if len(short) != 24:
        errors.append(f"README.md: got {len(short)} compressors, expected the 24 of its heading")
    sources.finish(errors)


if __name__ == "__main__":
    main()
