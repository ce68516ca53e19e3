"""What is taken off an answer, what is moved in it, and what stays byte for byte."""

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.infill.marks import read_goldens, read_marks

from midfill_infill.answers.draft import DraftText
from midfill_infill.answers.wrapping import unwrap
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.holes import body_named, hole_at_cursor, hole_at_range
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

METHOD = "class A:\n    def f(self, x):\n        return None\n\n    def g(self):\n        return 1\n"
TRUE = """y = {
            "a": x,
        }

        if y:
            return [
                y,
            ]
        return {
            "b": 1,
        }"""
COLUMN0 = "\n".join(line[8:] if number else line for number, line in enumerate(TRUE.split("\n")))
SIGNED = "def f(self, x):\n" + "\n".join(line and f"    {line}" for line in COLUMN0.split("\n"))


def read_body(answer: str, source: str = METHOD, name: str = "f", language: str = "python") -> str:
    document = Document(source.encode(), language)
    hole = body_named(document, name)
    spliced = splice(document, [hole], [answer])
    assert spliced.new_errors == 0
    return spliced.texts[0]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(TRUE, id="as it is"),
        pytest.param(f"        {TRUE}", id="with the first indentation"),
        pytest.param(COLUMN0, id="from column 0"),
        pytest.param(f"```python\n{COLUMN0}\n```", id="in a fence"),
        pytest.param(f"Here is the completed code:\n\n```python\n{COLUMN0}\n```\n\nIt adds `y`.", id="fence and prose"),
        pytest.param(f"Here is the body:\n\n{TRUE}", id="a sentence before"),
        pytest.param(f"{TRUE}\n\nThis returns a list of what was found.", id="a sentence behind"),
        pytest.param(f"<think>\nx = 1\n</think>\n\n{COLUMN0}", id="thinking"),
        pytest.param(f"{TRUE}<|endoftext|>", id="an end marker"),
        pytest.param(f"{TRUE}<|fim_pad|><|file_sep|>\nother = 1\n", id="markers, and text behind them"),
        pytest.param(f"<|fim_middle|>{TRUE}</s>", id="markers on both sides"),
        pytest.param(f"    def f(self, x):\n        {TRUE}", id="the signature, as in the file"),
        pytest.param(SIGNED, id="the signature, from column 0"),
        pytest.param(f"Sure, this is it:\n<code>\n{TRUE}\n</code>", id="a tag"),
        pytest.param(f"So x is kept. Hm.\nThen it ends.\n</think>\n\n{TRUE}", id="thinking that the prompt opens"),
        pytest.param(f"{TRUE}\n\n    def g(self):\n        return 1\n", id="the text behind"),
        pytest.param(f"{TRUE}\n\n    def h(self):\n        pass\n", id="another method"),
        pytest.param(f'{TRUE}\n\n\nif __name__ == "__main__":\n    A().f(1)\n', id="a main block"),
        pytest.param(TRUE.replace("\n", "\r\n"), id="another line end"),
        pytest.param(TRUE.replace("    ", "  "), id="two spaces for four"),
        pytest.param(TRUE.replace("    ", "\t"), id="tabs for spaces"),
    ],
)
def test_a_right_answer_arrives_as_it_was(answer: str) -> None:
    assert read_body(answer) == TRUE


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("return x\n\nprint(A().f(1))\nassert A().f(2)", "return x"),
        ("x = '''\na\n'''\nreturn x", "x = '''\na\n'''\n        return x"),
        ("def inner():\n    return x\n\nreturn inner", "def inner():\n            return x\n\n        return inner"),
        ('print("```")\n        return "</s>"', 'print("```")\n        return "</s>"'),
        ('return "<|endoftext|>"', 'return "<|endoftext|>"'),
        ("return foo(\n    x)", "return foo(\n            x)"),
        ("raise Closed()\nyield x", "raise Closed()\n        yield x"),
        ("self.x = x\n        self.x = x", "self.x = x\n        self.x = x"),
    ],
)
def test_what_belongs_to_a_body(answer: str, expected: str) -> None:
    assert read_body(answer) == expected


@pytest.mark.parametrize(("language", "answer"), [("tsx", "<code>{a}</code>"), ("javascript", "`a`")])
def test_a_tag_and_quotes_that_are_code_stay(language: str, answer: str) -> None:
    document = Document(b"const f = (a) => ;\n", language)
    assert splice(document, [hole_at_range(document, 17, 17)], [answer]).texts == (answer,)


def test_nested_lines_take_the_files_unit() -> None:
    source = "class A:\n  def f(self, x):\n    return None\n"
    assert read_body("if x:\n        return x\n    return None", source) == "if x:\n      return x\n    return None"
    assert read_body("if x:\n        return x", source) == "if x:\n      return x"
    answer = "if (x) {\n        go(x);\n    }\n    go(0);"
    for language, head in (("javascript", "f(x)"), ("java", "void f(int x)")):
        source = f"class A {{\n  {head} {{\n    go(1);\n  }}\n}}\n"
        assert read_body(answer, source, language=language) == answer.replace(" " * 8, " " * 6)


@pytest.mark.parametrize(
    ("source", "answer", "expected"),
    [
        ("x = foo(<>)\n", "a, b)", "a, b"),
        ("x = foo(<>)\n", "x = foo(a, b)", "a, b"),
        ("x = foo(<>, c)\n", "```python\nbar(1)\n```", "bar(1)"),
        ("x = foo(<>, c)\ny = x\n", "bar(1), c)\ny = x", "bar(1)"),
        ('x = "<>"\n', 'a"', "a"),
        ("return <>\n", "return x", "x"),
        ("y = nx.<>(G, S)\n", "y = nx.boundary(G, S)", "boundary"),
        ("self.thread.join(<>)\n", "    self.thread.join()", ""),
        ("x = [\n    (<> 1.5),\n]\n", '("150", 1.5),', '"150",'),
        ("self.thread.join(<>)\n", "self.thread.join(f()", "f()"),
        ("def f(a)<>:\n    return a\n", "def f(a):", ""),
        ("y = x + <> + b\n", "y = x + a + b", "a"),
        ("x = <>.y\n", "f(1)<|fim_pad|>", "f(1)"),
        ("y = x + <>\n", "`a + b`", "a + b"),
        ("y = x + <>\n", "<answer>\na + b\n</answer>", "a + b"),
        ("y = x + <>\n", "<answer>\na + b", "a + b"),
    ],
)
def test_a_hole_inside_a_line(source: str, answer: str, expected: str) -> None:
    at = source.index("<>")
    document = Document(source.replace("<>", "").encode(), "python")
    assert splice(document, [hole_at_range(document, at, at)], [answer]).texts == (expected,)


@pytest.mark.parametrize("line", ["", "    "])
@pytest.mark.parametrize("answer", ["if x:\n        y()\n    z()", "    if x:\n        y()\n    z()"])
def test_a_blank_line_takes_a_statement_with_its_block(line: str, answer: str) -> None:
    source = f"def f(x):\n    a()\n{line}\n    return x\n"
    document = Document(source.encode(), "python")
    hole = hole_at_cursor(document, source.index("()\n") + 3 + len(line))
    filled = splice(document, [hole], [answer]).patch.apply(document.data).decode()
    assert filled == "def f(x):\n    a()\n    if x:\n        y()\n    z()\n    return x\n"


JAVA = "class A {\n    int b;\n    class B {\n        int c;\nHOLE\n    }\n}\n"
RUST = "impl A for B {\nHOLE\n}\n"
EXTEND = "fn f<I>(&self, x: I)\nwhere\n    I: C,\n{\n    g(x);\n}"
TRACED = "class A {\n    void f(int a) {\n        HOLE;\n    }\n};\n"
UNION = "type A =\n  | 'a'\n  | 'b'\n\n" * 5 + "HOLE;\n"
NESTED = (
    "f(\n    (x) => {\n        HOLE;\n    });\n" + "function g(x) {\n  if (x) {\n    g(x);\n    return x;\n  }\n}\n" * 3
)
LABELED = "class A {\n    class B {\n    HOLE;\n    };\n};\n"


@pytest.mark.parametrize(
    ("language", "source", "answer", "expected"),
    [
        ("java", JAVA, "@D\nprivate int d;", "        @D\n        private int d;"),
        ("java", JAVA, "        @D\n    private int d;", "        @D\n        private int d;"),
        ("java", JAVA, "private int d;", "        private int d;"),
        (
            "java",
            JAVA.replace("    ", "  "),
            "    @D\n        @E\n        private int d;",
            "    @D\n    @E\n    private int d;",
        ),
        ("rust", RUST, EXTEND, "    " + EXTEND.replace("\n", "\n    ")),
        ("cpp", TRACED, 'trace("a"\n      "b", a);', 'trace("a"\n              "b", a);'),
        ("cpp", TRACED, "return a |\n    b;", "return a |\n            b;"),
        ("cpp", TRACED, "return a |\n        b;", "return a |\n                b;"),
        (
            "cpp",
            LABELED,
            "public:\n    int c;\nprotected:\n    int d;",
            "public:\n        int c;\n    protected:\n        int d;",
        ),
        ("typescript", UNION, "type C =\n    | 'a'\n    | 'b';", "type C =\n  | 'a'\n  | 'b';"),
        (
            "tsx",
            NESTED,
            "a();\n                if (x) {\n                    b();\n                }",
            "a();\n        if (x) {\n          b();\n        }",
        ),
        (
            "java",
            "class A {\n    B f() {\n        HOLE;\n    }\n}\n",
            "return new B(1)\n        .a()\n        .b();",
            "return new B(1)\n                .a()\n                .b();",
        ),
        ("python", "def f(self):\n    HOLE\n", 'self.g(a,\n{"a": 1})', 'self.g(a,\n    {"a": 1})'),
    ],
)
def test_lines_that_hang_on_the_first_one_go_with_it(language: str, source: str, answer: str, expected: str) -> None:
    """From column 0, or in another unit."""
    place = "HOLE;" if "HOLE;" in source else "HOLE"
    start, is_blank = source.index(place), "\nHOLE\n" in source
    document = Document(source.replace(place, "" if is_blank else place).encode(), language)
    hole = hole_at_cursor(document, start) if is_blank else hole_at_range(document, start, start + len(place))
    filled = splice(document, [hole], [answer]).patch.apply(document.data).decode()
    assert filled == source.replace(place, expected)


HANDLER = "const a = (\n  <View\n        onPress={() => {\n            HOLE;\n        }}\n  />\n);\n"
COMMENTED = "function f() {\n  HOLE;\n  return h();\n}\n"
GUARD = "int f(int a) {\n  HOLE;\n}\n\nint g(int a) {\n  if (a) {\n    f(a);\n  }\n  return 0;\n}\n"


@pytest.mark.parametrize(
    ("language", "source", "answer", "expected"),
    [
        (
            "tsx",
            HANDLER + "function g() {\n  if (a) {\n    h();\n  }\n}\n" * 3,
            "g({\n\t\t\t\t\t\t\tb,\n\t\t\t\t\t\t});",
            "g({\n              b,\n            });",
        ),
        (
            "typescript",
            COMMENTED,
            "const x = g();\n\n    // Then y.\n    // Then z.",
            "const x = g();\n\n  // Then y.\n  // Then z.",
        ),
        ("c", GUARD, "/* Once. */\n    return f(a);", "/* Once. */\n  return f(a);"),
    ],
)
def test_an_answer_in_another_unit_stands_at_its_hole(language: str, source: str, answer: str, expected: str) -> None:
    start = source.index("HOLE;")
    document = Document(source.encode(), language)
    assert splice(document, [hole_at_range(document, start, start + 5)], [answer]).texts == (expected,)


YAML = "a:\n  - x: 1\n    y:\n      HOLE\n  - z: 2\n"
QUERY = "SELECT a\nFROM orders\nHOLE\nORDER BY a;\n"
BLOCK = 'resource "a" "b" {\n  HOLE\n}\n'


@pytest.mark.parametrize(
    ("path", "source", "answer", "expected"),
    [
        ("m.yml", YAML, "k: 1\nm:\n  - 2", "k: 1\n      m:\n        - 2"),
        ("m.yml", YAML, "k: 1\n      m:\n        - 2", "k: 1\n      m:\n        - 2"),
        ("q.sql", QUERY, "FROM orders\nWHERE a > 1\nORDER BY a;", "WHERE a > 1"),
        ("q.sql", QUERY, "WHERE a > 1\n  AND b", "WHERE a > 1\n  AND b"),
        ("main.tf", BLOCK, "x = 1\ntags = {\n  a = 1\n}", "x = 1\n  tags = {\n    a = 1\n  }"),
        ("main.tf", BLOCK, 'x = 1\n}\n\nresource "c" "d" {\n  y = 1', 'x = 1\n}\n\nresource "c" "d" {\n  y = 1'),
        ("Makefile", "all:\n\tHOLE\n", "cc a\n\ninstall: all\n\tcp a b", "cc a\n\ninstall: all\n\tcp a b"),
        ("p.html", "<ul>\n  HOLE\n</ul>\n", "<li>\n  a\n</li>\n<li>b</li>", "<li>\n    a\n  </li>\n  <li>b</li>"),
    ],
)
def test_an_answer_without_a_grammar_is_fitted_to_the_hole(path: str, source: str, answer: str, expected: str) -> None:
    document = Document(source.encode(), None, Path(path))
    start = source.index("HOLE")
    assert splice(document, [hole_at_range(document, start, start + 4)], [answer]).texts == (expected,)


DOCUMENTED = """\'\'\'Doubles x.

        It may be None.
        \'\'\'
        if x is None:
            return None
        return 2 * x"""
NESTED_DOCUMENTED = (
    "def g():\n            " + DOCUMENTED.replace("\n        ", "\n            ") + "\n\n        return g()"
)


@pytest.mark.parametrize("text", [DOCUMENTED, NESTED_DOCUMENTED])
def test_a_docstring_goes_with_its_code(text: str) -> None:
    assert read_body(text) == text
    assert read_body(text.replace("\n        ", "\n")) == text
    odd = text.replace("        It", "It")
    assert read_body(odd) == odd


CHAIN = "def f(s):\n    return (\n        s.query(A)\n        HOLE\n        .limit(1)\n    )\n"
ARGUMENT = "def f(x):\n    g(\n        HOLE,\n        b=1,\n    )\n"
CALL = "function f() {\n  g(\n    HOLE,\n  );\n}\n"


@pytest.mark.parametrize(
    ("language", "source", "answer"),
    [
        ("python", CHAIN, ".filter(a)\n        .order_by(b)"),
        ("python", CHAIN, ".agg(\n            b=('c', 'sum'),\n        )\n        .reset_index()"),
        ("python", CHAIN.replace("        s.query(A)\n", ""), "s.query(A)\n        .filter(b)"),
        ("python", ARGUMENT, "x\n        - sum(x)\n        + y"),
        ("python", ARGUMENT, "width=x.y\n        - sum(x)\n        + y"),
        ("javascript", CALL, "a &&\n    b &&\n    c"),
    ],
)
def test_a_chain_may_stand_below_its_head_in_brackets(language: str, source: str, answer: str) -> None:
    document = Document(source.encode(), language)
    start = source.index("HOLE")
    assert splice(document, [hole_at_range(document, start, start + 4)], [answer]).texts == (answer,)


ENDED = "def f(out, xs):\n    out.begin()\n    HOLE\n    out.end()\n    return out\n"
NOTED = "for x in xs:\n        out.write(x)\n    if xs:\n        out.note()\n        out.end()"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (NOTED, NOTED),
        (NOTED.replace("\n    ", "\n"), NOTED),
        ("out.line()\n    out.end()", "out.line()"),
        ("out.line()\nout.end()", "out.line()"),
        ("out.begin()\n    out.line()", "out.line()"),
        ("out.begin()\n    out.begin()", "out.begin()\n    out.begin()"),
        ("out.begin()\n    out.begin()\n    out.line()", "out.begin()\n    out.begin()\n    out.line()"),
        ("out.line()\n    out.end()\n    out.end()", "out.line()\n    out.end()\n    out.end()"),
    ],
)
def test_a_repeat_is_as_deep_and_as_often_written_as_its_neighbor(answer: str, expected: str) -> None:
    document = Document(ENDED.encode(), "python")
    start = ENDED.index("HOLE")
    assert splice(document, [hole_at_range(document, start, start + 4)], [answer]).texts == (expected,)


GUARDED = (
    "class A {\n    int f(int a) {\n        if (a > 1) {\n            HOLE;\n        }\n        return 1;\n    }\n}\n"
)
ENDED_CALL = GUARDED.replace("HOLE;", "HOLE;;")
NESTED_TAG = "const a = (\n  <View>\n    HOLE;\n  </View>\n);\n"
CASES_OF = "def f(x):\n    match x:\n        case 1:\n            HOLE;\n        case 2:\n            return 5\n"


@pytest.mark.parametrize(
    ("language", "source", "answer", "expected"),
    [
        ("java", GUARDED, "if (a > 1) {\n    g();\n    h();\n}", "g();\n            h();"),
        ("java", GUARDED, "        if (a > 1) {\n            g();\n        }", "g();"),
        ("java", GUARDED, "if (a > 1) {\n            g();\n        }", "g();"),
        ("java", GUARDED, "if (a > 1) {\n    g();\n}\nreturn 1;", "g();"),
        (
            "java",
            GUARDED,
            "int f(int a) {\n  if (a > 1) {\n    if (a > 2) {\n      g();\n    }\n  }\n  return 1;\n}",
            "if (a > 2) {\n                g();\n            }",
        ),
        (
            "java",
            GUARDED,
            "            if (a > 1) {\n                g();\n            }",
            "if (a > 1) {\n                g();\n            }",
        ),
        ("tsx", NESTED_TAG, "<View>\n  <B />\n</View>", "<View>\n      <B />\n    </View>"),
        ("java", ENDED_CALL, "if (a > 1) {\n    g();\n}", "g()"),
        ("python", CASES_OF, "case 1:\n    return 4\ncase 2:", "return 4"),
    ],
)
def test_the_block_around_a_hole_goes_wherever_it_is_written(
    language: str, source: str, answer: str, expected: str
) -> None:
    start = source.index("HOLE;")
    document = Document(source.encode(), language)
    assert splice(document, [hole_at_range(document, start, start + 5)], [answer]).texts == (expected,)
    if "HOLE;;" in source:
        return
    blank = Document(source.replace("HOLE;", "").encode(), language)
    filled = splice(blank, [hole_at_cursor(blank, start)], [answer]).patch.apply(blank.data).decode()
    assert filled == source.replace("HOLE;", expected)


@pytest.mark.parametrize("behind", [" ", "\t", " \t "])
@pytest.mark.parametrize("answer", ["h(1);\n  h(2);\n", "```c\n  h(1);\n  h(2);\n```", "h(1);\n  h(2);\n//////////\n"])
def test_white_space_behind_a_hole_ends_its_line(behind: str, answer: str) -> None:
    source = f"void f() {{\n  g();{behind}\n}}\n//////////\n"
    document = Document(source.encode(), "c")
    if answer.endswith("//\n"):
        document = Document(source.replace("}\n", "").encode(), "c")
    start = source.index("g();")
    assert splice(document, [hole_at_range(document, start, start + 4)], [answer]).texts == ("h(1);\n  h(2);",)


def test_a_brace_before_a_hole_in_a_text_is_no_sign_that_an_answer_repeats_its_line() -> None:
    source = "package p\n\nconst page = `\n{HOLE} T1 {{end}}\n`\n"
    start = source.index("HOLE")
    hole = hole_at_range(Document(source.encode(), "go"), start, start + 4)
    assert splice(Document(source.encode(), "go"), [hole], ["{.X}} T1 {{end}}"]).texts == ("{.X}",)


def test_text_that_is_wanted_keeps_sentences_and_fences() -> None:
    note = "# Notes\n\nold\n"
    document = Document(note.encode(), None, Path("notes.md"))
    answer = "Here is the text of it:\n\n```python\nx = 1\n```"
    assert splice(document, [hole_at_range(document, 9, 12)], [answer]).texts == (answer,)
    source = 'x = """\nold\n"""\n'
    document = Document(source.encode(), "python")
    answer = "Here is the text of it:\n\nmore"
    assert splice(document, [hole_at_range(document, 8, 11)], [answer]).texts == (answer,)


SENTENCES = "Midfill fills gaps in code.\nIt runs on Python 3.10 (or newer).\nIt sends nothing to anyone."


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("p.html", "<p>\n      TODO\n    </p>\n"),
        ("About.tsx", "const About = () => (\n  <p>\n    TODO\n  </p>\n);\n"),
        ("ci.yaml", "text: |\n  TODO\nnext: 1\n"),
        ("run.sh", "cat <<EOF\nTODO\nEOF\n"),
        ("CHANGELOG", "News\n\nTODO\n"),
    ],
)
@pytest.mark.parametrize(
    "answer", [SENTENCES, SENTENCES.replace("Python 3.10 (or newer)", "a laptop"), "Midfill fills gaps.\nIt is free."]
)
def test_sentences_that_are_the_text_stay(name: str, source: str, answer: str) -> None:
    document = Document(source.encode(), "tsx" if name.endswith(".tsx") else None, Path(name))
    start = source.index("TODO")
    text = splice(document, [hole_at_range(document, start, start + 4)], [answer]).texts[0]
    assert [line.strip() for line in text.split("\n")] == answer.split("\n")


BETWEEN_TAGS = "const About = () => (\n  <p>\n    TODO\n  </p>\n);\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Welcome to our page.\n    <b>Hello {name}</b>", "Welcome to our page.\n    <b>Hello {name}</b>"),
        ("We sell things.\n    They cost {price} each.", "We sell things.\n    They cost {price} each."),
        ("Here is what is missing:\n\n```tsx\n<b>Hello</b>\n```", "<b>Hello</b>"),
        ("<think>\nA greeting.\n</think>\n\nHello {name}.", "Hello {name}."),
    ],
)
def test_sentences_between_tags_stay_where_no_fence_tells_them_from_the_text(answer: str, expected: str) -> None:
    document = Document(BETWEEN_TAGS.encode(), "tsx")
    start = BETWEEN_TAGS.index("TODO")
    assert splice(document, [hole_at_range(document, start, start + 4)], [answer]).texts == (expected,)


def test_thinking_before_the_text_of_a_string_goes() -> None:
    source = 'x = """\nold\n"""\n'
    document = Document(source.encode(), "python")
    assert splice(document, [hole_at_range(document, 8, 11)], ["<think>\nHm.\n</think>\n\nmore"]).texts == ("more",)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Here is the command:\npip install midfill\nThis installs the tool.", "pip install midfill"),
        ("Here is the setting:\nname: my own app\nThis sets the name.", "name: my own app"),
    ],
)
def test_sentences_around_code_of_an_unknown_language_go(answer: str, expected: str) -> None:
    assert next(unwrap(DraftText.of(answer), "")).text.strip() == expected


PROSE = '''def f(xs):
    """Count the words of a file.

    They are separated by white space.
    """
    # read the file in lower case
    ...
'''
NOTE = "def f(xs):\n    # return sorted(xs)\n    # as a list, which the caller changes\n    ...\n"
SLASHED = "function f(xs) {\n  // add up the squares of all\n  // TODO: and round the sum\n}\n"


@pytest.mark.parametrize(
    ("language", "source", "answer", "expected"),
    [
        ("python", PROSE, "read the file in lower case\nreturn 1", "return 1"),
        ("python", PROSE, "Count the words of a file\nread the file in lower case.\nreturn 1", "return 1"),
        ("python", PROSE, "# Read the file in lower case.\nreturn 1", "return 1"),
        ("python", PROSE, "# Count the words of a file.\nreturn 1", "return 1"),
        ("python", PROSE, "'''Count the words of a file.'''\nreturn 1", "return 1"),
        (
            "python",
            PROSE,
            '"""Count the words of a file.\n\nThey are separated by white space.\n"""\nreturn 1',
            "return 1",
        ),
        ("javascript", SLASHED, "add up the squares of all\n  return 1;", "return 1;"),
        ("javascript", SLASHED, "todo: and round the sum\n  return 1;", "return 1;"),
        ("javascript", SLASHED, "/* Add up the squares of all. */\n  return 1;", "return 1;"),
    ],
)
def test_an_echo_of_prose_goes(language: str, source: str, answer: str, expected: str) -> None:
    assert read_body(answer, source, language=language) == expected


@pytest.mark.parametrize(
    ("language", "source", "answer"),
    [
        ("python", NOTE, "return sorted(xs)\n    return 1"),
        ("python", NOTE, '"""as a list, which the caller changes"""\n    return 1'),
        ("python", PROSE, "# Read the file in lower case.\n    # This is quick.\n    return 1"),
        ("python", PROSE, '"""Count the words."""\n    return 1'),
        ("python", PROSE, "# They are here.\n    return 1"),
        ("javascript", SLASHED, "// TODO: and round the sum\n  return 1;"),
    ],
)
def test_what_may_be_no_echo_stays(language: str, source: str, answer: str) -> None:
    assert read_body(answer, source, language=language) == answer


def test_a_document_that_has_a_marker_keeps_it() -> None:
    text = DraftText.of("# until <|im_end|> comes")
    assert next(unwrap(text, "")).text == "# until "
    assert next(unwrap(text, 'END = "<|im_end|>"')).text == text.text


@pytest.mark.parametrize("language", [None, "python"])
def test_a_marker_within_quotes_is_text(language: str | None) -> None:
    text = """eos = "<|endoftext|>"\npad = f'<|im_end|>'\nstop = 3"""
    document = Document(b"x = 1\nTODO\ny = 2\n", language, Path("tok.toml"))
    hole = hole_at_range(document, 6, 10)
    assert splice(document, [hole], [text]).texts == (text,)
    assert splice(document, [hole], [f"{text}<|im_end|>\nmore"]).texts == (text,)


def list_cases() -> list[tuple[Document, Hole]]:
    cases = []
    for language, _, marked in read_goldens():
        document = Document(read_marks(marked)[0], language)
        found: Sequence[Hole] = [body_hole(document, function) for function in outline(document).functions]
        cases += [(document, hole) for hole in found if document.visible_text(hole.start_byte, hole.end_byte).strip()]
    return cases


CASES = list_cases()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(CASES) - 1), st.data())
def test_reading_is_idempotent(number: int, data: st.DataObject) -> None:
    document, hole = CASES[number]
    truth = document.visible_text(hole.start_byte, hole.end_byte).replace("\r\n", "\n")
    lines = truth.split("\n")
    width = data.draw(st.integers(0, 8))
    moved = "\n".join([lines[0], *(line[min(width, len(line) - len(line.lstrip())) :] for line in lines[1:])])
    ends = ["", "<|endoftext|>", "\n```", "\n\nThis is what the function has to do.", "\n}", "\n\nx"]
    answer = data.draw(st.sampled_from(["", "```\n", "Here is the code:\n", hole.indent])) + moved
    spliced = splice(document, [hole], [answer + data.draw(st.sampled_from(ends))])
    if spliced.texts[0] and not spliced.new_errors:
        assert splice(document, [hole], spliced.texts).texts == spliced.texts


@pytest.mark.parametrize(
    ("language", "answer", "expected"),
    [
        ("java", "String name = getName();\n```\n", "String name = getName();"),
        ("python", "if x > 0:\n```\n", "if x > 0:"),
        ("java", "```java\nString name = getName();\n```", "String name = getName();"),
        ("java", "int b = 1;\nString name = getName();\nThis sets the name.", "int b = 1;\nString name = getName();"),
        ("java", "int b = 1;\nThe name is set here\nThis sets the name.", "int b = 1;"),
        ("python", "Here is the code:\n```python\n", ""),
    ],
)
def test_code_that_looks_like_a_sentence_stays(language: str, answer: str, expected: str) -> None:
    reading = next(unwrap(DraftText.of(answer), ""))
    assert reading.text.strip() == expected


CLAUSES = [
    ("python", "def f():\n    try:\n        a()\n@    b()\n", "    except OSError:\n        c()\n"),
    (
        "python",
        "def f():\n    for a in b:\n        if a:\n            c()\n@    d()\n",
        "        else:\n            e()\n",
    ),
    ("python", "match a:\n    case 1:\n        b()\n@    case _:\n        c()\n", "    case 2:\n        d()\n"),
    (
        "javascript",
        "function f(a) {\n  switch (a) {\n    case 1:\n      return 2;\n@    default:\n      return 3;\n  }\n}\n",
        "    case 2:\n      b();\n      return 4;\n",
    ),
]


CLAUSES += [
    (
        "c",
        "int f(int a) {\n    switch (a) {\n    case 1:\n        b();\n        break;\n@    default: c();\n    }\n}\n",
        "    case 2:\n        d();\n        break;\n",
    ),
    ("c", "int f(int a)\n{\n    if (a) {\n        b();\n@    }\n    return 0;\n}\n", "    } else {\n        c();\n"),
    ("python", "class A:\n    x = 1\n\n@\n    def g(self):\n        ...\n", "    def f(self):\n        return 1\n"),
]


@pytest.mark.parametrize(("language", "source", "clause"), CLAUSES)
@pytest.mark.parametrize("is_from_margin", [True, False])
def test_a_clause_of_a_statement_around_a_blank_line_is_as_deep_as_that_statement(
    language: str, source: str, clause: str, is_from_margin: bool
) -> None:
    place = source.index("@")
    document = Document(source.replace("@", "\n").encode(), language)
    answer = textwrap.dedent(clause) if is_from_margin else clause
    spliced = splice(document, [hole_at_cursor(document, place)], [answer])
    assert spliced.patch.apply(document.data).decode() == source.replace("@", clause)


LOOP = "void f(int[] xs) {\n    for (¦) {\n      g();\n    }\n  }\n"


@pytest.mark.parametrize("broken", ["", "\n\n{ ( [ {\n"], ids=["sound", "broken elsewhere"])
@pytest.mark.parametrize(
    ("language", "source", "part"),
    [
        ("java", f"class A {{\n  {LOOP}}}\n", "int x : xs"),
        ("java", f"class A {{\n  {LOOP}}}\n".replace("(¦", "(int i = 0; ¦"), "i < 3; i++"),
        ("java", "class A {\n  void f() {\n    try {\n    } catch (¦) {\n    }\n  }\n}\n", "IOException e"),
        ("cpp", LOOP, "auto& x : xs"),
        ("c", LOOP.replace("(¦", "(int i = 0; ¦"), "i < 3; i++"),
        ("c", "#define F(¦) 1\nint x;\n", "x, y"),
        ("cpp", "#include <¦>\nint x;\n", "vector"),
        ("cpp", '#include "¦"\nint x;\n', "a.h"),
        ("rust", "fn f() {\n    if let ¦ {\n        g();\n    }\n}\n", "Some(y) = x"),
        ("rust", "fn f() {\n    while let ¦ {\n    }\n}\n", "Some(y) = x.next()"),
        ("rust", "fn f() {\n    for ¦ {\n    }\n}\n", "x in 0..3"),
        ("rust", "fn f(x: i32) {\n    match x { ¦ }\n}\n", "1 => 2, _ => 3"),
        ("rust", "struct A { ¦ }\n", "x: u8"),
        ("go", "package a\n\nfunc f(x any) {\n\tswitch y := ¦ {\n\tcase int:\n\t\tg(y)\n\t}\n}\n", "x.(type)"),
        ("typescript", "function f(xs) {\n  for (¦) {\n    g();\n  }\n}\n", "const x of xs"),
        ("typescript", "function f(xs) {\n  for (let i = 0; ¦) {\n  }\n}\n", "i < 3; i++"),
        ("tsx", "const A = () => <B ¦ />;\n", "x={1} y"),
        ("tsx", "const A = () => <B style={{¦}} />;\n", "a: 1"),
    ],
)
@pytest.mark.parametrize(
    "make_hole", [hole_at_cursor, lambda document, offset: hole_at_range(document, offset, offset)]
)
def test_the_rest_of_a_line_goes_where_no_name_fits(
    make_hole: Callable[[Document, int], Hole], language: str, source: str, part: str, broken: str
) -> None:
    before, behind = (source + broken).split("¦")
    document = Document((before + behind).encode(), language)
    hole = make_hole(document, len(before))
    rest, _, _ = behind.partition("\n")
    for answer in (part, part + rest):
        assert splice(document, [hole], [answer]).texts == (part,)
    if not broken and not source.startswith("#"):
        assert splice(document, [hole], [f"{part} ("]).new_errors > 0


def test_the_end_of_a_call_that_the_line_lacks_stays() -> None:
    document = Document(b"x = foo(bar()\n\n\ndef f(:\n", "python")
    hole = hole_at_range(document, len("x = foo(bar("), len("x = foo(bar("))
    assert splice(document, [hole], ["1)"]).texts == ("1)",)


TWO_FUNCTIONS = {
    "typescript": "function add(a, b) {\n  let c = a;\n  return c;\n}\n\n"
    "function sub(a, b) {\n  let d = a;\n  return d;\n}\n",
    "go": "package a\n\nfunc add(a int) int {\n\tc := a\n\treturn c\n}\n\n"
    "func sub(a int) int {\n\td := a\n\treturn d\n}\n",
    "python": "def add(a):\n    c = a\n    return c\n\n\ndef sub(a):\n    d = a\n    return d\n",
    "java": "class A {\n    int f() {\n        return c;\n    }\n}\n\n"
    "class B {\n    int g() {\n        d = a;\n    }\n}\n",
    "rust": "impl A {\n    fn f() {\n        return c;\n    }\n\n    fn g() {\n        d = a;\n    }\n}\n",
}


@pytest.mark.parametrize("end", ["= a", "return d", "}\n"])
@pytest.mark.parametrize("language", TWO_FUNCTIONS)
def test_a_selection_over_the_end_of_a_function_keeps_an_exact_answer(language: str, end: str) -> None:
    source = TWO_FUNCTIONS[language]
    start = source.index("return c")
    stop = source.rfind(end) + len(end) if end in source[start:] else len(source)
    document = Document(source.encode(), language)
    answer = source[start:stop].replace("return c", "return 0").replace("= a", "= 7")
    spliced = splice(document, [hole_at_range(document, start, stop)], [answer])
    assert spliced.new_errors == 0
    assert spliced.patch.apply(document.data).decode() == source[:start] + answer + source[stop:]


@pytest.mark.parametrize("first", ["return c", "\treturn c"])
def test_whole_lines_up_to_the_end_of_a_function_keep_its_brace_in_column_0(first: str) -> None:
    source = TWO_FUNCTIONS["go"].split("\n\nfunc sub")[0]
    document = Document(source.encode(), "go")
    hole = hole_at_range(document, source.index("\treturn c"), len(source))
    (text,) = splice(document, [hole], [f"{first}, nil\n}}"]).texts
    assert text.endswith("return c, nil\n}")


@pytest.mark.parametrize(("source", "answer"), [("const r = f(¦)\n", "a, b);"), ("const r = [¦]\n", "a, b];")])
@pytest.mark.parametrize(
    "make_hole", [hole_at_cursor, lambda document, offset: hole_at_range(document, offset, offset)]
)
def test_the_end_of_a_statement_that_its_line_leaves_out_goes(
    make_hole: Callable[[Document, int], Hole], source: str, answer: str
) -> None:
    document = Document(source.replace("¦", "").encode(), "typescript")
    spliced = splice(document, [make_hole(document, source.index("¦"))], [answer])
    assert spliced.texts == ("a, b",) and spliced.new_errors == 0


@pytest.mark.parametrize("behind", ["", "})"])
def test_a_block_between_brackets_keeps_its_line_breaks(behind: str) -> None:
    source = "function f(xs) {\n  xs.map((x) => {})\n}\n"
    document = Document(source.encode(), "typescript")
    offset = source.index("{})") + 1
    (text,) = splice(document, [hole_at_range(document, offset, offset)], [f"\n    return x;\n  {behind}"]).texts
    assert text == "\n    return x;\n  "


def test_a_line_break_before_a_part_of_a_line_goes() -> None:
    document = Document(b"x = f()\n", "python")
    for answer in ("\na, b", "\na, b\n", "\n  a, b"):
        assert splice(document, [hole_at_range(document, 6, 6)], [answer]).texts == ("a, b",)


@pytest.mark.parametrize("above", ["", "function g() {\n  h();\n}\n\n"])
@pytest.mark.parametrize("answer", ["foo();\nbar();", "const y = x;\nif (y) {\n  z();\n}"])
def test_statements_from_column_0_stand_deeper_than_their_block(above: str, answer: str) -> None:
    source = f"{above}function f(x) {{\n\n}}\n"
    document = Document(source.encode(), "typescript")
    hole = hole_at_cursor(document, source.rindex("\n\n}") + 1)
    assert splice(document, [hole], [answer]).texts == (textwrap.indent(answer, "  "),)
