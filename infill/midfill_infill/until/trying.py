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

    @property
    def best(self) -> Try | None:
        return next((each for each in self.tries if each.candidate is self.filled.best), None)

    @property
    def passed(self) -> bool:
        return self.best is not None and self.best.ran.is_good

    @property
    def sentence(self) -> str:
        """The reason why no candidate passed, as a sentence."""
        if not self.tries:
            return "the model has no candidate to try"
        tried = f"none of {len(self.tries)} tries passes" if len(self.tries) > 1 else "the one candidate does not pass"
        if all(each.ran.code is None for each in self.tries):
            return f"{tried}, each is too slow"
        reasons = {each.ran.failures[0].sentence for each in self.tries if each.ran.failures}
        return f"{tried}, all for one reason: {reasons.pop()}" if len(reasons) == 1 else tried

    def describe(self, candidate: Alternative) -> str:
        """The result of one candidate, in words."""
        found = next((each for each in self.tries if each.candidate is candidate), None)
        if found is None:
            return "not tried"
        passed = f", {found.ran.passed} tests pass" if found.ran.passed and not found.ran.is_good else ""
        best = ", the best of them" if not self.passed and candidate is self.filled.best else ""
        return f"try {found.number} of {len(self.tries)}: {found.ran.verdict}{passed}{best}"


def fill_until(
    document: Document, holes: Sequence[Hole], options: Options, make: Make, run: Run, *, where: Where, num_tries: int
) -> Generator[Preview | Try | Tried, None, None]:
    """Fills `holes` jointly and tries the candidates, the best first; then hole by hole and line by line.

    `make` asks an engine for candidates. Candidates that would fail like an earlier one go to the end. The faulty line
    is drafted again while the rest stays. Closing the generator closes the engine's connection. Raises MidfillError.
    """
    holes = tuple(sort_holes(document, list(holes)))
    queue, tries, stats = Queue(document), list[Try](), None
    model, idle = "", 0
    place = Place(document, holes, options.written)
    rounds = _rounds(place, options, make, tries, where)
    while len(tries) < num_tries and idle < MAX_IDLE_ROUNDS:
        if (candidate := queue.take()) is None:
            filled = yield from _take_round(rounds, is_first=stats is None)
            if filled is None:
                break
            stats, model = filled.stats if stats is None else add_stats(stats, filled.stats), filled.model or model
            idle = 0 if queue.add((filled.best, *filled.alternatives)) else idle + 1
            continue
        tries.append(Try(len(tries) + 1, candidate, run(candidate)))
        yield tries[-1]
        if tries[-1].ran.is_good:
            break
        queue.learn(candidate, tries[-1].ran, find_fault(document, candidate, tries[-1].ran, where))
    rounds.close()
    if stats is None:
        raise MidfillError("engine_error", "the engine made no candidate")
    ranked = sorted(tries, key=_closeness)
    chosen = [each.candidate for each in ranked] or [queue.first]
    yield Tried(Filled(chosen[0], tuple(chosen[1:]), stats, model), tuple(tries))


def _closeness(each: Try) -> tuple[bool, bool, int, int]:
    """Sort key: passed first, then by the number of passing tests, then by the order of the tries."""
    return not each.ran.is_good, each.ran.code is None, -(each.ran.passed or 0), each.number


def _rounds(
    place: Place, options: Options, make: Make, tries: Sequence[Try], where: Where
) -> Generator[Events, None, None]:
    """Yields fills that bring new candidates, endlessly; each uses the failures known when it begins."""
    document, holes = place.document, place.holes
    yield make(document, holes, replace(options, n=NUM_ASKED, every=True))
    if len(holes) > 1:
        yield _mix(place, tries)
    redone = set[int]()
    number = 0
    while True:
        for each in sorted(tries, key=_closeness)[:3]:
            if each.number not in redone:
                redone.add(each.number)
                number += 1
                drawn = _drawn(options, number)
                fault = find_fault(document, each.candidate, each.ran, where)
                for index in range(len(holes)) if len(holes) > 1 and fault is None else ():
                    yield _refill(place, each.candidate, index, None, drawn, make)
                if fault is not None:
                    yield _refill(place, each.candidate, fault.hole, fault.span, drawn, make)
        for _ in range(2):
            number += 1
            yield make(document, holes, _drawn(options, number))


def _mix(place: Place, tries: Sequence[Try]) -> Events:
    """Variants of the best candidate, each with one hole's text of another candidate."""
    best, *others = [each.candidate for each in sorted(tries, key=_closeness)]
    pairs = ((index, other.fills[index]) for other in others for index in range(len(place.holes)))
    made = [put_together(place, best, index, fill) for index, fill in pairs]
    kept = [each for each in made if each is not None] or [best]
    yield Filled(kept[0], tuple(kept[1:]), wire.Stats(steps=0, forwards=0, tokens=0, ms=0.0), "")


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
        fills = [each.fills[0] for each in (event.best, *event.alternatives)]
        made = [put_together(place, candidate, index, fill) for fill in fills]
        best, *others = [each for each in made if each is not None] or [candidate]
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
