"""Snippets for the test of public_comments_test.py: each with a word of every finding that it must give, in order."""

HEADERS = [
    # No comment: a class, a method, a field, an enumerator, a macro, a C function, an alias.
    ("class A {\n public:\n  // Does it.\n  void f();\n};\n", ["A has no comment"]),
    ("// A.\nclass A {\n public:\n  // Does it.\n  void f();\n  void g();\n private:\n  void h();\n};\n", ["A::g has no comment"]),
    ("// A.\nstruct A {\n  bool b = false;  // whether\n  bool c = false;\n};\n", ["A::c has no comment"]),
    ("// A.\nenum class E {\n  kOne,  // the first\n\n  kTwo,\n};\n", ["E::kTwo has no comment"]),
    ("// M, one.\n#define M 1\n\n#define N 2\n", ["N has no comment"]),
    ("/* Frees it. Never fails. */\nvoid gw_a(void);\n\nvoid gw_b(void);\n", ["gw_b has no comment"]),
    ("using A = std::vector<B>;\n", ["A has no comment"]),
    ("// A, with g.\nclass A {\n public:\n  // Does it, unlike g.\n  void f(int /*b*/);\n  void g(int /*b*/);\n};\n", ["A::g has no comment"]),
    ("// A.\n[[deprecated(\"use g()\")]] inline int f(B b = {}) {\n  return 1;\n}\n\nC g();\n", ["f returns", "g has no comment"]),
    # No errors.
    ("// Does it.\nStatus f();\n", ["nothing of its errors"]),
    ("// Does it.\nResult<std::unique_ptr<A>> f(B b);\n", ["nothing of its errors"]),
    ("/* Does it. */\ngw_status gw_f(void);\n", ["nothing of its errors"]),
    ("// A. Errors of every method: those of B.\nclass A {\n public:\n  A() = default;\n};\n// Does it.\nStatus f();\n", ["nothing of its errors"]),
    # No unit: a field, a field of C, a result, a parameter.
    ("// A.\nstruct A {\n  double wait = 0;  // how long\n};\n", ["a number without a unit"]),
    ("/* A. */\ntypedef struct a {\n  double wait; /* how long */\n} a;\n", ["a::wait is a number without a unit"]),
    ("// How large it is.\nstd::size_t room();\n", ["returns a number without a unit"]),
    ("// Waits.\nvoid f(double timeout);\n", ["the parameter timeout"]),
    # Nothing wrong.
    ("// Does it. Errors: kInvalidArgument for a bad b.\nStatus f(int b);\nStatus f(B b);\n", []),
    ("// A. Errors of every method: those of B.\nclass A {\n public:\n  A() = default;\n  // Does it.\n  Status f();\n};\n", []),
    ("// f() and g(): this and that. Never fails.\nStatus f();\nStatus g();\n", []),
    ("// A.\nstruct A {\n  double wait_seconds = 0;  // how long\n  double part = 0;  // a ratio\n};\n", []),
    ("/* A. */\ntypedef struct a {\n  size_t bytes; /* its length */\n} a;\n/* Errors: GW_INTERNAL. */\ngw_status gw_f(void);\n", []),
]

MODULES = [
    ('"""M."""\ndef f():\n    pass\n', ["f has no docstring"]),
    ('"""M."""\nclass A:\n    """A."""\n    def f(self):\n        pass\n    def _g(self):\n        pass\n', ["A.f has no docstring"]),
    ('"""M."""\nclass Base:\n    """B."""\nclass A(Base):\n    pass\n', ["A has no docstring"]),
    ('def f():\n    """F."""\n', ["no docstring"]),
    ('"""M."""\ndef f():\n    """Does it."""\n    raise ValueError("x")\n', ["what it raises"]),
    ('"""M."""\ndef f():\n    """Does it."""\n    call("gw_f")\n', ["what it raises"]),
    ('"""M."""\ndef f(timeout):\n    """Waits, timeout: how long."""\n', ["the parameter timeout"]),
    ('"""M."""\nclass A:\n    """A."""\n    b: str\n', ["A.b has no comment"]),
    ('"""M."""\nclass A:\n    """A."""\n    b: int  # how many\n', ["A.b is a number"]),
    ('"""M."""\ndef f(timeout):\n    """Waits at most timeout seconds. Raises ValueError."""\n    raise ValueError("x")\n', []),
    ('"""M."""\nclass A:\n    """A. b: number of ranks."""\n    b: int\n', []),
]

SOURCES = [
    ("// top: the largest.\n", ["no 'Source"]),
    ("// Source: Stich, 2018.\n", ["without a venue"]),
    ("// Source: Stich, NeurIPS.\n", ["without a year"]),
    ("// Source: Stich, Cordonnier, Jaggi,\n// NeurIPS 2018, algorithm 1.\n", []),
]
