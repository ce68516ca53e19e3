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

    @property
    def evidence(self) -> Evidence:
        """What a measurement goes by."""
        return Evidence.of(self.text, self.confidence, self.told, self.proposed)

    @property
    def kind(self) -> Kind | None:
        """The kind of hole that a measurement tells apart; None for several lines that are no body."""
        return "body" if self.hole.is_body else None if "\n" in self.text.strip() else "line"

    @property
    def is_guess(self) -> bool:
        """True if the fill is more likely wrong than right."""
        return self.certainty is not None and self.certainty < LIKELY


def describe_certainty(certainty: float | None) -> str:
    """The label shown to users, such as "likely (62 %)"; empty if the engine gives no certainty."""
    if certainty is None:
        return ""
    word = "sure" if certainty >= SURE else "likely" if certainty >= LIKELY else "a guess"
    return f"{word} ({certainty:.0%})"


def describe_fill(fill: PlacedFill) -> str:
    """The label of a fill shown to users, such as "likely (62 %), the file's own line"."""
    told = describe_certainty(fill.certainty), "" if fill.origin == DRAFTED else fill.origin
    return ", ".join(filter(None, told))


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
        return min(known) if len(known) == len(self.fills) else None


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
        tokens = [(0, len(text))] if text and certainty is not None else []
        confidence = [certainty or 0.0] * len(tokens)
        return cls(wire.FilledHole(text=text, tokens=tokens, confidence=confidence, certainty=certainty), origin)

    @classmethod
    def judged(cls, one: wire.Judged, origin: str) -> "Answer":
        """A text that the engine compared, with its tokens if the engine tells them."""
        if not one.tokens:
            return cls.of(one.text, one.certainty, origin)
        told = wire.FilledHole(text=one.text, tokens=one.tokens, confidence=one.confidence, certainty=one.certainty)
        return cls(told, origin)


def rank(
    response: wire.InfillResponse, index: int, proposals: Sequence[Proposal], *, most: int | None = None
) -> list[Answer]:
    """All different texts for the hole `index` in the engine's own order: its fills, the other texts that it compared,
    then the proposals that it has not looked at. A proposal has at most `most` characters, if given.
    """
    origins = {each.text: each.origin for each in proposals}
    proposed = {each.text.strip(): each.certainty for each in reversed(proposals)}
    rows = (response.holes, *response.alternatives)
    listed = [Answer(row[index], origins.get(row[index].text, DRAFTED)) for row in rows]
    compared = response.candidates[index] if index < len(response.candidates) else []
    listed += [Answer.judged(each, origins.get(each.text, DRAFTED)) for each in compared]
    listed = [replace(each, proposed=proposed.get(each.filled.text.strip(), 0.0)) for each in listed]
    fitting = [each for each in proposals if most is None or len(each.text) <= most]
    listed += [replace(Answer.of(each.text, each.certainty, each.origin), is_left_out=True) for each in fitting]
    found: dict[str, Answer] = {}
    for answer in listed:
        found.setdefault(answer.filled.text, answer)
    return list(found.values())


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
        needed = [[name for name in each.get("names", ()) if name in modules] for each in self.needs]
        return [[Proposal(f"import {name}", FAIR, "an import that is missing") for name in names] for names in needed]

    def rows(self, answers: Iterable[Sequence[Answer]]) -> Iterator[Row]:
        """Yields a row for each of `answers` that can be inserted: with its anchors, and in the file's encoding."""
        for answer in answers:
            with suppress(MidfillError):
                yield self.row(answer)

    def row(self, answers: Sequence[Answer]) -> Row:
        """Splices one answer per hole. Raises MidfillError."""
        spliced = self.splicer.splice([answer.filled.text for answer in answers])
        placed = (
            self._rate(place_fill(hole, answer.filled, fill, answer.origin), answer)
            for hole, answer, fill in zip(self.holes, answers, spliced.fills, strict=True)
        )
        temper = self.doubts.temper
        fills = tuple(replace(each, certainty=temper(each.hole, each.text, each.certainty)) for each in placed)
        is_idle = any(fill.is_idle for fill in spliced.fills)
        return Row(Alternative(spliced.patch, fills, spliced.new_errors, is_idle), tuple(answers), spliced)

    def _rate(self, fill: PlacedFill, answer: Answer) -> PlacedFill:
        """The fill with the certainty that was measured for such fills, if it was."""
        if answer.is_left_out:
            return fill
        fill = replace(fill, told=fill.certainty, proposed=answer.proposed)
        measured = self.fits.get(fill.kind) if fill.kind else None
        return replace(fill, certainty=measured.rate(fill.evidence)) if measured else fill

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
        seen = {best.candidate.patch}
        found = list[Row]()
        worthy = [
            [each for each in texts if not each.is_left_out or (each.filled.certainty or 0.0) >= FAIR] or texts[:1]
            for texts in ranked
        ]
        tried = [*islice(_rows_of(worthy), 2 * most), *(_vary(ranked) if every else ())]
        for row in self.rows(tried):
            if row.candidate.patch not in seen and not row.candidate.is_idle:
                found.append(row)
            seen.add(row.candidate.patch)
        return [best, *sorted(found, key=lambda row: row.candidate.faults)][: None if every else most]

    def _is_at_fault(self, row: Row, index: int) -> bool:
        fill = row.spliced.fills[index]
        return bool(fill.error_ranges) or not fill.text.strip() or fill.is_idle

    def _improve_hole(self, row: Row, index: int, texts: Sequence[Answer]) -> Row:
        num_whole = max(MIN_WHOLE, MAX_WHOLE_BYTES // max(1, len(self.document.source)))
        others = [answer for answer in texts if answer != row.answers[index]]
        tried = ([*row.answers[:index], answer, *row.answers[index + 1 :]] for answer in self._sift(index, others))
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
        faulty: list[tuple[int, Answer]] = []
        for answer in answers:
            if (errors := sieve.count_errors(answer.filled.text)) is not None:
                if errors:
                    faulty.append((errors, answer))
                else:
                    yield answer
        if faulty:
            yield min(faulty, key=lambda judged: judged[0])[1]


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
    token_of = {char: index for index, (start, end) in enumerate(filled.tokens) for char in range(start, end)}
    spans: dict[int, tuple[int, int]] = {}
    for place, source in enumerate(spliced.origins):
        if (token := token_of.get(source)) is not None:
            spans[token] = (spans.get(token, (place, place))[0], place + 1)
    ordered = sorted(spans.items(), key=lambda item: item[1])
    return PlacedFill(
        hole,
        spliced.text,
        tuple(span for _, span in ordered),
        tuple(filled.confidence[token] for token, _ in ordered),
        tuple(found for range in spliced.error_ranges if (found := _find(spliced.origins, range))),
        filled.certainty,
        origin,
    )


def _find(origins: Sequence[int], range: tuple[int, int]) -> tuple[int, int] | None:
    """Position in the fill of a range of the engine's text; None if it was cut."""
    places = [place for place, origin in enumerate(origins) if range[0] <= origin < range[1]]
    return (places[0], places[-1] + 1) if places else None
