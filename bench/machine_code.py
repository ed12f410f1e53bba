#!/usr/bin/env python3
"""What the compiler made of the kernels: memory instructions, local memory, and the length of their main loops.

    bench/machine_code.py BUILD [--arch sm_90] [--cuobjdump PROGRAM] [--only TEXT]

For each kernel whose name contains TEXT (all): instructions; of its longest loop, what one turn takes on the shortest and on
the longest way through it (inner loops once; a turn of a compressor's kernel is eight or sixteen elements of a thread); loads
and stores of device memory, and how many of them are of 16 bytes; accesses to local memory, which spills and indexed arrays
are. cuobjdump comes with CUDA's toolkit, or as the wheel nvidia-cuda-cuobjdump (with nvidia-cuda-nvdisasm beside it).
"""
import argparse
import pathlib
import re
import subprocess
import sys

FUNCTION = re.compile(r"Function : (\S+)")
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);")
TARGET = re.compile(r"\bBRA\b.*?0x([0-9a-f]+)")
COLUMNS = "{:<58} {:>6} {:>13} {:>9} {:>9} {:>6}"


def functions(text):
    """Name and instructions, (address, text), of each."""
    found = {}
    for line in text.splitlines():
        if named := FUNCTION.search(line):
            body = found.setdefault(named[1], [])
        elif (one := INSTRUCTION.match(line)) and found:
            body.append((int(one[1], 16), one[2]))
    return found


def edges(body):
    """By index: the indices that may follow. Ways out that the hardware takes for lanes that have come apart are left out."""
    at = {address: i for i, (address, _) in enumerate(body)}
    follow = []
    for i, (_, text) in enumerate(body):
        guarded = text.startswith("@")
        target = None if "BRA.DIV" in text else TARGET.search(text)
        nexts = [i + 1] if i + 1 < len(body) and (guarded or not (target or "EXIT" in text)) else []
        if target and int(target[1], 16) in at:
            nexts.append(at[int(target[1], 16)])
        follow.append(nexts)
    return follow


def longest_loop(follow):
    """Head and last instruction of the loop with the most instructions; None without one."""
    loops = [(head, i) for i, nexts in enumerate(follow) for head in nexts if head <= i and head != i]
    return max(loops, key=lambda loop: loop[1] - loop[0], default=None)


def turns(follow, head, last):
    """Instructions from head to last on the shortest and the longest way that does not go back."""
    short, long = {head: 1}, {head: 1}
    for i in range(head, last + 1):
        if i not in short:
            continue
        for after in follow[i]:
            if i < after <= last:
                short[after] = min(short.get(after, sys.maxsize), short[i] + 1)
                long[after] = max(long.get(after, 0), long[i] + 1)
    return (short[last], long[last]) if last in short else None


def plain(name):
    name = re.sub(r"gradwire::|cuda::|\(anonymous namespace\)::|^void ", "", name)
    name = re.sub(r"\(.*", "", name)
    return re.sub(r"^run_kernel<(.*)>$", r"\1", name).strip()


def row(name, body):
    def count(what, but=""):
        return sum(what in text and (not but or but in text) for _, text in body)

    follow = edges(body)
    loop = longest_loop(follow)
    way = turns(follow, *loop) if loop else None
    return COLUMNS.format(name[:58], len(body), "{} to {}".format(*way) if way else "-", f"{count('LDG')} ({count('LDG', '.128')})",
                          f"{count('STG')} ({count('STG', '.128')})", count("LDL") + count("STL"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    objects = sorted(options.build.glob("*/*_cuda.o"))
    if not objects:
        sys.exit(f"{options.build}: no kernels (expected a build with CUDA)")
    print(COLUMNS.format("kernel", "all", "a turn", "LDG (16)", "STG (16)", "local"))
    for path in objects:
        try:
            text = subprocess.run([options.cuobjdump, "-arch", options.arch, "-sass", path], capture_output=True, text=True, check=True).stdout
        except FileNotFoundError:
            sys.exit(f"no program '{options.cuobjdump}' (expected CUDA's cuobjdump: --cuobjdump)")
        except subprocess.CalledProcessError as error:
            sys.exit(f"{path}: {error.stderr.strip()}")
        found = functions(text)
        names = subprocess.run(["c++filt"], input="\n".join(found), capture_output=True, text=True, check=True).stdout.splitlines()
        for name, body in zip(map(plain, names), found.values()):
            if options.only in name:
                print(row(name, body))


if __name__ == "__main__":
    main()
