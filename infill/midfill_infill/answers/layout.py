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
        """True if tabs indent around the hole."""
        return "\t" in self.indent or (not self.indent and self.unit == "\t")

    def is_foreign(self, white: str) -> bool:
        """True for white space that the document indents nothing with. Spaces behind tabs align."""
        if not self.is_tabbed:
            return "\t" in white
        if self.indent and white.startswith(self.indent):
            return False
        return white.startswith("  ")


def list_layouts(draft: DraftText, frame: Indentation) -> Iterator[DraftText]:
    """Ways to indent a draft, the plainest first: as it is, relative to its first line, with its shallowest line at the
    hole's indentation; then the same in the document's unit for each unit that the draft may have.
    """
    yield draft
    yield from _list_scaled(draft, frame)
    aligned = find_aligned(draft, frame, is_placed=False)
    foreign = [number for number, white in list_indents(draft, frame) if frame.is_foreign(white)]
    if frame.is_free or aligned.issuperset(foreign):
        yield from _shift(draft, frame, frame.first)
    for change in _conversions(draft, frame):
        converted = _map_lines(draft, frame, change)
        yield converted
        yield from _shift(converted, frame, change(frame.first))


def _list_scaled(draft: DraftText, frame: Indentation) -> Iterator[DraftText]:
    """A draft that stands at the hole's indentation in another unit, in the units of the document."""
    whites = _list_later_indents(draft, frame)
    sizes = [len(white) for white in whites]
    margin = min(sizes, default=0)
    if margin == 0 or frame.is_tabbed or any("\t" in white for white in whites):
        return
    deeper = {size - before for before, size in pairwise([margin, *sizes]) if size > before}
    units = filter(None, dict.fromkeys((frame.unit, frame.usual_unit)))
    for unit, step in product(units, _STEPS):
        if step == len(unit) or step not in (deeper or _STEPS):
            continue
        is_at_hole = margin * len(unit) == len(frame.indent) * step
        if is_at_hole:
            change = partial(_scale, base=0, step=step, unit=unit)
            yield _map_lines(draft, frame, change)


def find_aligned(draft: DraftText, frame: Indentation, *, is_placed: bool = True) -> set[int]:
    """The lines that spaces align and no level indents: below what follows an open bracket, and in a document of tabs
    behind an unfinished line as the document aligns them or by no level's width. The first line of a draft that
    `is_placed` stands at the hole's indentation.
    """
    lines = [line.text.strip() for line in draft.lines()]
    indents = dict(list_indents(draft, frame))
    indents.setdefault(0, frame.indent if is_placed else "")
    aligned: set[int] = set()
    for number, white in indents.items():
        before = indents.get(number - 1)
        if before is None or not white.startswith(before):
            continue
        if white == before:
            if number - 1 in aligned:
                aligned.add(number)
            continue
        num_spaces = len(white) - len(before)
        if num_spaces == 1 or not white.endswith(" " * num_spaces):
            continue
        previous = lines[number - 1]
        goes_on = frame.is_tabbed and not is_finished(previous.encode("utf-8", "replace"))
        if num_spaces == _find_open(previous) + 1:
            aligned.add(number)
        elif goes_on and (frame.is_aligning or num_spaces % 2):
            aligned.add(number)
    return aligned


def list_indents(draft: DraftText, frame: Indentation) -> Iterator[tuple[int, str]]:
    """The number and the indentation of each line that may move."""
    return ((number, _leading(line)) for number, line in _moving(draft, frame))


def _list_later_indents(draft: DraftText, frame: Indentation) -> list[str]:
    """The indentations of the lines behind the first that may move."""
    return [white for number, white in list_indents(draft, frame) if number]


def _shift(draft: DraftText, frame: Indentation, first: str) -> Iterator[DraftText]:
    """A draft whose first line, and one whose shallowest line, stands at the hole's indentation."""
    whites = _list_later_indents(draft, frame)
    if frame.is_whole_line:
        yield begin_with(draft, frame.indent)
    if frame.is_whole_line or (whites and first != frame.indent):
        yield _map_lines(draft, frame, partial(_rebase, base=first, indent=frame.indent))
    if whites:
        shallowest = min(whites, key=columns_of)
        based = _map_lines(draft, frame, partial(_rebase, base=shallowest, indent=frame.indent))
        if frame.is_whole_line:
            based = begin_with(based, frame.indent)
        yield based


def _rebase(white: str, base: str, indent: str) -> str:
    """White space with another base in place of the one that it begins with."""
    return indent + white[common_prefix(base, white) :]


def _conversions(draft: DraftText, frame: Indentation) -> Iterator[Callable[[str], str]]:
    """Changes of white space into the document's tabs or spaces, for each step that the draft may have."""
    whites = [white for _, white in list_indents(draft, frame) if white]
    if not whites:
        return
    widths = [len(white) for white in whites if "\t" not in white]
    if frame.is_tabbed:
        if any(map(frame.is_foreign, whites)):
            steps = sorted(_STEPS, key=lambda step: -sum(width % step == 0 for width in widths))
            yield from (partial(_tabbed, step=step) for step in steps)
        return
    unit = frame.unit
    if unit == "\t":
        unit = " " * _DEFAULT_STEP
    if len(widths) < len(whites):
        yield lambda white: white.replace("\t", unit)
        return
    blocks, _ = find_steps(draft, frame, set())
    base = len(frame.indent)
    for step in _STEPS:
        if step == len(unit) or (step == _HANGING and step not in blocks):  # lines hang by so much in any unit
            continue
        if all(width % step == 0 for width in widths):
            yield partial(_scale, base=0, step=step, unit=unit)
        if base and all((width - base) % step == 0 for width in widths if width > base):
            yield partial(_scale, base=base, step=step, unit=unit)


def _tabbed(white: str, step: int) -> str:
    """White space whose levels of `step` spaces are tabs."""
    num_tabs = len(white) - len(white.lstrip("\t"))
    spaces = white[num_tabs:].expandtabs(step)
    more_tabs, num_spaces = divmod(len(spaces), step)
    return "\t" * (num_tabs + more_tabs) + " " * num_spaces


def _scale(white: str, base: int, step: int, unit: str) -> str:
    """Levels of `step` spaces behind the first `base` become levels of `unit`."""
    levels, rest = divmod(len(white) - base, step)
    if levels <= 0:
        return white
    return " " * base + levels * unit + rest * " "


def _map_lines(draft: DraftText, frame: Indentation, change: Callable[[str], str]) -> DraftText:
    """Changes the indentation of all lines but blank and frozen ones; of the first only if it is part of the fill."""
    lines = draft.lines()
    for number, line in _moving(draft, frame):
        old = _leading(line)
        new = change(old)
        if new != old:
            num_kept = common_prefix(old[::-1], new[::-1])
            added = _add(new[: len(new) - num_kept])
            lines[number] = added + line[len(old) - num_kept :]
    return join(lines)


def _moving(draft: DraftText, frame: Indentation) -> Iterator[tuple[int, DraftText]]:
    """The lines that may move and their numbers."""
    for number, line in enumerate(draft.lines()):
        is_placed = number == 0 and not frame.is_whole_line
        if is_placed or number in frame.frozen or not line.text.strip():
            continue
        yield number, line


def _add(text: str) -> DraftText:
    """A text that the engine did not write."""
    return DraftText(text, (ADDED,) * len(text))


def _leading(line: DraftText) -> str:
    """The white space that a line begins with."""
    return line.text[: len(line.text) - len(line.text.lstrip(" \t"))]


def columns_of(white: str) -> int:
    """The width of white space in columns."""
    return count_columns(white.encode("ascii"))


def begin_with(draft: DraftText, indent: str) -> DraftText:
    """The draft with the first line indented by `indent`."""
    return _add(indent) + trim(draft, " \t", "")


def find_steps(draft: DraftText, frame: Indentation, aligned: Set[int]) -> tuple[set[int], set[int]]:
    """How many columns deeper lines are than the lines before them: those that open a block or list, and others that
    are not `aligned`.
    """
    lines = draft.lines()
    indents = dict(list_indents(draft, frame))
    outer = columns_of(indents.pop(0, frame.indent))
    inner: set[int] = set()
    others: set[int] = set()
    is_opened = _OPENS.search(lines[0].text) is not None
    for number, white in indents.items():
        columns = columns_of(white)
        if outer < columns:
            if is_opened:
                inner.add(columns - outer)
            elif number not in aligned and columns <= outer + _HANGING:
                others.add(columns - outer)
        outer = columns
        is_opened = _OPENS.search(lines[number].text) is not None
    return inner, others


def count_misaligned(draft: DraftText, frame: Indentation) -> int:
    """The lines far right of the line before them that begin neither behind its open bracket nor, if it leaves none
    open, below one of its words; and a second line that begins behind the first one's bracket as if that stood in
    column 0.
    """
    num_misaligned = 0
    indents = dict(list_indents(draft, frame))
    filled = [(number, line.text.rstrip()) for number, line in enumerate(draft.lines()) if line.text.strip()]
    for (number, text), (following, _) in pairwise(filled):
        white = indents.get(number, "" if number else frame.indent)
        if "\t" in white:
            continue
        outer = columns_of(white)
        column = columns_of(indents.get(following, ""))
        depth = column - outer
        shift = 0
        if number == 0 and not frame.is_whole_line:
            shift = outer
        behind_bracket = _find_open(text) + 1
        if depth > _HANGING:
            starts = [match.start() for match in _WORDS.finditer(text)]
            if behind_bracket > 0:
                starts = [behind_bracket]
            num_misaligned += column - shift not in starts
        elif shift and column == behind_bracket:
            num_misaligned += depth not in (len(frame.unit), 2 * len(frame.unit))
    return num_misaligned


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
