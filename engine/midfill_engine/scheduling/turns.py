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

SHORT_HOLE_TOKENS: Final = 32
SHORT_HOLES: Final = 4
SHORT_ALTERNATIVES: Final = 2
MAX_PASSED_S: Final = 10.0  # for which later requests may go before a waiting one

Event = StepEvent | InfillResponse | RequestError
Listener = Callable[[Event], None]
Clock = Callable[[], float]  # in seconds


class Kind(StrEnum):
    SHORT = "short"
    LONG = "long"


@dataclass(eq=False)
class Ticket:
    """An open request. `listener` gets its events on the scheduler's thread; the last one is no StepEvent. The events
    of forward passes come only if somebody `watches`. The fill awaits `work`, gets `answer` next, and may use the
    memory of its `claim` once it `is_admitted`. `num_rows` rows have been computed for it. It got its place at
    `placed_s`.
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
    """`num_places` for running fills of any kind, half as many more for short ones. Counts the rows of each client."""

    def __init__(self, num_places: int, clock: Clock = time.monotonic) -> None:
        self.num_places, self.clock = num_places, clock
        self.num_all = num_places + (num_places + 1) // 2
        self._rows_of_client: Counter[str] = Counter()

    def next(self, waiting: Sequence[Ticket], active: Sequence[Ticket]) -> Ticket | None:
        """The ticket that gets a place: the oldest if it waited too long, else one of the client with the fewest fills
        and then rows. Of its tickets for one document the newest goes first. None if no ticket may have a place now.
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
        """The work of the next forward pass: all; but with short fills at most `max_rows` rows of long ones, or one."""
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
        """Forgets all other clients; lowers the counts of these until the smallest is zero, where new clients begin."""
        fewest = min((self._rows_of_client[client] for client in clients), default=0)
        self._rows_of_client = Counter({client: self._rows_of_client[client] - fewest for client in clients})
