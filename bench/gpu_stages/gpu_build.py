"""Configures and builds what bench/gpu runs."""
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess

from timed_rows import say

JOB_BYTES = 2 << 30  # of memory, that a compiler may take
STAMP = "bench-gpu.json"  # in the build folder: what it was configured with beside its options


class BuildError(Exception):
    """What is missing, or does not fit; its text is for the user."""


def output_of(*command):
    """Of a command that may be missing, or fail: then empty."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def gpu_facts():
    """What nvidia-smi says of each GPU, by name; empty where it sees none."""
    for fields in ("name,driver_version,compute_cap,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit,temperature.gpu",
                   "name,driver_version"):
        try:
            asked = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.SubprocessError):
            return []
        if asked.returncode == 0 and asked.stdout.strip():
            return [dict(zip(fields.split(","), (value.strip() for value in line.split(","))))
                    for line in asked.stdout.strip().split("\n")]
    return []


def sees_gpu(gpus):
    """Whether a GPU is here, even one that CUDA cannot use."""
    return bool(gpus) or bool(glob.glob("/dev/nvidia[0-9]*"))


def nvcc_program():
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc") or ""


def wanted_archs(gpus):
    """Those of the GPUs that are here; the build's own where none is known, or nvcc does not know them."""
    found = sorted({gpu.get("compute_cap", "").replace(".", "") for gpu in gpus}, key=lambda one: (len(one), one))
    known = output_of(nvcc_program() or "nvcc", "--list-gpu-arch").split()
    if found and all(re.fullmatch(r"\d+", one) and f"compute_{one}" in known for one in found):
        return ";".join(f"sm_{one}" for one in found)
    return "sm_80;sm_90"


def spare_bytes():
    """Memory that nobody uses, of the machine or of the group of processes that this one is in."""
    spare = []
    try:
        spare.append(1024 * int(re.search(r"MemAvailable:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]))
        group = pathlib.Path("/sys/fs/cgroup")
        spare.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, TypeError, ValueError):
        pass  # no such file, or no limit
    return min(spare, default=JOB_BYTES)


def wanted_jobs():
    return max(1, min(len(os.sched_getaffinity(0)), spare_bytes() // JOB_BYTES))


class Build:
    """A build folder, and the environment that it is built in."""

    def __init__(self, folder, deps="", python="", archs=""):
        self.folder = pathlib.Path(folder)
        self.deps = str(pathlib.Path(deps).resolve()) if deps else ""
        self.env = dict(os.environ)
        self.options = {"cuda": "enabled", "nccl": "auto", "mpi": "disabled", "werror": "false", "gpu_archs": archs,
                        "nvidia_python": python}
        self.meson = ["meson"]
        if self.deps:
            self._take_from_deps(deps)
        for program in [self.meson[0], "ninja"]:
            if not shutil.which(program, path=self.env.get("PATH")):
                raise BuildError(f"{program} is missing (expected in PATH, or from --deps DIR, which ./check --prefetch DIR makes)")

    def _take_from_deps(self, named):
        deps = pathlib.Path(self.deps)
        if not (deps / "prefetched").exists():
            raise BuildError(f"--deps {named}: nothing that ./check --prefetch made")
        root = deps / "root/usr"
        libraries = next(iter(sorted(root.glob("lib/*-linux-gnu"))), root / "lib")
        self.env.update({
            "PATH": f"{deps}/bin:{self.env.get('PATH', '')}",
            "PKG_CONFIG_LIBDIR": f"{libraries}/pkgconfig:{root}/lib/pkgconfig:{root}/share/pkgconfig",
            "PKG_CONFIG_SYSROOT_DIR": f"{deps}/root",
            "CPLUS_INCLUDE_PATH": f"{root}/include:{root}/include/{libraries.name}",
            "C_INCLUDE_PATH": f"{root}/include",
            "LIBRARY_PATH": str(libraries),
            "CMAKE_PREFIX_PATH": str(root),
            "PYTHONPATH": f"{deps}/meson",
        })
        self.meson = ["python3", "-m", "mesonbuild.mesonmain"]
        self.options.update({"chart_js": f"{root}/share/javascript/chart.js/chart.min.js", "ucx": "disabled"})

    def configure(self, commands, limit):
        """The Outcome of configuring, None where the folder is as wanted already."""
        stamp = self.folder / STAMP
        configured = (self.folder / "build.ninja").exists()
        if configured:
            before = json.loads(stamp.read_text())["deps"] if stamp.exists() else ""
            if before != self.deps:
                raise BuildError(f"{self.folder} was configured with libraries of '{before or 'the system'}' (expected '{self.deps or 'the system'}')"
                                 ": remove it, or name another folder with --build")
            now = {option["name"]: str(option["value"]).lower() for option in self.introspect("--buildoptions")}
            if all(now.get(name) == value.lower() for name, value in self.options.items()):
                return None
        say(f"configuring {self.folder}{' anew' if configured else ''} for {self.options['gpu_archs']}")
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [*self.meson, "setup", *["--reconfigure"] * configured, str(self.folder)]
        command += [f"-D{name}={value}" for name, value in self.options.items()]
        outcome = commands.run(command, limit, env=self.env)
        if outcome.status == 0:
            stamp.write_text(json.dumps({"deps": self.deps}) + "\n")
        return outcome

    def introspect(self, what):
        asked = subprocess.run([*self.meson, "introspect", str(self.folder), what], env=self.env, capture_output=True, text=True, timeout=120)
        if asked.returncode != 0:
            raise BuildError(f"{self.folder} cannot be read (meson introspect {what}: {(asked.stdout + asked.stderr).strip()[-500:]})")
        return json.loads(asked.stdout)

    def make(self, commands, target, jobs, limit):
        """Goes on after a failure with what does not need it. Progress is shown."""
        return commands.run(["ninja", "-C", str(self.folder), "-k", "0", "-j", str(jobs), target], limit, echo=True, env=self.env)

    def is_made(self, program):
        """Whether a program is there, and as its sources are."""
        if not os.path.exists(program):
            return False
        target = os.path.relpath(os.path.realpath(program), os.path.realpath(self.folder))
        return "no work to do" in subprocess.run(["ninja", "-C", str(self.folder), "-n", target], env=self.env, capture_output=True,
                                                 text=True, timeout=120).stdout
