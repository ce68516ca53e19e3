"""What becomes of a fill's text on its way into the file."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midfill_infill.answers import draft as drafts
from midfill_infill.answers.draft import ADDED, DraftText, clean
from midfill_infill.answers.layout import Indentation, list_layouts
from midfill_infill.errors import MidfillError
from midfill_infill.splicing.splice import Spliced, Splicer, splice
from midfill_infill.syntax.holes import body_named, find_stubs, hole_at_cursor, hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Anchor, Edit, Hole, Patch

PYTHON = "def f(a):\n    ...\n\n\nx = 1\n"
SCRIPT = "function f() {\n  // TODO\n}\nlet y = 1;\n"


def fill_stub(source: str, fill: str, language: str) -> tuple[str, Spliced]:
    document = Document(source.encode(), language)
    spliced = splice(document, find_stubs(document)[:1], [fill])
    return spliced.patch.apply(document.data).decode(), spliced


@pytest.mark.parametrize(
    ("language", "source", "fill", "expected"),
    [
        pytest.param("python", PYTHON, "return a", "    return a", id="as it is"),
        pytest.param("python", PYTHON, "\n    return a\n\n", "    return a", id="white space around"),
        pytest.param("python", PYTHON, "x = a\nreturn x", "    x = a\n    return x", id="no base indentation"),
        pytest.param(
            "python",
            PYTHON,
            "if a:\n    return 1\nreturn 2",
            "    if a:\n        return 1\n    return 2",
            id="the same, nested",
        ),
        pytest.param("python", PYTHON, "x = a\n        return x", "    x = a\n    return x", id="too deep"),
        pytest.param(
            "python",
            PYTHON,
            "if a:\n        return 1\n    return 2",
            "    if a:\n        return 1\n    return 2",
            id="right",
        ),
        pytest.param(
            "python", PYTHON, "return a\n\n\ndef g():\n    pass", "    return a", id="goes on with another function"
        ),
        pytest.param(
            "python", PYTHON, "return '''\nzero\n'''", "    return '''\nzero\n'''", id="lines of a string stay"
        ),
        pytest.param(
            "python",
            "class A:\n  def f(self):\n    ...\n",
            "if a:\n        b()\n    c()",
            "    if a:\n      b()\n    c()",
            id="two spaces",
        ),
        pytest.param(
            "python",
            "def f(a):\n\t...\n",
            "if a:\n        b()\n    c()",
            "\tif a:\n\t\tb()\n\tc()",
            id="tabs for spaces",
        ),
        pytest.param(
            "python", "def f(a):\n\t...\n", "if a:\n        return 1", "\tif a:\n\t\treturn 1", id="tabs for two levels"
        ),
        pytest.param(
            "python", PYTHON, "if a:\n\t\tb()\n\tc()", "    if a:\n        b()\n    c()", id="spaces for tabs"
        ),
        pytest.param("javascript", SCRIPT, "g();\n}", "  g();", id="own closing brace"),
        pytest.param("javascript", SCRIPT, "if (a) {\n    g();\n  }", "  if (a) {\n    g();\n  }", id="needed brace"),
        pytest.param(
            "javascript", SCRIPT, "if (a) {\n    g();\n  }\n}", "  if (a) {\n    g();\n  }", id="needed and own brace"
        ),
        pytest.param("javascript", SCRIPT, "g();\n}\n\nfunction h() {\n  i();", "  g();", id="leaves its function"),
        pytest.param("javascript", SCRIPT, "g();\n}\nlet y = 1;\n", "  g();", id="repeats the text behind"),
        pytest.param("javascript", SCRIPT, "return `\na\n`;", "  return `\na\n`;", id="lines of a template stay"),
        pytest.param(
            "c",
            'int f(void) {\n    assert(!"TODO");\n}\n',
            "#ifdef A\n    g();\n#endif",
            "    #ifdef A\n    g();\n#endif",
            id="preprocessor lines stay",
        ),
        pytest.param(
            "go",
            'func f() {\n\tpanic("TODO")\n}\n',
            "if a {\n    b()\n}",
            "\tif a {\n\t\tb()\n\t}",
            id="spaces for a tab file",
        ),
    ],
)
def test_a_body_is_indented_and_cleaned_before_it_is_put_in(
    language: str, source: str, fill: str, expected: str
) -> None:
    result, spliced = fill_stub(source, fill, language)
    body = expected.lstrip(" \t")
    assert spliced.texts == (body,)
    assert result.count(expected) == 1
    assert (spliced.new_errors, spliced.fills[0].error_ranges) == (0, ())


@pytest.mark.parametrize(
    ("source", "at", "fill", "expected"),
    [
        ("x = foo()\n", (1, 9), "a, b)", "x = foo(a, b)\n"),
        ("x = foo()\n", (1, 9), "bar(1)", "x = foo(bar(1))\n"),
        ("x = [\n    1,\n]\n", (2, 7), "\n    2,\n]", "x = [\n    1,\n    2,\n]\n"),
        ("if a:\n    \nb = 1\n", (2, 5), "    c()\n", "if a:\n    c()\nb = 1\n"),
        ("if a:\n    b()\n\n", (3, 1), "    c()", "if a:\n    b()\n    c()\n"),
        ("if a:\n    b()\n\n", (3, 1), "c()", "if a:\n    b()\nc()\n"),
        ("if a:\n    b()\n\n    d()\n", (3, 1), "\n  c()\n", "if a:\n    b()\n    c()\n    d()\n"),
    ],
)
def test_a_fill_at_a_cursor_is_put_into_its_line(source: str, at: tuple[int, int], fill: str, expected: str) -> None:
    document = Document(source.encode(), "python")
    spliced = splice(document, [hole_at_cursor(document, document.offset_at(*at))], [fill])
    assert spliced.patch.apply(document.data).decode() == expected
    assert spliced.new_errors == 0


def test_two_blank_lines_take_the_indents_of_their_fills() -> None:
    document = Document(b"def f(a):\n    if a:\n\n\n    return b\n", "python")
    holes = [hole_at_cursor(document, document.offset_at(line, 1)) for line in (3, 4)]
    assert [(hole.kind, hole.lead) for hole in holes] == [("line", "")] * 2
    spliced = splice(document, holes, ["        b = 1\n", "    b = 2"])
    assert spliced.patch.apply(document.data) == b"def f(a):\n    if a:\n        b = 1\n    b = 2\n    return b\n"
    assert not spliced.new_errors


def test_errors_are_blamed_on_the_engines_own_characters() -> None:
    result, spliced = fill_stub(PYTHON, "    y = 1\n    x = (a\n    return x", "python")
    assert spliced.new_errors > 0
    assert any(start <= 18 < end for start, end in spliced.fills[0].error_ranges)
    assert all(0 <= start < end <= 33 for start, end in spliced.fills[0].error_ranges)
    assert "    x = (a\n    return x\n" in result


def test_errors_elsewhere_do_not_count() -> None:
    for broken in ("def g(:\n    pass\n\n", "def g(x:\n    pass\n", "x = (1\n"):
        result, spliced = fill_stub(broken + PYTHON, "return a", "python")
        assert (spliced.new_errors, spliced.texts) == (0, ("return a",))
        assert fill_stub(broken + PYTHON, "return (a", "python")[1].new_errors > 0


def test_a_body_left_empty_stays_as_it_was() -> None:
    result, spliced = fill_stub(PYTHON, " \n", "python")
    assert (result, spliced.texts, spliced.new_errors) == (PYTHON, ("",), 0)


def test_an_empty_block_is_an_error_that_the_grammar_forgives() -> None:
    assert fill_stub(PYTHON, "if a:", "python")[1].new_errors == 1


LINES = "def f():\n    # what is wanted\n    x = 1\n    return x\n\n\ny = 2\n"


@pytest.mark.parametrize(
    "source", [LINES, LINES.replace("    # what is wanted\n", ""), LINES.replace(":\n", ":  # a: b\n", 1)]
)
@pytest.mark.parametrize(
    "fill", ["# todo", "# todo\n    # more", "try:\n        x = 1", "try:\n        a\n    else:\n        b"]
)
def test_a_block_without_statements_and_a_lone_try_are_errors(source: str, fill: str) -> None:
    document = Document(source.encode(), "python")
    start = source.index("x = 1")
    for hole in (body_named(document, "f"), hole_at_range(document, start, source.index("return x") + 8)):
        spliced = splice(document, [hole], [fill])
        assert spliced.new_errors == 1
        assert spliced.fills[0].error_ranges


def test_a_block_that_a_selection_leaves_empty_is_an_error() -> None:
    for source, fill in ((LINES, ""), ("if x:\n    x = 1\n    return x\nelse:\n    z()\n", "# nothing")):
        document = Document(source.encode(), "python")
        start = source.index("x = 1")
        hole = hole_at_range(document, start, source.index("return x") + 8)
        assert splice(document, [hole], [fill]).new_errors == 1
        assert splice(document, [hole], ["pass"]).new_errors == 0


@pytest.mark.parametrize(
    "end", ["except E:\n        b", "# c\n    finally:\n        b", "except* E:\n        b\n    else:\n        c"]
)
def test_a_try_with_a_handler_behind_the_hole_is_no_error(end: str) -> None:
    assert fill_stub(PYTHON, f"try:\n        a\n    {end}", "python")[1].new_errors == 0
    source = "def f():\n    try:\n        ...\n" + "        a()\n" * 9 + f"    {end}\n"
    document = Document(source.encode(), "python")
    assert (
        splice(
            document, [hole_at_range(document, document.offset_at(3, 9), document.offset_at(3, 12))], ["b()\n"]
        ).new_errors
        == 0
    )


def test_holes_are_filled_together_and_answered_in_their_order() -> None:
    document = Document(b"def f(): ...\ndef g(): ...\n", "python")
    stubs = find_stubs(document)
    spliced = splice(document, stubs[::-1], ["return 2", "return 1"])
    assert spliced.texts == ("return 2", "return 1")
    assert spliced.patch.apply(document.data) == b"def f():\n    return 1\ndef g():\n    return 2\n"


def test_one_bad_fill_among_many_is_the_one_that_is_blamed() -> None:
    document = Document(b"def f(): ...\ndef g(): ...\ndef h(): ...\n", "python")
    spliced = splice(document, find_stubs(document), ["return 1", "return )", "return 3"])
    assert spliced.new_errors > 0
    assert [bool(fill.error_ranges) for fill in spliced.fills] == [False, True, False]


def test_the_documents_line_end_is_written() -> None:
    document = Document(b"def f():\r\n    ...\r\n", "python")
    spliced = splice(document, find_stubs(document), ["x = 1\n    return x"])
    assert spliced.patch.apply(document.data) == b"def f():\r\n    x = 1\r\n    return x\r\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_selection_of_lines_keeps_its_lines_with_any_line_end(newline: str) -> None:
    document = Document(newline.join(["x = g(1)", "y = h(", ""]).encode(), "python")
    hole = hole_at_range(document, 4, len(document.data))
    assert splice(document, [hole], ["g(1)\ny = h("]).patch.apply(document.data) == document.data


def test_dangerous_characters_never_get_in() -> None:
    result, spliced = fill_stub(PYTHON, "return\u202e a\u2066\x00\x1b\ufeff\x85 + 1\r\n", "python")
    assert spliced.texts == ("return a + 1",)
    (fill,) = spliced.fills
    assert len(set(range(18)).difference(fill.origins)) == 6
    assert fill.origins == (0, 1, 2, 3, 4, 5, 7, 8, 14, 15, 16, 17)


def test_characters_that_the_encoding_lacks() -> None:
    document = Document(b"# coding: latin-1\ndef f():\n    ...\n", "python")
    stubs = find_stubs(document)
    assert splice(document, stubs, ["return 'ä'"]).patch.apply(document.data).endswith(b"return '\xe4'\n")
    with pytest.raises(MidfillError, match="U\\+20AC") as caught:
        splice(document, stubs, ["return '€'"])
    assert caught.value.code == "file_encoding"


JSON = '{\n  "a": [1],\n  "b": 2\n}\n'


@pytest.mark.parametrize(
    ("name", "old", "answer", "expected"),
    [
        ("x.json", '"b": 2', '"c": 3', '"c": 3'),
        ("x.json", '"b": 2', '"c": 3,', '"c": 3'),
        ("x.json", '"b": 2', '"c": 3,\n  "d": 4,', '"c": 3,\n  "d": 4'),
        ("x.json", '"a": [1],', '"c": 3', '"c": 3,'),
        ("x.json", "1", "NaN", None),
        ("x.json", '"b": 2', '"c": 3\n}', None),
        ("x.json", '"b": 2', "// c", None),
        ("tsconfig.json", '"b": 2', '"c": 3,', '"c": 3,'),
        ("x.jsonc", '"b": 2', "// c", "// c"),
        ("x.json5", '"b": 2', '"c": 3,', '"c": 3,'),
    ],
)
def test_a_json_file_stays_valid(name: str, old: str, answer: str, expected: str | None) -> None:
    """`expected` is None for an answer that makes it invalid."""
    at = JSON.index(old)
    document = Document(JSON.encode(), None, Path(name))
    spliced = Splicer(document, [hole_at_range(document, at, at + len(old))]).splice([answer], compiles=True)
    assert spliced.new_errors == (expected is None)
    assert expected is None or spliced.patch.apply(document.data).decode() == JSON.replace(old, expected)


@pytest.mark.parametrize(("source", "answer"), [('{\n  "a": 1,\n\n}\n', '  "b": 2,'), ("[\n\n]\n", "  1, 2,")])
def test_a_line_between_json_gets_no_comma_at_the_end(source: str, answer: str) -> None:
    document = Document(source.encode(), None, Path("x.json"))
    hole = hole_at_cursor(document, source.index("\n\n") + 1)
    spliced = Splicer(document, [hole]).splice([answer], compiles=True)
    assert spliced.new_errors == 0
    json.loads(spliced.patch.apply(document.data))


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp"])
def test_a_yen_sign_is_not_written_as_a_backslash(encoding: str) -> None:
    document = Document(f"# coding: {encoding}\ndef f():\n    ...\n".encode(), "python")
    assert splice(document, find_stubs(document), ["return '日\\\\'"]).new_errors == 0
    with pytest.raises(MidfillError, match=r"U\+00A5, which"):
        splice(document, find_stubs(document), ["return '¥'"])


@pytest.mark.parametrize("encoding", ["unicode_escape", "raw_unicode_escape", "idna"])
def test_a_codec_of_escapes_is_no_encoding(encoding: str) -> None:
    data = f'# coding: {encoding}\nx = "\\u12"\ndef f():\n    ...\n'.encode()
    document = Document(data, "python")
    result = splice(document, find_stubs(document), ["x = 1\nreturn x"]).patch.apply(data)
    assert result == data.replace(b"...", b"x = 1\n    return x")


def test_form_feeds_between_definitions_stay() -> None:
    document = Document(b"int f(void) {}\r\n\f\r\nint g(void) {}\r\n", "c")
    (hole,) = (Hole(0, len(document.data) - 2),)
    answer = document.normalized_text(hole.start_byte, hole.end_byte)
    assert splice(document, [hole], [answer.replace("void", "\fvoid")]).patch.apply(document.data) == document.data


def test_dangerous_characters_of_anchors_survive() -> None:
    source = "def f(rows):\n    for row in rows: \u202e\n    return 1\n"
    document = Document(source.encode(), "python")
    hole = body_named(document, "f")
    anchor = Anchor(hole.start_byte, document.offset_at(2, 23))
    anchored = Hole(hole.start_byte, hole.end_byte, (anchor,), "body", "f", indent="    ")
    fill = "for row in rows: \u202e\n        g(row\u202e)\n    return 1\n\ndef h(): pass"
    (text,) = splice(document, [anchored], [fill]).texts
    assert text == "for row in rows: \u202e\n        g(row)\n    return 1"


@pytest.mark.parametrize("language", ["python", None])
@pytest.mark.parametrize("fill", ["", "total = 1\n    return n", "return n\n    total = 0"])
def test_a_fill_without_the_anchors_is_refused(language: str | None, fill: str) -> None:
    source = "def f():\n    total = 0\n    return n\n"
    document = Document(source.encode(), language)
    kept = [Anchor(source.index(text), source.index(text) + len(text)) for text in ("total = 0\n", "return n")]
    hole = Hole(source.index("total"), len(source) - 1, tuple(kept), "range", indent="    ")
    assert splice(document, [hole], ["total = 0\n    g()\n    return n"]).texts == ("total = 0\n    g()\n    return n",)
    with pytest.raises(MidfillError, match="kept") as caught:
        splice(document, [hole], [fill])
    assert caught.value.code == "engine_error"


def test_white_space_at_the_ends_of_anchors_may_be_trimmed() -> None:
    source = "def f():\n    \tx\n\n    y = 2\n"
    document = Document(source.encode(), "python")
    hole = Hole(13, len(source) - 1, (Anchor(13, 16), Anchor(16, len(source) - 1)), "range", indent="    ")
    assert splice(document, [hole], ["\tx\n\n    y = 2"]).texts == ("x\n\n    y = 2",)


def test_a_byte_that_is_no_text_is_not_kept_as_another() -> None:
    document = Document(b"a = '\xff'\n")
    with pytest.raises(MidfillError, match="kept"):
        splice(document, [Hole(0, 7, (Anchor(0, 7),))], ["a = '\ufffd'"])


def test_without_a_language_text_goes_in_as_it_is() -> None:
    document = Document(b"a = (\n", None)
    spliced = splice(document, [hole_at_range(document, document.offset_at(1, 5), document.offset_at(1, 6))], ["[[["])
    assert (spliced.patch.apply(document.data), spliced.new_errors) == (b"a = [[[\n", 0)


def test_origins_follow_the_indentation() -> None:
    *_, draft = list_layouts(DraftText.of("a\nb\n  c"), Indentation("    ", "  "))
    assert draft.text == "a\n    b\n      c"
    assert [origin for origin in draft.origins if origin != ADDED] == list(range(7))
    assert draft.find_engine_range(2, 6) is None
    assert draft.find_engine_range(2, 7) == (2, 3)


def test_tabs_and_spaces_are_settled_by_the_hole() -> None:
    draft = DraftText.of("a\n\tb")
    assert "a\n  b" in [variant.text for variant in list_layouts(draft, Indentation("  ", "  "))]
    assert [variant.text for variant in list_layouts(draft, Indentation("\t", "  "))][0] == "a\n\tb"


def test_a_file_of_tabs_and_spaces_keeps_what_it_gets() -> None:
    document = Document(b"void f() {\n  if (a)\n\tg();\n  h();\n}\n", "cpp")
    spliced = splice(document, [body_named(document, "f")], ["if (b)\n\tg();\n  i();"])
    assert spliced.texts == ("if (b)\n\tg();\n  i();",)


def test_a_functions_own_text_changes_nothing() -> None:
    path = Path(drafts.__file__)
    document = Document.read(path)
    for hole in (body_named(document, name) for name in ("clean", "is_dangerous", "find_anchors", "DraftText.lines")):
        spliced = splice(document, [hole], [document.visible_text(hole.start_byte, hole.end_byte)])
        assert spliced.patch.apply(document.data) == document.data
        assert spliced.new_errors == 0


def test_clean_tells_what_it_drops() -> None:
    draft = clean("a\r\nb\rc\x07\td", [])
    assert (draft.text, draft.origins) == ("a\nb\nc\td", (0, 2, 3, 4, 5, 7, 8))


def test_a_patch_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="overlap"):
        Patch.of([Edit(0, 2, b""), Edit(1, 3, b"")])
    with pytest.raises(ValueError, match="edit ends at byte 9 of 2"):
        Patch.of([Edit(0, 9, b"")]).apply(b"ab")


@given(st.text("a(){}\n \t:\"'", max_size=30))
def test_whatever_comes_the_rest_of_the_file_stays(fill: str) -> None:
    for source, language in ((PYTHON, "python"), (SCRIPT, "javascript")):
        document = Document(source.encode(), language)
        (hole,) = find_stubs(document)
        result = splice(document, [hole], [fill]).patch.apply(document.data)
        assert result.startswith(document.data[: hole.start_byte])
        assert result.endswith(document.data[hole.end_byte :])


@pytest.mark.parametrize(
    "head", ["def bad(x:", "async def bad(x, y=[:", "def bad(x)", "def bad(x", "def bad(x, y=[", "def bad(x) -> int"]
)
@pytest.mark.parametrize("indent", ["", "    "])
@pytest.mark.parametrize("below", ["", "\n\ndef g():\n    pass\n"])
@pytest.mark.parametrize(
    "fill", ["a = 1\nreturn a", "for i in x:\n    a = i\nreturn a", "a = 1\n    return a", "return 1\n\n\ndef other():"]
)
def test_a_body_stays_in_a_function_that_does_not_parse(head: str, indent: str, below: str, fill: str) -> None:
    source = f"{head}\n    return x\n{below}"
    outer = "class A:\n" if indent else ""
    source = outer + "".join(f"{indent}{line}" if line.strip() else line for line in source.splitlines(keepends=True))
    document = Document(source.encode(), "python")
    patched = splice(document, [body_named(document, "bad")], [fill]).patch.apply(document.data).decode()
    written = patched.removeprefix(outer).removesuffix(below and source[source.index("\n\n") :]).splitlines()[1:]
    assert written and all(line.startswith(f"{indent}    ") for line in written if line.strip()), patched


@pytest.mark.parametrize(
    ("language", "source", "good", "bad"),
    [
        ("python", "x = 1\n\n\n<>\n    return x\n", "def get(x):", "get(x)"),
        ("python", "<>\n    x = 1\nexcept OSError:\n    x = 2\n", "try:", "if x:"),
        ("python", "call(\n    a,\n    <>\n    c,\n)\n", "b,", "b"),
        ("python", "y = 1\n<>\n    return x\n", "def get(x):", "get(x)"),
        ("javascript", "<>\n  return x;\n}\n", "function get(x) {", "get(x);"),
        ("javascript", "const a = {\n  b: 1,\n  <>\n  d: 3,\n};\n", "c: 2,", "c"),
    ],
)
def test_a_hole_that_no_statement_fits_is_held_to_what_does(language: str, source: str, good: str, bad: str) -> None:
    start = source.index("<>")
    document = Document(source.replace("<>", "").encode(), language)
    hole = hole_at_range(document, start, start)
    assert splice(document, [hole], [good]).new_errors == 0
    assert splice(document, [hole], [bad]).new_errors > 0
