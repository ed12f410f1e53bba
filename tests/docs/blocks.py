"""The code blocks of the documentation and the tag above each of them.

A tag is an HTML comment in the line above the fence:
  <!-- run -->              tests/docs/blocks_test.py runs the block as it stands
  <!-- run: FILE -->        the block stands in FILE, which a test builds or runs
  <!-- run by: TEST -->     the test in the file TEST reads the block from the page and checks it
  <!-- generated: FILE -->  every line of the block stands in FILE, a committed result
  <!-- needs: REASON -->    no test can run it: what it needs, or why it is no command
"""
import dataclasses
import pathlib
import re

TAG = re.compile(r"^\s*<!-- (run by|run|generated|needs)(?:: (.*\S))? -->$")
FENCE = re.compile(r"^(\s*)(```+)([^`]*)$")


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int  # of the fence, from 1
    language: str
    text: str
    tag: str | None
    subject: str | None  # what follows the tag's colon


def pages(root, tracked):
    """The documentation: every Markdown file that git tracks."""
    return [root / name for name in tracked if name.suffix == ".md"]


def blocks(page):
    """The page's fenced blocks in order; a fence that nothing closes ends with the page."""
    lines = page.read_text().split("\n")
    found, at = [], 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if not fence:
            at += 1
            continue
        indent, ticks, language = fence.groups()
        end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == ticks), len(lines))
        tag = TAG.match(lines[at - 1]) if at else None
        text = "\n".join(line.removeprefix(indent) for line in lines[at + 1:end]) + "\n"
        found.append(Block(page, at + 1, language.strip(), text, tag and tag.group(1), tag and tag.group(2)))
        at = end + 1
    return found


def prose(page):
    """(number, line) of every line outside fenced blocks."""
    inside = None
    for number, line in enumerate(page.read_text().split("\n"), 1):
        fence = FENCE.match(line)
        if inside is None and fence:
            inside = fence.group(2)
        elif inside is not None:
            if line.strip() == inside:
                inside = None
        else:
            yield number, line
