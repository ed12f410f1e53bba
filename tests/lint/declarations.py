"""A small reader of C and C++ headers: their declarations with the comments that belong to them.

It follows braces, not the grammar: enough for headers that clang-format has laid out. A declaration's comments are its own (the lines
directly above it, and the comment behind it with the lines that continue it) and, for the rules that allow it, the comments nearby.
"""
import dataclasses
import re

COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/', re.S)
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(.*)$", re.M)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", re.M)
TYPE = re.compile(r"^(?:template\s*<[^{;]*>\s*)?(?:typedef\s+)?(enum(?:\s+class)?|class|struct|union)\s+(?:\[\[\w+\]\]\s*)?(\w*)")
ACCESS = re.compile(r"^\s*(public|private|protected)\s*:(?!:)")


@dataclasses.dataclass
class Comment:
    first: int  # line, from 1
    last: int
    column: int
    alone: bool  # nothing but blanks in front of it
    text: str


@dataclasses.dataclass
class Declaration:
    kind: str  # "type", "enumerator", "field", "function", "alias", "macro"
    name: str
    line: int
    text: str  # without comments, blanks squeezed
    scopes: list  # enclosing types, outermost first: Declaration
    own: str = ""  # its comments
    near: str = ""  # the comment above the run of adjacent declarations that it stands in
    notes: str = ""  # comments of the file that stand by themselves, up to here, without those of types

    def where(self):
        return "::".join([scope.name for scope in self.scopes if scope.name] + [self.name])


def body_of(text):
    """A comment's words, without its marks."""
    text = re.sub(r"^/\*+|\*+/$", "", text)
    return re.sub(r"\s+", " ", re.sub(r"^\s*(?://+|\*(?!/))", " ", text, flags=re.M)).strip()


def comments_of(source):
    """Comments in order, adjacent line comments of one column joined, and the source with all of them blank."""
    found, blank = [], list(source)
    starts = [0] + [match.end() for match in re.finditer("\n", source)]
    line = 0
    for match in COMMENT.finditer(source):
        if match[0][0] != "/":
            continue
        while line + 1 < len(starts) and starts[line + 1] <= match.start():
            line += 1
        for i in range(match.start(), match.end()):
            blank[i] = source[i] if source[i] == "\n" else " "
        column = match.start() - starts[line]
        alone = not source[starts[line]:match.start()].strip()
        here = Comment(line + 1, line + 1 + match[0].count("\n"), column, alone, match[0])
        before = found[-1] if found else None
        if before and alone and here.text.startswith("//") and before.text.startswith("//") and before.last == here.first - 1 \
                and before.column == column:
            before.last, before.text = here.last, before.text + "\n" + here.text
        else:
            found.append(here)
    return [c for c in found if not re.match(r"/\*\w+\*/$|(//|/\*) (NOLINT|clang-format|namespace)", c.text)], "".join(blank)


def closing(code, opening):
    """The place of the bracket that closes the one at `opening`."""
    depth = 0
    for i in range(opening, len(code)):
        depth += (code[i] in "({[") - (code[i] in ")}]")
        if depth == 0:
            return i
    return len(code) - 1


def flat(head):
    """A declaration without what is in brackets."""
    out, i = "", 0
    while i < len(head):
        if head[i] in "([{":
            i = closing(head, i)
        else:
            out += head[i]
        i += 1
    return out


class Reader:
    def __init__(self, source):
        self.comments, code = comments_of(source)
        self.macros = [(m[1], code.count("\n", 0, m.start()) + 1, m[2]) for m in MACRO.finditer(code) if m[2].strip()]
        self.code = PREPROCESSOR.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), code)
        self.found = []
        self.run = (0, "")  # the last line of the run of adjacent declarations, and the comment above it

    def line(self, at):
        return self.code.count("\n", 0, at) + 1

    def read(self):
        self.scope(0, len(self.code), [])
        for name, line, text in self.macros:
            self.add("macro", name, line, line, text, [])
        self.found.sort(key=lambda declaration: declaration.line)
        return self.found

    def add(self, kind, name, first, last, text, scopes):
        declaration = Declaration(kind, name, first, re.sub(r"\s+", " ", text).strip(), scopes)
        above = [c for c in self.comments if c.alone and c.last == first - 1]
        behind = [c for c in self.comments if not c.alone and first <= c.first <= last]
        declaration.own = " ".join(body_of(c.text) for c in above + behind)
        if kind != "macro":
            near = body_of(above[0].text) if above else self.run[1] if self.run[0] + 1 >= first else ""
            self.run = (max([last] + [c.last for c in behind]), near)
            declaration.near = near
        else:
            run = [d for d in self.found if d.kind == "macro" and d.near and first - d.line <= 8]
            declaration.near = declaration.own or (run[-1].near if run else "")
        types = {d.line for d in self.found if d.kind == "type"}
        declaration.notes = " ".join(body_of(c.text) for c in self.comments if c.alone and c.last < first and c.last + 1 not in types)
        self.found.append(declaration)
        return declaration

    def scope(self, at, end, scopes, public=True):
        """The statements of a namespace's, a class's or the file's body."""
        while True:
            while at < end and self.code[at] in " \n\t;}":
                at += 1
            if at >= end:
                return
            access = ACCESS.match(self.code[at:end])
            if access:
                public, at = access[1] != "private", at + access.end()
                self.run = (0, "")
                continue
            at = self.statement(at, end, scopes, public)

    def statement(self, at, end, scopes, public):
        start, i = at, at
        inner = None  # the declaration of a type whose body was read
        while i < end and self.code[i] != ";":
            if self.code[i] in "([":
                i = closing(self.code, i)
            elif self.code[i] == "{":
                head, close = self.code[start:i], closing(self.code, i)
                if re.match(r'\s*(namespace\b|extern\s*" *")', head) or re.match(r'\s*extern\s+"C"', head):
                    self.scope(i + 1, close, scopes)
                    return close + 1
                match = TYPE.match(head.strip())
                if match and "(" not in head and "=" not in head and inner is None:
                    inner = self.type(match, start, i, close, scopes, public)
                elif inner is None and "(" in head and "=" not in flat(re.sub(r"operator\S+", "", head)):
                    self.declare(head, start, i, scopes, public)
                    self.run = (self.line(close), self.run[1])
                    return close + 1
                i = close
            i += 1
        text = self.code[start:i]
        if inner is not None:
            self.after(text[text.rfind("}") + 1:], start, i, scopes, public, inner)
        else:
            self.declare(text, start, i, scopes, public)
        return i + 1

    def type(self, match, start, opening, close, scopes, public):
        line = self.line(start)
        name = match[2] or "?"
        made = self.add("type", name, line, self.line(opening), self.code[start:opening], scopes)
        if not public:
            self.found.pop()
            return made
        self.run = (0, "")
        if match[1].startswith("enum"):
            self.enumerators(opening + 1, close, scopes + [made])
        else:
            self.scope(opening + 1, close, scopes + [made], match[1] != "class")
        return made

    def enumerators(self, at, end, scopes):
        for match in re.finditer(r"(\w+)[^,]*(?:,|$)", self.code[at:end]):
            line = self.line(at + match.start(1))
            self.add("enumerator", match[1], line, line, match[0], scopes)

    def after(self, text, start, stop, scopes, public, made):
        """What follows a type's body: `} kind = ...;` declares a field, `} name;` of a typedef names the type."""
        match = re.match(r"\s*(\w+)", text)
        if match and self.code[start:stop].lstrip().startswith("typedef"):
            made.name = match[1]
        elif match and public:
            line = self.line(stop)
            field = self.add("field", match[1], line, line, self.code[start:stop], scopes)
            field.near = field.near or made.near
            field.own = field.own or made.own
            field.text = made.name

    def declare(self, text, start, stop, scopes, public):
        first, last = self.line(start), self.line(stop)
        words = re.sub(r"\s+", " ", re.sub(r"\[\[.*?\]\]", " ", text)).strip()
        words = re.sub(r"^template ?<.*?> (?=\w)", "", words)
        if not public or re.match(r"(friend class|friend struct|(class|struct|enum) \w+$|static_assert)", words) or not words:
            return
        if re.match(r"using (namespace|\w+::)", words):
            return
        pointer = re.match(r"(?:typedef )?[\w ]+\(\*(\w+)\)\s*\(", words)
        bare = re.sub(r"<[^<>()]*(?:<[^<>]*>[^<>]*)*>", "<>", re.sub(r"\boperator ?(\S+?)(?=\()", "operator", words))
        call = re.match(r"[^=(]*?(~?\w+) ?\(", bare)
        if words.startswith("using ") or words.startswith("typedef "):
            name = pointer[1] if pointer else re.match(r"using (\w+)|.*?(\w+)$", words).group(1) or words.split()[-1]
            self.add("alias", name, first, last, words, scopes)
        elif pointer:
            self.add("field", pointer[1], first, last, words, scopes)
        elif call and not re.match(r"[^(]*=", bare.split("(")[0]):
            self.add("function", call[1], first, last, words, scopes)
        else:
            name = re.match(r"[^={[]*?(\w+) ?(?:[={[].*)?$", words.split(" = ")[0])
            self.add("field", name[1] if name else words, first, last, words, scopes)


def read(source):
    """The public declarations of a header's text, in order."""
    return Reader(source).read()
