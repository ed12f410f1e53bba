#!/usr/bin/env python3
"""The README's C++ is the example that the tests build and run, or stands in examples/; every path it links exists."""
import pathlib
import re
import sys

import sources


def main():
    root = pathlib.Path(sys.argv[1])
    readme = (root / "README.md").read_text()
    errors = []
    example = (root / "tests/aggregate/readme_example.cc").read_text()
    blocks = re.findall(r"```cpp\n(.*?)```", readme, re.S)
    wanted = example.split("\n", 1)[1]  # without the line that says what the file is
    if blocks[:1] != [wanted]:
        errors.append("README.md: its C++ differs from tests/aggregate/readme_example.cc")
    examples = [path.read_text() for path in (root / "examples").rglob("*.[ch]*")]
    for block in blocks[1:]:
        if not any(block in text for text in examples):
            errors.append(f"README.md: '{block.splitlines()[0]}' ... stands in no file of examples/")
    for document in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()):
            if not target.startswith(("http:", "https:")) and not (document.parent / target).exists():
                errors.append(f"{document.relative_to(root)}: links to {target}, which is not there")
    sources.finish(errors)


if __name__ == "__main__":
    main()
