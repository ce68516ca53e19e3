"""The unit of indentation is the code's, whatever strings and comments hold."""

import pytest

from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import body_named, find_stubs, hole_at_cursor
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


@pytest.mark.parametrize("unit", ["\t", "  ", "    ", "        "])
@pytest.mark.parametrize("written", ["\t", "  ", "    "])
@pytest.mark.parametrize("language", FRAMES)
def test_white_space_on_a_blank_line_is_the_unit_of_a_file_without_another(
    language: str, written: str, unit: str
) -> None:
    _, _, header, _ = FRAMES[language]
    end = "" if language == "python" else "}\n"
    source = f"{header}\n{unit}\n{end}"
    document = Document(source.encode(), language)
    assert document.indent_unit == unit
    test = "if a:" if language == "python" else "if (a) {"
    closing = "" if language == "python" else "\n}"
    answer = f"{test}\n{written}b(){closing}"
    expected = f"{test}\n{unit * 2}b(){closing.replace('}', unit + '}')}"
    hole = hole_at_cursor(document, len(f"{header}\n{unit}"))
    assert splice(document, [hole], [answer]).texts == (expected,)


def test_a_column_of_access_specifiers_is_no_unit() -> None:
    source = "class A {\n public:\n  explicit A(int x) : x_(x) {}\n  int x() const {}\n\n private:\n  int x_;\n};\n"
    document = Document(source.encode(), "cpp")
    after = splice(document, [body_named(document, "x")], ["return x_;"]).patch.apply(document.data).decode()
    assert after == source.replace("const {}", "const {\n    return x_;\n  }")
