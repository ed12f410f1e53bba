#!/usr/bin/env python3
"""No code decides by the words of a message: reasons, messages and descriptions are for people, programs go by codes and fields.

usage: typed_failures_test.py SOURCE_ROOT BUILD_ROOT
"""
import re
import sys

import sources

APART = ("bench", "tests")
# What holds words for people, however it is reached: file.message, failure.error().message(), made->describe(), description.
WORDS = r"\b(?:message|reason|describe|description|transport_of|why)\b(?:_|\([^()]*\))?"
# To look for words in it, or to compare it with some.
DECIDES = re.compile(WORDS + r"\s*(?:\.(?:find|rfind|starts_with|ends_with|contains|compare)\s*\(|[=!]=\s*[\"k])")
# Who takes a piece of a text to print it, and decides nothing by it.
PRINTS = {"comm/nccl/nccl_calls.cc": "reason.starts_with(kUnopened)"}
SEEN = ['if (file.message.starts_with("the launcher has died")) orphans.insert(rank);',
        'description.find("collectives in shared memory") == npos', 'return peer.reason == "closed";',
        'status.message() != "ok"', 'made->describe().ends_with("; shm")', "transport_of(*made).find(kInside)"]
UNSEEN = ["announced_.find(message.id)", "reason == nullptr ? otherwise : reason", "LostPeer{.reason = std::move(reason)}",
          "if (warned_ == failure.message()) return;"]


def finds(line):
    return DECIDES.search(line.split("//")[0]) is not None


def main():
    errors = [f"this test does not see: {line}" for line in SEEN if not finds(line)]
    errors += [f"this test sees something in: {line}" for line in UNSEEN if finds(line)]
    for path in sources.code(sys.argv[1]):
        if path.parts[0] in APART:
            continue
        text = (sources.pathlib.Path(sys.argv[1]) / path).read_text()
        for number, line in enumerate(text.split("\n"), 1):
            if finds(line) and not (str(path) in PRINTS and PRINTS[str(path)] in line):
                errors.append(f"{path}:{number}: decides by words that are for people: {line.strip()}")
    sources.finish(errors)


if __name__ == "__main__":
    main()
