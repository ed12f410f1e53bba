#!/usr/bin/env python3
"""Waits, events and stream arguments of the code around devices, each of which can be switched off: a mutant.

  mutants.py list              every mutant: number, place, kind, what is switched
  mutants.py write FOLDER      the tree of sources, with a switch for each mutant, in FOLDER
  mutants.py lint              every call that the rules know has a switch, and what is set aside names a mutant that is there

The sources are read, not a list: a call that is added is a mutant. In programs of the written tree GRADWIRE_MUTANT=NUMBER
switches one (tests/emulation/mutants.h)."""
import collections
import dataclasses
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ["device/*.cc", "device/*.h", "device/cuda/*.cc", "device/cuda/*.cu", "device/cuda/*.h", "collectives/device/*.cc", "collectives/device/*.h",
         "comm/nccl/nccl_comm.cc", "comm/nccl/nccl_comm.h", "comm/ucx/device_memory.cc", "comm/ucx/device_memory.h", "comm/ucx/tickets.cc",
         "aggregate/*.cc", "aggregate/*.h", "aggregate/narrow/*.cc", "aggregate/narrow/*.h", "aggregate/plan/*.cc", "aggregate/state/*.cc",
         "collectives/engine/stag*.cc", "collectives/engine/executor.cc", "collectives/engine/work.cc",
         "collectives/plan/message_path.cc", "collectives/plan/lent_inputs.cc", "adapters/c/work_cell.cc", "adapters/c/bucket_steps.cc",
         "adapters/torch/*.cc", "adapters/torch/*.h"]
# Of no emulated program: CUDA's own driver, its launches, cuBLAS, and what stands in for it. Of the host's memory alone: the rest.
LEFT_OUT = {"device/cuda/driver.cc", "device/cuda/cuda_launch.h", "device/cuda/gemm.cc", "device/cuda/no_gemm.cc",
            "aggregate/state/replica_check.cc"}
ASIDE = pathlib.Path(__file__).with_name("set_aside.toml")
SAMPLE = pathlib.Path(__file__).with_name("sample.toml")
SURVIVORS = pathlib.Path(__file__).with_name("survivors.toml")
MOST_ASIDE = 0.05

# Calls that wait, mark a point to wait for, or leave it to a later wait: what they are switched to.
STATUS, PASSED, DONE, NOTHING = "gradwire::Status()", "gradwire::Result<bool>(true)", "cudaSuccess", "void()"
WAITS = {"wait": STATUS, "give_up": NOTHING, "give_up_on": NOTHING, "retire": NOTHING, "before": STATUS, "record": STATUS, "synchronize": STATUS, "wait_for": STATUS, "finish": STATUS, "hold": STATUS,
         "settle": STATUS, "await_device": STATUS, "await_lane": STATUS, "passed": PASSED, "await": PASSED, "poll_until": PASSED,
         "wait_for_word": "true", "cudaEventRecord": DONE, "cudaStreamWaitEvent": DONE, "cudaEventQuery": DONE}
# These answer whether what was waited for has ended.
ANSWERS = re.compile(r"(\bengine\(\)->|\bcell->|\bWorkCell::)wait\(|^wait\(std::nullopt\)")
# Calls that have the name of a wait and are none: those of coders, steps, jobs, std::future, and condition variables; and what every wait of
# the host's comes down to, of which each is a mutant of its own.
NOT_WAITS = re.compile(r"\b(work|ordered|coder|method_|feedback|engine_|aggregator_|join)(\.|->)(finish|settle)\(|^finish\(|ended\.wait_for\(|operated_?\.before\(|one->before\(|^hold\(|table_\.settle\("
                       r"|\b(changed_|decided_|settled_|store|state_?|engine)(\.|->)wait\(|block\.block\(")
# Of the adapter to PyTorch, which has PyTorch's names.
TORCH = "adapters/torch/"
TORCH_WAITS = {"order": NOTHING, "record": NOTHING, "block": NOTHING, "used_on": NOTHING, "follow_outputs": NOTHING, "await": NOTHING,
               "query": "true", "wait_there": "true", "await_copies": "true", "gw_work_wait_on": "GW_OK", "gw_work_wait": "GW_OK"}
TORCH_STREAM = re.compile(r"(?<![\w.>:])((?:[A-Za-z_]\w*(?:\(\))?(?:\.|->))*(?:stream|there|earlier|later))(?=\s*[,)}])")
TORCH_ASKS = re.compile(r"\bfuture_of_tensors\($")
# Calls that answer with a stream, which is used then; the outer one of two.
TORCH_MADE = re.compile(r"\b(native_of|current_stream)\(")
# Expressions that are a stream.
STREAM = re.compile(r"(?<![\w.>:])((?:[A-Za-z_]\w*(?:\(\))?(?:\.|->))*(?:stream_?(?:\.native)?|stream\(\)|to_host\(\)|to_device\(\)))(?=\s*[,)}])")
# What a stream among a call's options becomes, and the two of a choice.
FIELD = re.compile(r"\.stream = (?=[^={])")
CHOICE = re.compile(r"(?:\?|(?<=[\w)}]) :) ((?:[A-Za-z_]\w*(?:\(\))?(?:\.|->))*(?:stream_?|results|stream\(\)|to_host\(\)|to_device\(\)))(?=\s*(?:[,;)]| :))")
# The default stream, where a call is given it.
DEFAULT = re.compile(r"\bcuda\w+Async\([^;]*?(nullptr)\)")


@dataclasses.dataclass
class Mutant:
    file: str
    begin: int
    end: int
    kind: str
    text: str
    line: int
    off: str  # what a wait is switched to
    number: int = 0
    same: int = 0  # such mutants before it in the file

    @property
    def place(self):
        return f"{self.file}:{self.line}"

    @property
    def key(self):
        """Stays when lines move: the file, what is switched, and the how manieth such it is there."""
        return f"{self.file} {self.kind} {self.text} #{self.same}"


def blank(text):
    """The text without comments and strings, as long as before."""
    def hide(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^\s*#[^\n]*', hide, text, flags=re.DOTALL | re.MULTILINE)


def closing(code, at):
    """Where the bracket at `at` is closed."""
    depth = 0
    for i in range(at, len(code)):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(code[i], 0)
        if depth == 0:
            return i
    raise SystemExit(f"no end of the bracket at {code[at:at + 40]!r}")


def opening(code, at):
    """Where the bracket that is closed at `at` is opened."""
    depth = 0
    for i in range(at, -1, -1):
        depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(code[i], 0)
        if depth == 0:
            return i
    raise SystemExit(f"no begin of the bracket at {code[at:at + 40]!r}")


def end_of_value(code, at):
    """Where the value that begins at `at` ends: before a comma, a semicolon or a bracket that closes what it is in."""
    depth = 0
    for i in range(at, len(code)):
        if depth == 0 and code[i] in ",;)}]":
            return i
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(code[i], 0)
    raise SystemExit(f"no end of the value at {code[at:at + 40]!r}")


def begin_of(code, at):
    """Where the expression begins whose last name begins at `at`."""
    while True:
        before = code[:at]
        if before.endswith("->") or before.endswith("::"):
            at -= 2
        elif before.endswith("."):
            at -= 1
        else:
            return at
        while at > 0 and code[at - 1] in ")]":
            at = opening(code, at - 1)
        while at > 0 and (code[at - 1].isalnum() or code[at - 1] == "_"):
            at -= 1


def is_declaration(code, begin, end):
    """Whether what stands there declares or defines a function: a type before it, or a body behind it."""
    before = code[:begin].rstrip()
    behind = code[end + 1:].lstrip()
    if re.match(r"(const|override|noexcept|\{)", behind) and not behind.startswith("{}"):
        return True
    word = re.search(r"([A-Za-z_]\w*|>|&|\*)$", before)
    return bool(word) and word.group(1) not in ("return", "co_return", "else", "GW_TRY")


def is_no_wait(code, begin, opened, end):
    """Whether the call has a wait's name alone; work_state's helps a thread that gets no processor."""
    return NOT_WAITS.search(code[begin:opened]) or code[begin:end + 1].startswith("wait(std::chrono")


def mutants_of(name, text):
    code = blank(text)
    found = []

    def add(begin, end, kind, off=""):
        line = text.count("\n", 0, begin) + 1
        found.append(Mutant(name, begin, end, kind, " ".join(text[begin:end].split()), line, off))

    torch = name.startswith(TORCH)
    waits = TORCH_WAITS if torch else WAITS
    for match in re.finditer(r"\b(" + "|".join(waits) + r")\(", code):
        begin = begin_of(code, match.start())
        end = closing(code, match.end() - 1)
        if is_no_wait(code, begin, match.end(), end) or is_declaration(code, begin, end):
            continue
        if code[begin:end + 1].endswith("hold()"):  # the function is asked for; called with a stream it waits
            if code[end + 1] != "(":
                continue
            end = closing(code, end + 1)
        add(begin, end + 1, "wait", "true" if ANSWERS.search(code[begin:end + 1]) else waits[match.group(1)])
    for match in (TORCH_STREAM if torch else STREAM).finditer(code):
        begin, end = match.span(1)
        before = code[:begin].rstrip()
        if re.search(r"[(,{]\s*\*$", before):
            begin = before.rindex("*")
            before = before[:begin].rstrip()
        # A parameter, a field's initialiser, and what only asks about a stream are no arguments of work.
        if re.search(r"[&*>]$", before) or re.search(r"\b(?:Stream|cudaStream_t|const)$", before):
            continue
        if not re.search(r"[(,{]$", before) or re.search(r"\b(?:if |stream_|check_given)\($", before) or torch and TORCH_ASKS.search(before):
            continue
        add(begin, end, "stream")
    for match in TORCH_MADE.finditer(code) if torch else []:
        end = closing(code, match.end() - 1) + 1
        inner = code[:match.start()].endswith("native_of(")
        if not inner and not is_declaration(code, match.start(), end - 1):
            add(match.start(), end, "made")
    for match in FIELD.finditer(code):
        end = end_of_value(code, match.end())
        if not TORCH_MADE.match(code, match.end()):
            add(match.end(), end, "field")
    for match in CHOICE.finditer(code):
        add(*match.span(1), "choice")
    for match in DEFAULT.finditer(code):
        add(*match.span(1), "default")
    return sorted(found, key=lambda mutant: mutant.begin)


def sources():
    names = sorted({str(path.relative_to(ROOT)) for pattern in FILES for path in ROOT.glob(pattern)} - LEFT_OUT)
    return {name: (ROOT / name).read_text() for name in names}


def all_mutants():
    found = [mutant for name, text in sources().items() for mutant in mutants_of(name, text)]
    before = collections.Counter()
    for number, mutant in enumerate(found, 1):
        mutant.number = number
        what = (mutant.file, mutant.kind, mutant.text)
        mutant.same = before[what]
        before[what] += 1
    return found


def set_aside():
    """The reasons of those that no test can find, by key."""
    return {entry["mutant"]: entry["reason"] for entry in tomllib.loads(ASIDE.read_text()).get("aside", [])}


def sample():
    """Keys of those that ./check draws from."""
    return tomllib.loads(SAMPLE.read_text())["mutants"]


def survivors():
    """The reasons of those that no test has found so far, by key."""
    return {entry["mutant"]: entry["reason"] for entry in tomllib.loads(SURVIVORS.read_text()).get("survivor", [])}


def written(name, text, mutants):
    """The text with its switches; innermost ones first."""
    edits = []
    for mutant in mutants:
        before = {"wait": f"(gradwire::mutants::on({mutant.number}) ? {mutant.off} : ",
                  "default": f"gradwire::mutants::other({mutant.number}, (cudaStream_t)"}.get(
                      mutant.kind, f"gradwire::mutants::other({mutant.number}, ")
        edits.append((mutant.begin, 1, -mutant.end, before))
        edits.append((mutant.end, 0, -mutant.begin, ")"))
    edits.sort()
    out, at = [], 0
    for place, _, _, insert in edits:
        out += [text[at:place], insert]
        at = place
    header = "tests/torch/device/mutants.h" if name.startswith(TORCH) else "tests/emulation/mutants.h"
    return f'#include "{header}"\n#line 1 "{ROOT / name}"\n' + "".join(out) + text[at:]


def write(folder):
    """A tree of sources as this one, but with switches; what is right stays as it is, and with it what has been compiled."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"], check=True,
                            capture_output=True, text=True).stdout.splitlines()
    found, texts = all_mutants(), sources()
    for name in listed:
        source, to = ROOT / name, folder / name
        if not source.is_file():
            continue
        new = source.read_bytes()
        if name in texts:
            new = written(name, texts[name], [mutant for mutant in found if mutant.file == name]).encode()
        if name == "tests/emulation/meson.build":
            new = new.replace(b"emulated_sources = [", b"emulated_sources = ['mutants.cc', ", 1)
        if not to.exists() or to.read_bytes() != new:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(new)
            to.chmod(source.stat().st_mode)


# What takes a stream or an event, or waits for one, by a rule of its own: names of CUDA's, NCCL's and gradwire's calls, and arguments.
CALL = re.compile(r"(?<![\w])([A-Za-z_]\w*)\(")
TAKES = re.compile(r"cuda(Stream(WaitEvent|Synchronize|Query)|Event(Record|Query|Synchronize)|DeviceSynchronize|\w+Async|LaunchHostFunc|Memcpy\w*|Memset\w*)$"
                   r"|cuStream(WaitValue|WriteValue)\w*$"
                   r"|(record|passed|synchronize|wait|wait_for_word|poll_until|await_device|await_lane|give_up|give_up_on|retire)$"
                   r"|(block|query|gw_work_wait_on|gw_work_wait)$")
GIVEN = re.compile(r"(native\()?\*?((\w+(\(\))?)(\.|->))*(stream_?|stream\(\)|to_host\(\)|to_device\(\))(\.native)?\)?$")
# These ask about a stream or make one, and give it no work and wait for none; a function that is made for later is no call.
ASKS = {"device_of", "native", "make_point", "move", "forward", "find", "is_capturing", "if", "while", "return", "switch", "sizeof",
        "has_value", "GW_TRY", "future_of_tensors", "handle_of", "TORCH_CHECK_VALUE", "GW_CUDA", "GW_ASSIGN", "cudaStreamCreateWithFlags", "cudaStreamDestroy", "stream_", "Scratch", "check_given"}


def arguments(text):
    """Of a call, split where no bracket is open."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return parts + [text[begin:].strip()]


def without_switch(name, text):
    """Calls by the rule above of which no part is a mutant."""
    code, mutants = blank(text), mutants_of(name, text)
    for match in CALL.finditer(code):
        opened = match.end() - 1
        end = closing(code, opened)
        begin = begin_of(code, match.start())
        given = any(GIVEN.match(one) for one in arguments(code[opened + 1:end]))
        member = match.group(1).startswith(("cuda", "gw_")) or begin < match.start()
        takes = TAKES.match(match.group(1)) and member
        if is_no_wait(code, begin, match.end(), end):
            continue
        if match.group(1) in ASKS or not (given or takes) or is_declaration(code, begin, end):
            continue
        if any(begin <= mutant.begin <= end or mutant.begin <= begin < mutant.end for mutant in mutants):
            continue
        line = text.count("\n", 0, begin) + 1
        yield f"{name}:{line}: {' '.join(text[begin:end + 1].split())[:80]} has no switch (expected a rule for it in tests/mutants/mutants.py)"


def lint():
    findings = [finding for name, text in sources().items() for finding in without_switch(name, text)]
    found = all_mutants()
    keys = {mutant.key for mutant in found}
    for name, listed in (("set_aside", set_aside()), ("survivors", survivors()), ("sample", sample())):
        findings += [f"tests/mutants/{name}.toml: no mutant {key!r}" for key in listed if key not in keys]
    if len(set_aside()) > len(found) * MOST_ASIDE:
        findings.append(f"tests/mutants/set_aside.toml: {len(set_aside())} of {len(found)} mutants (expected at most {MOST_ASIDE:.0%})")
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings in {len(found)} mutants")
    return 1 if findings else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["list"]:
        for mutant in all_mutants():
            print(f"{mutant.number:4} {mutant.place:45} {mutant.kind:7} {mutant.text[:90]}")
    elif sys.argv[1:2] == ["write"] and len(sys.argv) == 3:
        write(pathlib.Path(sys.argv[2]))
    elif sys.argv[1:] == ["lint"]:
        sys.exit(lint())
    else:
        raise SystemExit(__doc__)
