"""Ways to fill all holes at once: spliced into the document, ranked, and chosen among. Knows no engine's connection.

The parser goes before likelihood: of two candidates the one that adds fewer errors is better, however sure the other.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, TypeVar

from midfill_engine import wire
from midfill_infill.errors import MidfillError
from midfill_infill.splicing.sieve import find_sieve
from midfill_infill.splicing.sight import Sight
from midfill_infill.splicing.splice import Spliced, SplicedFill, splice
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch

MAX_TRIED: Final = 40
SURE: Final = 0.75
LIKELY: Final = 0.5
# Of single lines from this certainty on three of four were right: `python -m bench.quality.experts` prints it.
SHOWN: Final = 0.45
# A body's draft that is right so often is put before what a doubtful engine wrote (docs/lab/quality.md).
FAIR: Final = 0.05
# Before a body that is right more seldom any draft is put: of 429 such bodies 3 were right, 20 % alike on average; that
# of the function most alike was right 25 times, and 45 % alike (no time and 32 where a function is not much alike).
HOPELESS: Final = 0.03
# An engine's certainties are fitted on lines: so much of the odds it tells are those of a whole body. Of 504 bodies of
# the Python packages that drafts are fitted on 11 were right; 2026-11-23, printed by `bench.quality.bodies`.
BODY_ODDS: Final = 0.13
DOUBTFUL: Final = BODY_ODDS / (1 + BODY_ODDS)  # of a body of even odds
# How often a draft of marks alone, such as `})`, was right for which the parser passed others over: 22 of 70, among
# 2,028 lines of the packages that drafts are fitted on, with weights that had not seen their package; 2026-11-22.
CLOSING: Final = 0.31
# So many are parsed in the whole document, more of them in a short one: 20 ms each in a file of 3,000 lines.
MIN_WHOLE: Final = 6
MAX_WHOLE_BYTES: Final = 400_000

Told = TypeVar("Told", wire.FilledHole, wire.Draft)


@dataclass(frozen=True)
class FilledHole:
    """A fill as it goes into the document, with `\\n` line ends. `confidence[i]` belongs to `text[slice(*tokens[i])]`.

    White space that splicing added belongs to no token. `errors` are ranges of `text` that no syntax allows.
    `certainty` is the calibrated probability that all of it is right, None where the engine does not say. `from_file`:
    it is a draft made of the user's own code, which won over what the model wrote.
    """

    hole: Hole
    text: str
    tokens: tuple[tuple[int, int], ...]
    confidence: tuple[float, ...]
    errors: tuple[tuple[int, int], ...] = ()
    certainty: float | None = None
    from_file: bool = False

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


@dataclass(frozen=True)
class Candidate:
    """One way to fill all holes; `new_errors` counts the syntax errors that its patch adds, `num_unseen` the names it
    uses that stand nowhere in sight. `is_idle` says that a body got what does nothing: a placeholder, remarks alone, a
    call of itself, or what it held.
    """

    patch: Patch
    fills: tuple[FilledHole, ...]
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
    def mean_log_confidence(self) -> float:
        scores = [math.log(max(score, 1e-9)) for fill in self.fills for score in fill.confidence]
        return sum(scores) / len(scores) if scores else 0.0

    @property
    def certainty(self) -> float | None:
        """That of its least certain fill; None where the engine does not say."""
        known = [fill.certainty for fill in self.fills if fill.certainty is not None]
        return min(known) if len(known) == len(self.fills) else None


@dataclass(frozen=True)
class Row:
    """A candidate with what the engine said, which a repair starts from."""

    candidate: Candidate
    holes: tuple[wire.FilledHole, ...]
    spliced: Spliced

    @property
    def rank(self) -> tuple[tuple[int, bool, int], float]:
        return self.candidate.faults, -self.candidate.mean_log_confidence


def list_distinct(rows: Sequence[Row]) -> list[Row]:
    """The rows in their order, of equal ones the first, and one that is idle only where all are."""
    distinct = list({row.candidate.patch: row for row in reversed(rows)}.values())[::-1]
    return [row for row in distinct if not row.candidate.is_idle] or distinct[:1]


@dataclass(frozen=True)
class Place:
    """A document, its holes in order, and the names in sight of them."""

    document: Document
    holes: tuple[Hole, ...]
    sight: Sight

    def rows(self, answers: Sequence[Sequence[wire.FilledHole]]) -> list[Row]:
        """Those of an engine's answers that can be put in, the best first. Raises MidfillError where none can."""
        rows: list[Row] = []
        failures: list[MidfillError] = []
        for answer in answers:
            try:
                rows.append(self.row(list(map(weigh, self.holes, self._check(answer)))))
            except MidfillError as failure:
                failures.append(failure)
        if not rows:
            raise failures[0]
        return list_distinct(sorted(rows, key=lambda row: row.rank))

    def _check(self, answer: Sequence[wire.FilledHole]) -> Sequence[wire.FilledHole]:
        if len(answer) != len(self.holes):
            raise MidfillError("engine_error", f"the engine answered {len(answer)} of {len(self.holes)} holes")
        return answer

    def row(self, answer: Sequence[wire.FilledHole]) -> Row:
        spliced = splice(self.document, self.holes, [filled.text for filled in answer])
        fills = tuple(map(place_fill, self.holes, answer, spliced.fills))
        names = {name for fill in spliced.fills for name in fill.names}
        num_unseen = sum(not self.sight.has(name) for name in names)
        is_idle = any(self._is_idle(index, fill) for index, fill in enumerate(spliced.fills))
        return Row(Candidate(spliced.patch, fills, spliced.new_errors, num_unseen, is_idle), tuple(answer), spliced)

    def improve(self, row: Row, list_drafts: Callable[[int], Sequence[wire.Draft]]) -> Row:
        """`row`, or what has fewer faults with drafts in its holes: the first without any, at most 40 are tried.

        Drafts are listed for those holes alone that need one: looking for them reads the whole file. In a body that the
        engine itself doubts a fair draft wins, too, and any where the engine is all but sure to be wrong. Of several
        holes each is settled in turn, the others as they are by then.
        """
        share = max(1, MAX_TRIED // max(1, len(self.holes)))
        for index in range(len(self.holes)):
            if self._is_doubtful(row, index) or self._is_at_fault(row, index):
                ordered = sorted(list_drafts(index), key=lambda draft: -draft.certainty)[:share]
                row = self._improve_hole(row, index, ordered)
        return row

    def vary(self, row: Row, list_drafts: Callable[[int], Sequence[wire.Draft]]) -> list[Row]:
        """`row` with each of the surest drafts in a hole."""
        found = []
        for index in range(len(self.holes)):
            for draft in sorted(list_drafts(index), key=lambda draft: -draft.certainty)[:MIN_WHOLE]:
                try:
                    found.append(self.row([*row.holes[:index], _as_answer(draft, False), *row.holes[index + 1 :]]))
                except MidfillError:  # it leaves out what is to be kept, or has no encoding
                    continue
        return found

    def _is_idle(self, index: int, fill: SplicedFill) -> bool:
        hole = self.holes[index]
        held = self.document.show(hole.start_byte, hole.end_byte).strip()
        return hole.is_body and (fill.is_idle or fill.text.strip() == held)

    def _is_doubtful(self, row: Row, index: int, below: float = DOUBTFUL) -> bool:
        certainty = row.holes[index].certainty
        return self.holes[index].is_body and certainty is not None and certainty < below

    def _is_at_fault(self, row: Row, index: int) -> bool:
        fill = row.spliced.fills[index]
        is_empty = not fill.text.strip() or self._is_idle(index, fill)
        return bool(fill.error_ranges) or is_empty or any(not self.sight.has(name) for name in fill.names)

    def _improve_hole(self, row: Row, index: int, drafts: Sequence[wire.Draft]) -> Row:
        is_doubtful, is_hopeless = self._is_doubtful(row, index), self._is_doubtful(row, index, below=HOPELESS)
        had_errors, has_better = row.candidate.new_errors > 0, False
        num_whole = max(MIN_WHOLE, MAX_WHOLE_BYTES // max(1, len(self.document.source)))
        for draft in islice(self._sift(index, drafts), num_whole):
            answer = [*row.holes[:index], _as_answer(draft, had_errors), *row.holes[index + 1 :]]
            try:
                other = self.row(answer)
            except MidfillError:  # it leaves out what is to be kept, or has no encoding
                continue
            is_better = is_hopeless or (is_doubtful and draft.certainty >= FAIR)
            if (other.candidate.faults, not is_better) < (row.candidate.faults, not has_better):
                row, has_better = other, is_better
            if not any(row.candidate.faults):
                break
        return row

    def _sift(self, index: int, drafts: Sequence[wire.Draft]) -> Iterator[wire.Draft]:
        """Those without a fault in the hole's function, then the one with the fewest; all where that cannot be told."""
        sieve = find_sieve(self.document, self.holes, index)
        if sieve is None:
            yield from drafts
            return
        faulty: list[tuple[tuple[int, int], wire.Draft]] = []
        for draft in drafts:
            if (faults := sieve.judge(draft.text, self.sight)) is not None:
                if any(faults):
                    faulty.append((faults, draft))
                else:
                    yield draft
        if faulty:
            yield min(faulty, key=lambda judged: judged[0])[1]


class DraftedHole(wire.FilledHole):
    """A draft in the place of what an engine answered."""


def _as_answer(draft: wire.Draft, closes: bool) -> DraftedHole:
    is_closing = closes and not any(map(str.isalnum, draft.text))
    certainty = max(draft.certainty, CLOSING) if is_closing else draft.certainty
    tokens = [(0, len(draft.text))] if draft.text else []
    return DraftedHole(text=draft.text, tokens=tokens, confidence=[certainty] * len(tokens), certainty=certainty)


class Marked(Protocol):
    """A text with its tokens and how sure the engine is of each."""

    @property
    def tokens(self) -> Sequence[tuple[int, int]]: ...

    @property
    def confidence(self) -> Sequence[float]: ...


def place_fill(hole: Hole, filled: Marked, spliced: SplicedFill) -> FilledHole:
    """Moves the engine's tokens to where splicing put their characters; tokens that were cut are left out."""
    token_of = {char: index for index, (start, end) in enumerate(filled.tokens) for char in range(start, end)}
    spans: dict[int, tuple[int, int]] = {}
    for place, origin in enumerate(spliced.origins):
        if (token := token_of.get(origin)) is not None:
            spans[token] = (spans.get(token, (place, place))[0], place + 1)
    ordered = sorted(spans.items(), key=lambda item: item[1])
    return FilledHole(
        hole,
        spliced.text,
        tuple(span for _, span in ordered),
        tuple(filled.confidence[token] for token, _ in ordered),
        tuple(found for range in spliced.error_ranges if (found := _find(spliced.origins, range))),
        getattr(filled, "certainty", None),
        isinstance(filled, DraftedHole),
    )


def weigh(hole: Hole, told: Told) -> Told:
    """What an engine tells of a hole, of a body with the certainty that bodies have."""
    if (certainty := told.certainty) is None or not hole.is_body:
        return told
    return told.model_copy(update={"certainty": BODY_ODDS * certainty / (BODY_ODDS * certainty + 1 - certainty)})


def _find(origins: Sequence[int], range: tuple[int, int]) -> tuple[int, int] | None:
    """Where a range of the engine's text stands in a fill; None where it was cut."""
    places = [place for place, origin in enumerate(origins) if range[0] <= origin < range[1]]
    return (places[0], places[-1] + 1) if places else None
