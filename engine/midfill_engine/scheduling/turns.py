"""Decides which requests run next: short fills have extra places, clients get equal shares, nobody waits forever."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any, Final

from midfill_engine.errors import RequestError
from midfill_engine.scheduling.work import Claim, Fill, Work
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, InfillResponse, StepEvent

SHORT_HOLE_TOKENS: Final = 32  # at most, for a hole that counts as a line
SHORT_HOLES: Final = 4  # at most, in a short request
SHORT_ALTERNATIVES: Final = 2  # at most, that a short request asks for
MAX_PASSED_S: Final = 10.0  # after so many seconds no later request goes before a waiting one

Event = StepEvent | InfillResponse | RequestError
Listener = Callable[[Event], None]
Clock = Callable[[], float]  # in seconds


class Kind(StrEnum):
    SHORT = "short"
    LONG = "long"


@dataclass(eq=False)
class Ticket:
    """An open request. `listener` gets its events on the scheduler's thread; the last one is a response or an error.
    Events of forward passes come only if somebody `watches`. The `fill` awaits `work`, and is sent `answer` when it
    goes on. It may use the memory of its `claim` once it `is_admitted`. `num_rows` rows have been computed for it. The
    request came at `submitted_s`, and got its place among the running fills at `placed_s`.
    """

    request: InfillRequest
    listener: Listener
    wake: Callable[[], None]
    client: str = ""
    watches: bool = True
    fill: Fill | None = None
    work: Work | None = None
    num_rows: int = 0
    answer: Any = None
    claim: Claim | None = None
    is_admitted: bool = False
    is_cancelled: bool = False
    submitted_s: float = field(default_factory=time.monotonic)
    placed_s: float = math.inf

    def __post_init__(self) -> None:
        self.kind = kind_of(self.request)

    def cancel(self) -> None:
        """Ends the request before its next step. Thread-safe; harmless if it has ended."""
        self.is_cancelled = True
        self.wake()


def kind_of(request: InfillRequest) -> Kind:
    """SHORT for a request of a few lines with few alternatives, as an editor sends at the cursor."""
    holes = [segment.hole for segment in request.segments if isinstance(segment, HoleSegment)]
    is_short = len(holes) <= SHORT_HOLES and request.n <= SHORT_ALTERNATIVES and all(is_line(hole) for hole in holes)
    return Kind.SHORT if is_short else Kind.LONG


def is_line(hole: HoleSpec) -> bool:
    return "\n" in hole.forbid or (hole.max_tokens is not None and hole.max_tokens <= SHORT_HOLE_TOKENS)


class Turns:
    """Chooses what runs next. There are `num_places` places for fills of any kind, half as many more for short ones."""

    def __init__(self, num_places: int, clock: Clock = time.monotonic) -> None:
        self.num_places, self.clock = num_places, clock
        self.num_all = num_places + (num_places + 1) // 2
        self._rows_of_client: Counter[str] = Counter()

    def next(self, waiting: Sequence[Ticket], active: Sequence[Ticket]) -> Ticket | None:
        """Returns the ticket that gets a place, None if none may. The oldest goes first if it has waited MAX_PASSED_S.
        Otherwise the client with the fewest running fills goes first, among several the one with the fewest rows: with
        its oldest ticket, or with its newest one for the same document.
        """
        max_active = {Kind.SHORT: self.num_all, Kind.LONG: self.num_places}
        fitting = [ticket for ticket in waiting if len(active) < max_active[ticket.kind]]
        if not fitting:
            return None
        oldest = fitting[0]
        if self.clock() - oldest.submitted_s > MAX_PASSED_S:
            return oldest
        num_running = Counter(ticket.client for ticket in active)
        chosen = min(fitting, key=lambda ticket: (num_running[ticket.client], self._rows_of_client[ticket.client]))
        document = chosen.request.document
        if document is None:
            return chosen
        own = [ticket for ticket in fitting if ticket.client == chosen.client]
        return [ticket for ticket in own if ticket.request.document == document][-1]

    def choose(self, asking: Sequence[tuple[Ticket, Work]], max_rows: int) -> list[tuple[Ticket, Work]]:
        """Returns the work to run now: all; but beside short fills at most `max_rows` rows of long ones, or one."""
        short = [pair for pair in asking if pair[0].kind is Kind.SHORT]
        if len(short) in (0, len(asking)):
            return list(asking)
        long = [pair for pair in asking if pair[0].kind is Kind.LONG]
        long.sort(key=lambda pair: (self._rows_of_client[pair[0].client], pair[0].num_rows))
        totals = accumulate(work.num_rows for _, work in long)
        num_fitting = sum(total <= max_rows for total in totals)
        return short + long[: max(1, num_fitting)]

    def count(self, client: str, num_rows: int) -> None:
        self._rows_of_client[client] += num_rows

    def keep(self, clients: set[str]) -> None:
        """Forgets all clients but these, and lowers their counts until the smallest is 0, where new clients begin."""
        fewest = min((self._rows_of_client[client] for client in clients), default=0)
        self._rows_of_client = Counter({client: self._rows_of_client[client] - fewest for client in clients})
