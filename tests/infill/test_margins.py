"""Comments, directives and labels at the margin: a fill stands where the code stands."""

import pytest

from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import body_named, hole_at_cursor, hole_at_place, hole_at_range
from midfill_infill.text.document import Document

FRAMES = {
    "python": ("class A:\n    def f(self, a):\n", "", "return a", "        "),
    "javascript": ("class A {\n  f(a) {\n", "  }\n}\n", "return a;", "    "),
    "typescript": ("class A {\n  f(a: number) {\n", "  }\n}\n", "return a;", "    "),
    "tsx": ("class A {\n  f(a: number) {\n", "  }\n}\n", "return a;", "    "),
    "go": ("package p\n\nfunc f(a int) int {\n", "}\n", "return a", "\t"),
    "rust": ("impl A {\n    fn f(&self, a: i32) -> i32 {\n", "    }\n}\n", "return a;", "        "),
    "java": ("class A {\n    int f(int a) {\n", "    }\n}\n", "return a;", "        "),
    "c": ("int f(int a) {\n", "}\n", "return a;", "    "),
    "cpp": ("struct A {\n    int f(int a) {\n", "    }\n};\n", "return a;", "        "),
}
MARGINS = {language: ("//       return old(a);",) for language in FRAMES} | {
    "python": ("#       return old_size(self)",),
    "c": ("//  old(a);", "/* old(a); */", "#ifdef OLD", "#define OLD 1", "again:"),
    "cpp": ("//  old(a);", "#ifdef OLD", "again:"),
    "go": ("// old(a)", "again:"),
}
CASES = [(language, margin) for language in FRAMES for margin in MARGINS[language]]
CLOSING = {"#ifdef OLD": "#endif\n"}


def make(language: str, margin: str, deeper: str = "") -> tuple[str, str]:
    """A source whose function begins with a line at the margin, and the source of which the body is one statement."""
    head, tail, statement, indent = FRAMES[language]
    body = f"{indent}old_call(a){';' * (language not in ('python', 'go'))}\n{indent}{statement}\n"
    return head + deeper + margin + "\n" + body + CLOSING.get(margin, "") + tail, f"{head}{indent}{statement}\n{tail}"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("language", "margin"), CASES)
def test_a_body_that_begins_at_the_margin(language: str, margin: str, newline: str) -> None:
    source, expected = (text.replace("\n", newline) for text in make(language, margin))
    document, statement = Document(source.encode(), language), FRAMES[language][2]
    spliced = splice(document, [body_named(document, "f")], [statement])
    assert spliced.new_errors == 0
    assert spliced.patch.apply(document.data).decode() == expected


@pytest.mark.parametrize(("language", "margin"), CASES)
def test_a_body_of_several_lines(language: str, margin: str) -> None:
    document = Document(make(language, margin)[0].encode(), language)
    head, tail, statement, indent = FRAMES[language]
    call = statement.replace("return a", "g(a)")
    after = splice(document, [body_named(document, "f")], [f"{call}\n{indent}{statement}"]).patch.apply(document.data)
    assert after.decode() == f"{head}{indent}{call}\n{indent}{statement}\n{tail}"


@pytest.mark.parametrize("language", FRAMES)
def test_a_comment_that_is_indented_too_far(language: str) -> None:
    margin = MARGINS[language][0].replace("//  ", "// ")
    source, expected = make(language, margin, FRAMES[language][3] * 2)
    document = Document(source.encode(), language)
    after = splice(document, [body_named(document, "f")], [FRAMES[language][2]]).patch.apply(document.data)
    assert after.decode() == expected


@pytest.mark.parametrize("language", FRAMES)
def test_a_comment_that_is_indented_as_the_code_is_replaced_as_before(language: str) -> None:
    source, _ = make(language, MARGINS[language][0], FRAMES[language][3])
    document = Document(source.encode(), language)
    hole = body_named(document, "f")
    assert hole.lead == "" and hole.indent == FRAMES[language][3]
    assert document.data[hole.start_byte :].startswith(MARGINS[language][0].encode())


@pytest.mark.parametrize("language", FRAMES)
def test_a_stub_below_a_comment_at_the_margin_keeps_the_comment(language: str) -> None:
    head, tail, statement, indent = FRAMES[language]
    thrown = 'throw new Error("not implemented");'
    panics = dict.fromkeys(("c", "cpp"), 'panic("not implemented");')
    stub = {"python": "pass", "rust": "todo!()", "go": 'panic("not implemented")', **panics}.get(language, thrown)
    margin = MARGINS[language][0]
    source = f"{head}{margin}\n{indent}{stub}\n{tail}"
    document = Document(source.encode(), language)
    after = splice(document, [body_named(document, "f")], [statement]).patch.apply(document.data)
    assert after.decode() == f"{head}{margin}\n{indent}{statement}\n{tail}"


@pytest.mark.parametrize("broken", ["x = (\n", ""])
def test_a_body_below_a_comment_in_a_file_with_an_error(broken: str) -> None:
    source, expected = make("python", "#  old")
    document = Document((source + "\n\n" + broken).encode(), "python")
    after = splice(document, [body_named(document, "f")], ["return a"]).patch.apply(document.data)
    assert after.decode() == expected + "\n\n" + broken
    inside = source.replace("old_call(a)", "old_call(a")
    document = Document(inside.encode(), "python")
    after = splice(document, [body_named(document, "f")], ["return a"]).patch.apply(document.data)
    assert after.decode() == expected


@pytest.mark.parametrize(("language", "margin"), CASES)
def test_a_blank_line_below_the_margin(language: str, margin: str) -> None:
    head, tail, statement, indent = FRAMES[language]
    first = head.count("\n")
    for source in (
        f"{head}{margin}\n\n{indent}{statement}\n{CLOSING.get(margin, '')}{tail}",
        f"{head}{indent}{statement}\n{margin}\n\n{indent}{statement}\n{CLOSING.get(margin, '')}{tail}",
    ):
        document = Document(source.encode(), language)
        line = source[: source.index("\n\n", len(head)) + 1].count("\n")
        assert line > first
        hole = hole_at_place(document, document.lines.start(line))
        assert (hole.kind, hole.indent) == ("line", indent), source


def test_a_blank_line_behind_a_comment_of_the_file_stays_at_the_margin() -> None:
    for source, language in (
        ("def f():\n    return 1\n\n# Part two\n\ndef g():\n    return 2\n", "python"),
        ("int f() {\n    return 1;\n}\n\n// Part two\n\nint g() {\n    return 2;\n}\n", "c"),
        ("#include <a.h>\n\nint x;\n", "c"),
    ):
        document = Document(source.encode(), language)
        line = source[: source.rindex("\n\n") + 1].count("\n")
        assert hole_at_cursor(document, document.lines.start(line)).indent == ""


@pytest.mark.parametrize(("language", "margin"), CASES)
def test_a_selection_that_begins_at_the_margin(language: str, margin: str) -> None:
    source, expected = make(language, margin)
    document = Document(source.encode(), language)
    head, tail, statement, _ = FRAMES[language]
    hole = hole_at_range(document, len(head), len(source) - len(tail))
    assert splice(document, [hole], [statement]).patch.apply(document.data).decode() == expected
