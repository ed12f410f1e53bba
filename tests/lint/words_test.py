#!/usr/bin/env python3
"""No text that a user reads has a word of words.toml: prose, string literals, public headers, examples, and, given the program, its help."""
import ast
import pathlib
import re
import subprocess
import sys
import tomllib

import sources

# Comments and includes first, so that quotes in them begin nothing; then raw strings, strings, characters (but not 1'000).
CXX = re.compile(r'#include[^\n]*|//[^\n]*|/\*.*?\*/|R"(\w*)\((?P<raw>.*?)\)\1"|"(?P<text>(?:[^"\\\n]|\\.)*)"|(?<!\w)\'(?:[^\'\\\n]|\\.)+\'', re.S)
CXX_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".c"}
HELP_SECONDS = 60


class Words:
    def __init__(self, data):
        self.better = {form: word["say"] for word in data["word"] for form in word["avoid"]}
        self.pattern = re.compile("|".join(self.whole(form) for form in sorted(self.better, key=len, reverse=True)), re.I)
        self.allowed = {(word, file) for allow in data.get("allow", []) for word in allow["words"] for file in allow["files"]}
        self.used = set()

    @staticmethod
    def whole(form):
        """The form as a whole word, or as a key with its "="; a line may end in it."""
        end = "" if form.endswith("=") else r"(?!\w)"
        return r"(?<!\w)" + r"\s+".join(re.escape(part) for part in form.split()) + end

    def findings(self, place, line, text):
        for match in self.pattern.finditer(text):
            word = re.sub(r"\s+", " ", match.group(0).lower())
            if (word, place) in self.allowed:
                self.used.add((word, place))
                continue
            yield f"{place}:{line + text.count(chr(10), 0, match.start())}: '{word}' (say: {self.better[word]})"


def cxx_strings(text):
    """String literals with their lines; neighbours are one, as for the compiler."""
    found, end = [], None
    for match in CXX.finditer(text):
        body = match["text"] if match["text"] is not None else match["raw"]
        if body is None:
            continue
        body = re.sub(r"\\[nt]", " ", body)
        if found and end is not None and not text[end:match.start()].strip():
            found[-1] = (found[-1][0], found[-1][1] + body)
        else:
            found.append((text.count("\n", 0, match.start()) + 1, body))
        end = match.end()
    return found


def python_strings(text):
    return [(node.lineno, node.value) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def strings_of(path, text):
    if path.suffix in CXX_SUFFIXES:
        return cxx_strings(text)
    return python_strings(text) if path.suffix == ".py" else []


def helps_of(program):
    """The program's help and that of every command that it lists."""
    def text(*words):
        return subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=HELP_SECONDS).stdout
    whole = text()
    commands = re.findall(r"^  ([a-z][a-z-]*)\s", whole, re.M)
    if not commands:
        raise SystemExit(f"{program} --help lists no command")
    return {"gradwire --help": whole, **{f"gradwire {command} --help": text(command) for command in commands}}


def unseen(words):
    """Findings that this test does not make where it must, or makes where it must not."""
    sample = 'f(1\'000, "a Card", 2\'000);  // for ever\n#include "comm/shm/arena.h"\nchar c = \'"\'; g("wild\\ncard " "so\\tmany", "qsgd:inner=none");\n'
    found = [finding for line, piece in cxx_strings(sample) for finding in words.findings("sample", line, piece)]
    return [] if [finding.split("'")[1] for finding in found] == ["card", "card", "inner="] else [f"words_test.py: finds {found} in {sample!r}"]


def main():
    root = pathlib.Path(sys.argv[1])
    data = tomllib.loads((pathlib.Path(__file__).parent / "words.toml").read_text())
    later = data["places"].pop("later", [])
    words, errors, read = Words(data), [], dict.fromkeys(data["places"], 0)
    for path in sources.tracked(root):
        if any(path.is_relative_to(place) for place in later):
            continue
        for kind, places in data["places"].items():
            if not any(path.is_relative_to(place) for place in places) or (kind == "prose" and path.suffix != ".md"):
                continue
            text = (root / path).read_text(errors="replace")
            pieces = strings_of(path, text) if kind == "strings" else [(1, text)]
            read[kind] += len(pieces)
            for line, piece in pieces:
                errors += words.findings(str(path), line, piece)
    errors += [f"words.toml: {kind} = ... matches nothing" for kind, count in read.items() if not count]
    errors += [f"words.toml: '{word}' is allowed in {file}, and is not there" for word, file in sorted(words.allowed - words.used)
               if not any(pathlib.PurePath(file).is_relative_to(place) for place in later)]
    errors += unseen(words)
    for program in sys.argv[3:]:
        errors += [finding for place, text in helps_of(program).items() for finding in words.findings(place, 1, text)]
    sources.finish(errors)


if __name__ == "__main__":
    main()
