"""Chooses among the texts for each hole by the order of trust: a text that adds no syntax error, then one that is not
blank or idle, then the engine's own order. Knows no engine's connection.
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
from midfill_infill.filling.doubts import DOUBTFUL, Doubts
from midfill_infill.filling.wishes import Bounds, is_within
from midfill_infill.filling.written import Written
from midfill_infill.proposals import Proposal
from midfill_infill.splicing.splice import Spliced, SplicedFill, Splicer
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch
from midfill_infill.text.visible import plural

MAX_TRIED: Final = 40  # texts of all holes together
SURE: Final = 0.75  # the least certainty of a fill that is called sure
LIKELY: Final = 0.5  # and of one that is called likely; a less certain one is a suggestion
SUGGESTION: Final = "a suggestion"
# Single lines with at least this certainty were right three times out of four (`python -m bench.quality.proposals`).
SHOWN: Final = 0.45
DRAFTED: Final = "drafted"  # the origin of a text that an engine's model wrote
FAIR: Final = 0.05  # the least certainty of a proposal that is offered as an alternative though no engine has ranked it
# To improve a hole, so many texts at least are parsed in the whole document, each in 20 ms in a file of 3,000 lines; in
# a short document more, as long as their parses read MAX_WHOLE_BYTES in all.
MIN_WHOLE: Final = 6
MAX_WHOLE_BYTES: Final = 400_000


@dataclass(frozen=True)
class PlacedFill:
    """A fill as inserted into the document, with `\\n` line ends. `confidence[i]` belongs to `text[slice(*tokens[i])]`.

    White space added by splicing belongs to no token. `errors` are ranges of `text` with syntax errors. `certainty` is
    the calibrated probability that the whole fill is right, None if neither the engine nor a measurement gives one.
    `engine_certainty` is the one that the engine itself gave, `proposal_certainty` that of a proposal with the same
    text, or 0. `origin` tells the user where the text comes from. `is_exempt`: a low certainty does not make the fill a
    suggestion. These are bodies whose certainty is only measured, because the engine gave none: even right bodies are
    rarely what people wrote word for word, which is what a measurement counts. `cut_at` is the limit of tokens that cut
    the text off, None if it is whole.
    """

    hole: Hole
    text: str
    tokens: tuple[tuple[int, int], ...]
    confidence: tuple[float, ...]
    errors: tuple[tuple[int, int], ...] = ()
    certainty: float | None = None
    origin: str = DRAFTED
    engine_certainty: float | None = None
    proposal_certainty: float = 0.0
    is_exempt: bool = False
    cut_at: int | None = None

    @property
    def evidence(self) -> Evidence:
        """What is known of the fill, from which a measured fit rates how likely it is right."""
        return Evidence.of(self.text, self.confidence, self.engine_certainty, self.proposal_certainty)

    @property
    def kind(self) -> Kind | None:
        """The kind of hole, which decides what measured fit applies; None for several lines that are no body."""
        if self.hole.is_body:
            return "body"
        if "\n" in self.text.strip():
            return None
        return "line"

    @property
    def is_suggestion(self) -> bool:
        """True if the fill is so uncertain that it is written only on request, or lacks its end."""
        if self.cut_at is not None:
            return True
        return self.certainty is not None and self.certainty < LIKELY and not self.is_exempt


def certainty_word(certainty: float) -> str:
    if certainty >= SURE:
        return "sure"
    return "likely" if certainty >= LIKELY else SUGGESTION


def describe_certainty(certainty: float | None, *, is_suggestion: bool) -> str:
    """The label shown to users, such as "likely (exact in 62%)": how often such a fill equals what people wrote. It is
    empty without a certainty, and "exact in 20%" alone for an unlikely fill that is no suggestion.
    """
    if certainty is None:
        return ""
    share, word = f"exact in {certainty:.0%}", certainty_word(certainty)
    return share if word == SUGGESTION and not is_suggestion else f"{word} ({share})"


def describe_fill(fill: PlacedFill) -> str:
    """The label of a fill shown to users, such as "likely (exact in 62%), the file's own line"."""
    label = [describe_certainty(fill.certainty, is_suggestion=fill.is_suggestion)]
    if fill.cut_at is not None:
        label = [label[0] or SUGGESTION, f"cut by the limit of {plural(fill.cut_at, 'token')}"]
    if fill.origin != DRAFTED:
        label.append(fill.origin)
    return ", ".join(filter(None, label))


def advise_on_cut(fill: PlacedFill) -> str:
    """A sentence on a fill that the limit of tokens cut off, with what to do; empty for a whole one."""
    if fill.cut_at is None:
        return ""
    message = f"the model's answer was cut by the limit of {plural(fill.cut_at, 'token')}"
    if fill.cut_at < wire.MAX_HOLE_TOKENS:
        return f"{message}; give a larger --max-tokens"
    return f"{message}, the most that --max-tokens allows; fill it in parts"


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
        """True if a body hole got no text: its body stays as it was, which adds no error but does not help."""
        return any(fill.hole.is_body and not fill.text for fill in self.fills)

    @property
    def is_blank(self) -> bool:
        """True if a hole got only white space."""
        return not all(fill.text.strip() for fill in self.fills)

    def is_within(self, bounds: Sequence[Bounds]) -> bool:
        """True if every text has as many lines as its bounds allow."""
        return all(is_within(bound, fill.text) for bound, fill in zip(bounds, self.fills, strict=True))

    @property
    def faults(self) -> tuple[int, bool]:
        """The number of new syntax errors, and whether a fill is blank or idle; the smaller tuple is better."""
        return self.new_errors, self.is_blank or self.is_idle

    @property
    def has_fault(self) -> bool:
        return any(self.faults)

    @property
    def certainty(self) -> float | None:
        """Certainty of the least certain fill; None unless every fill has one."""
        certainties = [fill.certainty for fill in self.fills if fill.certainty is not None]
        return min(certainties) if len(certainties) == len(self.fills) else None

    @property
    def is_cut(self) -> bool:
        """True if the limit of tokens cut off any of the fills."""
        return any(fill.cut_at is not None for fill in self.fills)

    @property
    def is_suggestion(self) -> bool:
        """True if any of the fills is written only on request."""
        return any(fill.is_suggestion for fill in self.fills)


@dataclass(frozen=True)
class Answer:
    """A text for one hole before it is spliced, and its origin. `is_unranked`: it is a proposal that the engine did not
    compare with its own texts. `proposal_certainty` is that of a proposal with the same text, 0 without one.
    """

    filled: wire.FilledHole
    origin: str = DRAFTED
    is_unranked: bool = False
    proposal_certainty: float = 0.0

    @classmethod
    def of(cls, text: str, certainty: float | None, origin: str = DRAFTED) -> "Answer":
        """The answer for a text without tokens: the whole text counts as one token, its certainty as the confidence."""
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
        """The certainty that the engine or the proposer gave, 0 if neither did."""
        return self.filled.certainty or 0.0


def rank(
    response: wire.InfillResponse, index: int, proposals: Sequence[Proposal], *, max_characters: int | None = None
) -> list[Answer]:
    """All different texts for the hole `index`: the engine's fills, then the other texts that it compared, both in its
    own order, then the proposals that it did not rank. Longer ones than `max_characters`, if given, are left out.
    """
    origins = {proposal.text: proposal.origin for proposal in proposals}
    certainty_of = {proposal.text.strip(): proposal.certainty for proposal in reversed(proposals)}  # the first one wins
    answers = [Answer(filled_holes[index]) for filled_holes in (response.holes, *response.alternatives)]
    for compared in response.candidates[index] if index < len(response.candidates) else ():
        answers.append(Answer(compared) if compared.tokens else Answer.of(compared.text, compared.certainty))
    by_text: dict[str, Answer] = {}
    for answer in answers:
        text = answer.text
        origin, certainty = origins.get(text, DRAFTED), certainty_of.get(text.strip(), 0.0)
        by_text.setdefault(text, replace(answer, origin=origin, proposal_certainty=certainty))
    for proposal in proposals:
        if max_characters is None or len(proposal.text) <= max_characters:
            answer = Answer.of(proposal.text, proposal.certainty, proposal.origin)
            by_text.setdefault(proposal.text, replace(answer, is_unranked=True))
    return list(by_text.values())


@dataclass(frozen=True)
class Combination:
    """One answer for each hole, the candidate that they make, and what splicing found, from which a repair starts."""

    candidate: Alternative
    answers: tuple[Answer, ...]
    spliced: Spliced

    @property
    def holes(self) -> tuple[wire.FilledHole, ...]:
        return tuple(answer.filled for answer in self.answers)


@dataclass(eq=False)
class CandidateSelector:
    """Splices and rates the answers for the ordered holes of one fill, and chooses among them. Keeps what was once
    computed about the document and its holes.

    `written` are lines that Midfill wrote and nobody has accepted. `fits` rate how likely the model's texts are right,
    as measured on the user's code; they are known once the model has answered.
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
        """For each hole its `names`, which it has to bind, and `unused` names before it, as fields of wire.HoleSpec."""
        return [self.splicer.find_needs(index) for index in range(len(self.holes))]

    @property
    def imports(self) -> list[list[Proposal]]:
        """For each hole of a Python file imports of those names to bind that are modules of the standard library."""
        modules = sys.stdlib_module_names if self.document.language == "python" else frozenset()
        listed: list[list[Proposal]] = []
        for needs in self.needs:
            names = [name for name in needs.get("names", ()) if name in modules]
            listed.append([Proposal(f"import {name}", FAIR, "an import that is missing") for name in names])
        return listed

    def splice_all(self, tried: Iterable[Sequence[Answer]]) -> Iterator[Combination]:
        """Yields the combination of each item of `tried` whose texts can be inserted: they keep the anchors of their
        holes, and the file's encoding has their characters.
        """
        for answers in tried:
            with suppress(MidfillError):
                yield self.splice(answers)

    def splice(self, answers: Sequence[Answer]) -> Combination:
        """Splices one answer per hole and rates the fills. Raises MidfillError if a text cannot be inserted."""
        spliced = self.splicer.splice([answer.text for answer in answers], compiles=True)
        fills: list[PlacedFill] = []
        for hole, answer, spliced_fill in zip(self.holes, answers, spliced.fills, strict=True):
            placed = place_fill(hole, answer.filled, spliced_fill, answer.origin)
            rated = self._rate(placed, answer)
            certainty = self.doubts.temper(hole, rated.text, rated.certainty)
            if rated.cut_at is not None and certainty is not None:
                certainty = min(certainty, DOUBTFUL)
            is_exempt = rated.is_exempt and not self.doubts.has(hole, rated.text)
            fills.append(replace(rated, certainty=certainty, is_exempt=is_exempt))
        is_idle = any(fill.is_idle for fill in spliced.fills)
        candidate = Alternative(spliced.patch, tuple(fills), spliced.new_errors, is_idle)
        return Combination(candidate, tuple(answers), spliced)

    def _rate(self, fill: PlacedFill, answer: Answer) -> PlacedFill:
        """The fill with the certainty that the fit for its kind gives, if its model was measured."""
        if answer.is_unranked:
            return fill
        known = replace(fill, engine_certainty=fill.certainty, proposal_certainty=answer.proposal_certainty)
        fit = self.fits.get(known.kind) if known.kind else None
        if fit is None:
            return known
        is_exempt = known.hole.is_body and known.engine_certainty is None
        return replace(known, certainty=fit.rate(known.evidence), is_exempt=is_exempt)

    def choose(self, ranked: Sequence[Sequence[Answer]]) -> Combination:
        """Chooses among the texts of every hole: the first one if it has no fault, otherwise the first one without a
        fault, otherwise the one with the fewest.

        Settles the holes in order, given the current texts of the other holes. Tries at most 40 texts to replace faulty
        ones, at least one a hole. Raises MidfillError if no texts of the same rank can be inserted.
        """
        combination = next(self.splice_all(zip(*ranked, strict=False)), None)
        if combination is None:
            combination = self.splice([answers[0] for answers in ranked])  # raises what is wrong with the first texts
        max_tried = max(1, MAX_TRIED // max(1, len(self.holes)))
        for index, answers in enumerate(ranked):
            if self._is_at_fault(combination, index):
                combination = self._improve_hole(combination, index, answers[:max_tried])
        return combination

    def list_combinations(
        self, ranked: Sequence[Sequence[Answer]], best: Combination, most: int, *, every: bool = False
    ) -> list[Combination]:
        """`best`, then other combinations that are not idle, fewest faults first, at most `most` in all. A proposal
        that no engine has ranked needs a certainty of FAIR. `every` adds combinations that differ from the best texts
        in one hole, and returns all that can be inserted.
        """
        if most == 1 and not every:
            return [best]
        worthy: list[Sequence[Answer]] = []
        for answers in ranked:
            fair = [answer for answer in answers if not answer.is_unranked or answer.certainty >= FAIR]
            worthy.append(fair or answers[:1])
        tried: list[Sequence[Answer]] = [*islice(zip(*worthy, strict=False), 2 * most)]  # those of the same rank
        if every:
            tried += _vary(ranked)
        seen = {best.candidate.patch}
        combinations: list[Combination] = []
        for combination in self.splice_all(tried):
            if combination.candidate.patch not in seen and not combination.candidate.is_idle:
                combinations.append(combination)
            seen.add(combination.candidate.patch)
        combinations = [best, *sorted(combinations, key=lambda combination: combination.candidate.faults)]
        return combinations if every else combinations[:most]

    def _is_at_fault(self, combination: Combination, index: int) -> bool:
        """True if the fill of a hole has an error, is blank or does nothing."""
        fill = combination.spliced.fills[index]
        return bool(fill.error_ranges) or not fill.text.strip() or fill.is_idle

    def _improve_hole(self, combination: Combination, index: int, answers: Sequence[Answer]) -> Combination:
        """The combination with the fewest faults when the hole `index` takes one of `answers`, or `combination` itself
        if none has fewer. Stops at the first one without a fault.
        """
        max_parsed = max(MIN_WHOLE, MAX_WHOLE_BYTES // max(1, len(self.document.source)))
        others = [answer for answer in answers if answer != combination.answers[index]]
        before, behind = combination.answers[:index], combination.answers[index + 1 :]
        tried = ([*before, answer, *behind] for answer in self._sift(index, others))
        best = combination
        for other in islice(self.splice_all(tried), max_parsed):
            if other.candidate.faults < best.candidate.faults:
                best = other
            if not best.candidate.has_fault:
                break
        return best

    def _sift(self, index: int, answers: Sequence[Answer]) -> Iterator[Answer]:
        """Yields the answers without an error in the hole's function, then the answer with the fewest; all answers if
        the function alone tells nothing. Parsing the function costs a hundredth of parsing a long file.
        """
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


def _vary(ranked: Sequence[Sequence[Answer]]) -> Iterator[list[Answer]]:
    """Yields the best answers of all holes with that of one hole replaced, by each of its next MIN_WHOLE answers."""
    firsts = [answers[0] for answers in ranked]
    for index, answers in enumerate(ranked):
        for answer in answers[1 : 1 + MIN_WHOLE]:
            yield [*firsts[:index], answer, *firsts[index + 1 :]]


def place_fill(hole: Hole, filled: wire.FilledHole, spliced: SplicedFill, origin: str = DRAFTED) -> PlacedFill:
    """The fill with the engine's tokens where splicing put their characters, without tokens that splicing cut off."""
    token_of: dict[int, int] = {}
    for token, (start, end) in enumerate(filled.tokens):
        token_of |= dict.fromkeys(range(start, end), token)
    spans: dict[int, tuple[int, int]] = {}
    for position, source_position in enumerate(spliced.origins):
        if source_position in token_of:
            token = token_of[source_position]
            start, _ = spans.get(token, (position, position))
            spans[token] = (start, position + 1)
    tokens = sorted(spans, key=lambda token: spans[token])
    num_kept = max(spliced.origins, default=-1) + 1
    is_whole = bool(filled.text[num_kept:].strip())  # splicing ended it before its limit did
    errors = [_find_span(spliced.origins, error) for error in spliced.error_ranges]
    return PlacedFill(
        hole,
        spliced.text,
        tokens=tuple(spans[token] for token in tokens),
        confidence=tuple(filled.confidence[token] for token in tokens),
        errors=tuple(error for error in errors if error is not None),
        certainty=filled.certainty,
        origin=origin,
        cut_at=None if is_whole else filled.cut_at,
    )


def _find_span(origins: Sequence[int], source_span: tuple[int, int]) -> tuple[int, int] | None:
    """The range of the fill that came from a range of the engine's text; None if splicing cut it off."""
    start, end = source_span
    positions = [position for position, origin in enumerate(origins) if start <= origin < end]
    return (positions[0], positions[-1] + 1) if positions else None
