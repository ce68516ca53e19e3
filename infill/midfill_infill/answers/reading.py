"""Finds the text of a hole in a model's answer. A reading is one text that the answer may mean. The parser decides: of
the readings with the fewest syntax errors the likeliest wins, and a right text stays as it is. Knows no engine.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple

from midfill_infill.answers.draft import DraftText, find_anchors, join, trim
from midfill_infill.answers.echoes import Prose
from midfill_infill.answers.layout import (
    UNITS,
    Indentation,
    columns_of,
    count_misaligned,
    find_aligned,
    find_leaving_line,
    find_steps,
    is_end_in_block,
    leading,
    list_indents,
    list_layouts,
)
from midfill_infill.answers.openness import begins_block, unbalances
from midfill_infill.answers.overlaps import Before, Behind, cut_both, cut_frame, cut_head, cut_tail
from midfill_infill.answers.plain import cut_repeated_above, cut_repeated_below, is_prose, move_to_hole
from midfill_infill.answers.trials import Trials
from midfill_infill.answers.wrapping import has_fence, unwrap
from midfill_infill.syntax.outline import find_own
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_WHITE: Final = " \t\n"
_MAX_NEAR: Final = 40  # lines on either side of a hole
# What goes on with a statement around the hole.
_CLAUSE: Final = re.compile(r"[)\]}]|(?:else|elif|except|finally|case|default|catch)\b")
_ENDING: Final = re.compile(r"(?:return|raise)\b")
_YIELDING: Final = re.compile(r"\s*yield\b")  # which makes a generator of a function also where it is not reached
_OUTSIDE: Final = re.compile(r"@|if\s+__name__\b|(?:from|import)\s|#")
_CLOSING: Final = re.compile(r"[)\]}]")
_ENDED: Final = re.compile(r"[;)\]}]\s*$")
_UNIT_COLUMNS: Final = range(2, 9)  # the columns that one level of indentation may have
_WIDE_GRID: Final = 4  # columns: the indentations of an answer in a unit of 4 or 8 are multiples of it


def read_plainly(document: Document, hole: Hole, answer: DraftText) -> DraftText:
    """The text of a hole in a document without a grammar. In a prose file, fences and sentences belong to the text."""
    if is_prose(document.path) or hole.anchors:
        return trim_answer(document, hole, answer)
    bare = cut_repeated_above(document, hole, next(unwrap(answer, document.text)))
    draft = trim_answer(document, hole, bare)
    if opens_line(document, hole):
        draft = move_to_hole(draft, hole.indent)
    return cut_repeated_below(document, hole, draft)


def read_answer(
    trials: Trials, document: Document, chosen: Sequence[DraftText | None], index: int, answer: DraftText
) -> DraftText:
    """The likeliest reading of an answer for hole `index` that leaves no more syntax errors than a stand-in does, else
    one with the fewest errors. `chosen` holds the text of each hole of `trials`, or None for a stand-in, as for hole
    `index`.
    """
    hole = trials.holes[index]
    if hole.is_body and trials.language.has_indented_blocks and not trials.sees_body(index):
        trials = trials.open_alone(index)  # so the body is read in a function of its own
        chosen = [None]
        index = 0
    around = _Answer(trials, document, hole, index)

    def count_errors(draft: DraftText | None) -> int:
        return trials.count_errors([*chosen[:index], draft, *chosen[index + 1 :]])

    num_errors_of_stand_in = count_errors(None)
    best: DraftText | None = None
    fewest_errors = 0
    for reading in around.list_readings(answer):
        num_errors = count_errors(reading)
        if best is None or num_errors < fewest_errors:
            best = reading
            fewest_errors = num_errors
        if num_errors <= num_errors_of_stand_in:
            break
    assert best is not None
    if not fewest_errors and not around.unbalances(best):
        return best
    # The stand-in may not fit the hole, and an error elsewhere may take in what the answer repeats.
    drafts = [best, *around.list_cuts(best)]
    return min(drafts, key=lambda draft: (count_errors(draft), around.unbalances(draft)))


def trim_answer(document: Document, hole: Hole, draft: DraftText) -> DraftText:
    """The draft without the white space at its ends that already surrounds the hole."""
    following = document.data[hole.end_byte : hole.end_byte + 1]
    rest = document.data[hole.end_byte : document.lines.end(document.lines.at(hole.end_byte))]
    closes_line = hole.tail.startswith("\n") or not rest.strip()
    if hole.kind == "line":  # then the first line's indentation is part of the text
        return trim(draft, "\n", _WHITE)
    if not closes_line and "\n" in draft.text and "\n" not in draft.text.strip():  # one line within a line
        ends_line = "\n" in draft.text[len(draft.text.rstrip()) :]
        around = Before.at(document, hole).start, Behind.at(document, hole).rest
        if ends_line and begins_block(draft.text, *around):
            return draft
        return trim(draft, _WHITE, _WHITE)
    white_before = white_behind = ""
    if opens_line(document, hole):
        if hole.kind != "cursor" or closes_line:
            white_before = _WHITE
        elif hole.indent:  # the cursor stands behind the line's indentation
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
    """What speaks against a layout. Layouts are compared field by field; the smaller weight is better."""

    num_foreign: int = 0  # lines with white space that the document indents nothing with
    num_errors: int = 0  # syntax errors that the layout adds to those with a stand-in; negative if it has fewer
    num_odd: int = 0  # lines whose indentation contradicts the syntax tree or the hole
    is_foreign_unit: bool = False  # blocks are indented in a unit that the document does not use
    num_misaligned: int = 0
    num_strange: int = 0  # unusual steps and continuation lines: weak signs, which decide only among equals

    @property
    def is_flawless(self) -> bool:
        """True if nothing but `num_strange` speaks against the layout."""
        return not any(self._replace(num_errors=max(0, self.num_errors), num_strange=0))


@dataclass(frozen=True)
class _Answer:
    """Reads one answer for `hole`. This is hole `index` of `trials`, which may come from `Trials.open_alone`."""

    trials: Trials
    document: Document
    hole: Hole
    index: int

    @cached_property
    def anchors(self) -> list[str]:
        """The texts that a reading must contain, in order."""
        return trimmed_anchor_texts(self.document, self.hole)

    @cached_property
    def before(self) -> Before:
        """The text before the fill."""
        return Before.at(self.document, self.hole)

    @cached_property
    def behind(self) -> Behind:
        """The text behind the hole."""
        return Behind.at(self.document, self.hole)

    @property
    def _line_number(self) -> int:
        """The line that the hole begins on, counted from 0."""
        return self.document.lines.at(self.hole.start_byte)

    @property
    def _is_part_of_line(self) -> bool:
        """True for a hole within one line that has other text, unless it is a body."""
        return (
            not self.hole.is_body
            and "\n" not in self.replaced
            and bool(self.before.start.strip() or self.behind.rest.strip())
        )

    @cached_property
    def replaced(self) -> str:
        r"""The text that the fill replaces, with `\n` line ends."""
        return self.document.normalized_text(self.hole.start_byte, self.hole.end_byte)

    @cached_property
    def replaced_columns(self) -> list[int]:
        """The columns of the filled lines of the text that the fill replaces, without the first one."""
        _, *lines = self.replaced.split("\n")
        return [columns_of(leading(line)) for line in lines if line.strip()]

    @cached_property
    def prose(self) -> Prose:
        """What comments and a docstring say at the hole."""
        return Prose.of(self.trials.language.comment, self.before.lines, self.replaced)

    @cached_property
    def outer_indents(self) -> list[str]:
        """The indentations of the blocks around the hole's own, the innermost first."""
        lines = self.document.lines
        line = self._line_number + ("\n" in self.hole.lead)  # the fill may begin on the line below
        openers = lines.list_openers(line, columns_of(self.hole.indent))
        return [lines.indent(opener).replace(b"\f", b"").decode("ascii") for opener in openers]

    @cached_property
    def unit(self) -> str:
        """The indentation unit around the hole: the step from the line that opens its block, else the document's."""
        if "\t" not in self.hole.indent and self.outer_indents:
            step = columns_of(self.hole.indent) - columns_of(self.outer_indents[0])
            if step in _UNIT_COLUMNS:
                return " " * step
        return self.document.indent_unit

    @cached_property
    def columns_near(self) -> set[int]:
        """The columns at which a statement may begin on the hole's line: those of the lines around it and its own."""
        lines = self.document.lines
        first = max(0, self._line_number - _MAX_NEAR)
        end = min(len(lines), self._line_number + _MAX_NEAR)
        columns = {lines.columns(number) for number in range(first, end) if not lines.is_blank(number)}
        columns.add(columns_of(self.hole.indent))
        return columns

    def list_readings(self, answer: DraftText) -> Iterator[DraftText]:
        """The different readings that contain the anchors, the likeliest first; the trimmed answer if there is none."""
        seen: set[str] = set()
        for reading in self._list_all(answer):
            if reading.text not in seen and find_anchors(reading.text, self.anchors) is not None:
                seen.add(reading.text)
                yield reading
        if not seen:
            yield trim_answer(self.document, self.hole, answer)

    def list_cuts(self, draft: DraftText) -> Iterator[DraftText]:
        """A draft for a part of a line without what it repeats of the rest of the line."""
        if self._is_part_of_line and self.behind.rest.strip():
            cuts = (cut for cut, _ in cut_tail(draft, self.behind))
            return (cut for cut in cuts if find_anchors(cut.text, self.anchors) is not None)
        return iter(())

    def unbalances(self, draft: DraftText) -> bool:
        """True if a draft leaves brackets or quotes of its line without their counterparts, which they have now."""
        return unbalances(draft.text, self.before.start, self.behind.rest)

    def _list_all(self, answer: DraftText) -> Iterator[DraftText]:
        """The readings, the likeliest first; some may be equal, and some may lack anchors."""
        for text in self._unwrap(answer):
            first_indent = _first_indent(text) if opens_line(self.document, self.hole) else ""
            draft = trim_answer(self.document, self.hole, text)
            inside = self._cut_at_leaving(draft, first_indent)
            if inside is not None:
                yield from self._lay_out_cuts(inside, first_indent)
            yield from self._lay_out_cuts(draft, first_indent)
        if self._is_part_of_line:  # then lines behind the first one may be too many
            for text in self._unwrap(answer):
                draft = trim_answer(self.document, self.hole, text)
                yield from self._cut_tails(trim_answer(self.document, self.hole, draft.lines()[0]))

    def _unwrap(self, answer: DraftText) -> Iterator[DraftText]:
        """The answer without what models write around code, and without what it repeats from before the hole."""
        if self.hole.anchors:  # what is written around a text cannot be told from kept text
            yield answer
            return
        is_code = not self.trials.is_in_text(self.index)
        if self.trials.is_between_tags(self.index) and not has_fence(answer.text):
            is_code = False  # sentences may be the text itself
        for bare in unwrap(answer, self.document.text, is_code=is_code):
            yield from self._cut_heads(bare)

    def _lay_out_cuts(self, draft: DraftText, first_indent: str) -> Iterator[DraftText]:
        """The layouts of a draft with and without what it repeats from behind the hole. The first ones are without,
        because a repeated text may be indented otherwise than the rest, unless it belongs to a block of the rest.
        """
        telling = [cut for cut, is_telling in cut_tail(draft, self.behind) if is_telling]
        drafts = [*telling, draft]
        if telling and is_end_in_block(draft, telling[0]):
            weight, _ = self._lay_out(draft, first_indent)[0]
            if weight.is_flawless:
                drafts = [draft, *telling]
        for kept in drafts:
            for _, layout in self._lay_out(kept, first_indent):
                yield from self._cut_tails(layout)

    def _cut_heads(self, bare: DraftText) -> list[DraftText]:
        """A bare answer with and without what it repeats from before the hole, the likelier first."""
        without_signature = self._cut_signature(bare)
        if without_signature is not None:
            return [without_signature, bare]
        cut_and_telling = cut_head(bare, self.before)
        if cut_and_telling is None and opens_line(self.document, self.hole) and not self.trials.is_in_text(self.index):
            cut_and_telling = self.prose.cut_echo(bare)
        if cut_and_telling is None:
            return [bare]
        cut, is_telling = cut_and_telling
        between = None
        if is_telling or not self.trials.is_in_text(self.index):  # in a text the parser tells no coincidence
            between = cut_both(bare, self.before.start, self.behind.rest)
        if not self.before.start.strip() and not self.behind.rest.strip(" \t;,"):
            between = cut_frame(bare, self.before.lines, self.behind.lines, columns_of(self.hole.indent))
        if not is_telling:
            return [bare, cut] if between is None else [between, bare, cut]
        return [cut, bare] if between is None else [between, cut, bare]

    def _cut_signature(self, bare: DraftText) -> DraftText | None:
        """The answer without the header and docstring of the hole's own function; None if it has no such header."""
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
        if own.docstring:
            docstring = _list_filled(source[body_start : own.docstring[1]].lstrip(b"{"))
        lines = bare.lines()
        filled = [number for number, line in enumerate(lines) if line.text.strip()]
        written = [lines[number].text.strip() for number in filled]
        num_head_lines = source[own.head : body_start].rstrip().count(b"\n") + 1
        for size in (len(header), num_head_lines):
            if len(written) <= size or written[:size] != header[-size:]:
                continue
            num_cut = size
            end = size + len(docstring)
            if docstring and len(written) > end and written[size:end] == docstring:
                num_cut = end
            return join(lines[filled[num_cut] :])
        return None

    def _cut_at_leaving(self, draft: DraftText, first_indent: str) -> DraftText | None:
        """A body's draft up to where it leaves the body; None if it does not leave it."""
        if not self.hole.is_body or "\n" not in draft.text:
            return None
        if self.trials.language.has_indented_blocks:
            number = self._find_leaving_line(draft, first_indent)
            if number is None:
                return None
            return trim(join(draft.lines()[:number]), "", _WHITE)
        closing = self.trials.find_unmatched(draft, self.index)
        if closing is None:
            return None
        inside = trim(draft[:closing], "", _WHITE)
        if not inside.text.strip() or not self.trials.sees_body(self.index):
            return None
        return inside if self._count_errors(inside) < self._count_errors(draft) else None

    def _find_leaving_line(self, draft: DraftText, first_indent: str) -> int | None:
        """The number of the first line of a Python answer that is behind the function; None if there is none. All lines
        of an answer that is written from column 0 are left of the hole, so their text decides: the answer leaves the
        function where it repeats the text behind the hole, defines something, or goes on after a `return` or `raise`.
        """
        frozen = self.trials.find_frozen_lines(draft, self.index)
        number = find_leaving_line(draft, self.hole.indent, frozen)
        if number is None:
            return None
        if first_indent and columns_of(first_indent) >= columns_of(self.hole.indent):
            return number  # the answer is not written from column 0
        lines = [line.text.rstrip() for line in draft.lines()]
        outermost = _list_outermost(lines, number, frozen)
        if not outermost:
            return None
        following = [line.strip() for line in self.behind.lines if line.strip()]
        written = [line.strip() for line in lines[outermost[0] :] if line.strip()]
        is_repeated = bool(following) and written[: len(following)] == following[: len(written)]
        if is_repeated or all(self._is_outside(lines[outer]) for outer in outermost):
            return number if self._is_outside(lines[number]) else outermost[0]
        endings = [outer for outer in (0, *outermost) if _ENDING.match(lines[outer].strip())]
        if not endings:
            return None
        behind_ending = (outer for outer in outermost if outer > endings[0])
        return next((outer for outer in behind_ending if not _YIELDING.match(lines[outer])), None)

    def _is_outside(self, line: str) -> bool:
        """True for a line that begins what a function's body rarely holds: a definition, an import, a comment."""
        if _OUTSIDE.match(line.strip()):
            return True
        header = self.trials.language.scope_header
        return bool(header and re.match(header, line.encode("utf-8", "replace")))

    def _lay_out(self, draft: DraftText, first_indent: str) -> list[tuple["_Weight", DraftText]]:
        """The different layouts of a draft with their weights, the best first; the draft alone if it is flawless as it
        is.
        """
        if self.hole.kind != "line" and "\n" not in draft.text:
            return [(_Weight(), draft)]
        frame = self._frame(draft, first_indent)
        frames = [frame]
        if frame.is_whole_line and _CLAUSE.match(draft.text.lstrip()):
            frames += [replace(frame, indent=indent) for indent in self.outer_indents]
        different: dict[str, tuple[_Weight, DraftText]] = {}
        for layout in chain.from_iterable(list_layouts(draft, possible) for possible in frames):
            if layout.text not in different:
                weight = self._weigh(layout, frame, is_plain=not different)
                different[layout.text] = weight, layout
                if weight.is_flawless and len(different) == 1:
                    break
        return sorted(different.values(), key=lambda weighed: weighed[0])

    def _frame(self, draft: DraftText, first_indent: str) -> Indentation:
        """What the document and a draft say of indentation at the hole."""
        lines = self.document.lines
        frozen = self.trials.find_frozen_lines(draft, self.index)
        return Indentation(
            self.hole.indent,
            self.unit,
            usual_unit=self.document.indent_unit,
            first_indent=first_indent,
            frozen=frozen,
            docstrings=self.trials.find_docstring_lines(draft, self.index, frozen),
            is_whole_line=self.hole.kind == "line",
            is_free=lines.mixes_indents or lines.indent_unit is None,
            is_aligning=self.unit == "\t" and lines.aligns_with_spaces,
            reaches_margin=self.hole.kind == "range" and 0 in self.replaced_columns,
        )

    def _weigh(self, draft: DraftText, frame: Indentation, *, is_plain: bool) -> "_Weight":
        """The weight of a layout. `is_plain`: the draft is as the engine wrote it."""
        indents = list(list_indents(draft, frame))
        code_indents = self._drop_comments(draft, indents) or indents
        widths = [columns_of(white) for _, white in code_indents]
        aligned = find_aligned(draft, frame)
        level_indents = [white for number, white in code_indents if number not in aligned]
        num_foreign = sum(map(frame.is_foreign, level_indents))
        oddities = self.trials.count_oddities(draft, self.index, frame.frozen)
        is_foreign_unit, num_strange = self._weigh_steps(draft, frame, aligned, widths, is_plain=is_plain)
        num_strange += oddities["flat"]
        if frame.is_tabbed and any("\t    " in white for white in level_indents):
            num_strange += 1
        if frame.is_free:
            num_strange += num_foreign
            num_foreign = 0
        return _Weight(
            num_foreign=num_foreign,
            num_errors=self._count_errors(draft) - self.trials.num_errors,
            num_odd=oddities["wrong"] + self._count_misplaced(draft, frame, indents, widths),
            is_foreign_unit=is_foreign_unit,
            num_misaligned=count_misaligned(draft, frame),
            num_strange=num_strange,
        )

    def _count_misplaced(
        self, draft: DraftText, frame: Indentation, indents: Sequence[tuple[int, str]], widths: Sequence[int]
    ) -> int:
        """Contradictions to the hole's indentation. `widths` are the columns that lines of code are indented by."""
        columns = columns_of(self.hole.indent)
        num_misplaced = 0
        if self.hole.is_body:
            num_misplaced += sum(width < columns for width in widths)
            below = self._find_below_comment(draft, indents)
            num_misplaced += below is not None and columns_of(below) != columns
        elif self.hole.kind == "range":  # a selection may end left of where it begins, but hardly in column 0
            num_at_margin = 0 if frame.reaches_margin or columns == 0 else widths.count(0)
            ends_left = max(self.replaced_columns, default=columns) < columns
            num_misplaced += num_at_margin or (not ends_left and max(widths, default=columns) < columns)
            below = self._find_below_comment(draft, indents)
            num_misplaced += below is not None and columns_of(below) > columns
        elif frame.is_whole_line and not frame.is_free:
            first_columns = next((columns_of(white) for number, white in indents if number == 0), None)
            num_misplaced += first_columns is not None and first_columns not in self.columns_near
            if self.trials.language.has_indented_blocks and first_columns == 0 < columns:
                below = next((line for line in self.behind.lines if line.strip()), "")
                num_misplaced += columns_of(leading(below)) >= columns  # the answer would take this line into its block
            num_misplaced += bool(widths) and min(widths) < widths[0]
        if not frame.is_whole_line and indents and not self._drop_comments(draft, indents):
            first, *_ = draft.text.split("\n", 1)  # comments below a statement that has ended are not deeper
            num_misplaced += bool(_ENDED.search(first)) and min(widths) > columns
        return num_misplaced

    def _weigh_steps(
        self, draft: DraftText, frame: Indentation, aligned: set[int], widths: Sequence[int], *, is_plain: bool
    ) -> tuple[bool, int]:
        """Whether a draft's blocks are indented in a foreign unit, and how many signs show unusual steps."""
        lines = self.document.lines
        unit = columns_of(frame.unit)
        usual_steps = {unit, columns_of(self.document.indent_unit)} | lines.steps
        block_steps, hanging_steps = find_steps(draft, frame, aligned)
        is_foreign_unit = not frame.is_free and bool(block_steps) and block_steps.isdisjoint(usual_steps)
        num_strange = len(block_steps - usual_steps)
        if hanging_steps and hanging_steps.isdisjoint(usual_steps):
            num_strange += 1
            if 2 * unit not in hanging_steps:
                num_strange += 1
                is_on_grid = columns_of(self.hole.indent) % _WIDE_GRID == 0
                if not is_on_grid and not any(width % _WIDE_GRID for width in widths):
                    is_foreign_unit = True  # the answer is in a wider unit, which the hole's indentation is not in
        if hanging_steps and lines.hanging_steps and hanging_steps.isdisjoint(lines.hanging_steps):
            if not is_plain:
                num_strange += 1
            if not block_steps and hanging_steps == {2 * unit}:  # blocks would tell the answer's unit
                is_foreign_unit = True
        if is_plain and not frame.is_free and not block_steps <= UNITS:
            is_foreign_unit = False  # no unit makes such steps
        return is_foreign_unit, num_strange

    def _find_below_comment(self, draft: DraftText, indents: Sequence[tuple[int, str]]) -> str | None:
        """The indentation of the first line of code if a comment stands above it at the draft's start; else None."""
        if not self._is_comment(draft):
            return None
        return next((white for _, white in self._drop_comments(draft, indents)), None)

    def _drop_comments(self, draft: DraftText, indents: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        """Those `indents` whose lines are no comments."""
        lines = draft.lines()
        return [(number, white) for number, white in indents if not self._is_comment(lines[number])]

    def _is_comment(self, draft: DraftText) -> bool:
        """True if a draft begins with a line comment, or with a comment that has its line for itself."""
        first, *_ = draft.text.lstrip().split("\n", 1)
        is_block_comment = self.trials.language.comment == "//" and first.startswith("/*")
        return first.startswith(self.trials.language.comment) or (is_block_comment and first.rstrip().endswith("*/"))

    def _count_errors(self, draft: DraftText) -> int:
        """Syntax errors with a draft in the hole and stand-ins in the other holes."""
        drafts: list[DraftText | None] = [None] * len(self.trials.holes)
        drafts[self.index] = draft
        return self.trials.count_errors(drafts)

    def _cut_tails(self, draft: DraftText) -> Iterator[DraftText]:
        """A draft with and without what it repeats from behind the hole, the likelier first."""
        cuts = list(cut_tail(draft, self.behind))
        yield from (cut for cut, is_telling in cuts if is_telling)
        yield draft
        yield from (cut for cut, is_telling in cuts if not is_telling)


def trimmed_anchor_texts(document: Document, hole: Hole) -> list[str]:
    """The texts of the hole's anchors without the white space at both ends, which `trim_answer` may remove."""
    texts = [text for text in anchor_texts(document, hole) if text.strip()]
    if texts:
        texts[0] = texts[0].lstrip(_WHITE)
        texts[-1] = texts[-1].rstrip(_WHITE)
    return texts


def anchor_texts(document: Document, hole: Hole) -> list[str]:
    r"""The texts of the hole's anchors with `\n` line ends."""
    return [document.normalized_text(anchor.start_byte, anchor.end_byte) for anchor in hole.anchors]


def _list_filled(source: bytes) -> list[str]:
    """The lines that are not blank, without white space around them."""
    lines = [line.strip() for line in source.decode("utf-8", "replace").splitlines()]
    return [line for line in lines if line]


def _list_outermost(lines: Sequence[str], first: int, frozen: frozenset[int]) -> list[int]:
    """Numbers of the filled lines from `first` on that are indented least, but for those that close a bracket first."""
    columns: dict[int, int] = {}
    for number in range(first, len(lines)):
        line = lines[number]
        if number not in frozen and line.strip():
            columns[number] = columns_of(leading(line))
    outer = min(columns.values())
    outermost: list[int] = []
    for number, column in columns.items():
        is_closing = _CLOSING.match(lines[number].strip()) is not None
        if column == outer and not is_closing:
            outermost.append(number)
    return outermost


def _first_indent(text: DraftText) -> str:
    """The indentation of the first filled line."""
    before = text.text[: len(text.text) - len(text.text.lstrip())]
    return before.rpartition("\n")[2]
