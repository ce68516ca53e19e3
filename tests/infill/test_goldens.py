"""The holes of functions, language by language: every function of a golden file has its mark, and there is no other."""

import pytest
from tests.infill.marks import read_goldens, read_marks, write_marks

from midfill_infill.languages import REGISTRY
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document

CASES = [pytest.param(language, marked, id=f"{language}: {title}") for language, title, marked in read_goldens()]


def test_each_language_has_goldens() -> None:
    assert {language for language, _, _ in read_goldens()} == set(REGISTRY)


@pytest.mark.parametrize(("language", "marked"), CASES)
def test_holes_are_where_the_marks_are(language: str, marked: str) -> None:
    source, expected = read_marks(marked)
    document = Document(source, language)
    holes = [body_hole(document, function) for function in outline(document).functions]
    found = {(hole.start_byte, hole.end_byte, hole.kind) for hole in holes}
    assert write_marks(source, found) == write_marks(source, expected)
    assert {(hole.start_byte, hole.end_byte) for hole in find_stubs(document)} == {
        (start, end) for start, end, kind in expected if kind == "stub"
    }


@pytest.mark.parametrize(("language", "marked"), CASES)
@pytest.mark.parametrize("newline", [b"\r\n", b"\r"])
def test_line_ends_do_not_move_holes(language: str, marked: str, newline: bytes) -> None:
    source, expected = read_marks(marked)
    document = Document(source.replace(b"\n", newline), language)
    texts = {document.data[hole.start_byte : hole.end_byte] for hole in find_stubs(document)}
    assert texts == {source[start:end].replace(b"\n", newline) for start, end, kind in expected if kind == "stub"}


@pytest.mark.parametrize(("language", "marked"), CASES)
def test_a_statement_in_every_stub_adds_no_error(language: str, marked: str) -> None:
    document = Document(read_marks(marked)[0], language)
    stubs = find_stubs(document)
    spliced = splice(document, stubs, [REGISTRY[language].statement] * len(stubs))
    assert spliced.new_errors == 0
    assert all(text == REGISTRY[language].statement for text in spliced.texts)
