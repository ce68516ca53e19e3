"""Edits the text of a fill and tracks where each character stands in the engine's text. Knows no syntax."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

ADDED = -1
"""The origin of a character that the engine did not write."""

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_BOM = "\ufeff"


@dataclass(frozen=True)
class DraftText:
    r"""Text with `\n` line ends; `origins[i]` is where character `i` stands in the engine's text, or `ADDED`."""

    text: str
    origins: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> "DraftText":
        """A text as the engine wrote it."""
        return cls(text, tuple(range(len(text))))

    def __getitem__(self, span: slice) -> "DraftText":
        return DraftText(self.text[span], self.origins[span])

    def __add__(self, other: "DraftText") -> "DraftText":
        return DraftText(self.text + other.text, self.origins + other.origins)

    def lines(self) -> list["DraftText"]:
        r"""The lines with their `\n`; the last one, which may be empty, has none."""
        lines: list[DraftText] = []
        start = 0
        while (end := self.text.find("\n", start) + 1) > 0:
            lines.append(self[start:end])
            start = end
        return [*lines, self[start:]]

    def find_engine_range(self, start: int, end: int) -> tuple[int, int] | None:
        """The range of the engine's text that characters `[start, end)` came from; None if all of them were added."""
        written = [origin for origin in self.origins[start:end] if origin != ADDED]
        if not written:
            return None
        return min(written), max(written) + 1


def join(lines: Sequence[DraftText]) -> DraftText:
    """One draft of all `lines`, with nothing between them."""
    text = "".join(line.text for line in lines)
    origins = chain.from_iterable(line.origins for line in lines)
    return DraftText(text, tuple(origins))


def is_dangerous(char: str) -> bool:
    r"""True for characters with hidden effects: bidi controls, BOM, surrogates, controls except `\t` and `\n`."""
    if char in _BIDI or char == _BOM:
        return True
    return unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n"


def clean(text: str, anchors: Sequence[str]) -> DraftText:
    r"""The text with `\n` line ends and without dangerous characters, which may stay only in anchors; a form feed may
    begin a line.
    """
    kept: list[int] = []
    anchor_spans = find_anchors(text, anchors) or []
    for index, char in enumerate(text):
        if char == "\r":
            if text[index + 1 : index + 2] != "\n":
                kept.append(index)
        elif not is_dangerous(char) or (char == "\f" and text[index - 1 : index] == "\n"):
            kept.append(index)
        elif any(start <= index < end for start, end in anchor_spans):
            kept.append(index)
    cleaned = "".join(text[index] for index in kept).replace("\r", "\n")
    return DraftText(cleaned, tuple(kept))


def find_anchors(text: str, anchors: Sequence[str]) -> list[tuple[int, int]] | None:
    """Spans of the anchors in `text`, in order; None if one is missing."""
    spans: list[tuple[int, int]] = []
    position = 0
    for anchor in anchors:
        start = text.find(anchor, position)
        if start < 0:
            return None
        position = start + len(anchor)
        spans.append((start, position))
    return spans


def trim(draft: DraftText, white_before: str, white_behind: str) -> DraftText:
    """The draft without characters of `white_before` at its start and of `white_behind` at its end."""
    start = len(draft.text) - len(draft.text.lstrip(white_before))
    end = len(draft.text.rstrip(white_behind))
    return draft[min(start, end) : end]
