#!/usr/bin/env python3
"""Spelling of what users read, by codespell: documentation, public headers, examples, the Python package, the programs' texts."""
import pathlib
import shutil
import subprocess
import sys

import sources

READ = ("include/", "python/", "examples/", "apps/", "packaging/", "tests/run/")
# Identifiers that codespell takes for misspelt words, in lower case.
RIGHT = "kown,kno,whats,commun"


def main():
    root = pathlib.Path(sys.argv[1])
    if not shutil.which("codespell"):
        sources.finish(["codespell is not installed (Debian's package codespell, which ./check installs)"])
    names = [str(name) for name in sources.tracked(root) if name.suffix == ".md" or str(name) in ("check", "demo") or
             (str(name).startswith(READ) and name.suffix in {".h", ".cc", ".c", ".py", ".sh", ".toml", ".html", ".js", ".yaml", ".build"})]
    found = subprocess.run(["codespell", "--ignore-words-list", RIGHT, *names], cwd=root, capture_output=True, text=True, timeout=120)
    sources.finish(found.stdout.splitlines() + found.stderr.splitlines())


if __name__ == "__main__":
    main()
