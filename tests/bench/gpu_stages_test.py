"""bench/gpu with tools that are played: what it writes when programs fail, hang, are stopped or are not built.
usage: gpu_stages_test.py GPU_BENCH, the program on the device that the host plays"""

import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GPU_BENCH = os.path.abspath(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ["--elements", "4096", "--rounds", "1", "--warm-up", "0"]
DEADLINE = 100  # seconds, for whatever is waited for
HAS_CARD = bool(glob.glob("/dev/nvidia[0-9]*"))

# Keeps options and says them again, and the tests that TOOLS/tests.json lists.
MESON = """
import json, os, pathlib, sys
tools = pathlib.Path(sys.argv[0]).parent
words = sys.argv[1:]
with open(tools / "meson.log", "a") as log:
    log.write(json.dumps(words) + "\\n")
folder = pathlib.Path(next(word for word in words[1:] if not word.startswith("-")))
if words[0] == "setup":
    folder.mkdir(exist_ok=True)
    (folder / "build.ninja").touch()
    options = dict(word[2:].split("=", 1) for word in words if word.startswith("-D"))
    (folder / "options.json").write_text(json.dumps([{"name": n, "value": v} for n, v in options.items()]))
elif "--tests" in words:
    print((tools / "tests.json").read_text())
else:
    print((folder / "options.json").read_text())
"""
# TOOLS/fail-TARGET says that a target fails.
NINJA = """
tools=$(dirname "$0")
for target; do :; done
if [ "$3" = -n ]; then [ -f "$tools/fail-gpu_tests" ] && echo "[1/1] Linking" || echo "ninja: no work to do."; exit; fi
case $target in bench/gpu_bench|gpu_tests|apps/gradwire) ;; *) echo "ninja: error: unknown target '$target'"; exit 1;; esac
[ ! -f "$tools/fail-$target" ] || { echo "FAILED: kernel.o"; exit 1; }
mkdir -p "$2/bench" "$2/apps"
cp "$tools/gpu_bench" "$2/bench/gpu_bench"
cp "$tools/gradwire" "$2/apps/gradwire"
"""
BENCH = """
for spec; do :; done
[ "$spec" != --list ] || { printf 'none\\nsignum\\n'; exit; }
smoke() { for one; do case $one in
  -*|262144) ;;
  smoky) echo "an illegal address" >&2; kill -SEGV $$ ;;
  *) for feedback in false true; do echo '{"bench": "smoke", "spec": "'$one'", "feedback": '$feedback', "same_bytes": true, "difference": 0}'; done ;;
esac; done; exit; }
[ ! -f TOOLS/no-device ] || { echo "gpu_bench: skipped: cudaErrorNoDevice (no CUDA-capable device is detected)" >&2; exit 77; }
[ "$1" != --smoke ] || [ -f TOOLS/real-smoke ] || smoke "$@"
case "$spec $*" in
  crash*both*|crash*none*) echo "an illegal address" >&2; kill -SEGV $$ ;;
  crash*) exec PROGRAM SMALL --feedback ef14 cast:fp16 ;;
  hang*) echo $$ >TOOLS/pid; sleep 100 ;;
esac
exec PROGRAM SMALL "$@"
"""
TEST = """
import json, sys
words = sys.argv[1:]
cases = [{"name": "x", "status": "RUN"}, {"name": "y", "status": "RUN"}, {"name": "z", "status": "NOTRUN"}]
kind = words[0]
if kind == "failing":
    cases[1]["failures"] = [{"failure": "a.cc:7: 1 is not 2"}]
if kind == "empty":
    cases = cases[2:]
report = [word for word in words if word.startswith("--gtest_output=json:")]
if kind == "skipped":
    print("skipped: NCCL 2.19.3 (2.30 or newer wanted for several ranks on one GPU)")
    sys.exit(77)
for place in report:
    open(place.split(":", 1)[1], "w").write(json.dumps({"testsuites": [{"name": "A", "testsuite": cases}]}))
if kind == "failing":
    print("a.cc:7: error: no")
    sys.exit(1)
print(" ".join(words))
"""
# Losses of a GPU that TOOLS/wrong-MODEL makes wrong.
GRADWIRE = """
while [ $# -gt 0 ]; do
  case $1 in --model) model=$2 ;; --device) device=$2 ;; --steps) steps=$2 ;; --metrics) metrics=$2 ;; esac
  shift
done
from=2.0
[ "$device" = cpu ] || [ ! -f "TOOLS/wrong-$model" ] || from=2.1
awk -v from=$from -v steps=$steps 'BEGIN {
  for (i = 0; i < steps; ++i) printf "{\\"step\\": %d, \\"loss\\": %.3f, \\"step_seconds\\": %.3f}\\n", i, from - 0.01 * i, 0.001 * (i + 1)
  print "{\\"total\\": true, \\"loss\\": 1}" }' >"$metrics"
"""


class Stages(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        self.python("meson", MESON)
        self.shell("ninja", NINJA)
        self.shell("gpu_bench", BENCH.replace("PROGRAM", GPU_BENCH).replace("SMALL", " ".join(SMALL)).replace("TOOLS", str(self.tools)))
        self.shell("gradwire", GRADWIRE.replace("TOOLS", str(self.tools)))
        self.python("test", TEST)
        self.shell("compute-sanitizer", 'shift 4; exec "$@"\n')
        self.list_tests([])
        self.path = f"{self.tools}:{os.environ['PATH']}"

    def shell(self, name, text):
        (self.tools / name).write_text("#!/bin/sh\n" + text)
        (self.tools / name).chmod(0o755)

    def python(self, name, text):
        (self.tools / name).write_text(f"#!{sys.executable}\n" + text)
        (self.tools / name).chmod(0o755)

    def list_tests(self, some):
        """And one that is in another suite."""
        kinds = [("gpu_device_ops", "passing"), *some, ("codecs", "failing")]
        (self.tools / "tests.json").write_text(json.dumps(
            [{"name": name, "cmd": [str(self.tools / "test"), kind], "env": {}, "timeout": 60, "is_parallel": kind != "apart",
              "suite": ["gradwire:unit" if name == "codecs" else "gradwire:gpu"]} for name, kind in kinds]))

    def start(self, *words, path=None):
        return subprocess.Popen([str(ROOT / "bench/gpu"), "--build", str(self.folder / "build"), *words], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PATH": path or self.path})

    def end(self, process):
        """Status, and the rows: those that are printed, and those of this run in the file."""
        printed, self.said = process.communicate(timeout=DEADLINE)
        rows = [json.loads(line) for line in printed.splitlines()]
        if rows:
            kept = (self.folder / "build/gpu.jsonl").read_text().splitlines()
            self.assertEqual([json.loads(line) for line in kept[-len(rows):]], rows)
        return process.returncode, rows

    def run_gpu(self, *words, path=None):
        return self.end(self.start(*words, path=path))

    def of(self, rows, **wanted):
        return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]

    def test_the_programs_rows(self):
        ran = subprocess.run([GPU_BENCH, *SMALL, 'no"such\n\t', "cast:fp16", "signum"], capture_output=True, text=True, timeout=DEADLINE)
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(len(self.of(rows, bench="copy", moved_bytes=32768)), 1)
        failed = self.of(rows, spec='no"such\n\t')
        self.assertEqual([row["feedback"] for row in failed], [False, True])
        self.assertIn('no"such', failed[0]["failed"])
        stages = self.of(rows, spec="cast:fp16")
        self.assertEqual([(row["feedback"], row["stage"], row["moved_bytes"]) for row in stages],
                         [(False, "encode", 24576), (False, "decode", 24576), (True, "encode", 57344), (True, "decode", 24576)])
        for row in stages:
            self.assertGreater(row["host_seconds"], 0)
            self.assertEqual(row["payload_bytes"], 8192)
            self.assertAlmostEqual(row["share"], row["moved_gbps"] / row["copy_gbps"])
        self.assertEqual([("refused" in row, row.get("stage")) for row in self.of(rows, spec="signum")],
                         [(False, "encode"), (False, "decode"), (True, None)])

    def test_wrong_words_are_refused(self):
        for words, named in ((["--rounds", "0"], r"--rounds\b.*\b1\b.*got '0'"), (["--feedback", "ef21"], "none.*ef14.*both"),
                             (["--rouds", "1"], r"--rouds\b")):
            ran = subprocess.run([GPU_BENCH, *words], capture_output=True, text=True, timeout=DEADLINE)
            self.assertEqual((ran.returncode, ran.stdout), (1, ""))
            self.assertRegex(ran.stderr, named)

    def test_everything_in_its_order(self):
        self.list_tests([("gpu_laws", "passing"), ("gpu_nccl_laws", "apart"), ("gpu_nccl_laws_sharing", "skipped"), ("gpu_topk", "passing")])
        self.shell("compute-sanitizer", '[ "$2" = memcheck ] || { echo "ERROR SUMMARY: 3 errors"; exit 9; }\n'
                   'shift 4; "$@"; echo "========= ERROR SUMMARY: 0 errors"\n')
        status, rows = self.run_gpu()
        self.assertEqual(status, 1, self.said)  # racecheck's findings
        self.assertEqual([row["bench"] for row in rows if row["bench"] != "copy"],
                         ["run", "build"] + ["smoke"] * 4 + ["codec"] * 7 + ["build"] + ["test"] * 5 + ["build"] + ["trainer"] * 16 + ["torch"]
                         + ["sanitizer"] * 7 + ["run"])
        self.assertEqual([row["target"] for row in self.of(rows, bench="build", outcome="built")],
                         ["bench/gpu_bench", "gpu_tests", "apps/gradwire"])
        trained = self.of(rows, bench="trainer", model="gpt", compressor="none")[0]
        self.assertEqual((trained["losses_apart"], trained["losses"], trained["steps"]), (0, [2.0, 1.99, 1.98], 30))
        self.assertAlmostEqual(trained["seconds"], 0.018)
        self.assertIn("python", self.of(rows, bench="torch")[0]["left_out"])
        self.assertEqual({row["spec"] for row in self.of(rows, bench="codec")}, {"none", "signum"})
        laws = self.of(rows, test="gpu_laws")[0]
        self.assertEqual((laws["outcome"], laws["cases"], laws["failed_cases"]), ("passed", 2, {}))
        self.assertIn("ErrorIsWithinItsBound", laws["filter"])
        sharing = self.of(rows, test="gpu_nccl_laws_sharing")[0]
        self.assertEqual(sharing["outcome"], "skipped")
        self.assertTrue(sharing["skipped"].startswith("NCCL 2.19.3 (2.30 or newer wanted"))
        self.assertEqual(self.of(rows, bench="test")[-1]["test"], "gpu_nccl_laws")
        checked = self.of(rows, bench="sanitizer")
        self.assertEqual([(row["tool"], row["test"], row["outcome"], row.get("cases"), row["errors"], row["summary"])
                          for row in checked if "outcome" in row],
                         [("memcheck", "gpu_device_ops", "passed", 2, False, "ERROR SUMMARY: 0 errors"),
                          ("memcheck", "gpu_topk", "passed", 2, False, "ERROR SUMMARY: 0 errors"),
                          ("racecheck", "gpu_topk", "failed", None, True, "ERROR SUMMARY: 3 errors")])
        self.assertEqual({row["left_out"] for row in checked if "outcome" not in row}, {"its program was not built"})
        self.assertEqual((rows[-1]["ended"], rows[-1]["failed"]), ("failed", ["racecheck of gpu_topk"]))

    def test_the_smoke_test_names_what_ends_it_and_goes_on(self):
        status, rows = self.run_gpu("--", "none", "smoky", "signum")
        self.assertEqual(status, 1)
        smoke = self.of(rows, bench="smoke")
        self.assertEqual([row["spec"] for row in smoke], ["none", "none", "smoky", "signum", "signum"])
        self.assertIn("SIGSEGV: an illegal address", smoke[2]["failed"])
        self.assertLess(rows.index(smoke[-1]), rows.index(self.of(rows, bench="codec")[0]))
        (self.tools / "real-smoke").touch()
        status, rows = self.run_gpu("--", "cast:fp16", "nonsense", "signum")
        self.assertEqual([(row["spec"], row.get("same_bytes")) for row in self.of(rows, bench="smoke") if "failed" not in row],
                         [("cast:fp16", True), ("cast:fp16", True), ("signum", True), ("signum", None)])
        self.assertEqual(rows[-1]["failed"][:2], ["smoke of nonsense, feedback none", "smoke of nonsense, feedback ef14"])

    def test_losses_that_differ_are_named(self):
        (self.tools / "wrong-cnn").touch()
        status, rows = self.run_gpu("--", "none")
        self.assertEqual(status, 1)
        wrong = [row for row in self.of(rows, bench="trainer") if "failed" in row]
        self.assertEqual({row["model"] for row in wrong}, {"cnn"})
        self.assertRegex(wrong[0]["failed"], r"losses differ .*1\.99.* by up to 0\.05\d+ \(expected at most 0\.001\)")

    def test_what_is_done_is_not_done_again(self):
        self.python("git", "print('0123456789')\n")
        self.list_tests([("gpu_topk", "failing"), ("gpu_state", "passing")])
        (self.tools / "wrong-gpt").touch()
        status, rows = self.run_gpu("--", "none", "crash")
        self.assertEqual(status, 1)
        (self.tools / "wrong-gpt").unlink()
        self.list_tests([("gpu_topk", "passing"), ("gpu_state", "passing")])
        status, rows = self.run_gpu("--resume", "--", "none", "crash")
        self.assertEqual(status, 1)
        self.assertEqual(self.of(rows, bench="smoke"), [])
        self.assertEqual(self.of(rows, bench="codec", spec="none"), [])
        self.assertEqual(len(self.of(rows, bench="codec", spec="crash")), 1)
        self.assertEqual([row["test"] for row in self.of(rows, bench="test")], ["gpu_topk"])
        self.assertEqual({row["model"] for row in self.of(rows, bench="trainer")}, {"gpt"})
        self.python("git", "print('0123456780')\n")
        status, rows = self.run_gpu("--resume", "--", "none")
        self.assertEqual(status, 0, self.said)
        self.assertEqual(len(self.of(rows, bench="trainer")), 16)
        self.assertEqual(len(self.of(rows, bench="smoke")), 2)

    def test_full_keeps_the_long_laws(self):
        self.list_tests([("gpu_laws", "passing")])
        (self.tools / "compute-sanitizer").unlink()
        status, rows = self.run_gpu("--full", "--", "none")
        self.assertNotIn("filter", self.of(rows, bench="test", test="gpu_laws")[0])
        if shutil.which("compute-sanitizer") or os.path.exists("/usr/local/cuda/bin/compute-sanitizer"):
            return  # a real one, for programs that are played
        self.assertEqual(status, 0, self.said)
        self.assertEqual([row["left_out"] for row in self.of(rows, bench="sanitizer")],
                         ["compute-sanitizer is missing (expected in PATH, or in /usr/local/cuda/bin)"])

    def test_a_failure_is_a_row_and_the_rest_goes_on(self):
        self.list_tests([("gpu_topk", "failing"), ("gpu_state", "passing"), ("gpu_atoms", "empty")])
        status, rows = self.run_gpu("--", "none", "crash", "unknown", "cast:bf16")
        self.assertEqual(status, 1)
        crashed = self.of(rows, bench="codec", spec="crash", feedback=False)
        self.assertEqual(len(crashed), 1)
        self.assertIn("SIGSEGV: an illegal address", crashed[0]["failed"])
        # What was not tried, in a process of its own.
        self.assertEqual(len(self.of(rows, spec="cast:fp16", feedback=True)), 2)
        self.assertEqual(["failed" in row for row in self.of(rows, bench="codec", spec="unknown")], [True, True])
        self.assertEqual(len(self.of(rows, bench="codec", spec="cast:bf16")), 4)
        topk = self.of(rows, bench="test", test="gpu_topk")[0]
        self.assertEqual((topk["outcome"], topk["failed_cases"]), ("failed", {"A.y": "a.cc:7: 1 is not 2"}))
        self.assertEqual(topk["output"], "a.cc:7: error: no")
        self.assertEqual(topk["failed"], "exit status 1: a.cc:7: error: no")
        self.assertEqual(self.of(rows, test="gpu_state")[0]["outcome"], "passed")
        self.assertEqual(self.of(rows, test="gpu_atoms")[0]["failed"], "no case ran")
        self.assertIn("gpu_topk", rows[-1]["failed"])

    def test_what_is_not_built_is_said(self):
        self.list_tests([("gpu_topk", "passing")])
        (self.tools / "fail-gpu_tests").touch()
        status, rows = self.run_gpu("--", "none")
        self.assertEqual(status, 1)
        self.assertEqual(self.of(rows, target="gpu_tests")[0]["failed"], "exit status 1: FAILED: kernel.o")
        self.assertEqual(self.of(rows, test="gpu_topk")[0]["failed"], "its program was not built")
        self.assertEqual(len(self.of(rows, bench="codec", spec="none")), 4)

    def test_what_does_not_fit_is_left_out(self):
        status, rows = self.run_gpu("--seconds", "30", "--", "none", "hang", "signum")
        self.assertEqual(status, 0, self.said)
        self.assertEqual(len(self.of(rows, bench="codec", spec="none")), 4)
        self.assertIn("left_out", self.of(rows, bench="codec", spec="hang")[0])
        self.assertIn("--seconds 30", self.of(rows, bench="codec", spec="signum")[0]["left_out"])
        self.assertEqual(self.of(rows, target="gpu_tests")[0].get("left_out") is None, False)
        self.assertIn("left_out", self.of(rows, test="gpu_device_ops")[0])
        self.assertRegex(self.said, r"left out: .*\bhang\b.*\bnone\b")

    def test_what_nobody_foresaw_ends_its_stage_alone(self):
        (self.tools / "tests.json").write_text("[{}]")
        status, rows = self.run_gpu("--", "none")
        self.assertEqual(status, 1)
        self.assertEqual(len(self.of(rows, bench="codec", spec="none")), 4)
        self.assertEqual(rows[-1]["failed"][0], "the suite")
        self.assertIn("KeyError", self.of(rows, bench="run")[1]["failed"])

    def test_a_stop_leaves_what_there_is(self):
        process = self.start("--", "none", "hang")
        pid = self.tools / "pid"
        end = time.monotonic() + DEADLINE
        while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        status, rows = self.end(process)
        self.assertEqual(status, 128 + signal.SIGTERM)
        self.assertEqual(len(self.of(rows, bench="codec", spec="none")), 4)
        self.assertEqual((rows[-1]["stopped"], rows[-1]["during"]), ("SIGTERM", "measuring hang"))
        with self.assertRaises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)

    def test_no_device_is_77_unless_a_gpu_is_here(self):
        (self.tools / "no-device").touch()
        status, rows = self.run_gpu()
        self.assertEqual(status, 1 if HAS_CARD else 77)
        self.assertIn("cudaErrorNoDevice", self.of(rows, bench="smoke")[0]["failed" if HAS_CARD else "skipped"])
        self.shell("nvidia-smi", 'echo "NVIDIA H100, 550.1, 9.0, 81559 MiB, 1980 MHz"')
        status, rows = self.run_gpu()
        self.assertEqual(status, 1)
        self.assertRegex(self.of(rows, bench="smoke")[0]["failed"], "a GPU .*CUDA .*cudaErrorNoDevice")

    def test_the_folder_follows_the_options(self):
        self.shell("nvidia-smi", 'echo "NVIDIA H100, 550.1, 9.0, 81559 MiB, 1980 MHz"')
        self.shell("nvcc", "printf 'compute_80\\ncompute_90\\n'")
        archs = []
        for words in ([], [], ["--archs", "sm_80"], ["--archs", "sm_80", "--python", "python7"]):
            status, rows = self.run_gpu(*words, "--", "none")
            self.assertEqual(status, 0, self.said)
            archs.append(rows[0]["archs"])
        self.assertEqual(archs, ["sm_90", "sm_90", "sm_80", "sm_80"])
        self.assertEqual(rows[0]["cards"][0]["name"], "NVIDIA H100")
        setups = [words for words in map(json.loads, (self.tools / "meson.log").read_text().splitlines()) if words[0] == "setup"]
        self.assertEqual(["--reconfigure" in words for words in setups], [False, True, True])
        self.assertIn("-Dgpu_archs=sm_90", setups[0])
        self.assertIn("-Dwerror=false", setups[0])
        self.assertIn("-Dgpu_archs=sm_80", setups[1])
        self.assertIn("-Dnvidia_python=python7", setups[2])
        deps = self.folder / "deps"
        (deps / "bin").mkdir(parents=True)
        (deps / "prefetched").touch()
        status, rows = self.run_gpu("--deps", str(deps))
        self.assertEqual(status, 1)
        self.assertRegex(self.said, "bench/gpu: .*libraries .*'the system'")

    def test_tools_that_are_missing_are_named(self):
        bare = self.folder / "bare"
        bare.mkdir()
        for name in ("bash", "env", "dirname"):
            (bare / name).symlink_to(shutil.which(name))
        status, _ = self.run_gpu(path=str(bare))
        self.assertEqual(status, 1)
        self.assertRegex(self.said, r"error: .*\bpython3\b")
        (bare / "python3").symlink_to(os.path.realpath(sys.executable))
        for name in ("meson", "ninja"):
            status, _ = self.run_gpu(path=str(bare))
            self.assertEqual(status, 1)
            self.assertRegex(self.said, rf"error: .*\b{name}\b")
            (bare / name).symlink_to(self.tools / name)
        status, _ = self.run_gpu("--second", "9")
        self.assertEqual(status, 1)
        self.assertRegex(self.said, r"gradwire: error: .*--second\b")


if __name__ == "__main__":
    unittest.main()
