#!/usr/bin/env python3
"""What a soak is judged by: growth, or that it was not looked at, is a fault, and so is every other end than the wanted one."""
import contextlib
import io
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import soak_test  # noqa: E402

SOUND = {"rank": 0, "steps": 9000, "shrinks": soak_test.SHRINKS, "first_mib": 100.0, "most_mib": 100.0 + soak_test.GROWTH,
         "calm_looks": soak_test.LOOKS, "calm_first_mib": 90.0, "calm_most_mib": 91.0, "trouble": ""}
LAST = soak_test.RANKS - 1


def faults(rank=0, code=0, calm=True, **otherwise):
    with contextlib.redirect_stdout(io.StringIO()):
        return soak_test.judge_rank(rank, code, SOUND | otherwise, calm)


class Judgement(unittest.TestCase):
    def test_a_sound_rank(self):
        self.assertEqual(faults(), [])
        self.assertEqual(faults(calm=False, calm_looks=0), [])

    def test_growth(self):
        for more in ({"most_mib": 124.1}, {"calm_most_mib": 114.1}):
            with self.subTest(more):
                self.assertEqual(len(faults(**more)), 1)

    def test_growth_that_was_not_looked_at(self):
        for less in ({"shrinks": soak_test.SHRINKS - 1}, {"calm_looks": soak_test.LOOKS - 1}):
            with self.subTest(less):
                self.assertEqual(len(faults(**less)), 1)

    def test_ends(self):
        self.assertEqual(len(faults(trouble="wrong element: all_reduce")), 1)
        for code in (1, -signal.SIGABRT, -signal.SIGKILL):
            self.assertEqual(len(faults(code=code)), 1, code)
        self.assertEqual(soak_test.judge_rank(0, 0, None, True), ["rank 0 left no report"])

    def test_the_one_that_kills_itself(self):
        self.assertEqual(soak_test.judge_rank(LAST, -signal.SIGKILL, None, True), [])
        for code in (0, 1, -signal.SIGSEGV):
            self.assertEqual(len(soak_test.judge_rank(LAST, code, None, True)), 1, code)


if __name__ == "__main__":
    unittest.main()
