"""The rules of public_comments_test.py for Python: docstrings of a package's public modules, classes, functions and fields.

Public is what a module without an underscore in its name defines without one, and what __all__ names, wherever it is defined. Methods
that a public class takes from a base of the same module are public, too.
"""
import ast
import re

RAISES = re.compile(r"\b[Rr]aises?\b|\b[Nn]ever (raises|fails)\b|\b[A-Z]\w+Error\b|\b(InvalidArgument|Unsupported|OutOfMemory|PeerLost|TimedOut"
                    r"|Cancelled|CorruptPayload|RankMismatch)\b")
ALL_RAISE = re.compile(r"\bErrors of (all|every)\b")
COUNTED = re.compile(r"(^|_)(timeout|seconds|liveness|rendezvous_timeout|counts?|size|bytes|rate|scale|ratio|threads|elements)$")
UNIT_IN_NAME = re.compile(r"(^|_)(bytes|elements|seconds|ratio|rounds|steps|ranks)(_|$)")
UNIT = re.compile(r"\b(bytes?|elements?|seconds?|ranks?|steps?|ratios?|factors?|numbers?|threads|rate|scale)\b")
CALLS = {"call", "_start"}  # functions of the package that raise what the library returns
QUIET = {"__init__", "__enter__", "__exit__", "__del__", "__getstate__", "__setstate__", "__repr__"}


def numeric(annotation):
    return annotation is not None and re.search(r"\b(float|int)\b", ast.unparse(annotation)) is not None


def can_raise(function):
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in CALLS:
                return True
    return False


def function_findings(where, function, around):
    text = re.sub(r"\s+", " ", ast.get_docstring(function) or "")
    if not text and function.name not in QUIET:
        yield f"{where} has no docstring"
        return
    if can_raise(function) and not RAISES.search(text) and not RAISES.search(around if function.name in QUIET else "") \
            and not ALL_RAISE.search(around):
        yield f"{where} says nothing of what it raises (expected 'Raises ...' or the error's name)"
    said = text + " " + around
    for parameter in function.args.args + function.args.kwonlyargs:
        counted = COUNTED.search(parameter.arg) or (numeric(parameter.annotation) and "float" in ast.unparse(parameter.annotation))
        if not counted or UNIT_IN_NAME.search(parameter.arg):
            continue
        about = [part for part in re.split(r"(?<=[.;)]) ", said) if re.search(rf"\b{parameter.arg}\b", part)]
        if not any(UNIT.search(part) for part in about):
            yield f"{where} has the parameter {parameter.arg} without a unit (expected one in the docstring, with its name)"


def field_findings(where, owner, lines):
    """The fields of a dataclass: a comment behind or above, or a word of the class's docstring."""
    text = ast.get_docstring(owner) or ""
    for field in owner.body:
        if not isinstance(field, ast.AnnAssign) or field.target.id.startswith("_"):
            continue
        comment = " ".join(re.findall(r"#.*", lines[field.lineno - 2] + "\n" + lines[field.lineno - 1]))
        said = comment + " " + " ".join(line for line in re.split(r"(?<=[.;]) |\n", text) if re.search(rf"\b{field.target.id}\b", line))
        if not said.strip():
            yield f"{where}.{field.target.id} has no comment"
        elif numeric(field.annotation) and "bool" not in ast.unparse(field.annotation) and not UNIT_IN_NAME.search(field.target.id) \
                and not UNIT.search(said):
            yield f"{where}.{field.target.id} is a number without a unit"


def class_findings(where, owner, classes, lines):
    text = re.sub(r"\s+", " ", ast.get_docstring(owner) or "")
    if not text:
        yield f"{where} has no docstring"
    yield from field_findings(where, owner, lines)
    bodies = [owner] + [classes[base.id] for base in owner.bases if isinstance(base, ast.Name) and base.id in classes]
    for body in bodies:
        for function in body.body:
            if isinstance(function, ast.FunctionDef) and (not function.name.startswith("_") or function.name in ("__init__", "__call__")):
                yield from function_findings(f"{where}.{function.name}", function, text)


def findings(name, source, wanted=None):
    """The findings of one module: of all its public names, or of those that are `wanted`."""
    tree, lines = ast.parse(source), source.split("\n")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if not ast.get_docstring(tree):
        yield f"{name} has no docstring"
    for node in tree.body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            continue
        if node.name.startswith("_") if wanted is None else node.name not in wanted:
            continue
        where = f"{name}:{node.lineno}: {node.name}"
        if isinstance(node, ast.ClassDef):
            yield from class_findings(where, node, classes, lines)
        else:
            yield from function_findings(where, node, "")


def exported(source, module):
    """The names of __all__ that a package's __init__ imports from one of its modules."""
    names, imported = set(), set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = set(ast.literal_eval(node.value))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[-1] == module:
            imported |= {alias.name for alias in node.names}
    return names & imported


def package_findings(folder):
    found = []
    for module in sorted(folder.rglob("*.py")):
        wanted = None
        if module.name.startswith("_") and module.name != "__init__.py":
            package = module.parent / "__init__.py"
            wanted = exported(package.read_text(), module.stem) if package.is_file() else set()
        found += findings(module.relative_to(folder.parent), module.read_text(), wanted)
    return found
