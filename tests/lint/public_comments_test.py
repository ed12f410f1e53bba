#!/usr/bin/env python3
"""Public symbols: each has a comment; a function that can fail names its errors; a number names its unit; what comes from a paper names
author, venue and year.

The public symbols are those of include/gradwire, and those of the Python package that its modules and __all__ name. What comes from a
paper is listed in sources_of_symbols.toml. docstrings.py has the rules for Python. The first thing that runs is a test of this lint:
bad_comments.py has a snippet for each rule.
"""
import pathlib
import re
import sys
import tomllib

import bad_comments
import declarations
import docstrings
import sources

ERRORS = re.compile(r"\bk(InvalidArgument|Unsupported|OutOfMemory|PeerLost|TimedOut|Cancelled|CorruptPayload|RankMismatch|Internal)\b"
                    r"|\bGW_(INVALID_ARGUMENT|UNSUPPORTED|OUT_OF_MEMORY|PEER_LOST|TIMED_OUT|CANCELLED|CORRUPT_PAYLOAD|RANK_MISMATCH"
                    r"|INTERNAL|IN_PROGRESS)\b|\bErrors?:|\b[Nn]ever fails\b")
ALL_ERRORS = re.compile(r"\bErrors of (all|every)\b")
CAN_FAIL = re.compile(r"(^|\s)(Status|Result<.*>|gw_status) \**$")
NUMBER = re.compile(r"\b(u?int(8|16|32|64)_t|size_t|int|unsigned|long|float|double)\b")
COUNTED = re.compile(r"(^|_)(counts?|size|bytes|elems|elements|seconds|timeout|limit|length|lengths|threads|ranks|rate|scale)$")
UNIT_IN_NAME = re.compile(r"(^|_)(bytes|elems|elements|seconds|ms|us|ns|gbps|bits|ratio|steps|ranks|rounds|messages|threads|dimensions)(_|$)")
UNIT = re.compile(r"\b(bytes?|elements?|seconds?|bits?|ranks?|steps?|rounds?|rows?|tensors?|gradients?|threads|dimensions?|messages|tickets"
                  r"|ratios?|factors?|shares?|numbers?|index|seed|hash|color|rate|scale|GPU|MiB|(0|1): \w+|any of gw_status)\b", re.I)
SOURCE = re.compile(r"\bSources?:\s*(?:the [\w ]+: )?(?P<author>[A-Z][\w-]+)")
VENUE = re.compile(r"\b(NeurIPS|NIPS|ICML|ICLR|JMLR|MLSys|NSDI|OSDI|SOSP|SIGCOMM|PPoPP|SPAA|STOC|CVPR|IJCAI|AISTATS|MSML|EMNLP|SC|ICDE|ICDCS"
                   r"|Middleware|Interspeech|DistributedML|CACM|arXiv|Specification|Parallel Comput\w*|Commun\. ACM|IEEE Trans\w*"
                   r"|Int\. J\. [\w. ]+|J\. Parallel Distrib\. Comput|JPDC|Technical report)\b")
YEAR = re.compile(r"\b(19|20)\d\d\b")


def is_exempt(symbol):
    """Copying, moving, comparing and destroying need no words."""
    return symbol.kind == "function" and (
        symbol.name.startswith("~") or symbol.name == "operator" or "= default" in symbol.text or "= delete" in symbol.text
        or re.search(r"&& ?\w*\) noexcept$", symbol.text) or symbol.text.endswith("override"))


def names(text, name):
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def names_symbol(text, symbol):
    """Whether a shared comment is about the symbol, too: a function as "name()" or "a name", another one by its name."""
    if symbol.kind != "function":
        return names(text, symbol.name)
    return re.search(rf"(?<!\w){symbol.name}\(\)|\b[Aa] {symbol.name}\b", text) is not None


def comment_of(symbol, before):
    """What is said of it: its own comment, one that it shares (which names it), or that of the overload before it."""
    if symbol.own:
        return symbol.own
    if before is not None and before.name == symbol.name and before.kind == symbol.kind:
        return comment_of(before, None) or before.near
    if symbol.near and (symbol.kind == "enumerator" or names_symbol(symbol.near, symbol)):
        return symbol.near
    for scope in reversed(symbol.scopes if symbol.kind == "enumerator" else []):
        if names(scope.own, symbol.name):
            return scope.own
    return ""


def error_findings(symbol, comment):
    if symbol.kind != "function" or not CAN_FAIL.search(symbol.text.partition(symbol.name + "(")[0]):
        return
    around = [scope.own for scope in symbol.scopes] + [symbol.notes]
    if not ERRORS.search(comment) and not any(ALL_ERRORS.search(text) for text in around):
        yield "says nothing of its errors (expected a code such as kInvalidArgument, 'Errors: ...' or 'never fails')"


def unit_findings(symbol, comment):
    """A field or result that is a number, and parameters that count something, have a unit."""
    if symbol.kind == "field":
        kind = symbol.text.split(symbol.name)[0]
        if NUMBER.search(kind) and not re.search(r"\(\*|function<", symbol.text) and not UNIT_IN_NAME.search(symbol.name) \
                and not UNIT.search(comment):
            yield "is a number without a unit (expected one in its name, as _seconds, or in its comment: bytes, elements, ratio, ...)"
    if symbol.kind != "function":
        return
    result, _, rest = symbol.text.partition(symbol.name + "(")
    if NUMBER.search(result) and not UNIT_IN_NAME.search(symbol.name) and not UNIT.search(comment):
        yield "returns a number without a unit (expected one in its name or in its comment)"
    for parameter in re.split(r",(?![^<]*>)", rest.rsplit(")", 1)[0]):
        match = re.match(r"\s*(?:const )?(?:std::)?(\w+)[ &*]+(\w+)", parameter)
        if match and NUMBER.fullmatch(match[1]) and (COUNTED.search(match[2]) or match[1] in ("double", "float")):
            said = comment if names(comment, match[2]) else " ".join(
                text for text in [symbol.notes] + [scope.own for scope in symbol.scopes] if names(text, match[2]))
            if not UNIT_IN_NAME.search(match[2]) and not UNIT.search(said) and not UNIT.search(comment):
                yield f"has the parameter {match[2]}, a number without a unit (expected one in its name or in the comment)"


def header_findings(name, source):
    before = None
    for symbol in declarations.read(source):
        comment = comment_of(symbol, before)
        if not is_exempt(symbol):
            where = f"{name}:{symbol.line}: {symbol.where()}"
            if not comment:
                yield f"{where} has no comment (expected one above or behind it, or one that names it)"
            else:
                for finding in [*error_findings(symbol, comment), *unit_findings(symbol, comment)]:
                    yield f"{where} {finding}"
        before = symbol


def source_findings(name, text, item):
    """The source of `item`, a word of the file ("" for the file itself): the first "Source:" behind it."""
    text = re.sub(r"\s+", " ", re.sub(r"\n\s*(//|\*|#)?", " ", text))
    at = 0
    if item:
        match = re.search(rf"(?<=\s){re.escape(item)}(?=\s)", text)
        if match is None:
            yield f"{name}: {item} is not there (expected: as sources_of_symbols.toml says)"
            return
        at = match.start()
    what = f"{name}: {item or 'the file'}"
    found = SOURCE.search(text, at, at + 900 if item else len(text))
    if found is None:
        yield f"{what} has no 'Source: author, venue, year'"
        return
    rest = text[found.start():found.start() + 500]
    if not VENUE.search(rest):
        yield f"{what} has a source without a venue (expected NeurIPS, arXiv, ...)"
    if not YEAR.search(rest):
        yield f"{what} has a source without a year"


def paper_findings(root, table):
    """Every file that the table lists, and that the table lists every method and every schedule."""
    for name, items in table["sources"].items():
        text = (root / name).read_text() if (root / name).is_file() else ""
        for item in items or [""]:
            yield from source_findings(name, text, item)
    listed = set(table["sources"]) | set(table["no_paper"])
    registry = (root / "compress/registry.cc").read_text()
    methods = set(re.findall(r"\b(\w+)_method\(\)", registry))
    for method in sorted(methods):
        if f"compress/{method}/{method}.h" not in listed:
            yield f"compress/{method}/{method}.h: not in sources_of_symbols.toml (expected under sources or no_paper)"
    for path in sorted((root / "collectives/schedules").glob("*.cc")):
        if str(path.relative_to(root)) not in listed:
            yield f"{path.relative_to(root)}: not in sources_of_symbols.toml (expected under sources or no_paper)"


def self_test():
    """Each rule finds its bad snippet, and nothing in the good ones."""
    wrong = []
    for rules, snippets in ((header_findings, bad_comments.HEADERS), (docstrings.findings, bad_comments.MODULES),
                            (lambda name, text: source_findings(name, text, ""), bad_comments.SOURCES)):
        for snippet, expected in snippets:
            found = list(rules("snippet", snippet))
            if len(found) != len(expected) or not all(word in finding for word, finding in zip(expected, found)):
                wrong.append(f"bad_comments.py: expected findings with {expected} of a snippet, got {found}: {snippet.strip()}")
    return wrong


def main():
    root = pathlib.Path(sys.argv[1])
    findings = self_test()
    for path in sorted((root / "include/gradwire").rglob("*.h*")):
        findings += header_findings(path.relative_to(root), path.read_text())
    findings += docstrings.package_findings(root / "python/gradwire")
    findings += paper_findings(root, tomllib.loads((pathlib.Path(__file__).parent / "sources_of_symbols.toml").read_text()))
    sources.finish(findings)


if __name__ == "__main__":
    main()
