#!/usr/bin/env python3
"""Documentation: every code block says how it is checked, every link leads somewhere, prose is at most 100 columns wide.

Tags are described in tests/docs/blocks.py. A page with blocks that are tagged <!-- run --> is in the list of
tests/docs/meson.build, which runs them.
"""
import pathlib
import re
import sys

import sources

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "docs"))
import blocks  # noqa: E402

COLUMNS = 100
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]]*\]\(([^)\s]+)\)")
SOURCE = re.compile(r"(?:src|srcset|href)=\"([^\"]+)\"")


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def block_errors(root, block):
    where = f"{block.page.relative_to(root)}:{block.line}"
    if block.tag is None:
        return [f"{where}: a code block without a tag (expected <!-- run -->, <!-- run: FILE -->, <!-- run by: TEST -->, "
                "<!-- generated: FILE --> or <!-- needs: REASON --> in the line above it)"]
    if block.tag == "needs":
        return [] if block.subject else [f"{where}: <!-- needs --> without a reason (expected <!-- needs: REASON -->)"]
    if block.tag == "run" and not block.subject:
        return []
    file = root / (block.subject or "")
    if not block.subject or not file.is_file():
        return [f"{where}: the tag names the file '{block.subject}', which is not there"]
    text = file.read_text()
    if block.tag == "run by":
        # The test's build file may name the page in its stead.
        meson = file.parent / "meson.build"
        named = block.page.name in text + (meson.read_text() if meson.is_file() else "")
        return [] if named else [f"{where}: {block.subject} does not read {block.page.name}"]
    if block.tag == "run":
        return [] if block.text in text else [f"{where}: the block differs from {block.subject}"]
    lines = {squeezed(line) for line in text.split("\n")}
    return [f"{where}: '{line.strip()}' does not stand in {block.subject}" for line in block.text.split("\n")
            if squeezed(line) and squeezed(line) not in lines]


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    found, seen = set(), {}
    for _, line in blocks.prose(page):
        heading = re.match(r"^#{1,6}\s+(.*?)\s*#*$", line)
        if heading:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
            anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            found.add(anchor if anchor not in seen else f"{anchor}-{seen[anchor]}")
            seen[anchor] = seen.get(anchor, 0) + 1
        found.update(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", line))
    return found


def link_errors(root, page):
    errors = []
    for number, line in blocks.prose(page):
        targets = [one or other for one, other in LINK.findall(line)] + SOURCE.findall(line)
        for target in targets:
            if re.match(r"^(https?:|mailto:)", target):
                continue
            name, _, anchor = target.partition("#")
            leads_to = (page.parent / name) if name else page
            if not leads_to.exists():
                errors.append(f"{page.relative_to(root)}:{number}: links to {target}, which is not there")
            elif anchor and leads_to.suffix == ".md" and anchor not in anchors(leads_to):
                errors.append(f"{page.relative_to(root)}:{number}: links to {target}, and {leads_to.name} has no such heading")
    return errors


def width_errors(root, page):
    """Tables, and lines that one long word or link makes long, may be wider."""
    return [f"{page.relative_to(root)}:{number}: {len(line)} columns (expected at most {COLUMNS})" for number, line in blocks.prose(page)
            if len(line) > COLUMNS and not line.lstrip().startswith(("|", "<", "!")) and len(line.split()) > 2]


def listed(root):
    """The pages whose blocks tests/docs/meson.build runs."""
    text = (root / "tests/docs/meson.build").read_text()
    return set(re.findall(r"'([\w/.-]+\.md)'", text))


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    errors, run = [], set()
    for page in blocks.pages(root, sources.tracked(root)):
        for block in blocks.blocks(page):
            errors += block_errors(root, block)
            if block.tag == "run" and not block.subject:
                run.add(str(page.relative_to(root)))
        errors += link_errors(root, page) + width_errors(root, page)
    for name in sorted(run - listed(root)):
        errors.append(f"{name}: has blocks tagged <!-- run --> and is not in tests/docs/meson.build")
    for name in sorted(listed(root) - run):
        errors.append(f"tests/docs/meson.build: {name} has no block tagged <!-- run -->")
    sources.finish(errors)


if __name__ == "__main__":
    main()
