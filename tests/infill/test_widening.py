"""Which holes are around a place, the innermost first."""

import pytest

from midfill_infill.languages import REGISTRY
from midfill_infill.syntax.holes import list_holes
from midfill_infill.text.document import Document

PYTHON = (
    "import os\n\n\nclass A:\n    def f(self, rows):\n        '''Doc.'''\n        for row in rows:\n"
    "            if row:\n                a = g(|row)\n                b = 2\n        return 1\n"
)
STATEMENT = "a = g(row)"
BLOCK = STATEMENT + "\n                b = 2"
IF = "if row:\n                " + BLOCK
FOR = "for row in rows:\n            " + IF


def widened(text: str, language: str) -> list[str]:
    byte = text.encode().index(b"|")
    document = Document.from_text(text.replace("|", ""), language)
    return [document.decode(*span) for span in list_holes(document, byte, byte)]


def test_from_the_statement_to_the_class() -> None:
    found = widened(PYTHON, "python")
    body = FOR + "\n        return 1"
    assert found[:5] == [STATEMENT, BLOCK, IF, FOR, body]
    assert all(inner in outer and inner != outer for inner, outer in zip(found, found[1:], strict=False))
    assert found[-1].startswith("class A:")


def test_the_start_of_a_line_stands_for_what_is_on_it_and_two_functions_for_two_bodies() -> None:
    text = "def f():\n    def g():\n|        return 1\n    return g\n"
    assert widened(text, "python")[:2] == ["return 1", "def g():\n        return 1"]
    assert "def g():\n        return 1\n    return g" in widened(text, "python")


@pytest.mark.parametrize("language, text", [
    ("javascript", "const f = (a) => {\n  if (a) {\n    run(|a);\n  }\n  return 1;\n};\n"),
    ("c", "int f(int a) {\n  if (a) {\n    run(|a);\n  }\n  return 1;\n}\n"),
    ("go", "package m\n\nfunc f(a int) int {\n  if a > 0 {\n    run(|a)\n  }\n  return 1\n}\n"),
])  # fmt: skip
def test_selections_widen_in_languages_with_braces(language: str, text: str) -> None:
    found = widened(text, language)
    assert found[0].startswith("run(a)") and found[-1].count("{") == 2
    assert any(each.startswith("if") and each.endswith("return 1" + ";" * (language != "go")) for each in found)


@pytest.mark.parametrize("language", sorted(REGISTRY))
@pytest.mark.parametrize("text", ["", "\n", "def f(:\n  x", "{{{", "😀 = 'x"])
def test_widening_fails_for_no_position_in_any_text(language: str, text: str) -> None:
    document = Document.from_text(text, language)
    for byte in range(len(document.data) + 1):
        assert all(start <= byte <= end or not text for start, end in list_holes(document, byte, byte)) or text
    assert list_holes(Document.from_text(text), 0, 0) == []
