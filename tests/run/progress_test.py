"""The progress of ./demo and ./check (tests/run/progress.sh), packages and build folders: on made-up output of ninja and
apt-get, with made-up programs in PATH."""
import os
import pathlib
import pty
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def bash(script, text="", **variables):
    return subprocess.run(["bash", "-euo", "pipefail", "-c", f". tests/run/progress.sh; {script}"], cwd=ROOT, input=text,
                          capture_output=True, text=True, timeout=60, env={**os.environ, **variables})


def on_terminal(script, text):
    """What it writes to a terminal as its standard error."""
    ours, theirs = pty.openpty()
    with tempfile.TemporaryFile("w+") as file:
        file.write(text)
        file.seek(0)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", f". tests/run/progress.sh; {script}"], cwd=ROOT, stdin=file,
                              stdout=subprocess.DEVNULL, stderr=theirs, timeout=60, check=False)
    os.close(theirs)
    written = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the end, as Linux says it
            break
        if not chunk:
            break
        written += chunk
    os.close(ours)
    return done.returncode, written.decode()


NINJA = "ninja: Entering directory `build'\n" + "".join(
    f"@{i} 20 Compiling C++ object apps/libapps.a.p/part{i}.cc.o\n" for i in range(1, 21))


class Progress(unittest.TestCase):
    def test_commands_of_ninja_are_counted(self):
        done = bash("progress_every=0; show_ninja build", NINJA)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 21)
        self.assertEqual(lines[0], "check: build: compiling 1 of 20  (part1.cc)")
        self.assertRegex(lines[14], r"^check: build: compiling 15 of 20, ETA 0:00  \(part15.cc\)$")
        self.assertRegex(lines[20], r"^check: build: 20 commands in 0:0\d$")

    def test_plain_lines_come_every_ten_seconds_only(self):
        done = bash("progress_last=$(seconds_now); show_ninja build", NINJA)
        self.assertLessEqual(len(done.stderr.splitlines()), 2, done.stderr)

    def test_while_ninja_is_silent_the_last_line_is_said_again(self):
        with tempfile.TemporaryDirectory() as folder:
            # The made-up ninja goes on when that has been said so often.
            wait = 'said() { for i in {1..300}; do [ "$(grep -c "so far" "$log" || true)" -lt "$1" ] || return 0; sleep 0.1; done; }'
            ninja = "(echo '@1 2 Compiling long.cc.o'; said 2; printf '@2 2 Link'; said 3; echo 'ing gradwire')"
            log = pathlib.Path(folder) / "log"
            log.touch()
            bash(f'log="{log}"; {wait}; progress_every=1; {ninja} | show_ninja build 2>"$log"')
            lines = log.read_text().splitlines()
        self.assertEqual(lines[0], "check: build: compiling 1 of 2  (Compiling long.cc)")
        for line in lines[1:4]:  # half a line is not shown
            self.assertRegex(line, r"^check: build: compiling 1 of 2  \(Compiling long\.cc\), 0:\d\d so far$")
        self.assertRegex(lines[-1], r"^check: build: 2 commands in 0:\d\d$")

    def test_what_a_compiler_says_is_shown(self):
        done = bash("show_ninja build", "@1 2 Compiling a.cc.o\nFAILED: a.cc.o\na.cc:3:1: error: no\n")
        self.assertIn("FAILED: a.cc.o\na.cc:3:1: error: no\n", done.stderr)

    def test_nothing_to_do(self):
        for text in ("ninja: no work to do.\n", "@1 4 Generating apps/commit.h with a custom command\n"):
            self.assertIn("check: build: up to date\n", bash("show_ninja build", text).stderr)

    def test_a_terminal_has_one_line_that_is_rewritten(self):
        status, written = on_terminal("show_ninja build", NINJA)
        self.assertEqual(status, 0)
        self.assertEqual(written.count("\n"), 1, written)  # after the last
        self.assertEqual(written.count("\r\x1b[K"), 21)
        for line in written.split("\r\x1b[K"):
            self.assertLess(len(line.rstrip()), 80)

    def test_progress_of_apt(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            done = bash(f"progress_every=0; show_apt {log}", "dlstatus:1:7.5:Retrieving file 3 of 40\n"
                        "pmstatus:g++:43.2:Unpacking g++ (amd64)\nE: Unable to locate package x\n")
            self.assertEqual(done.stderr.splitlines(),
                             ["check: packages: downloading, 7 %  (Retrieving file 3 of 40)",
                              "check: packages: unpacking, 43 %  (Unpacking g++ (amd64))"])
            self.assertEqual(log.read_text(), "E: Unable to locate package x\n")

    def test_clock(self):
        self.assertEqual(bash("clock_text 7; echo; clock_text 754").stdout.split(), ["0:07", "12:34"])


# Programs that say in $CALLS what they were called with.
DPKG_QUERY = """#!/bin/sh
echo "libhere:amd64 installed
gone config-files"
echo "dpkg-query: no packages found matching new" >&2
exit 1
"""
APT_GET = """#!/bin/sh
echo "apt-get $*" >>"$CALLS"
case "$*" in
  *update*) touch "$CALLS.lists" ;;
  *) [ -f "$CALLS.lists" ] || { echo "E: Unable to locate package"; exit 100; } ;;
esac
"""
MESON = """#!/bin/sh
echo "meson $*" >>"$CALLS"
[ "$1" != setup ] || { mkdir -p "$2"; echo >"$2/build.ninja"; }
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in (("dpkg-query", DPKG_QUERY), ("apt-get", APT_GET), ("meson", MESON), ("sudo", '#!/bin/sh\nexec "$@"\n')):
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o755)

    def run_here(self, script):
        done = bash(f". tests/run/packages.sh; . tests/run/build.sh; {script}", CALLS=str(self.root / "calls"),
                    PATH=f"{self.root}:{os.environ['PATH']}")
        calls = self.root / "calls"
        return done, calls.read_text().splitlines() if calls.exists() else []

    def test_missing_packages_are_installed_and_lists_fetched_when_that_fails(self):
        done, calls = self.run_here("install_packages libhere gone new")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.split("Status-Fd=1 ")[1] for line in calls],
                         ["install --no-install-recommends gone new", "update", "install --no-install-recommends gone new"])
        self.assertIn("check: packages: installing 2 of 3", done.stderr.splitlines()[0])

    def test_no_package_is_missing(self):
        done, calls = self.run_here("install_packages libhere")
        self.assertEqual((done.returncode, done.stderr, calls), (0, "", []))

    def test_packages_that_cannot_be_installed_are_an_error(self):
        (self.root / "apt-get").write_text("#!/bin/sh\necho 'E: No space left'\nexit 100\n")
        done, _ = self.run_here("install_packages new; echo on")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("E: No space left\n", done.stderr)
        self.assertIn("gradwire: error: installing new failed", done.stderr)

    def test_a_folder_of_the_program_alone_is_widened_once(self):
        folder = self.root / "build"
        done, calls = self.run_here(f"configure_program {folder}; configure_program {folder}; configure {folder}; configure {folder}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([" ".join(line.split()[:2]) for line in calls], ["meson setup", "meson configure"])
        self.assertIn("-Dtests=disabled -Dmpi=disabled -Dcuda=disabled -Dnccl=disabled", calls[0])
        self.assertIn("-Dtests=auto -Dmpi=auto -Dcuda=auto -Dnccl=auto", calls[1])

    def test_a_folder_that_has_all_stays_so_for_the_demo(self):
        folder = self.root / "build"
        _, calls = self.run_here(f"configure {folder}; configure_program {folder}; configure {folder}")
        self.assertEqual(len(calls), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
