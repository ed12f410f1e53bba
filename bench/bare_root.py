#!/usr/bin/env python3
"""Measures the first minutes: ./demo, pip install . and ./check in a bare Debian 12, each from nothing and again at once.

Makes a root with Debian's base packages alone (mmdebstrap; as root), clones HEAD of this tree into it, and runs in it, by
chroot, with this machine's package sources, pip configuration and certificates. Prints a table of wall and processor seconds
of installing packages, of compiling and of running; the same as Markdown with --markdown. Nothing outside the root is written.

    bench/bare_root.py                       # everything: about two hours on two cores
    bench/bare_root.py --steps demo          # the demo alone
    bench/bare_root.py --steps demo,check --cores 2 --keep /tmp/bare"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARTS = "for part in progress packages build torch; do . tests/run/$part.sh; done; "
WHEEL = "g++ pkg-config git ca-certificates python3-venv python3-dev libucx-dev libeigen3-dev libssl-dev libxxhash-dev libhwy-dev"
# Of each step: the name, what it belongs to in the table, and its command in the tree. Each goes on where the one before it
# ended, so that the sum is what the one command takes.
STEPS = {
    "demo": [("./demo", "packages", PARTS + 'install_packages "${program_packages[@]}"'),
             ("./demo", "compiling", "./check --program-only"),
             ("./demo", "running", "./demo"),
             ("./demo, again", "running", "./demo")],
    "pip": [("pip install .", "packages", PARTS + f"install_packages {WHEEL}"),
            ("pip install .", "packages", "python3 -m venv /tmp/venv"),
            ("pip install .", "compiling", "/tmp/venv/bin/pip install --quiet ."),
            ("pip install .", "running", "cd / && /tmp/venv/bin/python -c 'import gradwire'")],
    "check": [("./check", "packages", PARTS + 'install_packages "${packages[@]}" "${launcher_packages[@]}"; make_torch'),
              ("./check", "compiling", "./check --build-only"),
              ("./check", "running", "./check"),
              ("./check, again", "running", "./check")],
}
COLUMNS = ("packages", "compiling", "running")


def fail(text):
    sys.exit(f"gradwire: error: {text}")


def pip_folders():
    """Folders of this machine that pip's configuration names: they must be there in the root."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    words = done.stdout.replace("'", " ").replace("\\n", " ").replace("=", " ").split()
    words += [word for name, value in os.environ.items() if name.startswith("PIP_") for word in value.split()]
    paths = {word.removeprefix("file://") for word in words if word.startswith(("/", "file:///"))}
    return sorted(path for path in paths if os.path.isdir(path) and path != "/")


def copy_into(root, path):
    source = pathlib.Path(path)
    target = root / str(source).lstrip("/")
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def make_base(archive):
    print(f"bare_root: making {archive}", file=sys.stderr, flush=True)
    sources = [path for path in ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources") if os.path.isfile(path)]
    done = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", str(archive), *sources], check=False)
    if done.returncode != 0:
        archive.unlink(missing_ok=True)
        fail(f"mmdebstrap failed with status {done.returncode} (see above)")


def make_root(archive, root, commit):
    root.mkdir(parents=True)
    subprocess.run(["tar", "-xpf", str(archive), "-C", str(root), "--exclude=./dev/*"], check=True)
    for name in ("sources.list", "sources.list.d", "preferences.d", "auth.conf.d"):
        copy_into(root, f"/etc/apt/{name}")
    # Proxies and retries, but not what changes how packages are unpacked.
    for path in pathlib.Path("/etc/apt/apt.conf.d").glob("*"):
        if "Acquire" in path.read_text(errors="replace"):
            copy_into(root, path)
    for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/usr/local/share/ca-certificates",
                 "/etc/ssl/certs/ca-certificates.crt", pathlib.Path.home() / ".config/pip/pip.conf"):
        copy_into(root, path)
    subprocess.run(["git", "clone", "--quiet", "--no-local", str(ROOT), str(root / "gradwire")], check=True)
    subprocess.run(["git", "-C", str(root / "gradwire"), "checkout", "--quiet", "--detach", commit], check=True)


def command_in(root, cores, folders, script):
    """Processes, mounts and cores of their own; everything ends with the command."""
    mounts = ["mount --rbind /dev dev", "mount -t proc proc proc", "mount --rbind /sys sys"]
    for folder in folders:
        mounts.append(f"mkdir -p .{folder} && mount --bind {folder} .{folder}")
    inside = " && ".join(["cd '" + str(root) + "'", *mounts, 'exec chroot . bash -euo pipefail -c "cd /gradwire; $1"'])
    pinned = ["taskset", "--cpu-list", f"0-{cores - 1}"] if cores else []
    return [*pinned, "unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", inside, "bare_root", script]


def timed(words, log):
    """Wall and processor seconds of a command and all its children."""
    keep = ("PIP_", "SSL_", "REQUESTS_CA", "CURL_CA", "http", "https", "no_proxy", "HTTP", "NO_PROXY", "LANG", "TERM")
    variables = {name: value for name, value in os.environ.items() if name.startswith(keep)}
    variables |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    with open(log, "ab") as file:
        file.write(f"### {words[-1]}\n".encode())
        file.flush()
        start = time.monotonic()
        process = subprocess.Popen(words, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=variables)
        _, status, usage = os.wait4(process.pid, 0)
        return time.monotonic() - start, usage.ru_utime + usage.ru_stime, os.waitstatus_to_exitcode(status)


def cell(pair):
    return "–" if pair is None else f"{pair[0]:.0f} / {pair[1]:.0f}"


def table(rows, markdown):
    lines = [["command", *(f"{name}, s" for name in COLUMNS), "in all, s"]]
    for name, cells in rows.items():
        total = tuple(sum(pair[i] for pair in cells.values()) for i in range(2))
        lines.append([name, *(cell(cells.get(column)) for column in COLUMNS), cell(total)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    texts = [[line[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(line[1:], widths[1:]))] for line in lines]
    if not markdown:
        return "\n".join("  ".join(line).rstrip() for line in texts)
    marks = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join("| " + " | ".join(line) + " |" for line in [texts[0], marks, *texts[1:]])


def measure(options, folder, commit):
    archive = pathlib.Path(options.base).resolve() if options.base else folder / "base.tar"
    if not archive.exists():
        make_base(archive)
    folders = sorted({*pip_folders(), *(os.path.abspath(path) for path in options.bind)})
    rows, failed = {}, False
    for step in options.steps:
        root, log = folder / step, folder / f"{step}.log"
        make_root(archive, root, commit)
        for name, column, script in STEPS[step]:
            print(f"bare_root: {name}: {column} ({log} has its output)", file=sys.stderr, flush=True)
            wall, cpu, status = timed(command_in(root, options.cores, folders, script), log)
            cells = rows.setdefault(name, {})
            before = cells.get(column, (0, 0))
            cells[column] = (before[0] + wall, before[1] + cpu)
            if status != 0:
                failed = True
                tail = log.read_text(errors="replace").splitlines()[-20:]
                print("\n".join(tail), f"\nbare_root: {script} ended with status {status}", file=sys.stderr)
                break
        if not options.keep:
            shutil.rmtree(root)
    return rows, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default=",".join(STEPS), help=f"of {', '.join(STEPS)}, separated by commas (default: all)")
    parser.add_argument("--cores", type=int, default=0, help="use the first N cores only (default: all)")
    parser.add_argument("--base", help="archive of the bare root; made there if it is not there yet (default: made anew)")
    parser.add_argument("--keep", metavar="DIR", help="make roots and logs in DIR and keep them (default: a temporary folder)")
    parser.add_argument("--bind", metavar="DIR", action="append", default=[],
                        help="have this folder in the root, too: where a folder of pip's configuration leads to (may be repeated)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args()
    options.steps = options.steps.split(",")
    for step in options.steps:
        if step not in STEPS:
            fail(f"--steps: unknown step '{step}' (expected {', '.join(STEPS)})")
    for path in options.bind:
        if not os.path.isdir(path):
            fail(f"--bind: no folder '{path}'")
    if os.geteuid() != 0:
        fail(f"a bare root is made and entered by root (got user id {os.geteuid()})")
    if not shutil.which("mmdebstrap") and not (options.base and os.path.exists(options.base)):
        fail("mmdebstrap is not here (apt-get install mmdebstrap, or --base FILE)")
    # Of the tree that is cloned: HEAD may move while it is measured.
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    if options.keep:
        folder = pathlib.Path(options.keep).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        rows, failed = measure(options, folder, commit.stdout.strip())
    else:
        with tempfile.TemporaryDirectory(prefix="gradwire-bare-") as name:
            rows, failed = measure(options, pathlib.Path(name), commit.stdout.strip())
    print(f"Bare Debian 12, {options.cores or os.cpu_count()} cores, commit {commit.stdout.strip()}: wall / processor seconds")
    print(table(rows, options.markdown))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
