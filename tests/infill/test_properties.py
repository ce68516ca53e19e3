"""Bytes outside the holes never change: generated documents and this repository's own files, in every disguise."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.infill.marks import read_goldens, read_marks

from midfill_infill import languages
from midfill_infill.answers import draft as drafts
from midfill_infill.context.segments import build_segments
from midfill_infill.languages import REGISTRY
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax import outline
from midfill_infill.syntax.holes import find_stubs, hole_at_range, sort_holes
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

FRAGMENTS = [
    b"\n", b"\r\n", b"\r", b"\t", b"    ", b"\x0c", b"\x0b", "\u2028".encode(), "é😀".encode(), b"\xff\xe9", b"",
    b"def f():", b"...", b"class A:", b"function f() {", b"}", b"{", b"(", b")", b"'", b'"""', b"# c", b"// c",
    b"x = 1",     b"func f() {", b"fn f() {", b"todo!()", b"int f(void) {", b"return", b";", b"pass", b"\\", b"`",
]  # fmt: skip
HEADS = [b"", b"\xef\xbb\xbf", b"# coding: latin-1\n", b"# coding: shift_jis\r\n", b"# coding: cp1252\r"]
FILLS = st.text("ab(){}[]:;,.'\"\n\t #=\u202e\xe9\r\x0c", max_size=24)
SOURCES = {language: read_marks(marked)[0] for language, _, marked in [*read_goldens()][::-1]}
OWN_FILES = [Path(drafts.__file__), Path(outline.__file__), Path(languages.__file__)]
DISGUISES: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda data: data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "CR": lambda data: data.replace(b"\n", b"\r"),
    "mixed": lambda data: data.replace(b"\n", b"\r\n", 3).replace(b"}\r\n", b"}\r"),
    "BOM": lambda data: b"\xef\xbb\xbf" + data,
    "tabs": lambda data: data.replace(b"    ", b"\t"),
    "form feeds": lambda data: data.replace(b"\n\n", b"\n\x0c\n"),
    "line separators": lambda data: data.replace(b"1", "'\u2028'".encode()),
    "invalid UTF-8": lambda data: data.replace(b"1", b"'\xff\xc3'"),
    "no final newline": lambda data: data.rstrip(),
    "cookie": lambda data: b"# coding: latin-1\n" + data.replace(b"1", b"'\xe4'"),
}


def check(document: Document, holes: tuple[Hole, ...], fills: list[str]) -> None:
    """Everything between the holes is in the result, in order, at its place."""
    patch = splice(document, holes, fills).patch
    result, position, shift = patch.apply(document.data), 0, 0
    assert len(patch.edits) == len(holes)
    for edit, hole in zip(patch.edits, sort_holes(document, holes), strict=True):
        assert (edit.start_byte, edit.end_byte) == (hole.start_byte, hole.end_byte)
        assert result[position + shift : edit.start_byte + shift] == document.data[position : edit.start_byte]
        shift += len(edit.replacement) - (edit.end_byte - edit.start_byte)
        position = edit.end_byte
    assert result[position + shift :] == document.data[position:]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([*REGISTRY, None]),
    st.sampled_from(HEADS),
    st.lists(st.sampled_from(FRAGMENTS), max_size=24),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), FILLS), min_size=1, max_size=3),
)
def test_generated_documents(
    language: str | None, head: bytes, fragments: list[bytes], wanted: list[tuple[float, float, str]]
) -> None:
    document = Document(head + b"".join(fragments), language)
    holes: dict[Hole, str] = {}
    for first, second, fill in wanted:
        start, end = sorted((int(first * len(document.data)), int(second * len(document.data))))
        hole = hole_at_range(document, start, end)
        apart = all(h.end_byte < hole.start_byte or hole.end_byte < h.start_byte for h in holes)
        if apart:
            holes[hole] = fill.encode("latin-1", "ignore").decode("latin-1") if fill.isascii() else "x"
    check(document, tuple(holes), list(holes.values()))
    if language is not None:
        stubs = find_stubs(document)
        check(document, stubs, ["return 1"] * len(stubs))
        build_segments(document, stubs, 40)


@pytest.mark.parametrize("language", REGISTRY)
@pytest.mark.parametrize("disguise", DISGUISES)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fill=FILLS.filter(str.isascii))
def test_fills_keep_the_rest_of_a_file_in_every_language_and_encoding(language: str, disguise: str, fill: str) -> None:
    document = Document(DISGUISES[disguise](SOURCES[language]), language)
    stubs = find_stubs(document)
    assert stubs
    check(document, stubs, [fill] * len(stubs))


@pytest.mark.parametrize("language", REGISTRY)
def test_encodings_and_line_ends_do_not_hide_stubs(language: str) -> None:
    texts = {}
    for disguise in ("as it is", "CRLF", "CR", "BOM", "cookie", "no final newline", "invalid UTF-8"):
        document = Document(DISGUISES[disguise](SOURCES[language]), language)
        texts[disguise] = [
            document.visible_text(hole.start_byte, hole.end_byte).strip() for hole in find_stubs(document)
        ]
    assert len(set(map(tuple, texts.values()))) == 1, texts


@pytest.mark.parametrize("path", OWN_FILES, ids=lambda path: path.name)
@pytest.mark.parametrize("disguise", ["CRLF", "CR", "BOM", "tabs", "cookie"])
def test_real_files(path: Path, disguise: str) -> None:
    document = Document(DISGUISES[disguise](path.read_bytes()), "python")
    third = len(document.data) // 3
    holes = (hole_at_range(document, third, third + 40), hole_at_range(document, 2 * third, 2 * third + 90))
    check(document, holes, ["midfill", "x = 1\ny = 2"])
