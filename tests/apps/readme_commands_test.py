#!/usr/bin/env python3
"""The commands of README.md and docs/commands.md are such that the program takes: what is quick is run, of the rest the flags are
looked up. The compressors that README.md and docs/compressors.md list are those of the program.

usage: readme_commands_test.py GRADWIRE
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = "README.md", "docs/commands.md"
LIMIT = 100  # seconds for one command
QUICK = {"train": ["--dry-run"], "plan": [], "inspect schedule": []}  # and what is added to run it


def commands():
    """The words behind each `gradwire` of the pages' shell lines."""
    for block in (block for page in PAGES for block in re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.S)):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            starts = [i for i, word in enumerate(words) if os.path.basename(word) == "gradwire"]
            for start, end in zip(starts, starts[1:] + [len(words)]):
                yield [word for word in words[start + 1:end] if word not in ("--", "&&")]


def gradwire(*words, folder="."):
    return subprocess.run([GRADWIRE, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT, cwd=folder)


class ReadmeCommands(unittest.TestCase):
    def test_they_are_taken(self):
        ran = set()
        with tempfile.TemporaryDirectory() as folder:
            for words in commands():
                key = next((key for key in QUICK if words[:len(key.split())] == key.split()), None)
                if key is None or "cuda" in words:  # a device is not everywhere
                    continue
                with self.subTest(" ".join(words)):
                    done = gradwire(*words, *QUICK[key], folder=folder)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    ran.add(key)
        self.assertEqual(ran, set(QUICK))

    def test_their_flags_are_there(self):
        helps, seen = {}, 0
        for words in commands():
            flags = {word.split("=")[0] for word in words if word.startswith("--")}
            # Operations and subcommands have a help of their own, files have none.
            named = words[:2] if len(words) > 1 and words[0] in ("bench", "inspect", "sim") else words[:1]
            with self.subTest(" ".join(words)):
                if tuple(named) not in helps:
                    helps[tuple(named)] = gradwire(*named, "--help").stdout
                there = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", helps[tuple(named)]))
                self.assertEqual(flags - there, set())
                seen += len(flags)
        self.assertGreater(seen, 40)

    def test_the_compressors_are_the_programs(self):
        listed = gradwire("inspect", "compressors").stdout
        known = set(re.findall(r"^([a-z]\w*): ", listed, re.M))
        self.assertGreater(len(known), 20, listed)
        for page, heading, column in (("README.md", "All 24 compressors", 2), ("docs/compressors.md", "Methods", 1)):
            section = (ROOT / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
            cells = [line.split("|")[column] for line in section.splitlines() if line.startswith("|")]
            self.assertEqual({name for cell in cells for name in re.findall(r"`([a-z]\w*)", cell)}, known, page)


if __name__ == "__main__":
    unittest.main(verbosity=2)
