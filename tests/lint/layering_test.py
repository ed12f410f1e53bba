#!/usr/bin/env python3
"""Folders include only what docs/internals/architecture.md allows, and every source file is named by a meson.build."""
import pathlib
import re
import sys

import sources

BELOW = {
    "include": [],
    "base": [],
    "device": ["base"],
    "comm": ["device", "base"],
    "collectives": ["comm", "device", "base"],
    "compress": ["device", "base"],
    "aggregate": ["collectives", "compress", "device", "base"],
    "trainer": ["device", "base"],
    "adapters": ["trainer", "aggregate", "compress", "collectives", "comm", "device", "base"],
    "bench": ["aggregate", "compress", "collectives", "comm", "device", "base"],
    "apps": ["adapters", "trainer", "bench", "collectives", "compress", "comm", "base"],
}
# Third-party headers live where their reason lives, nowhere else.
THIRD_PARTY = {
    r"^ucp/|^ucs/|^uct/|^ucm/": ["comm/ucx/", "tests/comm/"],
    r"^Eigen/": ["device/cpu/", "compress/atomo/", "trainer/"],
    r"^cuda_runtime_api\.h$|^cublas": ["device/cuda/", "tests/emulation/"],
    r"^nccl\.h$": ["comm/nccl/", "tests/comm/"],
    r"^openssl/": ["comm/rendezvous/", "apps/"],
    r"^sodium/": ["comm/rendezvous/"],
    r"^hwy/": ["compress/", "tests/support/"],
    r"^xxhash\.h$": ["comm/checked/", "trainer/checkpoint/"],
    r"^zlib\.h$": ["trainer/"],
    r"^nlohmann/": ["apps/", "bench/gpu_bench.cc", "trainer/", "tests/"],
    r"^CLI/|^toml\+\+|^toml\.h|^spdlog/|^fmt/|^curl/": ["apps/"],
    r"^mpi\.h$": ["adapters/mpi/", "bench/peers/", "tests/adapters/mpi/"],
    r"^gloo/": ["bench/peers/"],
    r"^gtest/|^gmock/": ["tests/", "include/gradwire/testing/", "examples/"],
    r"^torch/": ["adapters/torch/"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def includes(path):
    for number, line in enumerate(path.read_text().split("\n"), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def check_include(place, own, quoted, name):
    top = name.split("/")[0]
    for pattern, homes in THIRD_PARTY.items():
        if re.search(pattern, name) and not any(str(place).startswith(home) for home in homes):
            return f"<{name}> belongs in {', '.join(homes)} only"
    if own in ("tests",) or top in ("gradwire", "gtest"):
        return None
    if own == "examples":  # as any program outside: what lies beside it, and what is installed
        return f'"{name}": examples include public headers and their own only' if "/" in name else None
    if own == "include" and (quoted or "/" in name):
        return f'"{name}": a public header includes gradwire/ and the standard library only'
    if quoted and top in BELOW and top != own and top not in BELOW.get(own, []):
        return f'"{name}": {own} may include {", ".join(BELOW.get(own, [])) or "nothing"} and the public headers'
    if quoted and top not in BELOW:
        return f'"{name}": project headers are included by their full path'
    return None


def unnamed_sources(root, code):
    named = "\n".join((root / p).read_text() for p in sources.tracked(root) if p.name == "meson.build")
    for path in code:
        if path.suffix in (".cc", ".cu", ".c") and path.name not in named:
            stem = path.name[: -len(path.suffix)]
            # foreach loops name 'x' and build 'x_test.cc', 'x_fuzz.cc', ...
            base = re.sub(r"_(test|laws|fuzz)$", "", stem)
            if f"'{stem}'" not in named and f"'{base}'" not in named:
                yield f"{path}: no meson.build names it"


def main():
    root = pathlib.Path(sys.argv[1])
    code = sources.code(root)
    errors = []
    for path in code:
        own = path.parts[0]
        if own not in BELOW and own not in ("tests", "examples"):
            errors.append(f"{path}: folder '{own}' is not in the include table")
            continue
        for number, quoted, name in includes(root / path):
            error = check_include(path, own, quoted, name)
            if error:
                errors.append(f"{path}:{number}: {error}")
    errors += unnamed_sources(root, code)
    sources.finish(errors)


if __name__ == "__main__":
    main()
