"""Reads sources in which holes are marked: `«body»` and `‹stub›`. Knows no language."""

from collections.abc import Iterator
from pathlib import Path

GOLDENS = Path(__file__).parent / "goldens"
_OPEN, _CLOSE = {"«": "body", "‹": "stub"}, "»›"


def read_marks(marked: str) -> tuple[bytes, set[tuple[int, int, str]]]:
    """The source without marks, and (start_byte, end_byte, kind) of each marked stretch. Marks nest."""
    source, found, opened = b"", set(), []
    for char in marked:
        if char in _OPEN:
            opened.append((len(source), _OPEN[char]))
        elif char in _CLOSE:
            start, kind = opened.pop()
            found.add((start, len(source), kind))
        else:
            source += char.encode()
    assert not opened
    return source, found


def write_marks(source: bytes, found: set[tuple[int, int, str]]) -> str:
    """The other way round, for readable failures."""
    marks = {"body": "«»", "stub": "‹›"}
    inserts = [(end, 0, -start, marks[kind][1]) for start, end, kind in found if end > start]
    inserts += [(start, 1, -end, marks[kind][0]) for start, end, kind in found if end > start]
    inserts += [(start, 1, 0, marks[kind]) for start, end, kind in found if end == start]
    text, position = "", 0
    for offset, _, _, mark in sorted(inserts):
        text += source[position:offset].decode() + mark
        position = offset
    return text + source[position:].decode()


def read_goldens() -> Iterator[tuple[str, str, str]]:
    """(language, title, marked source) of every section of every golden file."""
    for path in sorted(GOLDENS.glob("*.txt")):
        for section in path.read_text("utf-8").split("--- ")[1:]:
            title, _, marked = section.partition("\n")
            yield path.stem, title, marked
