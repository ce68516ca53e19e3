"""The unit of indentation is the code's, whatever strings and comments hold."""

import pytest

from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document

YAML = "".join(f"key_{number}:\n  one: 1\n  two:\n    three: 3\n" for number in range(12))
TABS = "".join(f"\tcolumn {number}\n" for number in range(40))
# The start and the end of a text of several lines, and the headers of a function with code and of a stub.
FRAMES = {
    "python": ('TEXT = """\n', '"""\n', "def f(a):", "def g(a): pass"),
    "javascript": ("const text = `\n", "`;\n", "function f(a) {", "function g(a) {"),
    "typescript": ("/*\n", "*/\n", "function f(a) {", "function g(a) {"),
    "go": ("package p\n\nvar text = `\n", "`\n", "func f(a int) {", "func g(a int) {"),
    "rust": ('const TEXT: &str = r#"\n', '"#;\n', "fn f(a: i32) {", "fn g(a: i32) {"),
    "java": ('class A {\nString text = """\n', '""";\n', "void f(int a) {", "void g(int a) {"),
    "c": ("/*\n", "*/\n", "int f(int a) {", "int g(int a) {"),
    "cpp": ('auto text = R"(\n', ')";\n', "int f(int a) {", "int g(int a) {"),
}
UNITS = {
    "yaml": (YAML, "    "),
    "tabs": (TABS, "    "),
    "yaml above tabs": (YAML, "\t"),
    "tabs above two": (TABS, "  "),
}


def make(language: str, text: str, unit: str, encoding: str = "utf-8", newline: str = "\n") -> Document:
    start, end, header, stub = FRAMES[language]
    test, closed = ("if a:", "") if language == "python" else ("if (a) {", "}")
    code = "\n".join(
        [header, unit + test, f"{unit}{unit}return;"[: -1 if not closed else None], unit + closed, closed, ""]
    )
    whole = start + text + end + code * 3 + stub + "\n" + closed + "\n" * bool(closed) + "}\n" * (language == "java")
    return Document(whole.replace("\n", newline).encode(encoding), language)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("case", UNITS)
@pytest.mark.parametrize("language", FRAMES)
def test_lines_of_texts_do_not_count(language: str, case: str, newline: str) -> None:
    text, unit = UNITS[case]
    document = make(language, text, unit, newline=newline)
    assert document.indent_unit == unit == document.source_lines.indent_unit
    assert not document.lines.mixes_indents
    assert document.lines.steps == {8 if unit == "\t" else len(unit)}


@pytest.mark.parametrize("case", UNITS)
@pytest.mark.parametrize("language", FRAMES)
def test_a_body_is_indented_as_the_code(language: str, case: str) -> None:
    text, unit = UNITS[case]
    document = make(language, text, unit)
    statement = "return 1" if language in ("python", "go") else "return 1;"
    (hole,) = find_stubs(document)
    after = splice(document, [hole], [statement]).patch.apply(document.data).decode()
    assert f"\n{unit}{statement}\n" in after


def test_strings_in_other_encodings_are_found_too() -> None:
    document = make("python", "ä\n" + YAML, "    ", encoding="latin-1")
    assert document.indent_unit == "    "
    assert Document(b"# coding: latin-1\n" + document.data, "python").indent_unit == "    "


def test_a_run_of_strings_and_a_document_without_a_grammar_count_as_before() -> None:
    run = 'x = (\n  "a"\n  "b"\n)\ny = (\n  "a"\n)\n'
    assert Document(run.encode(), "python").indent_unit == "  "
    assert Document(YAML.encode()).indent_unit == "  "
