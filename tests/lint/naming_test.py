#!/usr/bin/env python3
"""clang-tidy with the project's .clang-tidy (naming above all) over every library and program source.

Most of its time goes into what a source includes. So sources that define no name twice and are compiled alike are looked at
together, as one that includes them all; where clang cannot read them together, each is looked at alone. And a source in which
nothing was found is looked at again only when it, a header of the project that it includes, or a setting has changed.
Tests are left to the compiler and to review: gtest's macros make names of their own.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

SOURCES_TOGETHER = 48
# What a file defines or declares at the beginning of a line, where clang-format puts it; members (Class::name) have names of
# their own.
DEFINITION = re.compile(r"^(?:#define\s+(\w+)|(?:class|struct|enum class|enum|union|using|concept)\s+(\w+)"
                        r"|(?!return\b|GW_|static_assert|namespace|template|#|//)\w[^({=;]*?[\s*&](\w+)(?:\[[^\]]*\])?(?:\(| ?\{| =|;))", re.M)
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.M | re.S)
# Of a group of sources that are compiled as one (unit.cc.in).
GROUPED = re.compile(r'^#include "([^"]+\.cc)"$', re.M)
OWN_INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def definitions(text):
    return {name for found in DEFINITION.finditer(text) for name in found.groups() if name}


class Tree:
    """The project's files, each read once."""

    def __init__(self, root, clang_tidy, folders):
        self.root = root
        self.clang_tidy = clang_tidy
        # A source that is looked at with others is to clang-tidy a file like a header: what it does not filter counts.
        self.filter = f"/({'|'.join(['include/gradwire', *sorted(folders)])})/.*\\.(h|cc)$"
        settings = (root / ".clang-tidy").read_text() + pathlib.Path(__file__).read_text()
        version = subprocess.run([clang_tidy, "--version"], capture_output=True, text=True).stdout
        self.settings = settings + version

    @functools.cache
    def text(self, path):
        return path.read_text() if path.is_file() else ""

    def reads(self, path):
        """The source and the project's headers that it includes, and they include."""
        seen, left = set(), [path]
        while left:
            at = left.pop()
            if at not in seen:
                seen.add(at)
                left += [place / name for name in OWN_INCLUDE.findall(self.text(at)) for place in (self.root, self.root / "include", at.parent)
                         if (place / name).is_file()]
        return sorted(seen)

    def digest(self, source):
        known = [self.settings, *source.language, *(self.text(path) for path in self.reads(source.path))]
        return hashlib.sha256("\0".join(known).encode()).hexdigest()

    @functools.cache
    def names_of_header(self, path):
        return definitions(self.text(path))

    def headers(self, path):
        return frozenset(read for read in self.reads(path) if read != path)

    def ambiguous(self, path, headers):
        """Those of `headers` that it does not include, and that give a name to something else than it does for itself."""
        own = definitions("\n".join(UNNAMED.findall(self.text(path))))
        return {header for header in headers - self.headers(path) if own & self.names_of_header(header)}


class Source:
    """Its path, the arguments that say how it is read, and the folders it includes from."""

    def __init__(self, path, command):
        self.path, self.language, self.folders = path, [], []
        arguments = iter(shlex.split(command)[1:])
        for argument in arguments:
            if argument in ("-o", "-c", "-MF", "-MQ"):
                next(arguments)
            elif argument == "-isystem":
                self.folders.append("-isystem" + next(arguments))
            elif argument.startswith(("-I", "-isystem")):
                self.folders.append(argument)
            elif argument.startswith(("-D", "-U", "-std=", "-pthread")):
                self.language.append(argument)
        # The emulator has headers of the CUDA runtime's names.
        self.emulated = any(folder.endswith("tests/emulation/runtime") for folder in self.folders)


class Together:
    """Sources that are looked at as one."""

    def __init__(self, language, emulated):
        self.language, self.emulated, self.folders, self.sources = language, emulated, [], []
        self.names, self.headers, self.ambiguous = set(), set(), set()

    def takes(self, source, names, headers, ambiguous):
        return (source.language == self.language and source.emulated == self.emulated and len(self.sources) < SOURCES_TOGETHER and not names & self.names
                and not headers & self.ambiguous and not ambiguous & self.headers)

    def add(self, source, names, headers, ambiguous):
        self.sources.append(source)
        self.names |= names
        self.headers |= headers
        self.ambiguous |= ambiguous
        self.folders += [folder for folder in source.folders if folder not in self.folders]


def compiled(root, build, path):
    """The source, or those that a group in the build folder includes."""
    if not path.is_relative_to(build):
        return [path]
    return [root / name for name in GROUPED.findall(path.read_text())] if path.name.startswith("unit_") else []


def sources_of(root, build):
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        for path in compiled(root, build, (pathlib.Path(entry["directory"]) / entry["file"]).resolve()):
            if path.is_relative_to(root) and path.relative_to(root).parts[0] != "tests":
                found[path] = Source(path, entry["command"])
    return [found[path] for path in sorted(found)]


def speak_alike(sources):
    """A definition that some sources are compiled with changes nothing in the others: all get it, unless its value differs."""
    values = {}
    for source in sources:
        for argument in source.language:
            values.setdefault(argument.split("=")[0], set()).add(argument)
    shared = sorted(next(iter(found)) for found in values.values() if len(found) == 1)
    for source in sources:
        source.language = shared + [argument for argument in source.language if len(values[argument.split("=")[0]]) > 1]


def gather(tree, sources):
    groups = []
    headers_of = {source: tree.headers(source.path) for source in sources}
    everything = frozenset().union(*headers_of.values())
    for source in sources:
        facts = definitions(tree.text(source.path)), headers_of[source], tree.ambiguous(source.path, everything)
        group = next((g for g in groups if g.takes(source, *facts)), None)
        if not group:
            group = Together(source.language, source.emulated)
            groups.append(group)
        group.add(source, *facts)
    return sorted(groups, key=lambda group: -len(group.sources))


def tidy(tree, path, build, language, folders):
    """What clang-tidy finds in it, and whether clang could read it."""
    run = subprocess.run([tree.clang_tidy, "--quiet", f"--config-file={tree.root}/.clang-tidy", f"--header-filter={tree.filter}", str(path), "--",
                          *language, *folders, "-w"], capture_output=True, text=True, cwd=build, timeout=1200)
    found = re.findall(r"^\S+:\d+:\d+: (?:warning|error): .*$", run.stdout, re.M)
    if run.returncode != 0 and not found:
        # A source that clang cannot read at all would hide every finding in it.
        found = [f"{path}: clang-tidy failed: {run.stderr.strip()[-300:]}"]
    return found, run.returncode == 0


def look_at(job):
    """Findings, the sources without any, and how many had to be looked at alone after all."""
    group, tree, build, folder, number = job
    if len(group.sources) > 1:
        path = folder / f"sources_{number}.cc"
        path.write_text("".join(f'#include "{source.path}"\n' for source in group.sources))
        found, read = tidy(tree, path, build, group.language, group.folders)
        if read:
            return found, [] if found else group.sources, 0
        print(f"not together: {found[0]}", file=sys.stderr)
    lines, clean = [], []
    for source in group.sources:
        found, _ = tidy(tree, source.path, build, source.language, source.folders)
        lines += found
        clean += [] if found else [source]
    return lines, clean, len(group.sources)


def main():
    root, build = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
    own = root / ".cache/clang-tidy/bin/clang-tidy"  # ./check makes it
    clang_tidy = str(own) if own.is_file() else shutil.which("clang-tidy")
    if not clang_tidy:
        print(f"no clang-tidy: neither {own} (./check --suite lint makes it) nor one in PATH")
        sys.exit(1)
    sources = sources_of(root, build)
    tree = Tree(root, clang_tidy, {source.path.relative_to(root).parts[0] for source in sources})
    speak_alike(sources)
    digests = {source: tree.digest(source) for source in sources}
    record = build / "naming-clean.txt"  # digests of sources in which nothing was found
    known = set(record.read_text().split()) if record.is_file() else set()
    groups = gather(tree, [source for source in sources if digests[source] not in known])
    with tempfile.TemporaryDirectory(prefix="gradwire-lint-") as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        results = list(pool.map(look_at, [(group, tree, build, pathlib.Path(folder), number) for number, group in enumerate(groups)]))
    known |= {digests[source] for _, clean, _ in results for source in clean}
    known &= set(digests.values())  # of what has changed since
    record.write_text("\n".join(sorted(known)) + "\n")
    findings = sorted({re.sub(r"^(\.\./)+", "", line.replace(f"{build}/../", "").replace(f"{root}/", "")) for lines, _, _ in results for line in lines})
    print("\n".join(findings))
    print(f"{len(sources)} sources: {sum(len(group.sources) for group in groups)} looked at in {len(groups)} groups, "
          f"{sum(alone for _, _, alone in results)} of them alone; {len(findings)} findings")
    sys.exit(1 if findings or not sources else 0)


if __name__ == "__main__":
    main()
