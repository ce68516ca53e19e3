"""What a hole needs, found in a source whose holes are marked."""

from midfill_infill.splicing.splice import Splicer
from midfill_infill.syntax.holes import hole_at_cursor
from midfill_infill.text.document import Document

MARK = "<hole>"


def read_holes(marked: str, language: str = "python") -> tuple[Document, list[int]]:
    parts = marked.split(MARK)
    starts = [len("".join(parts[: index + 1]).encode()) for index in range(len(parts) - 1)]
    return Document("".join(parts).encode(), language), starts


def find_needs(marked: str, language: str = "python", kind: str = "names") -> list[list[str]]:
    document, starts = read_holes(marked, language)
    holes = tuple(hole_at_cursor(document, start) for start in starts)
    return [Splicer(document, holes).find_needs(index).get(kind, []) for index in range(len(holes))]
