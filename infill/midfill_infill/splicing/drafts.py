"""Edits the text of a fill and tracks where each character stands in the engine's text. Knows no syntax."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from midfill_infill.text.diffs import common_prefix
from midfill_infill.text.lines import count_columns

ADDED = -1
"""The origin of a character that the engine did not write."""

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_BOM = "\ufeff"
_DEFAULT_STEP = 4
_MAX_OVERLAP_LINES = 8


@dataclass(frozen=True)
class DraftText:
    r"""Text with `\n` line ends; `origins[i]` is where character `i` stands in the engine's text, or `ADDED`."""

    text: str
    origins: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> "DraftText":
        return cls(text, tuple(range(len(text))))

    def __getitem__(self, span: slice) -> "DraftText":
        return DraftText(self.text[span], self.origins[span])

    def __add__(self, other: "DraftText") -> "DraftText":
        return DraftText(self.text + other.text, self.origins + other.origins)

    def lines(self) -> list["DraftText"]:
        r"""The lines, each with its `\n`."""
        found, start = [], 0
        while (end := self.text.find("\n", start) + 1) > 0:
            found.append(self[start:end])
            start = end
        return [*found, self[start:]]

    def reach(self, start: int, end: int) -> tuple[int, int] | None:
        """The range of the engine's text that `[start, end)` came from; None if all of it was added."""
        known = [origin for origin in self.origins[start:end] if origin != ADDED]
        return (min(known), max(known) + 1) if known else None


def join(lines: Sequence[DraftText]) -> DraftText:
    return DraftText("".join(line.text for line in lines), tuple(origin for line in lines for origin in line.origins))


def is_dangerous(char: str) -> bool:
    r"""True for characters with hidden effects: bidi controls, BOM, surrogates, controls except `\t` and `\n`."""
    return char in _BIDI or char == _BOM or (unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n")


def clean(text: str, anchors: Sequence[str]) -> tuple[DraftText, int]:
    r"""The text with `\n` line ends and without dangerous characters outside of anchors, and the number of those."""
    kept: list[int] = []
    removed, safe = 0, find_anchors(text, anchors) or []
    for index, char in enumerate(text):
        if char == "\r" and text[index + 1 : index + 2] == "\n":
            continue
        if char != "\r" and is_dangerous(char) and not any(start <= index < end for start, end in safe):
            removed += 1
        else:
            kept.append(index)
    return DraftText("".join(text[index] for index in kept).replace("\r", "\n"), tuple(kept)), removed


def find_anchors(text: str, anchors: Sequence[str]) -> list[tuple[int, int]] | None:
    """Spans of the anchors in `text`, in order; None if one is missing."""
    spans, position = [], 0
    for anchor in anchors:
        start = text.find(anchor, position)
        if start < 0:
            return None
        position = start + len(anchor)
        spans.append((start, position))
    return spans


def trim(draft: DraftText, white_before: str, white_behind: str) -> DraftText:
    """Drops characters of `white_before` at the start and of `white_behind` at the end."""
    end = len(draft.text.rstrip(white_behind)) if white_behind else len(draft.text)
    start = len(draft.text) - len(draft.text.lstrip(white_before)) if white_before else 0
    return draft[min(start, end) : end]


def _leading(line: DraftText) -> str:
    return line.text[: len(line.text) - len(line.text.lstrip(" \t"))]


def _columns(line: DraftText) -> int:
    return count_columns(_leading(line).encode("ascii"))


def _map_lines(draft: DraftText, frozen: frozenset[int], change: Callable[[str], str]) -> DraftText:
    """Changes the indentation of all lines but the first, blank ones, and those numbered in `frozen`."""
    lines = draft.lines()
    for number, line in _moving(lines, frozen):
        old = _leading(line)
        new = change(old)
        if new != old:
            same = common_prefix(old[::-1], new[::-1])
            added = DraftText(new[: len(new) - same], (ADDED,) * (len(new) - same))
            lines[number] = added + line[len(old) - same :]
    return join(lines)


def _moving(lines: list[DraftText], frozen: frozenset[int]) -> Iterator[tuple[int, DraftText]]:
    for number, line in enumerate(lines):
        if number and number not in frozen and line.text.strip():
            yield number, line


def respace(draft: DraftText, indent: str, unit: str, frozen: frozenset[int]) -> list[DraftText]:
    """Converts indentation to the document's tabs or spaces, level by level. Eight spaces may be one level or two, so a
    document with tabs gets two variants, the likelier first.
    """
    lines = [line for _, line in _moving(draft.lines(), frozen)]
    if "\t" in indent or (not indent and unit == "\t"):
        widths = [len(white) for line in lines if (white := _leading(line)) and "\t" not in white]
        step = max(2, min(widths, default=_DEFAULT_STEP))
        steps = [step] if step < _DEFAULT_STEP or not widths else [step, step // 2]
        return [_map_lines(draft, frozen, partial(_tabbed, step=step)) for step in steps]
    spaces = unit if unit != "\t" else " " * _DEFAULT_STEP
    return [_map_lines(draft, frozen, lambda old: old.replace("\t", spaces))]


def rescale(draft: DraftText, indent: str, step: int, unit: str, frozen: frozenset[int]) -> DraftText:
    """Turns levels of `step` spaces into levels of `unit`, counted from `indent`; keeps the rest below a level."""

    def scale(old: str) -> str:
        levels, rest = divmod(len(old) - len(indent), step)
        return indent + levels * unit + rest * " " if levels > 0 else old

    return _map_lines(draft, frozen, scale)


def _tabbed(white: str, step: int) -> str:
    tabs = len(white) - len(white.lstrip("\t"))
    spaces = len(white[tabs:].expandtabs(step))
    return "\t" * (tabs + spaces // step) + " " * (spaces % step)


def margin(draft: DraftText, frozen: frozenset[int]) -> int | None:
    """The smallest indentation of the lines after the first, in columns; None if there are no such lines."""
    return min((_columns(line) for _, line in _moving(draft.lines(), frozen)), default=None)


def rebase(draft: DraftText, indent: str, frozen: frozenset[int]) -> DraftText:
    """Shifts all lines but the first by the same amount, so that the shallowest is indented by `indent`."""
    lines = [_leading(line) for _, line in _moving(draft.lines(), frozen)]
    if not lines:
        return draft
    common = min(lines, key=lambda white: count_columns(white.encode("ascii")))
    return _map_lines(draft, frozen, lambda old: indent + old.removeprefix(common))


def begin_with(draft: DraftText, indent: str) -> DraftText:
    """The draft with the first line indented by `indent`."""
    return DraftText(indent, (ADDED,) * len(indent)) + trim(draft, " \t", "")


def leaving_line(draft: DraftText, indent: str, frozen: frozenset[int]) -> int | None:
    """The first line that is indented less than `indent`, numbered from 0."""
    columns = count_columns(indent.encode("ascii"))
    return next((number for number, line in _moving(draft.lines(), frozen) if _columns(line) < columns), None)


def cut_lines(draft: DraftText, number: int) -> DraftText:
    """The lines before `number`, without white space at their end."""
    return trim(join(draft.lines()[:number]), "", " \t\n")


def overlap_cuts(draft: DraftText, behind: str) -> Iterator[DraftText]:
    """Drafts without the part that repeats the text behind the hole: whole lines, then the rest of the current line.
    The shortest cut comes first, because the file may have only one of two closing braces.
    """
    rest_of_line, line_end, below = behind.partition("\n")
    if line_end and not rest_of_line.strip():
        ours = [line.text.strip() for line in draft.lines()]
        theirs = [line.strip() for line in below.split("\n", 2 * _MAX_OVERLAP_LINES)]
        theirs = theirs[next((n for n, line in enumerate(theirs) if line), 0) :]
        for count in range(1, min(len(ours), len(theirs), _MAX_OVERLAP_LINES + 1)):
            if ours[-count:] == theirs[:count]:
                yield cut_lines(draft, len(ours) - count)
    for size in range(min(len(draft.text), len(rest_of_line)), 0, -1):
        if rest_of_line[:size].strip() and draft.text.endswith(rest_of_line[:size]):
            yield draft[: len(draft.text) - size]
            return
