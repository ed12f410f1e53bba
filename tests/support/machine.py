"""What this machine and a build folder have, as the probes of expected_skips.toml ask for it. Looked at here and not asked of the
tests: a test that sees nothing where there is something is what is to be found."""
import glob
import importlib.util
import json
import pathlib
import platform
import re
import shlex
import shutil
import subprocess

PROJECT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 60  # seconds, for each program


def numbers(text):
    return [int(number) for number in re.findall(r"\d+", text)]


def introspected(folder, what):
    return json.loads((pathlib.Path(folder) / "meson-info" / f"intro-{what}.json").read_text())


def device(_words, _folder):
    return bool(glob.glob("/dev/nvidia[0-9]*"))


def nccl(words, _folder):
    """Of the wheel that ./check installs: at least this release."""
    found = [path.name.split("-")[1] for path in PROJECT.glob(".cache/nvidia/lib/python*/site-packages/nvidia_nccl_*.dist-info")]
    return any(numbers(version)[:2] >= numbers(words[0]) for version in found)


def ucx(_words, _folder):
    if shutil.which("ucx_info") is None:
        return False
    return "cuda" in subprocess.run(["ucx_info", "-d"], capture_output=True, text=True, timeout=LIMIT).stdout


def one(words, _folder):
    return any(shutil.which(name) for name in words[1:])


def every(words, _folder):
    return all(shutil.which(name) for name in words[1:])


def run(words, _folder):
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run(words, capture_output=True, timeout=LIMIT).returncode == 0


def kernel(words, _folder):
    return numbers(platform.release())[:2] >= numbers(words[0])


def suite(words, folder):
    return any(name.split(":")[-1] == words[0] for test in introspected(folder, "tests") for name in test["suite"])


def option(words, folder):
    return any(entry["name"] == words[0] and entry["value"] == words[1] for entry in introspected(folder, "buildoptions"))


def file(words, _folder):
    return (PROJECT / words[0]).exists()


def module(words, _folder):
    return importlib.util.find_spec(words[0]) is not None


def arithmetic(built_by):
    """What the bits of a sum or of an exponential depend on, as one line. `built_by`: the compiler and its options."""
    try:
        flags = re.findall(r"^(?:flags|Features)\s*:(.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[0].split()
    except (OSError, IndexError):
        flags = []
    simd = [name for name in ("avx512f", "avx2", "fma", "asimd") if name in flags]
    return f"{platform.machine()} {' '.join(simd)}, {built_by}, {' '.join(platform.libc_ver())}"


def recorded(words, folder):
    """Whether the machine and the build have the arithmetic that a table of a test was recorded with: `recorded TEST TABLE`."""
    built_by = [test["cmd"][-1] for test in introspected(folder, "tests") if test["name"] == words[0]]
    return bool(built_by) and f"arithmetic {arithmetic(built_by[0])}" in (PROJECT / words[1]).read_text().splitlines()


PROBES = {"device": device, "nccl": nccl, "ucx": ucx, "one": one, "all": every, "run": run, "kernel": kernel, "suite": suite,
          "option": option, "file": file, "module": module,
          "recorded": recorded}


def has(probe, folder):
    """Whether the machine, or what `folder` was configured with, has what a probe's words ask for."""
    kind, *words = shlex.split(probe)
    return PROBES[kind](words, folder)
