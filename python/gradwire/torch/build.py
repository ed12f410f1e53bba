"""``python -m gradwire.torch.build [--force]`` compiles the extension for the installed PyTorch ahead of its first use.

Prints the extension's path. If the package or the cache has a compiled one, nothing is compiled, unless --force is given.
"""

import sys

from gradwire.torch import _extension


def main(arguments):
    """Runs the command; returns its exit code, 0 or 2. Raises ImportError if the extension cannot be compiled."""
    if arguments in (["--help"], ["-h"]):
        print(__doc__.strip())
        return 0
    unknown = [argument for argument in arguments if argument != "--force"]
    if unknown:
        print(f"gradwire: error: unknown argument {unknown[0]} (expected --force, --help or nothing)", file=sys.stderr)
        return 2
    print(_extension.ahead(force="--force" in arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
