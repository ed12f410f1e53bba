#!/usr/bin/env python3
"""Folders include only what folders.toml allows, docs/internals/architecture.md shows it, and every source file is named by a
meson.build. With --write, writes the tables of that page."""
import pathlib
import re
import sys
import tomllib

import sources

PAGE = "docs/internals/architecture.md"
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def under(name, folder):
    return name == folder or name.startswith(folder + "/")


class Rules:
    def __init__(self, table):
        self.folders = {folder["name"]: folder for folder in table["folder"]}
        self.libraries = [(re.compile(library["headers"]), library) for library in table["library"]]

    def folder_of(self, name):
        """The most special folder with rules that `name` is in; None: none."""
        return max((folder for folder in self.folders if under(name, folder)), key=len, default=None)

    def error(self, place, quoted, name):
        """What is wrong with an include in the file at `place`; None: nothing."""
        own = self.folder_of(place)
        top = name.split("/")[0]
        for headers, library in self.libraries:
            homes = library["folders"] + library.get("tests", [])
            if headers.search(name) and not any(under(place, home) for home in homes):
                return f"<{name}> belongs in {', '.join(homes)} only"
        if own == "tests" or top in ("gradwire", "gtest"):
            return None
        if own == "examples":  # as any program outside: what lies beside it, and what is installed
            return f'"{name}": examples include public headers and their own only' if "/" in name else None
        if own == "include" and (quoted or "/" in name):
            return f'"{name}": a public header includes gradwire/ and the standard library only'
        if not quoted:
            return None
        target = self.folder_of(name)
        if target is None:
            return f'"{name}": project headers are included by their full path'
        allowed = self.folders[own]["includes"]
        if target == own or any(under(target, folder) for folder in allowed):
            return None
        return f'"{name}": {own} may include {", ".join(allowed) or "nothing"} and the public headers'

    def tables(self):
        """The lines of the page's two tables, by name."""
        rows = ["| folder | holds | may include, besides itself and the public headers |", "|---|---|---|"]
        for name, folder in self.folders.items():
            label = "include/gradwire" if name == "include" else name
            room = name.split("/")[0]
            allowed = [other.removeprefix(room + "/") if "/" in name else other for other in folder["includes"]
                       if "/" in name or not under(other, name)]
            rows.append(f"| `{label}` | {folder['holds']} | {folder.get('says') or ', '.join(allowed) or '–'} |")
        libraries = ["| library | folders |", "|---|---|"]
        for _, library in self.libraries:
            libraries.append(f"| {library['name']} | {', '.join(f'`{folder}`' for folder in library['folders'])} |")
        return {"folders": rows, "libraries": libraries}


def with_tables(text, tables):
    for name, rows in tables.items():
        block = re.compile(rf"(<!-- folders\.toml: {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)
        if not block.search(text):
            raise SystemExit(f"{PAGE}: no place for the table of {name} (expected <!-- folders.toml: {name} --> ... <!-- end -->)")
        text = block.sub(lambda match: match[1] + "\n".join(rows) + "\n" + match[3], text)
    return text


def includes(path):
    for number, line in enumerate(path.read_text().split("\n"), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def unnamed_sources(root, code):
    named = "\n".join((root / p).read_text() for p in sources.tracked(root) if p.name == "meson.build")
    for path in code:
        if path.suffix in (".cc", ".cu", ".c") and path.name not in named:
            stem = path.name[: -len(path.suffix)]
            # foreach loops name 'x' and build 'x_test.cc', 'x_fuzz.cc', ...
            base = re.sub(r"_(test|laws|fuzz)$", "", stem)
            if f"'{stem}'" not in named and f"'{base}'" not in named:
                yield f"{path}: no meson.build names it"


def main():
    root = pathlib.Path(sys.argv[1])
    rules = Rules(tomllib.loads((root / "tests/lint/folders.toml").read_text()))
    page = root / PAGE
    wanted = with_tables(page.read_text(), rules.tables())
    if "--write" in sys.argv:
        page.write_text(wanted)
    code = sources.code(root)
    errors = []
    for path in code:
        if rules.folder_of(str(path)) is None:
            errors.append(f"{path}: folder '{path.parts[0]}' is not in folders.toml")
            continue
        for number, quoted, name in includes(root / path):
            error = rules.error(str(path), quoted, name)
            if error:
                errors.append(f"{path}:{number}: {error}")
    if page.read_text() != wanted:
        errors.append(f"{PAGE}: its tables are not those of folders.toml (write them: tests/lint/layering_test.py . --write)")
    errors += unnamed_sources(root, code)
    sources.finish(errors)


if __name__ == "__main__":
    main()
