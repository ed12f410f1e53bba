"""bench/bare_root.py: its steps are shell that exists, its table adds up, what it cannot do it refuses. Makes no root."""
import importlib.util
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "bench/bare_root.py"
spec = importlib.util.spec_from_file_location("bare_root", PROGRAM)
bare_root = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bare_root)


class BareRoot(unittest.TestCase):
    def test_every_step_is_a_command_of_this_tree(self):
        defined = "\n".join(path.read_text() for path in (ROOT / "tests/run").glob("*.sh"))
        helped = subprocess.run([ROOT / "check", "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        for step in bare_root.STEPS.values():
            for _, column, script in step:
                self.assertIn(column, bare_root.COLUMNS)
                self.assertEqual(subprocess.run(["bash", "-nc", script], timeout=60, check=False).returncode, 0, script)
                for array in re.findall(r"\$\{(\w+)\[@\]\}", script):
                    self.assertRegex(defined, rf"(?m)^{array}=\(", script)
                for name in re.findall(r"\b(?:install_packages|make_torch)\b", script):
                    self.assertIn(f"\n{name}() {{", defined)
                for option in re.findall(r"\./check (--[a-z-]+)", script):
                    self.assertIn(f"./check {option} ", helped)

    def test_the_table_adds_up(self):
        rows = {"./demo": {"packages": (60, 20), "compiling": (100, 200), "running": (12, 20)}, "./demo, again": {"running": (12, 20)}}
        lines = bare_root.table(rows, False).splitlines()
        self.assertEqual(lines[0].split("  ")[0], "command")
        self.assertTrue(lines[1].endswith("172 / 240"), lines[1])
        self.assertEqual(re.split(r"\s{2,}", lines[2]), ["./demo, again", "–", "–", "12 / 20", "12 / 20"])
        self.assertEqual({line.count("|") for line in bare_root.table(rows, True).splitlines()}, {6})

    def test_refusals(self):
        done = subprocess.run([sys.executable, PROGRAM, "--steps", "demo,demonstration"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("unknown step 'demonstration' (expected demo, pip, check)", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
