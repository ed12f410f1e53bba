#!/usr/bin/env python3
"""`pip install .` into a fresh environment, as a user does it: what the wheel holds, what is said while PyTorch or UCX is missing, and
the README's PyTorch program under torchrun, and the backend's name without any import of the package.

Wants a package index for the build's own needs and for torch==2.13.0: exit status 77 where pip finds none.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 1800  # seconds a command may take: pip compiles the library, torchrun's ranks the extension
NO_INDEX = re.compile(r"No matching distribution|Could not find a version|Connection|Temporary failure in name resolution")
TRAIN = """
    import torch
    torch.distributed.init_process_group("gradwire")
    torch.manual_seed(1)
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)))
    {compress}
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    for step in range(5):
        optimizer.zero_grad()
        (ddp(torch.full((4, 64), rank + step + 1.0)) ** 2).mean().backward()
        optimizer.step()
    all_of_them = [None] * size
    torch.distributed.all_gather_object(all_of_them, [parameter.detach().tolist() for parameter in ddp.parameters()])
    assert all(one == all_of_them[0] for one in all_of_them), "replicas differ"
    print(f"rank {{rank}} of {{size}} on {{torch.distributed.get_backend()}}: replicas alike", flush=True)
    torch.distributed.destroy_process_group()
"""


def environment_for(folder):
    """Of a user who has nothing of this tree on any path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GRADWIRE_", "PYTHON", "VIRTUAL_ENV"))}
    return {**kept, "GRADWIRE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}


def run(folder, *command, **more):
    print("$", *command, flush=True)
    return subprocess.run([str(part) for part in command], env={**environment_for(folder), **more}, cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)


def pip_install(folder, *what):
    done = run(folder, folder / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", *what)
    if done.returncode != 0 and NO_INDEX.search(done.stdout):
        print(f"skipped: pip finds no package index:\n{done.stdout}")
        sys.exit(77)
    assert done.returncode == 0, done.stdout


def readme_program():
    block = re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.S)[0]
    assert "gradwire.torch.compress(" in block, block
    return block


class Installed(unittest.TestCase):
    folder = None  # of the environment

    def python(self, program, **more):
        return run(self.folder, self.folder / "venv/bin/python", "-c", program, **more)

    def test_1_the_wheel_holds_what_is_meant(self):
        listed = run(self.folder, self.folder / "venv/bin/pip", "show", "--files", "gradwire").stdout
        files = [line.strip() for line in listed.split("Files:\n")[1].splitlines()]
        # The package, its metadata, and the module beside it that PyTorch's entry points name.
        strange = [name for name in files if not re.match(r"gradwire/|gradwire-[^/]+\.dist-info/|(__pycache__/)?gradwire_torch_autoload\.", name)]
        self.assertEqual(strange, [])
        allowed = re.compile(r"\.(py|pyc|pyi|h|cc|typed)$|/libgradwire\.so$")
        self.assertEqual([name for name in files if ".dist-info/" not in name and not allowed.search(name)], [])
        for wanted in ("gradwire/libgradwire.so", "gradwire/include/gradwire/c.h", "gradwire/torch/src/adapters/torch/module.cc"):
            self.assertIn(wanted, files)

    def test_2_without_torch(self):
        self.assertEqual(self.python("import gradwire; print(gradwire.inspect('qsgd:bits=4').path)").stdout, "sra\n")
        self.assertRegex(self.python("import gradwire.torch").stdout, r"PyTorch 2\.5\b.*\bnone\b")

    def test_3_the_readmes_program_under_torchrun(self):
        pip_install(self.folder, "torch==2.13.0")
        said = self.torchrun("readme.py", readme_program())
        self.assertRegex(said, r"step 100: loss \d")
        self.replicas_are_alike('import gradwire.torch; gradwire.torch.compress(ddp, "topk:ratio=0.01,ef=ef14")')

    def test_4_the_name_alone_is_enough(self):
        self.replicas_are_alike("")

    def replicas_are_alike(self, compress):
        said = self.torchrun("alike.py", textwrap.dedent(TRAIN.format(compress=compress)))
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2 on gradwire: replicas alike", said)

    def torchrun(self, name, program):
        (self.folder / name).write_text(program)
        done = run(self.folder, self.folder / "venv/bin/torchrun", "--standalone", "--nproc-per-node", "2", name)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_5_without_ucx(self):
        broken = self.folder / "broken"
        broken.mkdir()
        (broken / "libucp.so.0").write_text("no library")
        program = textwrap.dedent("""
            import torch, gradwire.torch
            store = torch.distributed.HashStore()
            print("imported", flush=True)
            torch.distributed.init_process_group("gradwire", rank=0, world_size=1, store=store)
            torch.distributed.all_reduce(torch.ones(1))
        """)
        done = self.python(program, LD_LIBRARY_PATH=str(broken), GRADWIRE_TRANSPORT="ucx")
        self.assertIn("imported", done.stdout)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("libucx0", done.stdout)
        self.assertIn(f"{broken}/libucp.so.0", done.stdout)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="gradwire-pip-") as name:
        Installed.folder = pathlib.Path(name)
        subprocess.run([sys.executable, "-m", "venv", f"{name}/venv"], check=True, timeout=PATIENCE)
        pip_install(Installed.folder, str(PROJECT))
        unittest.main(verbosity=2)
