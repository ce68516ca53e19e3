"""Finds the text of a hole in what a model wrote for it. The parser decides: of the readings with the fewest syntax
errors the likeliest wins, and a text that is right as it is stays as it is. Knows no engine.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from midfill_infill.answers.draft import DraftText, find_anchors, join, trim
from midfill_infill.answers.layout import (
    UNITS,
    Indentation,
    columns_of,
    count_misaligned,
    find_aligned,
    find_steps,
    leaving_line,
    list_indents,
    list_layouts,
)
from midfill_infill.answers.overlaps import Behind, cut_head, cut_tail
from midfill_infill.answers.trials import Trials
from midfill_infill.answers.wrapping import unwrap
from midfill_infill.syntax.outline import find_own
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_WHITE: Final = " \t\n"
_MAX_ABOVE: Final = 40  # lines before a hole that an answer may repeat
_MAX_BEHIND: Final = 8192  # bytes
_PROSE: Final = (".md", ".markdown", ".mdx", ".rst", ".txt", ".adoc")
_ENDING: Final = re.compile(r"(?:return|raise)\b")
_OUTSIDE: Final = re.compile(r"@|if\s+__name__\b|(?:from|import)\s|#")
_CLOSING: Final = re.compile(r"[)\]}]")
_STEPS: Final = range(2, 9)
_OTHER_GRID: Final = 4


def read_plainly(document: Document, hole: Hole, answer: DraftText) -> DraftText:
    """The text of a hole in a document without a grammar. In prose, fences and sentences are text."""
    is_prose = document.path is not None and document.path.suffix.lower() in _PROSE
    if not is_prose and not hole.anchors:
        answer = next(unwrap(answer, document.text))
    return trim_answer(document, hole, answer)


def read_answer(
    trials: Trials, document: Document, chosen: Sequence[DraftText | None], index: int, answer: DraftText
) -> DraftText:
    """The text of hole `index` in an answer; `chosen` are the texts of the other holes, None for those without."""
    hole = trials.holes[index]
    if hole.is_body and trials.language.has_indented_blocks and not trials.sees_body(index):
        trials = trials.open_alone(index)
        chosen, index = [None], 0
    num_usual = trials.count(chosen)
    best: DraftText | None = None
    fewest = 0
    for reading in _Answer(trials, document, hole, index).list_readings(answer):
        num_errors = trials.count([*chosen[:index], reading, *chosen[index + 1 :]])
        if best is None or num_errors < fewest:
            best, fewest = reading, num_errors
        if num_errors <= num_usual:
            break
    assert best is not None
    return best


def trim_answer(document: Document, hole: Hole, draft: DraftText) -> DraftText:
    """Drops white space that already surrounds the hole."""
    following = document.data[hole.end_byte : hole.end_byte + 1]
    closes_line = hole.tail.startswith("\n") or following in (b"", b"\n", b"\r")
    if hole.kind == "line":
        return trim(draft, "\n", _WHITE)
    if not closes_line and "\n" in draft.text and "\n" not in draft.text.strip():
        return trim(draft, _WHITE, _WHITE)
    white_before = white_behind = ""
    if opens_line(document, hole):
        if hole.kind != "cursor" or closes_line:
            white_before = _WHITE
        elif hole.indent:
            white_before = " \t"
    if closes_line:
        white_behind = _WHITE
    elif following == b" ":
        white_behind = " "
    return trim(draft, white_before, white_behind)


def opens_line(document: Document, hole: Hole) -> bool:
    """True if only white space stands before the hole in its line."""
    line_start = document.lines.start(document.lines.at(hole.start_byte))
    return bool(hole.lead) or not document.data[line_start : hole.start_byte].strip()


class _Weight(NamedTuple):
    """What speaks against a layout: white space foreign to the document, syntax errors, contradictions, blocks of
    another unit, lines that are not aligned; and, among equals, continuation lines of another unit.
    """

    num_foreign: int
    num_errors: int
    num_odd: int
    is_foreign_unit: bool
    num_misaligned: int
    num_strange: int

    @property
    def is_flawless(self) -> bool:
        """True if other layouts can at best fit a unit better."""
        *flaws, _ = self
        return not any(flaws)


@dataclass(frozen=True)
class _Answer:
    """A hole whose answer is read, as number `index` of the holes of `trials`."""

    trials: Trials
    document: Document
    hole: Hole
    index: int

    @cached_property
    def anchors(self) -> list[str]:
        """The texts that a reading must hold."""
        return firm_anchors(self.document, self.hole)

    @cached_property
    def behind(self) -> Behind:
        end = self.document.to_source(self.hole.end_byte)
        source = self.document.source[end : end + _MAX_BEHIND]
        text = source.decode("utf-8", "ignore").replace("\r\n", "\n")
        return Behind.of(self.hole.tail + text)

    @property
    def _line(self) -> int:
        """The line that the hole begins on."""
        return self.document.lines.at(self.hole.start_byte)

    @property
    def _leads_with_break(self) -> bool:
        """True if the hole's own line begins within its lead."""
        return "\n" in self.hole.lead

    @cached_property
    def _line_start(self) -> str:
        """The text before the hole in the line that it begins on."""
        return self.document.decode(self.document.lines.start(self._line), self.hole.start_byte)

    @cached_property
    def above(self) -> list[str]:
        """The lines before the hole's own, nearest last."""
        lines = self.document.lines
        numbers = range(max(0, self._line - _MAX_ABOVE), self._line)
        above = [self.document.decode(lines.start(number), lines.end(number)) for number in numbers]
        if self._leads_with_break:
            above.append(self._line_start)
        return above

    @cached_property
    def start(self) -> str:
        """The text before the hole in its line."""
        if self._leads_with_break:
            return ""
        return self._line_start

    @cached_property
    def unit(self) -> str:
        """The indentation unit around the hole: from the line that the hole's block hangs on, else the document's."""
        lines = self.document.lines
        usual = self.document.indent_unit
        columns = columns_of(self.hole.indent)
        if "\t" in self.hole.indent or not columns:
            return usual
        last = self._line
        if not self._leads_with_break:
            last -= 1
        for number in range(last, -1, -1):
            if not lines.is_blank(number) and lines.columns(number) < columns:
                step = columns - lines.columns(number)
                return " " * step if step in _STEPS else usual
        return usual

    @cached_property
    def columns_near(self) -> set[int]:
        """The indentations that a statement may have on the hole's line: those of the lines around it."""
        lines = self.document.lines
        first = max(0, self._line - _MAX_ABOVE)
        last = min(len(lines), self._line + _MAX_ABOVE)
        columns = {lines.columns(number) for number in range(first, last) if not lines.is_blank(number)}
        columns.add(columns_of(self.hole.indent))
        return columns

    def list_readings(self, answer: DraftText) -> Iterator[DraftText]:
        """The readings, the likeliest first, each once; all hold the anchors."""
        seen: set[str] = set()
        for reading in self._list(answer):
            if reading.text not in seen and find_anchors(reading.text, self.anchors) is not None:
                seen.add(reading.text)
                yield reading
        if not seen:
            yield trim_answer(self.document, self.hole, answer)

    def _list(self, answer: DraftText) -> Iterator[DraftText]:
        """The readings, the likeliest first; some may be equal, and some may lack anchors."""
        for text in self._unwrap(answer):
            first = _first_indent(text) if opens_line(self.document, self.hole) else ""
            draft = trim_answer(self.document, self.hole, text)
            left = self._leave(draft, first)
            if left is not None:
                yield from self._list_cut(left, first)
            yield from self._list_cut(draft, first)

    def _unwrap(self, answer: DraftText) -> Iterator[DraftText]:
        """The answer without what is around the hole's text, and without what it repeats from before the hole."""
        if self.hole.anchors:  # then it is from our own engine, which writes nothing around a text
            yield answer
            return
        is_code = not self.trials.is_in_text(self.index)
        for bare in unwrap(answer, self.document.text, is_code=is_code):
            yield from self._cut_heads(bare)

    def _list_cut(self, draft: DraftText, first: str) -> Iterator[DraftText]:
        """The layouts of a draft with and without what it repeats from behind the hole."""
        telling = [cut for cut, is_telling in cut_tail(draft, self.behind) if is_telling]
        for kept in (*telling, draft):
            for laid in self._lay_out(kept, first):
                yield from self._cut_tails(laid)

    def _cut_heads(self, bare: DraftText) -> list[DraftText]:
        """An answer with and without what it repeats from before the hole, the likelier first."""
        without_signature = self._cut_signature(bare)
        if without_signature is not None:
            return [without_signature, bare]
        head = cut_head(bare, self.above, self.start)
        if head is None:
            return [bare]
        cut, is_telling = head
        return [cut, bare] if is_telling else [bare, cut]

    def _cut_signature(self, bare: DraftText) -> DraftText | None:
        """The answer without the header of the hole's own function, and without the docstring that stays."""
        own = find_own(self.document, self.hole)
        if own is None or own.is_expression:
            return None
        source = self.document.source
        source_lines = self.document.source_lines
        start = source_lines.start(source_lines.at(own.start))
        body_start, _ = own.body
        body_end = body_start + int(source.startswith(b"{", body_start))
        header = _list_filled(source[start:body_end])
        if not header:
            return None
        docstring: list[str] = []
        if own.keep:
            docstring = _list_filled(source[body_start : own.keep[1]].lstrip(b"{"))
        lines = bare.lines()
        filled = [number for number, line in enumerate(lines) if line.text.strip()]
        written = [lines[number].text.strip() for number in filled]
        num_head_lines = source[own.head : body_start].rstrip().count(b"\n") + 1
        for size in (len(header), num_head_lines):
            if len(written) <= size or written[:size] != header[-size:]:
                continue
            end = size + len(docstring)
            if docstring and len(written) > end and written[size:end] == docstring:
                size = end
            return join(lines[filled[size] :])
        return None

    def _leave(self, draft: DraftText, first: str) -> DraftText | None:
        """A body's draft up to where it leaves the body; None if it does not."""
        if not self.hole.is_body or "\n" not in draft.text:
            return None
        if self.trials.language.has_indented_blocks:
            number = self._leaving_line(draft, first)
            if number is None:
                return None
            return trim(join(draft.lines()[:number]), "", _WHITE)
        closing = self.trials.find_unmatched(draft, self.index)
        if closing is None:
            return None
        left = trim(draft[:closing], "", _WHITE)
        if not left.text.strip() or not self.trials.sees_body(self.index):
            return None
        return left if self._count(left) < self._count(draft) else None

    def _leaving_line(self, draft: DraftText, first: str) -> int | None:
        """The line where a Python answer goes on behind the function. All lines of an answer that is written from
        column 0 are left of the hole, so what they say decides: a line behind a `return`, another definition, the
        text that stands behind the hole.
        """
        frozen = self.trials.frozen_lines(draft, self.index)
        number = leaving_line(draft, self.hole.indent, frozen)
        if number is None:
            return None
        if first and columns_of(first) >= columns_of(self.hole.indent):
            return number
        lines = [line.text.rstrip() for line in draft.lines()]
        base = _list_outermost(lines, number, frozen)
        if not base:
            return None
        following = [line.strip() for line in self.behind.lines if line.strip()]
        written = [line.strip() for line in lines[base[0] :] if line.strip()]
        is_repeated = bool(following) and written[: len(following)] == following[: len(written)]
        if is_repeated or all(self._is_outside(lines[other]) for other in base):
            return number if self._is_outside(lines[number]) else base[0]
        endings = [other for other in (0, *base) if _ENDING.match(lines[other].strip())]
        if not endings:
            return None
        return next((other for other in base if other > endings[0]), None)

    def _is_outside(self, line: str) -> bool:
        """True for a line that begins what a function's body rarely holds: a definition, an import, a comment."""
        if _OUTSIDE.match(line.strip()):
            return True
        header = self.trials.language.scope_header
        return bool(header and re.match(header, line.encode("utf-8", "replace")))

    def _lay_out(self, draft: DraftText, first: str) -> list[DraftText]:
        """The layouts of a draft by the errors and the contradictions to its tree that they leave, fewest first."""
        if self.hole.kind != "line" and "\n" not in draft.text:
            return [draft]
        lines = self.document.lines
        frame = Indentation(
            self.hole.indent,
            self.unit,
            self.document.indent_unit,
            first,
            self.trials.frozen_lines(draft, self.index),
            is_whole_line=self.hole.kind == "line",
            is_free=lines.mixes_indents or lines.indent_unit is None,
            is_aligning=self.unit == "\t" and lines.aligns_with_spaces,
        )
        layouts = list_layouts(draft, frame)
        plain = next(layouts)
        weights = {plain.text: self._weigh(plain, frame, is_plain=True)}
        if weights[plain.text].is_flawless:
            return [plain]
        different = {plain.text: plain}
        for layout in layouts:
            if layout.text not in different:
                different[layout.text] = layout
                weights[layout.text] = self._weigh(layout, frame, is_plain=False)
        return sorted(different.values(), key=lambda layout: weights[layout.text])

    def _weigh(self, draft: DraftText, frame: Indentation, *, is_plain: bool) -> "_Weight":
        """What speaks against a layout."""
        moving = list(list_indents(draft, frame))
        code = self._without_comments(draft, moving) or moving
        widths = [columns_of(white) for _, white in code]
        aligned = find_aligned(draft, frame)
        levels = [white for number, white in code if number not in aligned]
        num_foreign = sum(map(frame.is_foreign, levels))
        oddities = self.trials.count_oddities(draft, self.index, frame.frozen)
        is_foreign_unit, num_strange = self._weigh_steps(draft, frame, aligned, widths, is_plain=is_plain)
        num_strange += oddities.flat
        if frame.is_tabbed and any("\t    " in white for white in levels):
            num_strange += 1
        if frame.is_free:
            num_strange += num_foreign
            num_foreign = 0
        return _Weight(
            num_foreign=num_foreign,
            num_errors=max(0, self._count(draft) - self.trials.num_errors),
            num_odd=oddities.wrong + self._count_misplaced(draft, frame, moving, widths),
            is_foreign_unit=is_foreign_unit,
            num_misaligned=count_misaligned(draft, frame),
            num_strange=num_strange,
        )

    def _count_misplaced(
        self, draft: DraftText, frame: Indentation, moving: Sequence[tuple[int, str]], widths: Sequence[int]
    ) -> int:
        """Contradictions to the hole's indentation; `widths` are those of the lines of code."""
        columns = columns_of(self.hole.indent)
        num_misplaced = 0
        if self.hole.is_body:
            num_misplaced += sum(width < columns for width in widths)
            below = self._find_below_comment(draft, moving)
            num_misplaced += below is not None and columns_of(below) != columns
        elif self.hole.kind == "range":  # a selection may end left of where it begins, but hardly in column 0
            num_at_margin = sum(width < columns for width in widths if not width)
            num_misplaced += num_at_margin or max(widths, default=columns) < columns
        elif frame.is_whole_line and not frame.is_free:
            starts = [columns_of(white) for number, white in moving if not number]
            num_misplaced += any(start not in self.columns_near for start in starts)
            num_misplaced += min(widths, default=0) < max(widths[:1], default=0)
        return num_misplaced

    def _weigh_steps(
        self, draft: DraftText, frame: Indentation, aligned: set[int], widths: Sequence[int], *, is_plain: bool
    ) -> tuple[bool, int]:
        """Whether a draft's blocks are in another unit, and how many lines that go on are."""
        lines = self.document.lines
        unit = columns_of(frame.unit)
        known = {unit, columns_of(self.document.indent_unit)} | lines.steps
        steps, others = find_steps(draft, frame, aligned)
        is_foreign_unit = not frame.is_free and bool(steps) and steps.isdisjoint(known)
        num_strange = len(steps - known)
        if others and others.isdisjoint(known):
            num_strange += 1
            if 2 * unit not in others:
                num_strange += 1
                is_on_grid = columns_of(self.hole.indent) % _OTHER_GRID == 0
                if not is_on_grid and not any(width % _OTHER_GRID for width in widths):
                    is_foreign_unit = (
                        True  # all of the answer is in a wider unit, which the hole's indentation is not in
                    )
        if others and lines.hanging_steps and others.isdisjoint(lines.hanging_steps):
            if not is_plain:
                num_strange += 1
            if not steps and others == {2 * unit}:  # blocks would tell the answer's unit
                is_foreign_unit = True
        if is_plain and not frame.is_free and not steps <= UNITS:
            is_foreign_unit = False
        return is_foreign_unit, num_strange

    def _find_below_comment(self, draft: DraftText, moving: Sequence[tuple[int, str]]) -> str | None:
        """The indentation of the first code below a comment that an answer begins with; None without one."""
        if not self._is_comment(draft):
            return None
        return next((white for _, white in self._without_comments(draft, moving)), None)

    def _without_comments(self, draft: DraftText, moving: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        """The lines of some that are no comments."""
        lines = draft.lines()
        code = [(number, white) for number, white in moving if not self._is_comment(lines[number])]
        return code

    def _is_comment(self, draft: DraftText) -> bool:
        return draft.text.lstrip().startswith(self.trials.language.comment)

    def _count(self, draft: DraftText) -> int:
        """Syntax errors with a draft in the hole, and masks in the others."""
        drafts: list[DraftText | None] = [None] * len(self.trials.holes)
        drafts[self.index] = draft
        return self.trials.count(drafts)

    def _cut_tails(self, draft: DraftText) -> Iterator[DraftText]:
        """A draft with and without what it repeats from behind the hole, the likelier first."""
        cuts = list(cut_tail(draft, self.behind))
        yield from (cut for cut, is_telling in cuts if is_telling)
        yield draft
        yield from (cut for cut, is_telling in cuts if not is_telling)


def firm_anchors(document: Document, hole: Hole) -> list[str]:
    """Anchors without the white space that trimming may remove."""
    texts = [text for text in anchor_texts(document, hole) if text.strip()]
    if texts:
        texts[0] = texts[0].lstrip(_WHITE)
        texts[-1] = texts[-1].rstrip(_WHITE)
    return texts


def anchor_texts(document: Document, hole: Hole) -> list[str]:
    """The texts of the hole's anchors with line feeds."""
    texts = [document.decode(anchor.start_byte, anchor.end_byte) for anchor in hole.anchors]
    return [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]


def _list_filled(source: bytes) -> list[str]:
    """The lines that are not blank, stripped."""
    lines = map(str.strip, source.decode("utf-8", "replace").splitlines())
    return list(filter(None, lines))


def _list_outermost(lines: Sequence[str], first: int, frozen: frozenset[int]) -> list[int]:
    """The filled lines from `first` on that are indented least, without those that begin by closing a bracket."""
    columns: dict[int, int] = {}
    for number in range(first, len(lines)):
        line = lines[number]
        if number not in frozen and line.strip():
            columns[number] = columns_of(_white(line))
    outer = min(columns.values())
    outermost: list[int] = []
    for number, column in columns.items():
        is_closing = _CLOSING.match(lines[number].strip()) is not None
        if column == outer and not is_closing:
            outermost.append(number)
    return outermost


def _first_indent(text: DraftText) -> str:
    """The white space before the first filled line, if that line is all of it."""
    before = text.text[: len(text.text) - len(text.text.lstrip())]
    return before.rpartition("\n")[2]


def _white(line: str) -> str:
    """The white space that a line begins with."""
    return line[: len(line) - len(line.lstrip(" \t"))]
