"""Documents stay in step with any editor: random edits against a model that counts character by character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types

from midfill_lsp.text import Moves, SyncedDocument, SyncedWorkspace, Text, trim

ENCODINGS = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
UNIT_BYTES = {"utf-8": 1, "utf-16": 2, "utf-32": 4}
PIECES = ["a", "b ", "\n", "\r\n", "\r", "\t", *"\x0b\x0c\x1c\x85\u2028\u2029é日😀\0\ufeff", "e\u0301", "👩\u200d👧"]
texts = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)
encodings = st.sampled_from(sorted(ENCODINGS))


def count_units(text: str, encoding: str) -> int:
    return len(text.encode(ENCODINGS[encoding])) // UNIT_BYTES[encoding]


def walk(text: str, encoding: str) -> list[tuple[int, types.Position]]:
    """Every offset that LSP can name, with its position, found by walking from the start."""
    places, line, units, offset = [], 0, 0, 0
    while offset < len(text):
        places.append((offset, types.Position(line, units)))
        if text[offset] in "\r\n":
            offset += 2 if text[offset : offset + 2] == "\r\n" else 1
            line, units = line + 1, 0
        else:
            units += count_units(text[offset], encoding)
            offset += 1
    return [*places, (offset, types.Position(line, units))]


def open_document(text: str, encoding: str = "utf-16") -> SyncedDocument:
    workspace = SyncedWorkspace(None, position_encoding=encoding)
    workspace.put_text_document(types.TextDocumentItem("untitled:1", "python", 1, text))
    document = workspace.open_document("untitled:1")
    assert document is not None
    return document


def change(start: types.Position, end: types.Position, text: str) -> types.TextDocumentContentChangePartial:
    return types.TextDocumentContentChangePartial(range=types.Range(start, end), text=text)


@settings(deadline=None, max_examples=200)
@given(texts, encodings, st.lists(st.tuples(st.integers(0), st.integers(0), texts), max_size=12))
def test_edits_keep_server_and_editor_equal(text: str, encoding: str, edits: list[tuple[int, int, str]]) -> None:
    document = open_document(text, encoding)
    for first, second, new in edits:
        places = walk(text, encoding)
        (a, start), (b, end) = sorted([places[first % len(places)], places[second % len(places)]], key=lambda p: p[0])
        document.apply_change(change(start, end, new))
        text = text[:a] + new + text[b:]
        assert document.source == text
    assert not document.desynced


@settings(deadline=None, max_examples=200)
@given(texts, encodings)
def test_offsets_and_positions_are_inverse(source: str, encoding: str) -> None:
    text = Text(source, encoding)
    for offset, position in walk(source, encoding):
        assert text.position(offset) == position
        assert text.offset(position) == offset and text.has(position)
        assert text.offset_of_byte(text.start_byte(offset)) == offset
        assert text.start_byte(offset) == len(source[:offset].encode())


@settings(deadline=None, max_examples=200)
@given(texts, texts, texts, texts)
def test_trim_finds_a_replacement_that_is_equal_and_splits_no_line_end(a: str, b: str, old: str, new: str) -> None:
    old, new = a + old + b, a + new + b
    start, end = trim(old, new)
    middle = new[start : len(new) - (len(old) - end)]
    assert old[:start] + middle + old[end:] == new
    assert not any(old[cut - 1 : cut + 1] == "\r\n" for cut in (start, end) if cut)


@settings(deadline=None, max_examples=200)
@given(texts, st.data())
def test_a_span_is_found_again_or_given_up(before: str, data: st.DataObject) -> None:
    source = f"{before}<hole>\n{before}"
    document = open_document(source)
    hole = (len(before), len(before) + len("<hole>"))
    moves = document.record()
    for new in data.draw(st.lists(texts, max_size=6)):
        places = walk(document.source, "utf-16")
        picks = sorted(data.draw(st.tuples(*[st.integers(0, len(places) - 1)] * 2)))
        document.apply_change(change(places[picks[0]][1], places[picks[1]][1], new))
    carried = moves.carry(hole)
    if carried is not None:
        assert document.source[slice(*carried)] == "<hole>"


@pytest.mark.parametrize("edit, expected", [
    ((0, 2, 5), (13, 23)), ((30, 31, 0), (10, 20)), ((0, 9, 0), (1, 11)),
    ((12, 12, 1), None), ((5, 10, 3), None), ((20, 20, 1), None), ((0, 40, 40), None),
])  # fmt: skip
def test_a_span_is_carried_over_an_edit_or_lost(edit: tuple[int, int, int], expected: tuple[int, int] | None) -> None:
    moves = Moves()
    moves.append(edit)
    assert moves.carry((10, 20)) == expected


def test_a_full_text_that_changes_elsewhere_carries_the_span() -> None:
    document = open_document("one\ntwo\nthree\n")
    moves = document.record()
    for _ in range(2):
        document.apply_change(types.TextDocumentContentChangeWholeDocument("zero\none\ntwo\nthree\n"))
    assert moves.carry((8, 13)) == (13, 18)


@pytest.mark.parametrize("line, character, expected", [(0, 99, 3), (9, 0, 3), (1, 0, 3)])
def test_positions_past_the_end_mean_the_end(line: int, character: int, expected: int) -> None:
    position = types.Position(line, character)
    assert Text("abc").offset(position) == expected
    assert position == types.Position(line, character)


def test_an_empty_document_has_one_position() -> None:
    assert Text("").position(0) == types.Position(0, 0)
    assert Text("").offset(types.Position(0, 0)) == 0


@pytest.mark.parametrize("bad", [
    change(types.Position(7, 0), types.Position(8, 0), "x"),
    change(types.Position(0, 1), types.Position(0, 1), "x"),
    change(types.Position(1, 1), types.Position(0, 0), "x"),
])  # fmt: skip
def test_a_change_that_does_not_fit_is_noticed_and_cured_by_a_full_text(
    bad: types.TextDocumentContentChangePartial, caplog: pytest.LogCaptureFixture
) -> None:
    document = open_document("😀\nsecret\n")
    document.apply_change(bad)
    assert document.desynced and document.source == "😀\nsecret\n"
    assert "does not fit" in caplog.text and "secret" not in caplog.text
    document.apply_change(types.TextDocumentContentChangeWholeDocument("new"))
    assert not document.desynced and document.source == "new"


def test_lone_surrogates_keep_their_places() -> None:
    text = Text("\ud800a😀", "utf-16")
    assert text.offset(types.Position(0, 2)) == 2
    assert text.offset_of_byte(text.start_byte(2)) == 2


def test_lines_end_only_where_lsp_says() -> None:
    text = open_document("a\x0cb\u2028c\r\nd\re\n").text
    assert text.lines == ["a\x0cb\u2028c", "d", "e", ""] and text.line_starts == [0, 7, 9, 11]
