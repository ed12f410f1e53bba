"""The project's files as the lint tests see them: what git tracks, or the tree where there is no git."""
import pathlib
import subprocess

CODE = {".h", ".cc", ".cu", ".cuh", ".c"}


def tracked(root):
    root = pathlib.Path(root)
    listing = subprocess.run(["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, text=True)
    if listing.returncode == 0 and listing.stdout:
        names = listing.stdout.split("\n")
    else:
        names = [str(p.relative_to(root)) for p in root.rglob("*") if not p.parts[len(root.parts)].startswith("build")]
    return sorted(pathlib.PurePosixPath(n) for n in names if n and (root / n).is_file())


def code(root):
    return [p for p in tracked(root) if p.suffix in CODE]


def finish(errors):
    for error in errors:
        print(error)
    print(f"{len(errors)} findings")
    raise SystemExit(1 if errors else 0)
