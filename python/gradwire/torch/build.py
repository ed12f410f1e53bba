"""``python -m gradwire.torch.build [--force]``: compiles the extension for the installed PyTorch ahead of its first use."""

import sys

from gradwire.torch import _extension


def main(arguments):
    unknown = [argument for argument in arguments if argument != "--force"]
    if unknown:
        print(f"gradwire: error: unknown argument {unknown[0]} (--force or nothing wanted)", file=sys.stderr)
        return 2
    print(_extension.build(force="--force" in arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
