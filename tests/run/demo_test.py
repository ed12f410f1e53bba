"""./demo passes flags on to gradwire compare: a flag of the user's takes the place of the demo's own. Packages, build and
program are stand-ins."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

DEMO = pathlib.Path(__file__).parents[2] / "demo"


class Demo(unittest.TestCase):
    def words(self, *flags):
        """What the program is started with."""
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch)
            for folder in ("tests/run", "build/apps"):
                (root / folder).mkdir(parents=True)
            (root / "tests/run/progress.sh").write_text("say() { :; }\n")
            (root / "tests/run/packages.sh").write_text("")
            (root / "tests/run/build.sh").write_text("build_program() { :; }\n")
            program = root / "build/apps/gradwire"
            program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
            program.chmod(0o755)
            shutil.copy(DEMO, root)
            done = subprocess.run([root / "demo", *flags], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.splitlines()

    def test_without_flags(self):
        words = self.words()
        self.assertEqual(words[0], "compare")
        for name, value in (("--ranks", "4"), ("--steps", "200"), ("--out", "demo-out"), ("--seeds", "3")):
            self.assertEqual(words[words.index(name) + 1], value)

    def test_a_flag_of_the_user_takes_the_place_of_the_demos(self):
        for flags, gone in ((("--steps", "600"), "200"), (("--steps=600",), "200"), (("--epochs", "2"), "200"),
                            (("--inproc", "2"), "--ranks"), (("--compressors", "none; signsgd"), "cast:bf16"), (("--out", "x y"), "demo-out")):
            with self.subTest(flags):
                words = self.words(*flags)
                self.assertEqual(words[-len(flags):], list(flags))
                self.assertFalse([word for word in words[:-len(flags)] if gone in word.split(";")])
                names = [word.split("=")[0] for word in words if word.startswith("--")]
                self.assertEqual(len(names), len(set(names)))

    def test_other_flags_are_added(self):
        self.assertEqual(self.words("--markdown")[-1], "--markdown")


if __name__ == "__main__":
    unittest.main()
