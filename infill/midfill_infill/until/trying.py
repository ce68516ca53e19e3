"""Tries the candidates of a fill one after another until one passes. Knows no files: its caller runs the tries."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from midfill_engine import wire
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative, CandidateSelector
from midfill_infill.filling.fill import Filled, Options, Preview, add_stats
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.runner import Ran
from midfill_infill.syntax.holes import sort_holes
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_infill.text.visible import plural
from midfill_infill.until.anew import find_fault, put_together, reopen
from midfill_infill.until.order import Queue

Events = Generator[Preview | Filled, None, None]
Make = Callable[[Document, Sequence[Hole], Options], Events]  # makes one fill, by an engine
Run = Callable[[Alternative], Ran]  # runs the command on one candidate
Where = Callable[[str], bool]  # True if a path that a traceback shows is the document
DEFAULT_TRIES: Final = 20
NUM_ASKED: Final = 8  # fills per request, the maximum of the wire format
TEMPERATURES: Final = (0.6, 0.8, 1.0)  # of the rounds after the first, in turn
MAX_IDLE_ROUNDS: Final = 3  # after so many rounds in a row without a new candidate, or that fail, nothing more is tried
# Errors of a single request, which another candidate need not have: its round is left out.
_OF_A_REQUEST: Final = ("hole_too_large", "bad_request", "engine_error", "file_encoding")


@dataclass(frozen=True)
class Goal:
    """The command that a fill must pass, and how long it is tried. `timeout_s` ends a try; `Lab` chooses a default."""

    command: Command
    num_tries: int = DEFAULT_TRIES
    timeout_s: float | None = None


@dataclass(frozen=True)
class Try:
    """One run of the command with a candidate; `number` counts from 1."""

    number: int
    candidate: Alternative
    ran: Ran


@dataclass(frozen=True)
class Tried:
    """The result of `fill_until`. The best of `filled` is the candidate that passed, or the one that came closest."""

    filled: Filled
    tries: tuple[Try, ...]
    num_tries: int  # that were allowed

    def find_try(self, candidate: Alternative) -> Try | None:
        """The try with a candidate; None if it was not tried."""
        return next((attempt for attempt in self.tries if attempt.candidate is candidate), None)

    @property
    def best(self) -> Try | None:
        """The try with the best candidate; None if nothing was tried."""
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
        runs = [attempt.ran for attempt in self.tries]
        if all(ran.code is None for ran in runs):
            return f"{sentence}, each is too slow"
        reasons = {ran.reason for ran in runs if ran.reason}
        if len(reasons) == 1:
            return f"{sentence}, all for one reason: {reasons.pop()}"
        return sentence

    @property
    def next_step(self) -> str | None:
        """What to do if no candidate passed; None if more tries may help, as the table of errors says."""
        if len(self.tries) >= self.num_tries:
            return None
        step = "give a larger --model"
        return f"there are no other candidates, so {step}" if self.tries else step

    def describe(self, candidate: Alternative) -> str:
        """The result of one candidate, in words for the user."""
        attempt = self.find_try(candidate)
        if attempt is None:
            return "not tried"
        words = f"try {attempt.number} of {len(self.tries)}: {attempt.ran.verdict}"
        if attempt.ran.passed and not attempt.ran.is_good:
            verb = "passes" if attempt.ran.passed == 1 else "pass"
            words += f", {plural(attempt.ran.passed, 'test')} {verb}"
        if not self.passed and candidate is self.filled.best:
            words += ", the best of them"
        return words


def fill_until(
    document: Document, holes: Sequence[Hole], options: Options, make: Make, run: Run, *, where: Where, num_tries: int
) -> Generator[Preview | Try | Tried, None, None]:
    """Fills `holes` jointly and tries the candidates, the best first, until one passes or `num_tries` were tried.
    Yields previews, each `Try`, and at the end one `Tried`.

    `make` asks an engine for candidates. When all are tried, later rounds fill a single hole or the faulty line of the
    closest candidates again, while their other text stays. Candidates that would fail like an earlier one are tried
    last. Closing the generator closes the engine's connection. Raises MidfillError.
    """
    selector = CandidateSelector(document, tuple(sort_holes(document, list(holes))), options.written)
    queue = Queue(document)
    tries: list[Try] = []
    stats: wire.Stats | None = None
    model = ""
    num_idle = 0  # rounds in a row without a new candidate
    rounds = _make_rounds(selector, options, make, tries, where)
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
    ranked = [attempt.candidate for attempt in sorted(tries, key=_rank_try)]
    best, *others = ranked or [queue.first]
    yield Tried(Filled(best, tuple(others), stats, model), tuple(tries), num_tries)


def _rank_try(attempt: Try) -> tuple[bool, bool, int, int]:
    """Sort key: passed first, too slow last, then by the number of passing tests, then by the order of the tries."""
    num_passed = attempt.ran.passed or 0
    return not attempt.ran.is_good, attempt.ran.code is None, -num_passed, attempt.number


def _make_rounds(
    selector: CandidateSelector, options: Options, make: Make, tries: Sequence[Try], where: Where
) -> Generator[Events, None, None]:
    """Yields fills that bring new candidates, endlessly: of all holes, then variants of the closest tries.

    `tries` is the caller's list, which grows meanwhile: each fill uses those that were made when it begins.
    """
    document, holes = selector.document, selector.holes
    yield make(document, holes, replace(options, n=NUM_ASKED, every=True, spares_queries=True))  # tried soon
    if len(holes) > 1 and tries:
        yield _mix(selector, tries)
    refilled: set[int] = set()  # numbers of tries
    num_rounds = 0
    while True:
        for attempt in sorted(tries, key=_rank_try)[:3]:
            if attempt.number in refilled:
                continue
            refilled.add(attempt.number)
            num_rounds += 1
            sampling = _sample(options, num_rounds)
            fault = find_fault(document, attempt.candidate, attempt.ran, where)
            if fault is not None:
                yield _refill(selector, attempt.candidate, fault.hole_index, fault.span, sampling, make)
            elif len(holes) > 1:
                for index in range(len(holes)):
                    yield _refill(selector, attempt.candidate, index, None, sampling, make)
        for _ in range(2):
            num_rounds += 1
            yield make(document, holes, _sample(options, num_rounds))


def _mix(selector: CandidateSelector, tries: Sequence[Try]) -> Events:
    """Yields variants of the best candidate, each with the text of another candidate in one hole; asks no engine."""
    best, *others = [attempt.candidate for attempt in sorted(tries, key=_rank_try)]
    made = (put_together(selector, best, index, fill) for other in others for index, fill in enumerate(other.fills))
    first, *others = [candidate for candidate in made if candidate is not None] or [best]
    yield Filled(first, tuple(others), wire.Stats(steps=0, forwards=0, tokens=0, ms=0.0), "")


def _sample(options: Options, number: int) -> Options:
    """The options of round `number`, which counts from 1: each samples with another seed."""
    temperature = TEMPERATURES[(number - 1) % len(TEMPERATURES)]
    return replace(options, n=NUM_ASKED, seed=options.seed + number, temperature=temperature, repair=False)


def _refill(
    selector: CandidateSelector,
    candidate: Alternative,
    index: int,
    span: tuple[int, int] | None,
    options: Options,
    make: Make,
) -> Events:
    """Yields variants of a candidate, in which `span` of the text of the hole `index` is filled again; all for None."""
    reopened, hole = reopen(selector.document, candidate, index, span)
    for event in make(reopened, (hole,), options):
        if isinstance(event, Preview):
            yield event
            continue
        fills = [alternative.fills[0] for alternative in (event.best, *event.alternatives)]
        variants = (put_together(selector, candidate, index, fill) for fill in fills)
        best, *others = [variant for variant in variants if variant is not None] or [candidate]
        yield replace(event, best=best, alternatives=tuple(others))


def _take_round(rounds: Iterator[Events], *, is_first: bool) -> Generator[Preview, None, Filled | None]:
    """Yields the previews of the next round, and returns its fill; None if there is none.

    Skips up to MAX_IDLE_ROUNDS rounds whose request fails. Raises MidfillError for other failures, and for any failure
    of the first round.
    """
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
