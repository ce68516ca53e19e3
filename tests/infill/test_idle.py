"""Which bodies do nothing: remarks, placeholders, and calls of themselves with what they were called with."""

import pytest

from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import body_at, body_named, find_stubs, hole_at_cursor, hole_at_range
from midfill_infill.text.document import Document

SHAPES = {
    "python": "class A:\n    def f(self, a, b: int = 1, *c):\n        'Do.'\n        HOLE\n",
    "javascript": "class A {\n  f(a, b = 1, ...c) {\n    HOLE\n  }\n}\n",
    "typescript": "class A {\n  f(a: number, b?: string, ...c: number[]): void {\n    HOLE\n  }\n}\n",
    "go": "package p\n\nfunc (l *A) f(a, b int, c ...string) int {\n\tHOLE\n}\n",
    "rust": "impl A {\n    fn f(&self, a: u8, mut b: u8, c: u8) -> u8 {\n        HOLE\n    }\n}\n",
    "java": "class A {\n    int f(int a, final String b, int... c) {\n        HOLE\n    }\n}\n",
    "c": "int f(int a, char *b, int c)\n{\n    HOLE\n}\n",
    "cpp": "int A::f(int a, const char *b, int c)\n{\n    HOLE\n}\n",
}
IDLE = {
    "python": ["return self.f(a, b, *c) == 0", "x = 1\nreturn self.f(a, b=b, *c)", "# later", "pass", "..."]
    + ['"""The sum."""', '"""The sum."""\n...']
    + ["raise NotImplementedError", "return not self.f(a, b, *c)"]
    + ["return self.f(a - 1, b, *c)", "rows = self.f(b)\nreturn sorted(rows)", "return self.f(1).x"],
    "javascript": ["return this.f(a, b, ...c);", "// later", "throw new Error('not implemented');"],
    "typescript": ["return await this.f(a, b, ...c);"],
    "go": ["return l.f(a, b, c...) + 1", 'panic("not implemented")'],
    "rust": ["self.f(a, b, c)", "todo!()", "// later"],
    "java": ["return this.f(a, b, c);", "return f(a, b, c) + 1;", "throw new UnsupportedOperationException();"],
    "c": ["return f(a, b, c);"],
    "cpp": ["return this->f(a, b, c);"],
}
BUSY = {
    "python": [
        "return a < 2 or self.f(a - 1, b, *c)",
        "if a:\n    return 0\nreturn self.f(a, b, *c)",
        "return f(a, b, *c)",
    ]
    + ["return [self.f(x) for x in a]", "return self.f(a - 1) if a else 0"]
    + ["return lambda: self.f(a, b, *c)", "return super().f(a, b, *c)", "return a.f(a, b, *c)", "pass\nreturn a"]
    + ['"""The sum."""\nreturn a'],
    "javascript": ["return f(a, b, ...c);", "return () => this.f(a, b, ...c);"],
    "typescript": ["return this.f(a, b);"],
    "go": ["return l.next.f(a, b, c...)"],
    "rust": ["self.f(b, a, c)"],
    "java": ["while (a > 0) { a--; }\nreturn f(a, b, c);"],
    "c": ["return f(a - 1, b, c);"],
    "cpp": ["return base->f(a, b, c);"],
}


def judge(language: str, fill: str) -> bool:
    document = Document(
        SHAPES[language].replace("HOLE", "x = 1" if language == "python" else "x();").encode(), language
    )
    spliced = splice(document, [body_named(document, "f")], [fill])
    assert not spliced.new_errors
    return spliced.fills[0].is_idle


@pytest.mark.parametrize("language", SHAPES)
def test_a_body_that_does_nothing_is_known_in_every_language(language: str) -> None:
    assert [fill for fill in IDLE[language] if not judge(language, fill)] == []
    assert [fill for fill in BUSY[language] if judge(language, fill)] == []


def test_a_function_without_arguments_and_one_that_is_a_value_call_themselves_too() -> None:
    for source, idle, busy in [
        ("def f():\n    x = 1\n", "return f()", "return g()"),
        ("async def f(*, key):\n    x = 1\n", "return await f(key=key)", "return key and await f(key=1)"),
        ("@singledispatch\ndef f(x):\n    x = 1\n", "return f(x)", "return f(str(x))"),
    ]:
        document = Document(source.encode(), "python")
        hole = body_named(document, "f")
        assert splice(document, [hole], [idle]).fills[0].is_idle
        assert not splice(document, [hole], [busy]).fills[0].is_idle
    document = Document(b"const f = (x) => {\n  y();\n};\n", "javascript")
    assert splice(document, [body_named(document, "f")], ["return f(x);"]).fills[0].is_idle


@pytest.mark.parametrize("language", SHAPES)
def test_a_blank_line_that_gets_a_comment_alone_is_as_it_was(language: str) -> None:
    mark, around, code = ("#", "x = 1", "y = 2") if language == "python" else ("//", "x();", "y();")
    document = Document(SHAPES[language].replace("HOLE", f"{around}\n\n        {around}").encode(), language)
    hole = hole_at_cursor(document, document.data.index(b"\n\n") + 1)
    for text, is_idle in [
        (f"{mark} later", True),
        (f"{mark} first\n{mark} then", True),
        (code, False),
        (f"{mark} now\n{code}", False),
        (f"{code}  {mark} now", False),
    ]:
        spliced = splice(document, [hole], [text])
        assert (spliced.new_errors, spliced.fills[0].is_idle) == (0, is_idle), text


@pytest.mark.parametrize(
    ("source", "text", "is_idle"),
    [
        ("def f(a):\n    b = a\n\n    return b\n", "    ...", True),
        ("def f(a):\n    b = a\n\n    return b\n", "    pass", True),
        ("def f(a):\n    b = a\n\n    return b\n", "    b += 1\n    ...", False),
        ("def f(a):\n    b = a\n\n    return b\n", "    b = ...", False),
        ("def f(a):\n    b = a\n\n    return b\n", "    (0, 1)", True),
        ("def f(a):\n    b = a\n\n    return b\n", "    [b]", True),
        ("def f(a):\n    b = a\n\n    return b\n", "    [b].sort()", False),
        ("def f(a):\n    b = a\n\n    return b\n", '    """What b is."""', False),
        ("def f(a):\n    if a:\n\n    return a\n", "        pass", False),
    ],
)
def test_a_placeholder_or_a_literal_on_a_blank_line_between_statements_does_nothing(
    source: str, text: str, is_idle: bool
) -> None:
    document = Document(source.encode(), "python")
    hole = hole_at_cursor(document, source.index("\n\n") + 1)
    assert splice(document, [hole], [text]).fills[0].is_idle == is_idle


@pytest.mark.parametrize(("text", "is_idle"), [("  [b];", True), ("  0;", True), ("  [b].sort();", False)])
def test_a_literal_on_a_blank_line_of_javascript_does_nothing(text: str, is_idle: bool) -> None:
    document = Document(b"function f(a) {\n  let b = a;\n\n  return b;\n}\n", "javascript")
    hole = hole_at_cursor(document, document.data.index(b"\n\n") + 1)
    assert splice(document, [hole], [text]).fills[0].is_idle == is_idle


def test_a_comment_may_be_written_where_one_was_asked_for() -> None:
    document = Document(b"x = 1\n# the old\n\n# the n\n", "python")
    start = document.data.index(b"# the old")
    assert not splice(document, [hole_at_range(document, start, start + 9)], ["# the new"]).fills[0].is_idle
    assert not splice(document, [hole_at_cursor(document, len(document.data) - 1)], ["ew one"]).fills[0].is_idle


def test_a_function_try_block_is_judged_by_its_body() -> None:
    document = Document(b"int f(int a) try {\n} catch (...) {\n    return 0;\n}\n", "cpp")
    (hole,) = find_stubs(document)
    for text, is_idle in (("return g(a);", False), ("// later", True), ("return f(a);", True)):
        spliced = splice(document, [hole], [text])
        assert (spliced.fills[0].is_idle, spliced.new_errors) == (is_idle, 0)
        after = spliced.patch.apply(document.data).decode()
        assert after == f"int f(int a) try {{\n    {text}\n}} catch (...) {{\n    return 0;\n}}\n"
    broken = splice(document, [hole], ["return g(a);\n}\n\nint h() {\n    return 1;"])
    assert "int h" not in broken.patch.apply(document.data).decode() or broken.new_errors


@pytest.mark.parametrize("source", ["auto f = [](int a) { <> };\n", "struct A {\n  operator int() const { <> }\n};\n"])
def test_a_function_without_a_name_of_its_own_does_not_call_itself(source: str) -> None:
    before, after = source.split("<>")
    document = Document(f"{before}x();{after}".encode(), "cpp")
    hole = body_at(document, len(before))
    assert hole.is_body
    assert not splice(document, [hole], ["return g(1);"]).fills[0].is_idle
