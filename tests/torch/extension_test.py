#!/usr/bin/env python3
"""Where the compiled extension for PyTorch comes from: the wheel's, the cache, a compiler; what is said of each. The compiler here is a
script that writes down that it was called."""

import contextlib
import fcntl
import io
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import torch

from gradwire.torch import _extension, _prebuilt

SECONDS = 120
# Its last argument but those of libraries is "-o TARGET": writes that file, slowly, and one line to $CALLS.
COMPILER = """#!/bin/sh
echo called >>"$CALLS"
sleep 0.5
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then echo binary >"$2"; fi
  shift
done
exit "${STATUS:-0}"
"""


class Extension(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        compiler = self.folder / "compiler"
        compiler.write_text(COMPILER)
        compiler.chmod(0o755)
        self.calls = self.folder / "calls"
        self.enterContext(mock.patch.dict(os.environ, CXX=str(compiler), CALLS=str(self.calls), GRADWIRE_CACHE=str(self.folder / "cache")))

    def times_compiled(self):
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0

    @contextlib.contextmanager
    def said(self):
        text = io.StringIO()
        with contextlib.redirect_stderr(text):
            yield text

    def test_the_build_command_needs_no_extension(self):
        """It neither loads one that is broken nor compiles one before it has read its arguments."""
        def built(*arguments):
            return subprocess.run([sys.executable, "-m", "gradwire.torch.build", *arguments], capture_output=True, text=True, timeout=SECONDS)

        helped, wrong = built("--help"), built("--forse")
        self.assertEqual((helped.returncode, wrong.returncode), (0, 2), helped.stderr + wrong.stderr)
        self.assertIn("--force", helped.stdout)
        self.assertIn("--forse", wrong.stderr)
        self.assertEqual(self.times_compiled(), 0)
        for expected in (1, 2):  # what the compiler here makes is no library
            done = built("--force")
            self.assertEqual((done.returncode, self.times_compiled()), (0, expected), done.stderr)

    def test_the_cache_is_where_the_environment_says(self):
        with mock.patch.dict(os.environ, GRADWIRE_CACHE="/somewhere"):
            self.assertEqual(_extension.cache_folder(), pathlib.Path("/somewhere"))
        with mock.patch.dict(os.environ, GRADWIRE_CACHE="", XDG_CACHE_HOME="/caches"):
            self.assertEqual(_extension.cache_folder(), pathlib.Path("/caches/gradwire"))
        with mock.patch.dict(os.environ, GRADWIRE_CACHE="", XDG_CACHE_HOME="", HOME="/home/somebody"):
            self.assertEqual(_extension.cache_folder(), pathlib.Path("/home/somebody/.cache/gradwire"))
        with mock.patch.dict(os.environ, GRADWIRE_CACHE="", XDG_CACHE_HOME=""):
            with mock.patch.object(pathlib.Path, "home", side_effect=RuntimeError("Could not determine home directory.")):
                with self.assertRaisesRegex(ImportError, "home directory.*GRADWIRE_CACHE"):
                    _extension.cache_folder()

    def test_a_key_names_pytorch_its_abi_python_and_the_machine(self):
        key = _extension._key(torch, _extension.source_root())
        abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
        self.assertTrue(key.startswith(f"torch{torch.__version__}-abi{abi}-{sys.implementation.cache_tag}-{os.uname().machine}-"), key)

    def test_compiled_once_and_announced_by_one_line(self):
        with self.said() as first:
            path = _extension.build()
        self.assertEqual(first.getvalue(), f"gradwire: compiling the PyTorch extension for torch {torch.__version__} (about 30 s, once)\n")
        self.assertEqual(path.read_text(), "binary\n")
        with self.said() as second:
            self.assertEqual(_extension.build(), path)
        self.assertEqual(second.getvalue(), "")
        self.assertEqual(self.times_compiled(), 1)
        self.assertEqual(sorted(entry.name for entry in path.parent.iterdir()), [path.name, "lock"])

    def test_processes_that_start_together_compile_once(self):
        said = self.folder / "said"

        def build():
            with open(said, "a", buffering=1, encoding="utf-8") as file, contextlib.redirect_stderr(file):
                _extension.build()

        ranks = [multiprocessing.get_context("fork").Process(target=build) for _ in range(4)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(SECONDS)
        self.assertEqual([rank.exitcode for rank in ranks], [0] * 4)
        self.assertEqual(self.times_compiled(), 1)
        self.assertEqual(len(said.read_text().splitlines()), 1, said.read_text())

    def test_a_compiler_that_fails_leaves_nothing_and_is_quoted(self):
        with mock.patch.dict(os.environ, STATUS="1"), self.said(), self.assertRaisesRegex(ImportError, "compiling its extension.*failed"):
            _extension.build()
        self.assertEqual(list((self.folder / "cache").rglob("*.so")), [])

    def test_a_lock_that_stays_taken_is_given_up_with_its_holder(self):
        path = self.folder / "lock"
        with open(path, "w", encoding="utf-8") as holder:
            holder.write("process 4711")
            holder.flush()
            fcntl.flock(holder, fcntl.LOCK_EX)
            with mock.patch.object(_extension, "LOCK_SECONDS", 0.3), self.assertRaisesRegex(ImportError, "process 4711.*lock"):
                with _extension._locked(path):
                    pass

    def test_a_file_system_without_locks_is_done_without(self):
        with mock.patch.object(fcntl, "flock", side_effect=OSError(37, "No locks available")), self.said():
            self.assertTrue(_extension.build().is_file())

    def test_without_a_compiler_the_error_says_what_to_do(self):
        with mock.patch.dict(os.environ, CXX="", PATH=str(self.folder / "empty")), self.said() as said:
            with self.assertRaisesRegex(ImportError, r"'g\+\+' was not found.*apt-get install g\+\+.*GRADWIRE_CACHE"):
                _extension.build()
        self.assertEqual(said.getvalue(), "")

    def test_a_cache_that_cannot_be_made_is_named(self):
        (self.folder / "file").write_text("")
        with mock.patch.dict(os.environ, GRADWIRE_CACHE=str(self.folder / "file")), self.said():
            with self.assertRaisesRegex(ImportError, "file/torch.*GRADWIRE_CACHE names another"):
                _extension.build()


class Carried(unittest.TestCase):
    """What the wheel carries is taken for the PyTorch that it was compiled for alone."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.object(_prebuilt, "FOLDER", self.folder))
        self.enterContext(mock.patch.dict(os.environ, GRADWIRE_LIBRARY=""))

    def carry(self, name):
        (self.folder / name).mkdir()
        path = self.folder / name / f"{_extension.NAME}.so"
        path.write_text("binary")
        return path

    def test_none_is_none(self):
        self.assertIsNone(_extension._carried(torch))

    def test_the_one_for_this_pytorch_is_taken_and_belongs_to_the_packages_library(self):
        path = self.carry(_prebuilt.name(torch))
        self.assertEqual(_extension._carried(torch), path)
        self.assertEqual(_extension.ahead(), path)
        with mock.patch.dict(os.environ, GRADWIRE_LIBRARY="/another/libgradwire.so"):
            self.assertIsNone(_extension._carried(torch))

    def test_another_release_abi_or_header_is_another_name(self):
        own = _prebuilt.name(torch)
        self.carry(own)

        def like(version=str(torch.__version__), abi=torch._C._GLIBCXX_USE_CXX11_ABI, file=torch.__file__):
            return types.SimpleNamespace(__version__=version, __file__=file, _C=types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=abi))

        minor = re.match(r"\d+\.\d+", str(torch.__version__))[0]
        self.assertEqual(_prebuilt.name(like(version=f"{minor}.7+own")), own)  # a patch release with the same headers
        self.assertIsNone(_prebuilt.find(like(version="2.99.0"), _extension.NAME))
        self.assertIsNone(_prebuilt.find(like(abi=not torch._C._GLIBCXX_USE_CXX11_ABI), _extension.NAME))
        # A header that differs in one byte.
        include = pathlib.Path(torch.__file__).resolve().parent / "include"
        for header in _prebuilt.HEADERS:
            copy = self.folder / "torch/include" / header
            copy.parent.mkdir(parents=True, exist_ok=True)
            if (include / header).is_file():
                copy.write_bytes((include / header).read_bytes())
        other = like(file=str(self.folder / "torch/__init__.py"))
        self.assertEqual(_prebuilt.name(other), own)
        work = self.folder / "torch/include/torch/csrc/distributed/c10d/Work.hpp"
        work.write_bytes(work.read_bytes() + b"\n")
        self.assertNotEqual(_prebuilt.name(other), own)

    def test_one_that_does_not_load_is_announced_and_compiled_anew(self):
        self.carry(_prebuilt.name(torch))
        compiled = types.SimpleNamespace()
        with mock.patch.object(_extension, "build", return_value=self.folder / "compiled.so"), \
                mock.patch.object(_extension, "_module", side_effect=[ImportError("undefined symbol"), compiled]), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertIs(_extension.load(), compiled)
        self.assertRegex(said.getvalue(), "the wheel's PyTorch extension does not fit torch .*undefined symbol")

    def test_every_header_of_the_name_is_one_that_pytorch_has_had(self):
        # c10/macros/ was c10/headeronly's place before 2.9: one of the two is there.
        include = pathlib.Path(torch.__file__).resolve().parent / "include"
        missing = [header for header in _prebuilt.HEADERS if not (include / header).is_file()]
        self.assertLessEqual(set(missing), {"c10/macros/cmake_macros.h", "torch/headeronly/macros/cmake_macros.h"})
        self.assertLessEqual(len(missing), 1, missing)


if __name__ == "__main__":
    unittest.main(verbosity=2)
