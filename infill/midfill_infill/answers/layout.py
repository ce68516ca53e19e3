"""Fits the indentation of an answer to its hole: another base, another unit, tabs for spaces. Knows no syntax."""

import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from typing import Final

from midfill_infill.answers.draft import ADDED, DraftText, join, trim
from midfill_infill.text.diffs import common_prefix
from midfill_infill.text.lines import count_columns, is_finished

_OPENS: Final = re.compile(r"[{:\[]\s*$")
_BRACKETS: Final = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[()\[\]{}]""")
_WORDS: Final = re.compile(r"""\w+|["'`(\[{]""")
_HANGING: Final = 8  # columns: a line that is deeper by no more may hang, so it need not align with the line before
_DEFAULT_STEP: Final = 4
_STEPS: Final = (4, 2, 8, 3)  # columns of a level that an answer may use, the likeliest first
# Columns by which a line in a foreign unit may be deeper than a line in that unit or in the document's.
UNITS: Final = frozenset((*_STEPS, 6, 8, 12, 16))


@dataclass(frozen=True)
class Indentation:
    """What the document and an answer say of indentation at a hole."""

    indent: str  # of the hole's lines
    unit: str  # one level of indentation around the hole
    usual_unit: str = ""  # one level in most of the document
    first_indent: str = ""  # of the answer's first line, as the engine wrote it
    frozen: frozenset[int] = frozenset()  # numbers of the answer's lines whose start must not change
    docstrings: frozenset[int] = frozenset()  # those `frozen` lines that may go with the code around them
    is_whole_line: bool = False  # the first line's indentation is part of the fill
    is_free: bool = False  # the document has no unit, or both tabs and spaces
    is_aligning: bool = False  # spaces behind tabs align the lines that go on behind an unfinished line
    reaches_margin: bool = False  # a line of what the fill replaces begins in column 0, so one of the fill may

    @property
    def is_tabbed(self) -> bool:
        """True if tabs indent around the hole."""
        return "\t" in self.indent or (not self.indent and self.unit == "\t")

    def is_foreign(self, white: str) -> bool:
        """True for white space that the document indents nothing with: tabs in a document of spaces, spaces in one of
        tabs. Spaces behind the hole's tabs only align, so they are not foreign.
        """
        if not self.is_tabbed:
            return "\t" in white
        if self.indent and white.startswith(self.indent):
            return False
        return white.startswith("  ")


def list_layouts(draft: DraftText, frame: Indentation) -> Iterator[DraftText]:
    """Ways to indent a draft, the plainest first: as it is; scaled to the document's units; moved so that its first or
    its shallowest line stands at the hole's indentation; then the last two with the draft's white space converted into
    the document's tabs or spaces.
    """
    yield draft
    yield from _list_scaled(draft, frame)
    aligned = find_aligned(draft, frame, is_placed=False)
    foreign = [number for number, white in list_indents(draft, frame) if frame.is_foreign(white)]
    if frame.is_free or aligned.issuperset(foreign):
        yield from _shift(draft, frame, frame.first_indent)
    for convert in _list_conversions(draft, frame):
        converted = _map_lines(draft, frame, convert)
        yield converted
        yield from _shift(converted, frame, convert(frame.first_indent))


def _list_scaled(draft: DraftText, frame: Indentation) -> Iterator[DraftText]:
    """The draft in the units of the document, if it stands at the hole's level in a unit of another width."""
    whites = _list_later_indents(draft, frame)
    widths = [len(white) for white in whites]
    margin = min(widths, default=0)
    if margin == 0 or frame.is_tabbed or any("\t" in white for white in whites):
        return
    steps = {width - before for before, width in pairwise([margin, *widths]) if width > before}
    units = [unit for unit in dict.fromkeys((frame.unit, frame.usual_unit)) if unit]
    for unit, step in product(units, _STEPS):
        if step == len(unit) or step not in (steps or _STEPS):
            continue
        is_at_hole = margin * len(unit) == len(frame.indent) * step
        if is_at_hole:
            scale = partial(_scale, base=0, step=step, unit=unit)
            yield _map_lines(draft, frame, scale)


def find_aligned(draft: DraftText, frame: Indentation, *, is_placed: bool = True) -> set[int]:
    """The numbers of the lines that spaces align with the line before. These begin below what follows its open bracket;
    in a document of tabs, also behind an unfinished line, if the document aligns such lines or the number of spaces is
    odd. `is_placed`: the first line stands at the hole's indentation.
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
    return ((number, leading(line.text)) for number, line in _list_moving(draft, frame))


def _list_later_indents(draft: DraftText, frame: Indentation) -> list[str]:
    """The indentations of the lines that may move, without that of the first line."""
    return [white for number, white in list_indents(draft, frame) if number > 0]


def _shift(draft: DraftText, frame: Indentation, first_indent: str) -> Iterator[DraftText]:
    """The draft moved so that its first line, then its shallowest line, stands at the hole's indentation. If its first
    line may move, that one alone is moved first.
    """
    whites = _list_later_indents(draft, frame)
    if frame.is_whole_line:
        yield begin_with(draft, frame.indent)
    if frame.is_whole_line or (whites and first_indent != frame.indent):
        yield _map_lines(draft, frame, partial(_rebase, base=first_indent, indent=frame.indent))
    if whites:
        shallowest = min(whites, key=columns_of)
        based = _map_lines(draft, frame, partial(_rebase, base=shallowest, indent=frame.indent))
        if frame.is_whole_line:
            based = begin_with(based, frame.indent)
        yield based


def _rebase(white: str, base: str, indent: str) -> str:
    """White space with `indent` in place of what it has in common with `base` at its start."""
    return indent + white[common_prefix(base, white) :]


def _list_conversions(draft: DraftText, frame: Indentation) -> Iterator[Callable[[str], str]]:
    """Functions that convert white space into the document's tabs or spaces, for each step that the draft may have."""
    whites = [white for _, white in list_indents(draft, frame) if white]
    if not whites:
        return
    widths = [len(white) for white in whites if "\t" not in white]
    if frame.is_tabbed:
        if any(map(frame.is_foreign, whites)):
            fitting_first = sorted(_STEPS, key=lambda step: -sum(width % step == 0 for width in widths))
            yield from (partial(_to_tabs, step=step) for step in fitting_first)
        return
    units = [unit for unit in dict.fromkeys((frame.unit, frame.usual_unit)) if unit and unit != "\t"]
    unit = next(iter(units), " " * _DEFAULT_STEP)
    if len(widths) < len(whites):
        shallowest = min(whites, key=columns_of)
        likeliest_first = sorted(units or [unit], key=lambda unit: _replace_tabs(shallowest, unit) != frame.indent)
        yield from (partial(_replace_tabs, unit=likely_unit) for likely_unit in likeliest_first)
        return
    block_steps, _ = find_steps(draft, frame, set())
    base = len(frame.indent)
    for step in _STEPS:
        if step == len(unit) or (step == _HANGING and step not in block_steps):  # lines hang by so much in any unit
            continue
        if all(width % step == 0 for width in widths):
            yield partial(_scale, base=0, step=step, unit=unit)
        if base and all((width - base) % step == 0 for width in widths if width > base):
            yield partial(_scale, base=base, step=step, unit=unit)


def _to_tabs(white: str, step: int) -> str:
    """White space with a tab in place of each level of `step` spaces."""
    num_tabs = len(white) - len(white.lstrip("\t"))
    spaces = white[num_tabs:].expandtabs(step)
    more_tabs, num_spaces = divmod(len(spaces), step)
    return "\t" * (num_tabs + more_tabs) + " " * num_spaces


def _replace_tabs(white: str, unit: str) -> str:
    """White space with `unit` in place of each tab."""
    return white.replace("\t", unit)


def _scale(white: str, base: int, step: int, unit: str) -> str:
    """White space with `unit` in place of each level of `step` spaces behind the first `base` spaces."""
    num_levels, num_spaces = divmod(len(white) - base, step)
    if num_levels <= 0:
        return white
    return " " * base + num_levels * unit + num_spaces * " "


def _map_lines(draft: DraftText, frame: Indentation, change: Callable[[str], str]) -> DraftText:
    """The draft with the indentation of each line that may move changed by `change`. The last characters that old and
    new indentation have in common keep their origins.
    """
    lines = draft.lines()
    for number, line in _list_moving(draft, replace(frame, frozen=frame.frozen - frame.docstrings)):
        old = leading(line.text)
        new = change(old)
        if new != old:
            num_kept = common_prefix(old[::-1], new[::-1])
            added = _add(new[: len(new) - num_kept])
            lines[number] = added + line[len(old) - num_kept :]
    return join(lines)


def _list_moving(draft: DraftText, frame: Indentation) -> Iterator[tuple[int, DraftText]]:
    """The lines that may move and their numbers: no blank or frozen one, and the first only if its indentation is part
    of the fill.
    """
    for number, line in enumerate(draft.lines()):
        is_placed = number == 0 and not frame.is_whole_line
        if is_placed or number in frame.frozen or not line.text.strip():
            continue
        yield number, line


def _add(text: str) -> DraftText:
    """A draft that the engine did not write."""
    return DraftText(text, (ADDED,) * len(text))


def leading(line: str) -> str:
    """The white space that a line begins with."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def columns_of(white: str) -> int:
    """The width of white space in columns."""
    return count_columns(white.encode("ascii"))


def begin_with(draft: DraftText, indent: str) -> DraftText:
    """The draft with `indent` in place of its first line's indentation."""
    return _add(indent) + trim(draft, " \t", "")


def find_steps(draft: DraftText, frame: Indentation, aligned: Set[int]) -> tuple[set[int], set[int]]:
    """By how many columns lines are deeper than the lines before them: first those behind lines that open a block or
    list, then those behind other lines that hang and are not `aligned`.
    """
    lines = draft.lines()
    indents = dict(list_indents(draft, frame))
    outer = columns_of(indents.pop(0, frame.indent))
    block_steps: set[int] = set()
    hanging_steps: set[int] = set()
    is_opened = _OPENS.search(lines[0].text) is not None
    for number, white in indents.items():
        columns = columns_of(white)
        if outer < columns:
            if is_opened:
                block_steps.add(columns - outer)
            elif number not in aligned and columns <= outer + _HANGING:
                hanging_steps.add(columns - outer)
        outer = columns
        is_opened = _OPENS.search(lines[number].text) is not None
    return block_steps, hanging_steps


def count_misaligned(draft: DraftText, frame: Indentation) -> int:
    """The number of lines that fail to align with the line before them. These lines are too deep to hang, but begin
    neither behind its open bracket nor, if it leaves none open, below one of its words. A line below the first also
    counts if it begins behind the first line's bracket as if that line stood in column 0, or without a bracket in that
    column, which the fill may not reach.
    """
    num_misaligned = 0
    indents = dict(list_indents(draft, frame))
    filled = [(number, line.text.rstrip()) for number, line in enumerate(draft.lines()) if line.text.strip()]
    for (number, text), (following, _) in pairwise(filled):
        white = indents.get(number, frame.indent if number == 0 else "")
        if "\t" in white:
            continue
        outer = columns_of(white)
        column = columns_of(indents.get(following, ""))
        depth = column - outer
        text_column = 0  # where `text` begins in its line
        if number == 0 and not frame.is_whole_line:
            text_column = outer
        behind_bracket = _find_open(text) + 1
        if depth > _HANGING:
            starts = [match.start() for match in _WORDS.finditer(text)]
            if behind_bracket > 0:
                starts = [behind_bracket]
            num_misaligned += column - text_column not in starts
        elif text_column > 0 and column == behind_bracket and (column > 0 or not frame.reaches_margin):
            num_misaligned += depth not in (len(frame.unit), 2 * len(frame.unit))
    return num_misaligned


def _find_open(line: str) -> int:
    """The position of the last bracket that the line leaves open; -1 if it leaves none open."""
    opened: list[int] = []
    for match in _BRACKETS.finditer(line):
        if match.group() in ("(", "[", "{"):
            opened.append(match.start())
        elif match.group() in (")", "]", "}"):
            del opened[-1:]
    return opened[-1] if opened else -1


def find_leaving_line(draft: DraftText, indent: str, frozen: frozenset[int]) -> int | None:
    """The number of the first line, from 1 on, that is indented less than `indent`; None if there is none. `frozen`
    lines do not count.
    """
    columns = columns_of(indent)
    indents = list_indents(draft, Indentation(indent, indent, frozen=frozen))
    return next((number for number, white in indents if columns_of(white) < columns), None)


def is_end_in_block(draft: DraftText, kept: DraftText) -> bool:
    """True if a line below the first of what is `kept` of a draft is indented no more than the first line behind it."""
    lines = [line for line in draft.lines() if line.text.strip()]
    num_kept = sum(1 for line in kept.lines() if line.text.strip())
    if num_kept == len(lines):
        return False
    columns = columns_of(leading(lines[num_kept].text))
    return any(columns_of(leading(line.text)) <= columns for line in lines[1:num_kept])
