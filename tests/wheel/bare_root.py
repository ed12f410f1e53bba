"""A root directory that has Debian's Python and nothing else, where the wheel is installed and programs run."""

import json
import os
import pathlib
import re
import subprocess
import unittest

SECONDS = 300  # a command may take
MAKING_SECONDS = 900
PACKAGES_OF_PIP = {"pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils", "__pycache__"}


# Starts argv[1] ranks of the program argv[2]; prints [status, text] of each.
LAUNCH = """
import json, os, subprocess, sys
size, program = int(sys.argv[1]), sys.argv[2]
ranks = [subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(size)]
said = [rank.communicate(timeout=200)[0] for rank in ranks]
print(json.dumps([[rank.returncode, text] for rank, text in zip(ranks, said)]))
"""


def said_by(process):
    return process.communicate(timeout=SECONDS)[0]


class BareRoot:
    """Kept in a folder from one run to the next; the environment in it is new."""

    def __init__(self, folder, wheel):
        """Raises SkipTest where this user may not have a root directory."""
        if os.getuid() != 0 or subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
            raise unittest.SkipTest("a root directory of one's own takes root, and mounts and processes of one's own")
        self.folder = pathlib.Path(folder).resolve()
        if not (self.folder / "usr/bin/python3").exists():
            release = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.M)[1]
            subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3-venv", release, self.folder], check=True,
                           timeout=MAKING_SECONDS)
        (self.folder / "etc/hosts").write_text(f"127.0.0.1 localhost {os.uname().nodename}\n")  # PyTorch looks its own name up
        self.home = self.folder / "home"
        subprocess.run(["rm", "-rf", self.folder / "env", self.home], check=True)
        self.home.mkdir()
        (self.home / wheel.name).write_bytes(wheel.read_bytes())
        self.wheel = f"/home/{wheel.name}"

    def install(self, others):
        """The wheel, in an environment of its own beside these files of another one, which are linked: nothing is fetched."""
        self.check("python3", "-m", "venv", "--clear", "/env")
        to = next((self.folder / "env/lib").glob("python3*/site-packages"))
        subprocess.run(["cp", "-al", *(path for path in others if path.name.split("-")[0] not in PACKAGES_OF_PIP), to], check=True)
        self.check("/env/bin/pip", "install", "--quiet", "--no-index", self.wheel)

    def start(self, *command, **env):
        """A process there, with an environment, mounts and processes of its own."""
        own = {"PATH": "/usr/bin:/bin", "HOME": "/home", "OMP_NUM_THREADS": "1", **env}
        words = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in own.items()), *map(str, command)]
        mounts = f'mount -t proc proc "{self.folder}/proc" && mount --rbind /dev "{self.folder}/dev" && exec chroot "{self.folder}" "$@"'
        return subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", mounts, "sh", *words],
                                env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def check(self, *command, **env):
        """What the command says; it has to end well."""
        process = self.start(*command, **env)
        said = said_by(process)
        assert process.returncode == 0, f"{command}: status {process.returncode}\n{said}"
        return said

    def ranks(self, program, size=2, expected=0, **env):
        """What each rank says: processes of one host that meet over TCP, as any launcher starts them."""
        place = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 20000 + os.getpid() % 10000}
        (self.home / "ranks.py").write_text(LAUNCH)
        said = json.loads(self.check("/env/bin/python", "/home/ranks.py", size, program, **place, **env))
        assert all((status != 0) == (expected != 0) for status, _ in said), said
        return [text for _, text in said]
