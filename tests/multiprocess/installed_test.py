#!/usr/bin/env python3
"""What `meson install` puts into an empty folder is complete: every public header, the library, the program, and the example's
own build against nothing else, whose laws hold."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PATIENCE = 500  # seconds a step at most


def run(*command, **settings):
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, timeout=PATIENCE, **settings)


def public_headers(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*.h")}


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
        # The sources alone, elsewhere: nothing of the tree can be reached from there.
        shutil.copytree(source / "examples/compressor", folder / "example")
        environment = {**os.environ, "PKG_CONFIG_PATH": str(root / libdir / "pkgconfig")}
        run(meson, "setup", folder / "example/build", folder / "example", f"-Db_sanitize={sanitize}", "-Db_lundef=false",
            env=environment, stdout=subprocess.DEVNULL)
        run(meson, "compile", "-C", folder / "example/build", env=environment)
        run(folder / "example/build/three_bytes_test", "--gtest_brief=1")


if __name__ == "__main__":
    main()
