"""The order of trust among the texts for each hole: one that adds no syntax error, then one that is not blank or idle,
then the engine's own order. Knows no engine's connection.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Final

from midfill_engine import wire
from midfill_infill.errors import MidfillError
from midfill_infill.filling.certainty import Evidence, Fits, Kind
from midfill_infill.filling.doubts import Doubts
from midfill_infill.filling.wishes import Bounds, is_within
from midfill_infill.filling.written import Written
from midfill_infill.proposals import Proposal
from midfill_infill.splicing.splice import Spliced, SplicedFill, Splicer
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch

MAX_TRIED: Final = 40
SURE: Final = 0.75
LIKELY: Final = 0.5
# Single lines with at least this certainty were right three times out of four (`python -m bench.quality.proposals`).
SHOWN: Final = 0.45
DRAFTED: Final = "drafted"
FAIR: Final = 0.05
# At least this many texts are parsed in the whole document, more in a short one: 20 ms each in a file of 3,000 lines.
MIN_WHOLE: Final = 6
MAX_WHOLE_BYTES: Final = 400_000


@dataclass(frozen=True)
class PlacedFill:
    """A fill as inserted into the document, with `\\n` line ends. `confidence[i]` belongs to `text[slice(*tokens[i])]`.

    White space added by splicing belongs to no token. `errors` are ranges of `text` with syntax errors. `certainty` is
    the calibrated probability that the whole fill is right, None if neither the engine nor a measurement gives one;
    `told` is the engine's alone, `proposed` that of a proposal with the same text. `origin` describes the source.
    `is_exempt`: a low certainty says nothing against the fill. It is a body of an engine that told none, and such
    bodies are rarely what people wrote word for word, right ones too.
    """

    hole: Hole
    text: str
    tokens: tuple[tuple[int, int], ...]
    confidence: tuple[float, ...]
    errors: tuple[tuple[int, int], ...] = ()
    certainty: float | None = None
    origin: str = DRAFTED
    told: float | None = None
    proposed: float = 0.0
    is_exempt: bool = False

    @property
    def evidence(self) -> Evidence:
        """What a measurement goes by."""
        return Evidence.of(self.text, self.confidence, self.told, self.proposed)

    @property
    def kind(self) -> Kind | None:
        """The kind of hole that a measurement tells apart; None for several lines that are no body."""
        if self.hole.is_body:
            return "body"
        if "\n" in self.text.strip():
            return None
        return "line"

    @property
    def is_suggestion(self) -> bool:
        """True if the fill is written only on request."""
        return self.certainty is not None and self.certainty < LIKELY and not self.is_exempt


def describe_certainty(certainty: float | None, *, is_suggestion: bool) -> str:
    """The label shown to users, such as "likely (exact in 62%)": how often such a fill equals what people wrote. Empty
    if the engine gives no certainty, the number alone for an unlikely fill that is no suggestion.
    """
    if certainty is None:
        return ""
    share = f"exact in {certainty:.0%}"
    if certainty >= SURE:
        return f"sure ({share})"
    if certainty >= LIKELY:
        return f"likely ({share})"
    return f"a suggestion ({share})" if is_suggestion else share


def describe_fill(fill: PlacedFill) -> str:
    """The label of a fill shown to users, such as "likely (exact in 62%), the file's own line"."""
    label = [describe_certainty(fill.certainty, is_suggestion=fill.is_suggestion)]
    if fill.origin != DRAFTED:
        label.append(fill.origin)
    return ", ".join(filter(None, label))


@dataclass(frozen=True)
class Alternative:
    """One way to fill all holes. `new_errors` counts the syntax errors that the patch adds. `is_idle`: a hole got only
    a comment or, for a body, a placeholder or a call of itself.
    """

    patch: Patch
    fills: tuple[PlacedFill, ...]
    new_errors: int
    is_idle: bool = False

    @property
    def is_empty(self) -> bool:
        """True if a body hole got no text: the body stays as it was, which adds no error but is of no use."""
        return any(fill.hole.is_body and not fill.text for fill in self.fills)

    @property
    def is_blank(self) -> bool:
        """True if a hole got only white space."""
        return not all(fill.text.strip() for fill in self.fills)

    def is_within(self, bounds: Sequence[Bounds]) -> bool:
        """True if the text of every hole is within its bounds of lines."""
        return all(is_within(bound, fill.text) for bound, fill in zip(bounds, self.fills, strict=True))

    @property
    def faults(self) -> tuple[int, bool]:
        """Its faults, the most severe first; smaller is better."""
        return self.new_errors, self.is_blank or self.is_idle

    @property
    def certainty(self) -> float | None:
        """Certainty of the least certain fill; None unless every fill has one."""
        known = [fill.certainty for fill in self.fills if fill.certainty is not None]
        if len(known) < len(self.fills):
            return None
        return min(known)

    @property
    def is_suggestion(self) -> bool:
        """True if a fill is written only on request."""
        return any(fill.is_suggestion for fill in self.fills)


@dataclass(frozen=True)
class Answer:
    """The text of one hole as received, and its origin. `is_left_out`: a proposal that the engine has not looked at.
    `proposed`: the certainty of a proposal with the same text.
    """

    filled: wire.FilledHole
    origin: str = DRAFTED
    is_left_out: bool = False
    proposed: float = 0.0

    @classmethod
    def of(cls, text: str, certainty: float | None, origin: str) -> "Answer":
        """A whole text as a single token, with its certainty as confidence."""
        tokens: list[tuple[int, int]] = []
        confidence: list[float] = []
        if text and certainty is not None:
            tokens.append((0, len(text)))
            confidence.append(certainty)
        filled = wire.FilledHole(text=text, tokens=tokens, confidence=confidence, certainty=certainty)
        return cls(filled, origin)

    @property
    def text(self) -> str:
        return self.filled.text

    @property
    def certainty(self) -> float:
        """The engine's or the proposal's certainty, 0 without one."""
        return self.filled.certainty or 0.0


def rank(
    response: wire.InfillResponse, index: int, proposals: Sequence[Proposal], *, most: int | None = None
) -> list[Answer]:
    """All different texts for the hole `index` in the engine's own order: its fills, the other texts that it compared,
    then the proposals that it has not looked at. A proposal has at most `most` characters, if given.
    """
    origins = {proposal.text: proposal.origin for proposal in proposals}
    proposed = {proposal.text.strip(): proposal.certainty for proposal in reversed(proposals)}
    answers: list[Answer] = []
    for row in (response.holes, *response.alternatives):
        filled = row[index]
        answers.append(Answer(filled, origins.get(filled.text, DRAFTED)))
    if index < len(response.candidates):
        for compared in response.candidates[index]:
            origin = origins.get(compared.text, DRAFTED)
            if compared.tokens:
                answers.append(Answer(compared, origin))
            else:
                answers.append(Answer.of(compared.text, compared.certainty, origin))
    by_text: dict[str, Answer] = {}
    for answer in answers:
        certainty = proposed.get(answer.text.strip(), 0.0)
        by_text.setdefault(answer.text, replace(answer, proposed=certainty))
    for proposal in proposals:
        if most is None or len(proposal.text) <= most:
            proposing = Answer.of(proposal.text, proposal.certainty, proposal.origin)
            by_text.setdefault(proposal.text, replace(proposing, is_left_out=True))
    return list(by_text.values())


@dataclass(frozen=True)
class Row:
    """A candidate and the answers it was made from. A repair starts from these."""

    candidate: Alternative
    answers: tuple[Answer, ...]
    spliced: Spliced

    @property
    def holes(self) -> tuple[wire.FilledHole, ...]:
        return tuple(answer.filled for answer in self.answers)


@dataclass(eq=False)
class Place:
    """A document, its holes in order, lines that Midfill wrote and nobody has accepted, and how sure of its texts the
    model may be, as measured (known once it has answered). A fill has one, which keeps what the fill has found.
    """

    document: Document
    holes: tuple[Hole, ...]
    written: Written = Written()
    fits: Fits = field(default_factory=dict)

    @cached_property
    def splicer(self) -> Splicer:
        """What puts texts into the holes."""
        return Splicer(self.document, self.holes)

    @cached_property
    def doubts(self) -> Doubts:
        return Doubts(self.document, self.written)

    @cached_property
    def needs(self) -> list[dict[str, list[str]]]:
        """For each hole the names that it has to bind, and those before it that nothing uses, as the wire has them."""
        return [self.splicer.find_needs(index) for index in range(len(self.holes))]

    @property
    def imports(self) -> list[list[Proposal]]:
        """For each hole imports of the modules of Python's standard library that it has to bind."""
        modules = sys.stdlib_module_names if self.document.language == "python" else frozenset()
        listed: list[list[Proposal]] = []
        for needs in self.needs:
            names = [name for name in needs.get("names", ()) if name in modules]
            listed.append([Proposal(f"import {name}", FAIR, "an import that is missing") for name in names])
        return listed

    def rows(self, answers: Iterable[Sequence[Answer]]) -> Iterator[Row]:
        """Yields a row for each of `answers` that can be inserted: with its anchors, and in the file's encoding."""
        for answer in answers:
            with suppress(MidfillError):
                yield self.row(answer)

    def row(self, answers: Sequence[Answer]) -> Row:
        """Splices one answer per hole. Raises MidfillError."""
        spliced = self.splicer.splice([answer.text for answer in answers])
        fills: list[PlacedFill] = []
        for hole, answer, spliced_fill in zip(self.holes, answers, spliced.fills, strict=True):
            placed = place_fill(hole, answer.filled, spliced_fill, answer.origin)
            rated = self._rate(placed, answer)
            certainty = self.doubts.temper(hole, rated.text, rated.certainty)
            is_exempt = rated.is_exempt and not self.doubts.has(hole, rated.text)
            fills.append(replace(rated, certainty=certainty, is_exempt=is_exempt))
        is_idle = any(fill.is_idle for fill in spliced.fills)
        candidate = Alternative(spliced.patch, tuple(fills), spliced.new_errors, is_idle)
        return Row(candidate, tuple(answers), spliced)

    def _rate(self, fill: PlacedFill, answer: Answer) -> PlacedFill:
        """The fill with the certainty that was measured for such fills, if it was."""
        if answer.is_left_out:
            return fill
        fill = replace(fill, told=fill.certainty, proposed=answer.proposed)
        measured = self.fits.get(fill.kind) if fill.kind else None
        if measured is None:
            return fill
        is_exempt = fill.hole.is_body and fill.told is None
        return replace(fill, certainty=measured.rate(fill.evidence), is_exempt=is_exempt)

    def settle(self, ranked: Sequence[Sequence[Answer]]) -> Row:
        """The first text of every hole; if it has a fault, the first without one or the one with the fewest.

        Settles the holes in order, given the current texts of the others. Tries at most 40 texts. Raises MidfillError
        if none can be inserted.
        """
        row = next(self.rows(_rows_of(ranked)), None) or self.row([texts[0] for texts in ranked])
        share = max(1, MAX_TRIED // max(1, len(self.holes)))
        for index, texts in enumerate(ranked):
            if self._is_at_fault(row, index):
                row = self._improve_hole(row, index, texts[:share])
        return row

    def list_rows(self, ranked: Sequence[Sequence[Answer]], best: Row, most: int, *, every: bool = False) -> list[Row]:
        """`best` and then other rows, fewest faults first, at most `most` in all. Proposals that no engine has looked
        at need a certainty of FAIR. `every` adds the best texts varied in one hole, and lifts the limit.
        """
        if most == 1 and not every:
            return [best]
        worthy: list[Sequence[Answer]] = []
        for answers in ranked:
            fair = [answer for answer in answers if not answer.is_left_out or answer.certainty >= FAIR]
            worthy.append(fair or answers[:1])
        tried = list(islice(_rows_of(worthy), 2 * most))
        if every:
            tried += _vary(ranked)
        seen = {best.candidate.patch}
        rows: list[Row] = []
        for row in self.rows(tried):
            if row.candidate.patch not in seen and not row.candidate.is_idle:
                rows.append(row)
            seen.add(row.candidate.patch)
        rows = [best, *sorted(rows, key=lambda row: row.candidate.faults)]
        if every:
            return rows
        return rows[:most]

    def _is_at_fault(self, row: Row, index: int) -> bool:
        """True if the fill of a hole has an error, is blank or does nothing."""
        fill = row.spliced.fills[index]
        return bool(fill.error_ranges) or not fill.text.strip() or fill.is_idle

    def _improve_hole(self, row: Row, index: int, texts: Sequence[Answer]) -> Row:
        """The row with another of the hole's texts if that has fewer faults."""
        num_whole = max(MIN_WHOLE, MAX_WHOLE_BYTES // max(1, len(self.document.source)))
        others = [answer for answer in texts if answer != row.answers[index]]
        before, behind = row.answers[:index], row.answers[index + 1 :]
        tried = ([*before, answer, *behind] for answer in self._sift(index, others))
        for other in islice(self.rows(tried), num_whole):
            if other.candidate.faults < row.candidate.faults:
                row = other
            if not any(row.candidate.faults):
                break
        return row

    def _sift(self, index: int, answers: Sequence[Answer]) -> Iterator[Answer]:
        """Answers without an error in the hole's function, then the one with the fewest; all if there is no sieve."""
        sieve = self.splicer.find_sieve(index)
        if sieve is None:
            yield from answers
            return
        least_faulty: Answer | None = None
        fewest = 0
        for answer in answers:
            num_errors = sieve.count_errors(answer.text)
            if num_errors is None:
                continue
            if num_errors == 0:
                yield answer
            elif least_faulty is None or num_errors < fewest:
                least_faulty, fewest = answer, num_errors
        if least_faulty is not None:
            yield least_faulty


def _rows_of(ranked: Sequence[Sequence[Answer]]) -> Iterator[list[Answer]]:
    """Yields the best texts of all holes, then the second best, and so on while every hole has one."""
    yield from map(list, zip(*ranked, strict=False))


def _vary(ranked: Sequence[Sequence[Answer]]) -> Iterator[list[Answer]]:
    """Yields the best texts, with one hole's text replaced by each of its next few."""
    firsts = [texts[0] for texts in ranked]
    for index, texts in enumerate(ranked):
        for answer in texts[1 : 1 + MIN_WHOLE]:
            yield [*firsts[:index], answer, *firsts[index + 1 :]]


def place_fill(hole: Hole, filled: wire.FilledHole, spliced: SplicedFill, origin: str = DRAFTED) -> PlacedFill:
    """Moves the engine's tokens to where splicing put their characters; drops tokens that were cut."""
    token_of: dict[int, int] = {}
    for token, (start, end) in enumerate(filled.tokens):
        token_of |= dict.fromkeys(range(start, end), token)
    spans: dict[int, tuple[int, int]] = {}
    for position, source in enumerate(spliced.origins):
        if source in token_of:
            token = token_of[source]
            start, _ = spans.get(token, (position, position))
            spans[token] = (start, position + 1)
    tokens = sorted(spans, key=lambda token: spans[token])
    errors = [_find(spliced.origins, error) for error in spliced.error_ranges]
    return PlacedFill(
        hole,
        spliced.text,
        tokens=tuple(spans[token] for token in tokens),
        confidence=tuple(filled.confidence[token] for token in tokens),
        errors=tuple(filter(None, errors)),
        certainty=filled.certainty,
        origin=origin,
    )


def _find(origins: Sequence[int], span: tuple[int, int]) -> tuple[int, int] | None:
    """Position in the fill of a range of the engine's text; None if it was cut."""
    start, end = span
    positions = [position for position, origin in enumerate(origins) if start <= origin < end]
    if not positions:
        return None
    return positions[0], positions[-1] + 1
