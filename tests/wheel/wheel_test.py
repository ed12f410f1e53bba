#!/usr/bin/env python3
"""The wheel of packaging/make_wheel.py: what is in it, and that it works where there is no compiler.

usage: wheel_test.py FOLDER      (what make_wheel.py was given)

It is installed in the root directory of a Debian that has Python and nothing else (FOLDER/root, made by mmdebstrap). With PyTorch:
.cache/torch, which ./check makes. Ends with "N passed, N failed, N skipped".
"""

import hashlib
import hmac
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import urllib.parse
import zipfile

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests/docs"))
import bare_root  # noqa: E402
import blocks  # noqa: E402

SECONDS = 300  # a command may take
FOLDER = pathlib.Path("build-wheel")
# What may be needed and is neither in the wheel nor PyTorch's: a part of every Linux that the tag names.
OF_THE_SYSTEM = re.compile(r"lib(stdc\+\+|m|c|gcc_s|dl|pthread|rt)\.so\.\d$|ld-linux.*\.so\.\d$")
OF_PYTORCH = {"libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so"}
TRAIN = """
    import torch
    import gradwire.torch

    torch.distributed.init_process_group("gradwire")
    torch.manual_seed(1)
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
    gradwire.torch.compress(ddp, "topk:ratio=0.01,ef=ef14")
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        (ddp(torch.full((4, 64), torch.distributed.get_rank() + step + 1.0)) ** 2).mean().backward()
        optimizer.step()
    weights = [torch.empty(8, 64) for _ in range(2)]
    torch.distributed.all_gather(weights, ddp.module.weight.detach())
    assert torch.equal(*weights), "replicas differ"
    print(f"replicas alike: {gradwire.torch.describe()}\\n", end="", flush=True)  # one write: ranks share a pipe
    torch.distributed.destroy_process_group()
"""


def packages_of_torch():
    """The files of the environment that ./check makes; none without it."""
    return sorted((PROJECT / ".cache/torch/lib").glob("python3*/site-packages/*"))


def wheel():
    found = list((FOLDER / "dist").glob("gradwire-*.whl"))
    assert len(found) == 1, f"{FOLDER / 'dist'} has {len(found)} wheels (1 expected)"
    return found[0]


class Contents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        with zipfile.ZipFile(wheel()) as file:
            cls.names = file.namelist()
            file.extractall(cls.folder)

    def binaries(self):
        return [name for name in self.names if re.search(r"\.so(\.|$)", name)]

    def needed(self, name):
        said = subprocess.run(["readelf", "-d", str(self.folder / name)], capture_output=True, text=True, check=True).stdout
        return re.findall(r"\(NEEDED\).*\[(.*)\]", said)

    def test_the_tag_is_the_oldest_that_auditwheel_finds_honest(self):
        tag = re.fullmatch(r"gradwire-[0-9.]+-py3-none-(manylinux_2_\d+_\w+?)(\.manylinux\w+)?\.whl", wheel().name)
        self.assertIsNotNone(tag, wheel().name)
        said = subprocess.run([FOLDER / "tools/bin/python", "-m", "auditwheel", "show", wheel()], capture_output=True, text=True, check=True)
        # It also speaks of PyTorch's libraries, which it has not been told to leave out.
        self.assertIn(f'This constrains the platform tag to "{tag[1]}"', " ".join(said.stdout.split()))
        print(f"  {wheel().name}: {wheel().stat().st_size / 1e6:.1f} MB")

    def test_it_holds_what_is_meant(self):
        meant = re.compile(r"gradwire/|gradwire\.libs/(libhwy-[^/]+)?$|gradwire-[^/]+\.dist-info/|gradwire_torch_autoload\.py$")
        self.assertEqual([name for name in self.names if not meant.match(name)], [])
        binaries = re.compile(r"gradwire/libgradwire\.so$|gradwire\.libs/libhwy-|gradwire/torch/prebuilt/torch2\.13-[^/]+/_torch_backend\.so$")
        self.assertEqual([name for name in self.binaries() if not binaries.match(name)], [])

    def test_nothing_is_needed_that_is_not_there(self):
        inside = {pathlib.Path(name).name for name in self.binaries()}
        for name in self.binaries():
            more = OF_PYTORCH if "prebuilt" in name else set()
            strange = [one for one in self.needed(name) if one not in inside | more and not OF_THE_SYSTEM.match(one)]
            self.assertEqual(strange, [], name)

    def test_licences_of_what_is_inside_are_inside(self):
        for library, licence in {"libsodium": "ISC", "libhwy": "Apache", "libxxhash": "BSD", "libeigen3": "MPL"}.items():
            self.assertIn(licence, (self.folder / f"gradwire/licenses/{library}.txt").read_text())

    def test_the_metadata_describes_it(self):
        metadata = next(self.folder.glob("gradwire-*.dist-info/METADATA")).read_text()
        for line in ("Name: gradwire", "License", "Requires-Python: >=3.9", "Requires-Dist: numpy", "# gradwire"):
            self.assertIn(line, metadata)


class WithoutCompiler(unittest.TestCase):
    """In a Debian of Python alone, with NumPy beside the wheel."""

    @classmethod
    def setUpClass(cls):
        cls.root = bare_root.BareRoot(FOLDER / "root", wheel())
        cls.root.install(path for path in packages_of_torch() if path.name.startswith("numpy"))

    def test_there_is_no_compiler_and_no_ucx(self):
        for name in ("g++", "gcc", "cc", "clang", "meson", "ninja"):
            self.assertEqual(self.root.start("sh", "-c", f"command -v {name}").wait(SECONDS), 127, name)
        self.assertEqual([str(path) for path in self.root.folder.rglob("libucp.so*")], [])

    def test_the_example_of_the_python_page(self):
        example = next(block.text for block in blocks.blocks(PROJECT / "docs/python.md") if "gradwire.Aggregator(" in block.text)
        for said in self.root.ranks(example + "\nprint(comm)"):
            self.assertRegex(said, r"over tcp.*collectives in shared memory")
        self.root.check("/env/bin/python", "-c", example)  # one rank

    def test_every_transport_that_needs_no_ucx(self):
        program = "import gradwire, numpy; comm = gradwire.init(); print(comm.all_reduce(numpy.arange(3.0)).tolist(), comm)"
        for transport in ("auto", "tcp", "shm"):
            for said in self.root.ranks(program, 3, GRADWIRE_TRANSPORT=transport):
                self.assertIn("[0.0, 3.0, 6.0]", said)
                self.assertIn("over tcp", said)

    def test_ranks_as_threads(self):
        self.root.check("/env/bin/python", "-c", textwrap.dedent("""
            import gradwire, numpy, threading
            ranks = gradwire.threads(4)
            sums = [None] * 4
            def one(rank):
                sums[rank] = ranks[rank].all_reduce(numpy.ones(1000, "f4"))
            started = [threading.Thread(target=one, args=(rank,)) for rank in range(4)]
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()
            assert all((total == 4).all() for total in sums)"""))

    def test_ucx_that_is_asked_for_and_missing_is_named(self):
        for said in self.root.ranks("import gradwire; gradwire.init(transport='ucx')", expected=1):
            self.assertRegex(said, "Unsupported.*libucp.so.0.*libucx0")

    def test_its_hmac_is_the_one_of_python(self):
        def mac(key, *parts):
            return hmac.new(key, b"".join(len(part).to_bytes(8, "little") + part for part in parts), hashlib.sha256)

        store = self.root.home / "store"
        store.mkdir()
        program = "import gradwire, os; gradwire.init(rank=int(os.environ['RANK']), size=2, rendezvous='file:///home/store')"
        self.root.ranks(program, GRADWIRE_SECRET="correct horse")
        key = mac(b"correct horse", b"gradwire file rendezvous of job", b"job").hexdigest().encode()
        files = sorted((store / "job").glob("k-*"))
        self.assertGreaterEqual(len(files), 4)
        for path in files:
            raw, name = path.read_bytes(), urllib.parse.unquote_to_bytes(path.name[2:])
            self.assertEqual(raw[4:36], mac(key, b"gradwire file rendezvous", name, raw[36:]).digest(), path.name)

    def test_a_secret_opens_the_rendezvous_over_tcp(self):
        program = "import gradwire, numpy; print(gradwire.init().all_reduce(numpy.ones(2)).tolist())"
        for said in self.root.ranks(program, GRADWIRE_SECRET="correct horse", GRADWIRE_TRANSPORT="tcp"):
            self.assertIn("[2.0, 2.0]", said)


@unittest.skipUnless(packages_of_torch(), "PyTorch in .cache/torch, which ./check makes")
class WithTorch(unittest.TestCase):
    """In the same root directory, with PyTorch beside the wheel."""

    @classmethod
    def setUpClass(cls):
        cls.root = bare_root.BareRoot(FOLDER / "root", wheel())
        cls.root.install(packages_of_torch())

    def torchrun(self, program):
        (self.root.home / "train.py").write_text(program)
        said = self.root.check("/env/bin/python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "/home/train.py")
        self.assertNotIn("compiling", said)
        self.assertEqual([str(path) for path in self.root.home.rglob("*.so")], [])
        return said

    def test_the_readmes_example_under_torchrun_compiles_nothing(self):
        example = next(block.text for block in blocks.blocks(PROJECT / "README.md")
                       if block.language == "python" and "DistributedDataParallel(" in block.text)
        print(textwrap.indent(self.torchrun(example), "  "))

    def test_replicas_stay_alike_over_tcp(self):
        said = self.torchrun(textwrap.dedent(TRAIN))
        self.assertEqual(len(re.findall("replicas alike: .*over tcp", said)), 2, said)

    def test_another_pytorch_without_a_compiler_is_told_what_to_do(self):
        process = self.root.start("/env/bin/python", "-c", "import torch; torch.__version__ = '2.99.0'; import gradwire.torch")
        said = bare_root.said_by(process)
        self.assertNotEqual(process.returncode, 0, said)
        self.assertRegex(said, r"the C\+\+ compiler 'g\+\+' was not found.*apt-get install g\+\+")


@unittest.skipUnless(packages_of_torch(), "PyTorch in .cache/torch, which ./check makes")
class WithCompiler(unittest.TestCase):
    def test_another_pytorch_is_compiled_for_once_by_ranks_that_start_together(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            python = PROJECT / ".cache/torch/bin/python"
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--target",
                            folder / "installed", wheel()], check=True, timeout=SECONDS)
            # The release by another name: what the wheel carries does not fit it then.
            program = "import torch; torch.__version__ = '2.99.0'; import gradwire.torch; print('loaded')"
            env = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
            env |= {"PYTHONPATH": str(folder / "installed"), "GRADWIRE_CACHE": str(folder / "cache")}
            line = r"gradwire: compiling the PyTorch extension for torch 2\.99\.0 \(about \d+ s, once\)"
            for lines in (1, 0):
                began = time.monotonic()
                ranks = [subprocess.Popen([python, "-c", program], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                         for _ in range(2)]
                said = "".join(bare_root.said_by(rank) for rank in ranks)
                self.assertEqual(said.count("loaded"), 2, said)
                self.assertEqual(len(re.findall(line, said)), lines, said)
                print(f"  {'compiled' if lines else 'from the cache'}: {time.monotonic() - began:.0f} s", flush=True)


def main(folder):
    global FOLDER
    FOLDER = pathlib.Path(folder).resolve()
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
