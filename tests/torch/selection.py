"""What of a test's cases is wanted: all with GRADWIRE_TEST_FULL=1 (./check --torch), else, or with `--short`, the selection of ./check."""

import os
import pathlib
import shutil
import sys


def short():
    """Whether the selection is wanted; takes `--short` off the command line, for unittest."""
    given = "--short" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--short"]
    return given or not os.environ.get("GRADWIRE_TEST_FULL")


def program():
    """The path of `gradwire`: $GRADWIRE_PROGRAM, that of the build which $GRADWIRE_LIBRARY is of, or on PATH. None: there is none."""
    given = os.environ.get("GRADWIRE_PROGRAM")
    if given:
        return given
    library = os.environ.get("GRADWIRE_LIBRARY")
    beside = pathlib.Path(library).resolve().parents[1].parent / "apps" / "gradwire" if library else None
    return str(beside) if beside and beside.is_file() else shutil.which("gradwire")


def skip_all(reason):
    """Ends the program as skipped, before any test runs."""
    print(f"skipped: {reason}", flush=True)
    sys.exit(77)
