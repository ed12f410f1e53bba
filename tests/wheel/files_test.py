#!/usr/bin/env python3
"""What the wheel is made of, without making it: every file of the package is installed, versions agree, the release does what is tested.

usage: files_test.py ROOT
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))


def text(name):
    return (ROOT / name).read_text()


class Files(unittest.TestCase):
    def test_every_file_of_the_package_is_installed(self):
        installed = text("python/meson.build")
        python = [path.relative_to(ROOT / "python") for path in (ROOT / "python/gradwire").rglob("*.py")]
        sources = [pathlib.Path("../adapters/torch") / path.name for path in (ROOT / "adapters/torch").iterdir() if path.is_file()]
        self.assertGreater(len(python), 10)
        self.assertGreater(len(sources), 10)
        self.assertEqual([str(path) for path in python + sources if f"'{path}'" not in installed], [])

    def test_the_citation_has_the_version(self):
        version = re.search(r"^  version: '(.*)'", text("meson.build"), re.M)[1]
        self.assertEqual(re.search(r"^version: (.*)$", text("CITATION.cff"), re.M)[1], version)

    def test_the_release_makes_the_wheel_as_check_does(self):
        release = text(".github/workflows/release.yml")
        self.assertIn("- run: ./check --wheel\n", release)
        self.assertIn("image: debian:12\n", release)
        self.assertIn("path: build-wheel/dist/gradwire-*.whl\n", release)
        self.assertIn('folder / "dist"', text("packaging/make_wheel.py"))

    def test_the_torch_of_the_wheel_is_the_one_that_check_installs(self):
        installed = re.search(r"torch==(\d+\.\d+)\.", text("tests/run/torch.sh"))[1]
        self.assertIn(f"PyTorch {installed} and Python", text("docs/pytorch.md"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
