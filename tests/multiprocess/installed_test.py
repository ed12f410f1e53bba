#!/usr/bin/env python3
"""What `meson install` puts into an empty folder is complete: every public header, the libraries, the program, and the examples'
own builds against nothing else, in C and C++, by pkg-config and by CMake: the compressor's laws hold, and two ranks meet."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PATIENCE = 500  # seconds a step at most
MEAN = "mean of 2 ranks: 0.5"
# What each example's programs print. Of 10 gradients of 512 KiB a hundredth as pairs of 8 bytes, and a header.
PROGRAMS = {"c": {"mean": MEAN}, "cxx": {"mean": MEAN, "compressed_mean": "2 ranks: 5242880 bytes of gradients, "}}


def run(*command, **settings):
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, timeout=PATIENCE, **settings)


def public_headers(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*.h")}


def build_and_run(example, folder, tool, root, libdir, sanitize):
    """The programs of an example, built in a copy of its folder, as two ranks."""
    shutil.copytree(example, folder)
    if tool == "meson":
        environment = {**os.environ, "PKG_CONFIG_PATH": str(root / libdir / "pkgconfig")}
        run("meson", "setup", folder / "build", folder, f"-Db_sanitize={sanitize}", "-Db_lundef=false", env=environment,
            stdout=subprocess.DEVNULL)
        run("meson", "compile", "-C", folder / "build")
    else:
        flags = [] if sanitize == "none" else [f"-DCMAKE_{lang}_FLAGS=-fsanitize={sanitize}" for lang in ("C", "CXX")]
        run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={root}", *flags, stdout=subprocess.DEVNULL)
        run("cmake", "--build", folder / "build")
    for program, wanted in PROGRAMS[example.name].items():
        job = [root / "bin/gradwire", "run", "-n", "2", "--", folder / "build" / program]
        environment = {**os.environ, "GRADWIRE_TRANSPORT": "tcp", "LD_LIBRARY_PATH": str(root / libdir)}
        print("$", *job, flush=True)
        seen = subprocess.run([str(part) for part in job], env=environment, capture_output=True, text=True, timeout=PATIENCE)
        if seen.returncode != 0 or wanted not in seen.stdout:
            sys.exit(f"{folder.name}/{program}: ended with {seen.returncode}:\n{seen.stdout}{seen.stderr}")


def main():
    source, build, prefix, libdir, sanitize = sys.argv[1:6]
    source, meson = pathlib.Path(source), shutil.which("meson")
    with tempfile.TemporaryDirectory(prefix="gradwire-installed-") as name:
        folder = pathlib.Path(name)
        run(meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder / "root")
        root = folder / "root" / pathlib.Path(prefix).relative_to("/")
        wanted = public_headers(source / "include/gradwire") | {"version.h"}
        found = public_headers(root / "include/gradwire")
        if found != wanted:
            sys.exit(f"installed headers: missing {sorted(wanted - found)}, unexpected {sorted(found - wanted)}")
        run(root / "bin/gradwire", "--version")
        for script in ("bash-completion/completions/gradwire", "zsh/site-functions/_gradwire"):
            if "--checkpoint-keep" not in (root / "share" / script).read_text():
                sys.exit(f"installed: {script} does not complete the flags of gradwire train")
        # The sources alone, elsewhere: nothing of the tree can be reached from there.
        shutil.copytree(source / "examples/compressor", folder / "example")
        environment = {**os.environ, "PKG_CONFIG_PATH": str(root / libdir / "pkgconfig")}
        run(meson, "setup", folder / "example/build", folder / "example", f"-Db_sanitize={sanitize}", "-Db_lundef=false",
            env=environment, stdout=subprocess.DEVNULL)
        run(meson, "compile", "-C", folder / "example/build", env=environment)
        run(folder / "example/build/three_bytes_test", "--gtest_brief=1")
        for name in ("c", "cxx"):
            for tool in ("meson", "cmake"):
                build_and_run(source / "examples" / name, folder / f"{name}-{tool}", tool, root, libdir, sanitize)


if __name__ == "__main__":
    main()
