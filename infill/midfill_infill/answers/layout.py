"""Fits the indentation of an answer to its hole: another base, another unit, tabs for spaces. Knows no syntax."""

import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import Final

from midfill_infill.answers.draft import ADDED, DraftText, join, trim
from midfill_infill.text.diffs import common_prefix
from midfill_infill.text.lines import count_columns, is_finished

_OPENS: Final = re.compile(r"[{:\[]\s*$")
_BRACKETS: Final = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[()\[\]{}]""")
_WORDS: Final = re.compile(r"""\w+|["'`(\[{]""")
_HANGING: Final = 8  # columns: lines indented no deeper hang, and need not align
_DEFAULT_STEP: Final = 4
_STEPS: Final = (4, 2, 8, 3)
UNITS: Final = frozenset((*_STEPS, 6, 8, 12, 16))  # a foreign unit behind an indentation in the document's own


@dataclass(frozen=True)
class Indentation:
    """What the document says of indentation at a hole: the `unit` around it and the document's `usual_unit`. `first`
    is the indentation of the answer's first line, as the engine wrote it. `frozen` are lines of the answer whose
    start must not change. `is_whole_line`: the first line's indentation is part of the fill. `is_free`: the document
    has no unit, or both tabs and spaces. `is_aligning`: lines that go on behind an unfinished one are aligned by
    spaces behind the document's tabs.
    """

    indent: str
    unit: str
    usual_unit: str = ""
    first: str = ""
    frozen: frozenset[int] = frozenset()
    is_whole_line: bool = False
    is_free: bool = False
    is_aligning: bool = False

    @property
    def is_tabbed(self) -> bool:
        return "\t" in self.indent or (not self.indent and self.unit == "\t")

    def is_foreign(self, white: str) -> bool:
        """True for white space that the document indents nothing with. Spaces behind tabs align."""
        if self.is_tabbed:
            return white.startswith("  ") and not (self.indent and white.startswith(self.indent))
        return "\t" in white


def list_layouts(draft: DraftText, frame: Indentation) -> Iterator[DraftText]:
    """Ways to indent a draft, the plainest first: as it is, relative to its first line, with its shallowest line at the
    hole's indentation; then the same in the document's unit for each unit that the draft may have.
    """
    yield draft
    whites = [white for number, white in list_indents(draft, frame) if number]
    if whites and not frame.is_tabbed and not any("\t" in white for white in whites):
        margin, sizes = min(map(len, whites)), list(map(len, whites))
        deeper = {size - before for before, size in pairwise([margin, *sizes]) if size > before}
        for unit, step in product(filter(None, dict.fromkeys((frame.unit, frame.usual_unit))), _STEPS):
            is_possible = step != len(unit) and margin and step in (deeper or _STEPS)
            if is_possible and margin * len(unit) == len(frame.indent) * step:  # all of the answer is in another unit
                yield _map_lines(draft, frame, partial(_scale, base=0, step=step, unit=unit))
    aligned = find_aligned(draft, frame, is_placed=False)
    foreign = [number for number, white in list_indents(draft, frame) if frame.is_foreign(white)]
    if frame.is_free or aligned.issuperset(foreign):
        yield from _shift(draft, frame, frame.first)
    for change in _conversions(draft, frame):
        converted = _map_lines(draft, frame, change)
        yield converted
        yield from _shift(converted, frame, change(frame.first))


def find_aligned(draft: DraftText, frame: Indentation, *, is_placed: bool = True) -> set[int]:
    """The lines that spaces align and no level indents: below what follows an open bracket, and in a document of tabs
    behind an unfinished line as the document aligns them or by no level's width. The first line of a draft that
    `is_placed` stands at the hole's indentation.
    """
    lines, indents = [line.text.strip() for line in draft.lines()], dict(list_indents(draft, frame))
    indents.setdefault(0, frame.indent if is_placed else "")
    aligned = set()
    for number, white in indents.items():
        before = indents.get(number - 1)
        spaces = len(white) - len(before) if before is not None and white.startswith(before) else 0
        if white == before and number - 1 in aligned:
            aligned.add(number)
        if spaces > 1 and white.endswith(" " * spaces):
            is_below = spaces == _find_open(lines[number - 1]) + 1
            goes_on = frame.is_tabbed and not is_finished(lines[number - 1].encode("utf-8", "replace"))
            if is_below or (goes_on and (frame.is_aligning or spaces % 2)):
                aligned.add(number)
    return aligned


def list_indents(draft: DraftText, frame: Indentation) -> Iterator[tuple[int, str]]:
    """The number and the indentation of each line that may move."""
    return ((number, _leading(line)) for number, line in _moving(draft, frame))


def _shift(draft: DraftText, frame: Indentation, first: str) -> Iterator[DraftText]:
    indents = [white for number, white in list_indents(draft, frame) if number]
    if frame.is_whole_line:
        yield begin_with(draft, frame.indent)
        yield _map_lines(draft, frame, partial(_rebase, base=first, indent=frame.indent))
    elif indents and first != frame.indent:
        yield _map_lines(draft, frame, partial(_rebase, base=first, indent=frame.indent))
    if indents:
        shallowest = min(indents, key=columns_of)
        based = _map_lines(draft, frame, partial(_rebase, base=shallowest, indent=frame.indent))
        yield begin_with(based, frame.indent) if frame.is_whole_line else based


def _rebase(white: str, base: str, indent: str) -> str:
    return indent + white[common_prefix(base, white) :] if base else indent + white


def _conversions(draft: DraftText, frame: Indentation) -> Iterator[Callable[[str], str]]:
    """Changes of white space into the document's tabs or spaces, for each step that the draft may have."""
    whites = [white for _, white in list_indents(draft, frame) if white]
    if not whites:
        return
    spaced = [len(white) for white in whites if "\t" not in white]
    if frame.is_tabbed:
        if any(map(frame.is_foreign, whites)):
            steps = sorted(_STEPS, key=lambda step: -sum(width % step == 0 for width in spaced))
            yield from (partial(_tabbed, step=step) for step in steps)
        return
    unit = frame.unit if frame.unit != "\t" else " " * _DEFAULT_STEP
    if any("\t" in white for white in whites):
        yield lambda white: white.replace("\t", unit)
        return
    blocks, _ = find_steps(draft, frame, set())
    for step in _STEPS:
        if step == len(unit) or (step == _HANGING and step not in blocks):  # lines hang by so much in any unit
            continue
        if all(width % step == 0 for width in spaced):
            yield partial(_scale, base=0, step=step, unit=unit)
        base = len(frame.indent)
        if base and all((width - base) % step == 0 for width in spaced if width > base):
            yield partial(_scale, base=base, step=step, unit=unit)


def _tabbed(white: str, step: int) -> str:
    tabs = len(white) - len(white.lstrip("\t"))
    spaces = len(white[tabs:].expandtabs(step))
    return "\t" * (tabs + spaces // step) + " " * (spaces % step)


def _scale(white: str, base: int, step: int, unit: str) -> str:
    """Levels of `step` spaces behind the first `base` become levels of `unit`."""
    levels, rest = divmod(len(white) - base, step)
    return " " * base + levels * unit + rest * " " if levels > 0 else white


def _map_lines(draft: DraftText, frame: Indentation, change: Callable[[str], str]) -> DraftText:
    """Changes the indentation of all lines but blank and frozen ones; of the first only if it is part of the fill."""
    lines = draft.lines()
    for number, line in _moving(draft, frame):
        old = _leading(line)
        new = change(old)
        if new != old:
            same = common_prefix(old[::-1], new[::-1])
            added = DraftText(new[: len(new) - same], (ADDED,) * (len(new) - same))
            lines[number] = added + line[len(old) - same :]
    return join(lines)


def _moving(draft: DraftText, frame: Indentation) -> Iterator[tuple[int, DraftText]]:
    for number, line in enumerate(draft.lines()):
        if (number or frame.is_whole_line) and number not in frame.frozen and line.text.strip():
            yield number, line


def _leading(line: DraftText) -> str:
    return line.text[: len(line.text) - len(line.text.lstrip(" \t"))]


def columns_of(white: str) -> int:
    return count_columns(white.encode("ascii"))


def begin_with(draft: DraftText, indent: str) -> DraftText:
    """The draft with the first line indented by `indent`."""
    return DraftText(indent, (ADDED,) * len(indent)) + trim(draft, " \t", "")


def find_steps(draft: DraftText, frame: Indentation, aligned: Set[int]) -> tuple[set[int], set[int]]:
    """How many columns deeper lines are than the lines before them: those that open a block or list, and others that
    are not `aligned`.
    """
    lines = draft.lines()
    indents = dict(list_indents(draft, frame))
    outer = columns_of(indents.get(0, frame.indent))
    inner, others = set[int](), set[int]()
    opens = _OPENS.search(lines[0].text) is not None
    for number, white in indents.items():
        if number:
            columns = columns_of(white)
            if outer < columns and (opens or (number not in aligned and columns <= outer + _HANGING)):
                (inner if opens else others).add(columns - outer)
            outer, opens = columns, _OPENS.search(lines[number].text) is not None
    return inner, others


def count_misaligned(draft: DraftText, frame: Indentation) -> int:
    """The lines far right of the line before them that begin neither behind its open bracket nor, if it leaves none
    open, below one of its words; and a second line that begins behind the first one's bracket as if that stood in
    column 0.
    """
    found, indents = 0, dict(list_indents(draft, frame))
    shown = [(number, line.text.rstrip()) for number, line in enumerate(draft.lines()) if line.text.strip()]
    for (number, text), (following, _) in pairwise(shown):
        white = indents.get(number, "" if number else frame.indent)
        if "\t" in white:
            continue
        column = columns_of(indents.get(following, ""))
        depth = column - columns_of(white)
        shift = 0 if number or frame.is_whole_line else columns_of(white)
        opened = _find_open(text)
        if depth > _HANGING:
            starts = [opened + 1] if opened >= 0 else [match.start() for match in _WORDS.finditer(text)]
            found += column - shift not in starts
        elif shift and column == opened + 1:
            found += depth not in (len(frame.unit), 2 * len(frame.unit))
    return found


def _find_open(line: str) -> int:
    """Where the last bracket stands that the line leaves open, -1 if it leaves none."""
    opened: list[int] = []
    for match in _BRACKETS.finditer(line):
        if match.group() in ("(", "[", "{"):
            opened.append(match.start())
        elif match.group() in (")", "]", "}"):
            del opened[-1:]
    return opened[-1] if opened else -1


def leaving_line(draft: DraftText, indent: str, frozen: frozenset[int]) -> int | None:
    """The first line after the first that is indented less than `indent`, numbered from 0."""
    columns = columns_of(indent)
    moving = list_indents(draft, Indentation(indent, indent, frozen=frozen))
    return next((number for number, white in moving if columns_of(white) < columns), None)
