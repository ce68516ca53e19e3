"""Finds the text of a hole in what a model wrote for it. The parser decides: of the readings with the fewest syntax
errors the likeliest wins, and a text that is right as it is stays as it is. Knows no engine.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

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
    bare = answer if is_prose or hole.anchors else next(unwrap(answer, document.text))
    return trim_answer(document, hole, bare)


def read_answer(
    trials: Trials, document: Document, chosen: Sequence[DraftText | None], index: int, answer: DraftText
) -> DraftText:
    """The text of hole `index` in an answer; `chosen` are the texts of the other holes, None for those without."""
    hole = trials.holes[index]
    if hole.is_body and trials.language.has_indented_blocks and not trials.sees_body(index):
        trials, chosen, index = trials.open_alone(index), [None], 0
    errors = trials.count(chosen)
    best: tuple[int, DraftText] | None = None
    for reading in _Answer(trials, document, hole, index).list_readings(answer):
        score = trials.count([*chosen[:index], reading, *chosen[index + 1 :]])
        if best is None or score < best[0]:
            best = score, reading
        if score <= errors:
            break
    assert best is not None
    return best[1]


def trim_answer(document: Document, hole: Hole, draft: DraftText) -> DraftText:
    """Drops white space that already surrounds the hole."""
    closes_line = hole.tail.startswith("\n") or document.data[hole.end_byte : hole.end_byte + 1] in (b"", b"\n", b"\r")
    if hole.kind == "line":
        return trim(draft, "\n", _WHITE)
    if not closes_line and "\n" in draft.text and "\n" not in draft.text.strip():
        return trim(draft, _WHITE, _WHITE)
    before = _WHITE if hole.kind != "cursor" or closes_line else " \t" if hole.indent else ""
    behind = _WHITE if closes_line else " " if document.data[hole.end_byte : hole.end_byte + 1] == b" " else ""
    return trim(draft, before if opens_line(document, hole) else "", behind)


def opens_line(document: Document, hole: Hole) -> bool:
    """True if only white space stands before the hole in its line."""
    line_start = document.lines.start(document.lines.at(hole.start_byte))
    return bool(hole.lead) or not document.data[line_start : hole.start_byte].strip()


@dataclass(frozen=True)
class _Answer:
    """A hole whose answer is read, as number `index` of the holes of `trials`."""

    trials: Trials
    document: Document
    hole: Hole
    index: int

    @cached_property
    def anchors(self) -> list[str]:
        return firm_anchors(self.document, self.hole)

    @cached_property
    def behind(self) -> Behind:
        end = self.document.to_source(self.hole.end_byte)
        text = self.document.source[end : end + _MAX_BEHIND].decode("utf-8", "ignore")
        return Behind.of(self.hole.tail + text.replace("\r\n", "\n"))

    @cached_property
    def above(self) -> list[str]:
        """The lines before the hole's own, nearest last."""
        lines, line = self.document.lines, self.document.lines.at(self.hole.start_byte)
        above = [
            self.document.decode(lines.start(number), lines.end(number))
            for number in range(max(0, line - _MAX_ABOVE), line)
        ]
        is_begun = "\n" in self.hole.lead
        return above + [self.document.decode(lines.start(line), self.hole.start_byte)] * is_begun

    @cached_property
    def start(self) -> str:
        """The text before the hole in its line."""
        line = self.document.lines.at(self.hole.start_byte)
        start = self.document.decode(self.document.lines.start(line), self.hole.start_byte)
        return "" if "\n" in self.hole.lead else start

    @cached_property
    def unit(self) -> str:
        """The indentation unit around the hole: from the line that the hole's block hangs on, else the document's."""
        lines, columns = self.document.lines, columns_of(self.hole.indent)
        if "\t" in self.hole.indent or not columns:
            return self.document.indent_unit
        for number in range(lines.at(self.hole.start_byte) - ("\n" not in self.hole.lead), -1, -1):
            if not lines.is_blank(number) and lines.columns(number) < columns:
                step = columns - lines.columns(number)
                return " " * step if step in _STEPS else self.document.indent_unit
        return self.document.indent_unit

    @cached_property
    def columns_near(self) -> set[int]:
        """The indentations that a statement may have on the hole's line: those of the lines around it."""
        lines, line = self.document.lines, self.document.lines.at(self.hole.start_byte)
        near = range(max(0, line - _MAX_ABOVE), min(len(lines), line + _MAX_ABOVE))
        return {columns_of(self.hole.indent)} | {lines.columns(number) for number in near if not lines.is_blank(number)}

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
        is_kept = bool(self.hole.anchors)  # then it is from our own engine, which writes nothing around a text
        is_code = not self.trials.is_in_text(self.index)
        for bare in [answer] if is_kept else unwrap(answer, self.document.text, is_code=is_code):
            for text in [bare] if is_kept else self._cut_heads(bare):
                first = _first_indent(text) if opens_line(self.document, self.hole) else ""
                draft = trim_answer(self.document, self.hole, text)
                left = self._leave(draft, first)
                for whole in [draft] if left is None else [left, draft]:
                    telling = [cut for cut, is_telling in cut_tail(whole, self.behind) if is_telling]
                    for kept in (*telling, whole):
                        for laid in self._lay_out(kept, first):
                            yield from self._cut_tails(laid)

    def _cut_heads(self, bare: DraftText) -> list[DraftText]:
        readings = [bare]
        if (signature := self._cut_signature(bare)) is not None:
            return [signature, bare]
        if (found := cut_head(bare, self.above, self.start)) is not None:
            readings.insert(0 if found[1] else 1, found[0])
        return readings

    def _cut_signature(self, bare: DraftText) -> DraftText | None:
        """The answer without the header of the hole's own function, and without the docstring that stays."""
        own = find_own(self.document, self.hole)
        if own is None or own.is_expression:
            return None
        source, lines_of = self.document.source, self.document.source_lines
        begin = lines_of.start(lines_of.at(own.start))
        kept = source[own.body[0] : own.keep[1]] if own.keep else b""
        header, docstring = (
            [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
            for text in (source[begin : own.body[0] + source.startswith(b"{", own.body[0])], kept.lstrip(b"{"))
        )
        lines = bare.lines()
        filled = [number for number, line in enumerate(lines) if line.text.strip()]
        said = [lines[number].text.strip() for number in filled]
        head = source[own.head : own.body[0]].count(b"\n", 0, len(source[own.head : own.body[0]].rstrip())) + 1
        for size in (len(header), head):
            if header and len(said) > size and said[:size] == header[-size:]:
                if docstring and said[size : size + len(docstring)] == docstring and len(said) > size + len(docstring):
                    size += len(docstring)
                return join(lines[filled[size] :])
        return None

    def _leave(self, draft: DraftText, first: str) -> DraftText | None:
        """A body's draft up to where it leaves the body; None if it does not."""
        if not self.hole.is_body or "\n" not in draft.text:
            return None
        if not self.trials.language.has_indented_blocks:
            at = self.trials.find_unmatched(draft, self.index)
            left = None if at is None else trim(draft[:at], "", _WHITE)
            if left is None or not left.text.strip() or not self.trials.sees_body(self.index):
                return None
            return left if self._count(left) < self._count(draft) else None
        number = self._leaving_line(draft, first)
        return None if number is None else trim(join(draft.lines()[:number]), "", _WHITE)

    def _leaving_line(self, draft: DraftText, first: str) -> int | None:
        """The line where a Python answer goes on behind the function. All lines of an answer that is written from
        column 0 are left of the hole, so what they say decides: a line behind a `return`, another definition, the
        text that stands behind the hole.
        """
        frozen = self.trials.frozen_lines(draft, self.index)
        number = leaving_line(draft, self.hole.indent, frozen)
        if number is None:
            return None
        lines = [line.text.rstrip() for line in draft.lines()]
        if first and columns_of(first) >= columns_of(self.hole.indent):
            return number
        shown = [each for each in range(number, len(lines)) if each not in frozen and lines[each].strip()]
        outer = min(columns_of(_white(lines[each])) for each in shown)
        base = [each for each in shown if columns_of(_white(lines[each])) == outer]
        base = [each for each in base if not _CLOSING.match(lines[each].strip())]
        if not base:
            return None
        following = [line.strip() for line in self.behind.lines if line.strip()]
        said = [line.strip() for line in lines[base[0] :] if line.strip()]
        is_repeated = bool(following) and said[: len(following)] == following[: len(said)]
        if is_repeated or all(self._is_outside(lines[each]) for each in base):
            return number if self._is_outside(lines[number]) else base[0]
        ending = [each for each in (0, *base) if _ENDING.match(lines[each].strip())]
        return next((each for each in base if ending and each > ending[0]), None)

    def _is_outside(self, line: str) -> bool:
        """True for a line that begins what a function's body rarely holds: a definition, an import, a comment."""
        header = self.trials.language.scope_header
        return bool(_OUTSIDE.match(line.strip()) or (header and re.match(header, line.encode("utf-8", "replace"))))

    def _lay_out(self, draft: DraftText, first: str) -> list[DraftText]:
        """The layouts of a draft by the errors and the contradictions to its tree that they leave, fewest first."""
        if self.hole.kind != "line" and "\n" not in draft.text:
            return [draft]
        frame = Indentation(
            self.hole.indent,
            self.unit,
            self.document.indent_unit,
            first,
            self.trials.frozen_lines(draft, self.index),
            is_whole_line=self.hole.kind == "line",
            is_free=self.document.lines.mixes_indents or self.document.lines.indent_unit is None,
            is_aligning=self.unit == "\t" and self.document.lines.aligns_with_spaces,
        )
        weights: dict[str, tuple[tuple[tuple[int, int, int, bool, int], int], int, DraftText]] = {}
        for number, laid in enumerate(list_layouts(draft, frame)):
            if laid.text not in weights:
                weights[laid.text] = self._weigh(laid, frame, is_plain=not number), number, laid
            if not number and not any(weights[laid.text][0][0]):
                break
        return [laid for _, _, laid in sorted(weights.values(), key=lambda each: each[:2])]

    def _weigh(
        self, draft: DraftText, frame: Indentation, *, is_plain: bool
    ) -> tuple[tuple[int, int, int, bool, int], int]:
        """White space foreign to the document, syntax errors, contradictions, blocks of another unit, lines that are
        not aligned; and, among equals, continuation lines of another unit.
        """
        comment, lines = self.trials.language.comment, draft.lines()
        moving = list(list_indents(draft, frame))
        code = [each for each in moving if not lines[each[0]].text.lstrip().startswith(comment)] or moving
        whites = [white for _, white in code]
        aligned = find_aligned(draft, frame)
        foreign = sum(frame.is_foreign(white) for number, white in code if number not in aligned)
        errors = max(0, self._count(draft) - self.trials.num_errors)
        oddities = self.trials.count_oddities(draft, self.index, frame.frozen)
        odd = oddities.wrong
        columns, widths = columns_of(self.hole.indent), list(map(columns_of, whites))
        if self.hole.is_body:
            odd += sum(width < columns for width in widths)
            below = self._find_below_comment(draft, moving)
            odd += below is not None and columns_of(below) != columns
        elif self.hole.kind == "range":  # a selection may end left of where it begins, but hardly in column 0
            odd += sum(width < columns for width in widths if not width) or max(widths, default=columns) < columns
        elif frame.is_whole_line and not frame.is_free:
            starts = [columns_of(white) for number, white in moving if not number]
            odd += any(start not in self.columns_near for start in starts)
            odd += min(widths, default=0) < max(widths[:1], default=0)
        steps, others = find_steps(draft, frame, aligned)
        known = {columns_of(frame.unit), columns_of(self.document.indent_unit)} | self.document.lines.steps
        is_foreign_unit = not frame.is_free and bool(steps) and steps.isdisjoint(known)
        is_strange = bool(others) and others.isdisjoint(known | {2 * columns_of(frame.unit)})
        strange = is_strange + bool(others and others.isdisjoint(known)) + len(steps - known) + oddities.flat
        if is_strange and columns % _OTHER_GRID and not any(width % _OTHER_GRID for width in widths):
            is_foreign_unit = True  # all of the answer is in a wider unit, which the hole's indentation is not in
        hanging = self.document.lines.hanging_steps
        if others and hanging and others.isdisjoint(hanging):
            strange += not is_plain
            # Blocks would tell the answer's unit.
            is_foreign_unit = is_foreign_unit or (not steps and others == {2 * columns_of(frame.unit)})
        is_padded = frame.is_tabbed and any("\t    " in white for number, white in code if number not in aligned)
        skewed = count_misaligned(draft, frame)
        if frame.is_free:
            return (0, errors, odd, is_foreign_unit, skewed), foreign + strange + is_padded
        is_foreign_unit = is_foreign_unit and (steps <= UNITS or not is_plain)
        return (foreign, errors, odd, is_foreign_unit, skewed), strange + is_padded

    def _find_below_comment(self, draft: DraftText, moving: Sequence[tuple[int, str]]) -> str | None:
        """The indentation of the first code below a comment that an answer begins with; None without one."""
        comment, lines = self.trials.language.comment, draft.lines()
        if not lines[0].text.lstrip().startswith(comment):
            return None
        return next((white for number, white in moving if not lines[number].text.lstrip().startswith(comment)), None)

    def _count(self, draft: DraftText) -> int:
        return self.trials.count([draft if n == self.index else None for n in range(len(self.trials.holes))])

    def _cut_tails(self, draft: DraftText) -> Iterator[DraftText]:
        cuts = list(cut_tail(draft, self.behind))
        yield from (cut for cut, is_telling in cuts if is_telling)
        yield draft
        yield from (cut for cut, is_telling in cuts if not is_telling)


def firm_anchors(document: Document, hole: Hole) -> list[str]:
    """Anchors without the white space that trimming may remove."""
    texts = [text for text in anchor_texts(document, hole) if text.strip()]
    texts[:1] = [text.lstrip(_WHITE) for text in texts[:1]]
    texts[-1:] = [text.rstrip(_WHITE) for text in texts[-1:]]
    return texts


def anchor_texts(document: Document, hole: Hole) -> list[str]:
    texts = [document.decode(anchor.start_byte, anchor.end_byte) for anchor in hole.anchors]
    return [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]


def _first_indent(text: DraftText) -> str:
    """The white space before the first filled line, if that line is all of it."""
    before = text.text[: len(text.text) - len(text.text.lstrip())]
    return before.rpartition("\n")[2]


def _white(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]
