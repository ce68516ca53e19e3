"""Tries the candidates of a fill one after another until one passes. Knows no files: its caller runs the tries."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from midfill_engine import wire
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative, Place
from midfill_infill.filling.fill import Filled, Options, Preview, add_stats
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.runner import Ran
from midfill_infill.syntax.holes import sort_holes
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_infill.until.anew import find_fault, put_together, reopen
from midfill_infill.until.order import Queue

Events = Generator[Preview | Filled, None, None]
Make = Callable[[Document, Sequence[Hole], Options], Events]  # one fill
Run = Callable[[Alternative], Ran]  # the command, on one candidate
Where = Callable[[str], bool]  # true if a path of a traceback is the document
DEFAULT_TRIES: Final = 20
NUM_ASKED: Final = 8  # alternatives per request, the maximum of the wire format
DRAWN: Final = (0.6, 0.8, 1.0)  # temperatures of the rounds after the first
MAX_IDLE_ROUNDS: Final = 3
_OF_A_REQUEST: Final = ("hole_too_large", "bad_request", "engine_error", "file_encoding")


@dataclass(frozen=True)
class Goal:
    """The command that a fill must pass. `timeout_s` ends a try; `Lab.start` chooses the default."""

    command: Command
    num_tries: int = DEFAULT_TRIES
    timeout_s: float | None = None


@dataclass(frozen=True)
class Try:
    """One run with a candidate; `number` counts from 1."""

    number: int
    candidate: Alternative
    ran: Ran


@dataclass(frozen=True)
class Tried:
    """The result. The best of `filled` is the candidate that passed, or the one that came closest."""

    filled: Filled
    tries: tuple[Try, ...]

    def find_try(self, candidate: Alternative) -> Try | None:
        """The run with a candidate; None if it was not tried."""
        for one in self.tries:
            if one.candidate is candidate:
                return one
        return None

    @property
    def best(self) -> Try | None:
        """The run of the best candidate."""
        return self.find_try(self.filled.best)

    @property
    def passed(self) -> bool:
        return self.best is not None and self.best.ran.is_good

    @property
    def sentence(self) -> str:
        """The reason why no candidate passed, as a sentence."""
        if not self.tries:
            return "the model has no candidate to try"
        sentence = "the one candidate does not pass"
        if len(self.tries) > 1:
            sentence = f"none of {len(self.tries)} tries passes"
        runs = [one.ran for one in self.tries]
        if all(ran.code is None for ran in runs):
            return f"{sentence}, each is too slow"
        reasons = {ran.failures[0].sentence for ran in runs if ran.failures}
        if len(reasons) == 1:
            return f"{sentence}, all for one reason: {reasons.pop()}"
        return sentence

    def describe(self, candidate: Alternative) -> str:
        """The result of one candidate, in words."""
        one = self.find_try(candidate)
        if one is None:
            return "not tried"
        words = f"try {one.number} of {len(self.tries)}: {one.ran.verdict}"
        if one.ran.passed and not one.ran.is_good:
            words += f", {one.ran.passed} tests pass"
        if not self.passed and candidate is self.filled.best:
            words += ", the best of them"
        return words


def fill_until(
    document: Document, holes: Sequence[Hole], options: Options, make: Make, run: Run, *, where: Where, num_tries: int
) -> Generator[Preview | Try | Tried, None, None]:
    """Fills `holes` jointly and tries the candidates, the best first; then hole by hole and line by line.

    `make` asks an engine for candidates. Candidates that would fail like an earlier one go to the end. The faulty line
    is drafted again while the rest stays. Closing the generator closes the engine's connection. Raises MidfillError.
    """
    holes = tuple(sort_holes(document, list(holes)))
    place = Place(document, holes, options.written)
    queue = Queue(document)
    tries: list[Try] = []
    stats: wire.Stats | None = None
    model = ""
    num_idle = 0
    rounds = _rounds(place, options, make, tries, where)
    while len(tries) < num_tries and num_idle < MAX_IDLE_ROUNDS:
        candidate = queue.take()
        if candidate is None:
            filled = yield from _take_round(rounds, is_first=stats is None)
            if filled is None:
                break
            stats = filled.stats if stats is None else add_stats(stats, filled.stats)
            model = filled.model or model
            num_idle += 1
            if queue.add((filled.best, *filled.alternatives)):
                num_idle = 0
            continue
        ran = run(candidate)
        tries.append(Try(len(tries) + 1, candidate, ran))
        yield tries[-1]
        if ran.is_good:
            break
        queue.learn(candidate, ran, find_fault(document, candidate, ran, where))
    rounds.close()
    if stats is None:
        raise MidfillError("engine_error", "the engine made no candidate")
    ranked = [one.candidate for one in sorted(tries, key=_closeness)]
    best, *others = ranked or [queue.first]
    yield Tried(Filled(best, tuple(others), stats, model), tuple(tries))


def _closeness(one: Try) -> tuple[bool, bool, int, int]:
    """Sort key: passed first, then by the number of passing tests, then by the order of the tries."""
    num_passed = one.ran.passed or 0
    return not one.ran.is_good, one.ran.code is None, -num_passed, one.number


def _rounds(
    place: Place, options: Options, make: Make, tries: Sequence[Try], where: Where
) -> Generator[Events, None, None]:
    """Yields fills that bring new candidates, endlessly; each uses the failures known when it begins."""
    document, holes = place.document, place.holes
    yield make(document, holes, replace(options, n=NUM_ASKED, every=True))
    if len(holes) > 1:
        yield _mix(place, tries)
    redone: set[int] = set()
    number = 0
    while True:
        for one in sorted(tries, key=_closeness)[:3]:
            if one.number in redone:
                continue
            redone.add(one.number)
            number += 1
            drawn = _drawn(options, number)
            fault = find_fault(document, one.candidate, one.ran, where)
            if fault is not None:
                yield _refill(place, one.candidate, fault.hole, fault.span, drawn, make)
            elif len(holes) > 1:
                for index in range(len(holes)):
                    yield _refill(place, one.candidate, index, None, drawn, make)
        for _ in range(2):
            number += 1
            yield make(document, holes, _drawn(options, number))


def _mix(place: Place, tries: Sequence[Try]) -> Events:
    """Variants of the best candidate, each with one hole's text of another candidate."""
    best, *others = [one.candidate for one in sorted(tries, key=_closeness)]
    mixed: list[Alternative] = []
    for other in others:
        for index, fill in enumerate(other.fills):
            candidate = put_together(place, best, index, fill)
            if candidate is not None:
                mixed.append(candidate)
    first, *others = mixed or [best]
    yield Filled(first, tuple(others), wire.Stats(steps=0, forwards=0, tokens=0, ms=0.0), "")


def _drawn(options: Options, number: int) -> Options:
    """Options of round `number`, which samples its drafts."""
    temperature = DRAWN[(number - 1) % len(DRAWN)]
    return replace(options, n=NUM_ASKED, seed=options.seed + number, temperature=temperature, repair=False)


def _refill(
    place: Place, candidate: Alternative, index: int, span: tuple[int, int] | None, options: Options, make: Make
) -> Events:
    """Variants of a candidate with `span` of one hole's text, or all of it, filled again."""
    reopened, hole = reopen(place.document, candidate, index, span)
    for event in make(reopened, (hole,), options):
        if isinstance(event, Preview):
            yield event
            continue
        variants: list[Alternative] = []
        for alternative in (event.best, *event.alternatives):
            variant = put_together(place, candidate, index, alternative.fills[0])
            if variant is not None:
                variants.append(variant)
        best, *others = variants or [candidate]
        yield replace(event, best=best, alternatives=tuple(others))


def _take_round(rounds: Iterator[Events], *, is_first: bool) -> Generator[Preview, None, Filled | None]:
    """The next round's candidates. Skips a later round whose request fails."""
    for _ in range(MAX_IDLE_ROUNDS):
        try:
            with closing(next(rounds)) as events:
                for event in events:
                    if not isinstance(event, Preview):
                        return event
                    yield event
        except MidfillError as error:
            if is_first or error.code not in _OF_A_REQUEST:
                raise
    return None
