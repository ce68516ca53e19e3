"""Ranks the texts of each hole and lets the parser choose: spliced into the document, the first without a fault wins.

An engine that compares texts ranks them by likelihood. Of any other the fill and the proposals are ranked by certainty,
a fill without one first. Knows no engine's connection.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from midfill_engine import wire
from midfill_infill.doubts import Doubts
from midfill_infill.errors import MidfillError
from midfill_infill.proposals import Proposal
from midfill_infill.splicing.sight import Sight
from midfill_infill.splicing.splice import Spliced, SplicedFill, find_sieve, splice
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch
from midfill_infill.written import Written

MAX_TRIED: Final = 40
SURE: Final = 0.75
LIKELY: Final = 0.5
# Of single lines from this certainty on three of four were right: `python -m bench.quality.proposals` prints it.
SHOWN: Final = 0.45
DRAFTED: Final = "drafted"
FAIR: Final = 0.05
# So many are parsed in the whole document, more of them in a short one: 20 ms each in a file of 3,000 lines.
MIN_WHOLE: Final = 6
MAX_WHOLE_BYTES: Final = 400_000


@dataclass(frozen=True)
class PlacedFill:
    """A fill as it goes into the document, with `\\n` line ends. `confidence[i]` belongs to `text[slice(*tokens[i])]`.

    White space that splicing added belongs to no token. `errors` are ranges of `text` that no syntax allows.
    `certainty` is the calibrated probability that all of it is right, None where the engine does not say. `origin` says
    in words where the text comes from.
    """

    hole: Hole
    text: str
    tokens: tuple[tuple[int, int], ...]
    confidence: tuple[float, ...]
    errors: tuple[tuple[int, int], ...] = ()
    certainty: float | None = None
    origin: str = DRAFTED

    @property
    def is_guess(self) -> bool:
        """Whether it is rather wrong than right, by what the engine says."""
        return self.certainty is not None and self.certainty < LIKELY


def describe_certainty(certainty: float | None) -> str:
    """The word and the number that people are shown, such as "likely (62 %)"; "" where the engine does not say."""
    if certainty is None:
        return ""
    word = "sure" if certainty >= SURE else "likely" if certainty >= LIKELY else "a guess"
    return f"{word} ({certainty:.0%})"


def describe_fill(fill: PlacedFill) -> str:
    """What people are shown of a fill, such as "likely (62 %), the file's own line"."""
    told = describe_certainty(fill.certainty), "" if fill.origin == DRAFTED else fill.origin
    return ", ".join(filter(None, told))


@dataclass(frozen=True)
class Alternative:
    """One way to fill all holes; `new_errors` counts the syntax errors that its patch adds, `num_unseen` the names it
    uses that stand nowhere in sight. `is_idle` says that a hole got what does nothing: a comment alone or, for a body,
    a placeholder, a call of itself, or what it held.
    """

    patch: Patch
    fills: tuple[PlacedFill, ...]
    new_errors: int
    num_unseen: int = 0
    is_idle: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether a body hole got no text: it stays as it was, which adds no error and helps nobody."""
        return any(fill.hole.is_body and not fill.text for fill in self.fills)

    @property
    def is_blank(self) -> bool:
        """Whether a hole got nothing that can be seen: nobody asked for that."""
        return not all(fill.text.strip() for fill in self.fills)

    @property
    def faults(self) -> tuple[int, bool, int]:
        """What speaks against it, the gravest first."""
        return self.new_errors, self.is_blank or self.is_idle, self.num_unseen

    @property
    def certainty(self) -> float | None:
        """That of its least certain fill; None where the engine does not say."""
        known = [fill.certainty for fill in self.fills if fill.certainty is not None]
        return min(known) if len(known) == len(self.fills) else None


@dataclass(frozen=True)
class Answer:
    """The text of one hole as it was told, and where it comes from; `is_left_out` where no engine has looked at it."""

    filled: wire.FilledHole
    origin: str = DRAFTED
    is_left_out: bool = False

    @classmethod
    def of(cls, text: str, certainty: float | None, origin: str) -> "Answer":
        """A whole text, all of it as sure as it is."""
        tokens = [(0, len(text))] if text and certainty is not None else []
        confidence = [certainty or 0.0] * len(tokens)
        return cls(wire.FilledHole(text=text, tokens=tokens, confidence=confidence, certainty=certainty), origin)


def rank(response: wire.InfillResponse, index: int, proposals: Sequence[Proposal]) -> list[Answer]:
    """All texts for the hole `index`, the best first, every text once.

    Where the engine compares texts its fills come first, since they are the best of these, or drawn; then what else it
    compared, then proposals that it left out. Of an engine that compares nothing all are sorted by certainty.
    """
    origins = {each.text: each.origin for each in proposals}
    rows = (response.holes, *response.alternatives)
    listed = [Answer(row[index], origins.get(row[index].text, DRAFTED)) for row in rows]
    compared = response.candidates[index] if index < len(response.candidates) else []
    listed += [Answer.of(each.text, each.certainty, origins.get(each.text, DRAFTED)) for each in compared]
    listed += [replace(Answer.of(each.text, each.certainty, each.origin), is_left_out=True) for each in proposals]
    if not compared:
        listed.sort(key=lambda answer: -1.0 if answer.filled.certainty is None else -answer.filled.certainty)
    found: dict[str, Answer] = {}
    for answer in listed:
        found.setdefault(answer.filled.text, answer)
    return list(found.values())


@dataclass(frozen=True)
class Row:
    """A candidate with what was told of its holes, which a repair starts from."""

    candidate: Alternative
    answers: tuple[Answer, ...]
    spliced: Spliced

    @property
    def holes(self) -> tuple[wire.FilledHole, ...]:
        return tuple(answer.filled for answer in self.answers)


@dataclass(frozen=True)
class Place:
    """A document, its holes in order, the names in sight of them, and what Midfill wrote that nobody has kept."""

    document: Document
    holes: tuple[Hole, ...]
    sight: Sight
    written: Written = Written()

    @cached_property
    def doubts(self) -> Doubts:
        return Doubts(self.document, self.written)

    def rows(self, answers: Iterable[Sequence[Answer]]) -> Iterator[Row]:
        """Those of the answers that can be put in: others leave out what is to be kept, or have no encoding."""
        for answer in answers:
            with suppress(MidfillError):
                yield self.row(answer)

    def row(self, answers: Sequence[Answer]) -> Row:
        """Raises MidfillError."""
        spliced = splice(self.document, self.holes, [answer.filled.text for answer in answers])
        fills = tuple(
            self._temper(place_fill(hole, answer.filled, fill, answer.origin))
            for hole, answer, fill in zip(self.holes, answers, spliced.fills, strict=True)
        )
        names = {name for fill in spliced.fills for name in fill.names}
        num_unseen = sum(not self.sight.has(name) for name in names)
        is_idle = any(self._is_idle(index, fill) for index, fill in enumerate(spliced.fills))
        return Row(Alternative(spliced.patch, fills, spliced.new_errors, num_unseen, is_idle), tuple(answers), spliced)

    def _temper(self, fill: PlacedFill) -> PlacedFill:
        return replace(fill, certainty=self.doubts.temper(fill.hole, fill.text, fill.certainty))

    def settle(self, ranked: Sequence[Sequence[Answer]]) -> Row:
        """The first text of every hole, but where that has a fault the first without any, or with the fewest faults.

        Of several holes each is settled in turn, the others as they are by then. At most 40 texts are tried. Raises
        MidfillError where none can be put in.
        """
        row = next(self.rows(_rows_of(ranked)), None) or self.row([texts[0] for texts in ranked])
        share = max(1, MAX_TRIED // max(1, len(self.holes)))
        for index, texts in enumerate(ranked):
            if self._is_at_fault(row, index):
                row = self._improve_hole(row, index, texts[:share])
        return row

    def list_rows(self, ranked: Sequence[Sequence[Answer]], best: Row, most: int, *, every: bool = False) -> list[Row]:
        """`best`, and the next best that differ from it, `most` in all; those with fewer faults first. Of what no
        engine has looked at only what is FAIR. With `every` the best with each of the next texts of one hole as well.
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

    def _is_idle(self, index: int, fill: SplicedFill) -> bool:
        hole = self.holes[index]
        held = self.document.show(hole.start_byte, hole.end_byte).strip()
        return fill.is_idle or (hole.is_body and fill.text.strip() == held)

    def _is_at_fault(self, row: Row, index: int) -> bool:
        fill = row.spliced.fills[index]
        is_empty = not fill.text.strip() or self._is_idle(index, fill)
        return bool(fill.error_ranges) or is_empty or any(not self.sight.has(name) for name in fill.names)

    def _improve_hole(self, row: Row, index: int, texts: Sequence[Answer]) -> Row:
        num_whole = max(MIN_WHOLE, MAX_WHOLE_BYTES // max(1, len(self.document.source)))
        others = [answer for answer in texts if answer != row.answers[index]]
        tried = ([*row.answers[:index], answer, *row.answers[index + 1 :]] for answer in self._sift(index, others))
        for other in islice(self.rows(tried), num_whole):
            if not other.candidate.is_idle and other.candidate.faults < row.candidate.faults:
                row = other
            if not any(row.candidate.faults):
                break
        return row

    def _sift(self, index: int, answers: Sequence[Answer]) -> Iterator[Answer]:
        """Those without a fault in the hole's function, then the one with the fewest; all where that cannot be told."""
        sieve = find_sieve(self.document, self.holes, index)
        if sieve is None:
            yield from answers
            return
        faulty: list[tuple[tuple[int, int], Answer]] = []
        for answer in answers:
            if (faults := sieve.judge(answer.filled.text, self.sight)) is not None:
                if any(faults):
                    faulty.append((faults, answer))
                else:
                    yield answer
        if faulty:
            yield min(faulty, key=lambda judged: judged[0])[1]


def _rows_of(ranked: Sequence[Sequence[Answer]]) -> Iterator[list[Answer]]:
    """The best texts of all holes, their second best, ..., as far as all holes have one."""
    yield from map(list, zip(*ranked, strict=False))


def _vary(ranked: Sequence[Sequence[Answer]]) -> Iterator[list[Answer]]:
    """The best texts with each of the next few of one hole."""
    firsts = [texts[0] for texts in ranked]
    for index, texts in enumerate(ranked):
        for answer in texts[1 : 1 + MIN_WHOLE]:
            yield [*firsts[:index], answer, *firsts[index + 1 :]]


def place_fill(hole: Hole, filled: wire.FilledHole, spliced: SplicedFill, origin: str = DRAFTED) -> PlacedFill:
    """Moves the engine's tokens to where splicing put their characters; tokens that were cut are left out."""
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
    """Where a range of the engine's text stands in a fill; None where it was cut."""
    places = [place for place, origin in enumerate(origins) if range[0] <= origin < range[1]]
    return (places[0], places[-1] + 1) if places else None
