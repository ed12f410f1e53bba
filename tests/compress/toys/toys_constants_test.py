#!/usr/bin/env python3
"""The figures that the toys' tests hold the compressors to are those that tests/reference/toys.py finds without them, and stand in the
tests as it writes them."""
import pathlib
import re
import sys
import unittest

try:
    import numpy  # noqa: F401
except ImportError:
    print("skipped: no NumPy (Debian: python3-numpy)")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parents[1]  # tests/compress
sys.path.insert(0, str(HERE.parent / "reference"))
import toys  # noqa: E402

FIGURES = 84  # how many there are


class Constants(unittest.TestCase):
    def test_every_figure_is_found_again(self):
        figures = list(toys.constants())
        self.assertEqual(len(figures), FIGURES)
        for file, literal, value, apart in figures:
            with self.subTest(file=file, literal=literal):
                self.assertLessEqual(abs(float(literal) - value), apart, value)
                alone = rf"(?<![\w.-]){re.escape(literal)}(?![\w.])"
                self.assertRegex((HERE / file).read_text(), alone)


if __name__ == "__main__":
    unittest.main()
