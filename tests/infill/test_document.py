"""Bytes to text, lines and positions, and back."""

import codecs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midfill_infill.errors import MidfillError
from midfill_infill.text.document import MAX_DOCUMENT_BYTES, Document

ODD_CHARACTERS = "aé€😀\u0301\u2028\u2029\x0b\x0c\x1c\x85\t \n\r"


def error_code(data: bytes, language: str | None = None) -> str:
    with pytest.raises(MidfillError) as caught:
        Document(data, language)
    return caught.value.code


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("a", ["a"]),
        ("a\n", ["a", ""]),
        ("a\r\nb\rc\n", ["a", "b", "c", ""]),
        ("a\n\r\n", ["a", "", ""]),
        ("a\x0c\x0b\x1c\x85\u2028\u2029b", ["a\x0c\x0b\x1c\x85\u2028\u2029b"]),
    ],
)
def test_only_line_feeds_and_carriage_returns_end_lines(text: str, lines: list[str]) -> None:
    document = Document(text.encode())
    assert [document.lines.content(line).decode() for line in range(document.num_lines)] == lines


@given(st.text(ODD_CHARACTERS, max_size=40), st.booleans())
def test_every_position_leads_to_a_byte_and_back(text: str, has_bom: bool) -> None:
    document = Document((codecs.BOM_UTF8 if has_bom else b"") + text.encode())
    assert document.text == text
    offset = len(document.bom)
    for index, char in enumerate(text):
        if text[index - 1 : index + 1] != "\r\n":  # the place between these two is no position
            assert document.offset_at(*document.position_at(offset)) == offset == document.snap(offset)
        offset += len(char.encode())


@given(st.binary(max_size=60).filter(lambda data: b"\0" not in data and data[:2] not in (b"\xff\xfe", b"\xfe\xff")))
def test_any_bytes_survive(data: bytes) -> None:
    document = Document(data)
    assert document.bom + document.text.encode("utf-8", "surrogateescape") == data
    assert len(document.source) == len(data)
    for byte in range(len(data) + 1):
        assert 0 <= document.snap(byte) <= max(byte, len(document.bom))


def test_a_byte_inside_a_character_is_moved_before_it() -> None:
    document = Document("a😀\r\nb".encode())
    assert [document.snap(byte) for byte in range(9)] == [0, 1, 1, 1, 1, 5, 5, 7, 8]


@pytest.mark.parametrize(
    ("cookie", "encoding"),
    [
        (b"# -*- coding: latin-1 -*-\n", "iso8859-1"),
        (b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\n", "cp1252"),
        (b"\n# coding=utf-8-sig\n", "utf-8"),
        (b"x = 1\n# coding: latin-1\n", "utf-8"),
        (b"# coding: shift_jis\r\n", "shift_jis"),
        (b"# coding: utf-7\n", "ascii"),
        (b"# coding: no-such-codec\n", "ascii"),
        (b"# coding: unicode_escape\n", "ascii"),
        (b"# coding: raw_unicode_escape\n", "ascii"),
        (b"# coding: idna\n", "ascii"),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", "utf-8"),
    ],
)
def test_the_coding_cookie_of_python(cookie: bytes, encoding: str) -> None:
    assert Document(cookie, "python").encoding == encoding
    assert Document(cookie, "c").encoding == "utf-8"


@pytest.mark.parametrize("encoding", ["iso8859-1", "cp1252", "shift_jis", "euc_jp", "gb18030", "big5"])
def test_offsets_of_other_encodings_are_exact(encoding: str) -> None:
    word = {"iso8859-1": "äöü", "cp1252": "€ä"}.get(encoding, "日本語")
    text = f"# coding: {encoding}\nx = '{word}'\r\ny = '{word}'  # {word}\n"
    document = Document(text.encode(encoding), "python")
    assert document.text == text
    for index in range(len(text) + 1):
        raw, source = len(text[:index].encode(encoding)), len(text[:index].encode())
        assert (document.to_source(raw), document.to_data(source)) == (source, raw)


def test_undecodable_bytes_in_other_encodings_keep_their_places() -> None:
    data = b"# coding: shift_jis\nx = '\x93\xfa\xff\x96\x7b'\ny = 1\n"
    document = Document(data, "python")
    assert document.data[document.offset_at(3, 1) :] == b"y = 1\n"
    assert document.to_data(len(document.source)) == len(data)


@pytest.mark.parametrize(
    ("text", "newline"), [("", "\n"), ("a\r\nb\r\nc\n", "\r\n"), ("a\rb", "\r"), ("a\nb\r", "\n"), ("a\r\nb\n", "\r\n")]
)
def test_newline_is_the_most_frequent_and_the_first_of_equals(text: str, newline: str) -> None:
    assert Document(text.encode()).newline == newline


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("a:\n  b\n  c:\n    d\n", "  "),
        ("a:\n    b:\n        c\n", "    "),
        ("a:\n\tb\n", "\t"),
        ("a\n * b\n * c\n", "    "),
        ("", "    "),
    ],
)
def test_indent_unit(text: str, unit: str) -> None:
    assert Document(text.encode()).indent_unit == unit


def test_indent_unit_falls_back_to_the_language() -> None:
    assert Document(b"", "go").indent_unit == "\t"
    assert Document(b"", "typescript").indent_unit == "  "


def test_what_is_no_text_is_refused() -> None:
    assert error_code(b"a\0b") == "file_binary"
    assert error_code("a".encode("utf-16")) == "file_binary"
    assert error_code(b"", "cobol") == "unknown_language"


@pytest.mark.parametrize(
    ("line", "column", "says"),
    [
        (0, 1, "has 3 lines, not 0"),
        (4, 1, "has 3 lines, not 4"),
        (1, 0, "ends at column 4, column 0 is outside"),
        (1, 5, "ends at column 4, column 5 is outside"),
    ],
)
def test_positions_outside_say_what_there_is(line: int, column: int, says: str) -> None:
    document = Document("a😀b\r\nc\n".encode())
    with pytest.raises(MidfillError, match=says) as caught:
        document.offset_at(line, column)
    assert caught.value.code == "position_outside"


def test_reading_files(tmp_path: Path) -> None:
    path = tmp_path / "a.tsx"
    path.write_bytes(b"x\r\n")
    assert Document.read(path) == Document(b"x\r\n", "tsx", path)
    codes = {tmp_path: "file_is_directory", tmp_path / "none.py": "file_missing", Path("/dev/zero"): "file_unreadable"}
    large = tmp_path / "large.py"
    large.write_bytes(b" " * (MAX_DOCUMENT_BYTES + 1))
    for bad, code in {**codes, large: "file_too_large"}.items():
        with pytest.raises(MidfillError) as caught:
            Document.read(bad)
        assert caught.value.code == code


def test_an_editors_text_is_utf8_whatever_its_cookie_says() -> None:
    document = Document.from_text("# coding: latin-1\nx = 'ä'\n", "python")
    assert document.encoding == "utf-8"
    assert document.text.endswith("'ä'\n")


def test_show_is_what_a_model_reads() -> None:
    document = Document(codecs.BOM_UTF8 + b"a\r\nb\rc\xff")
    assert document.visible_text(0, len(document.data)) == "a\nb\nc\ufffd"
