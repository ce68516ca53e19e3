"""Decides which requests run next: extra places for short fills, equal shares for clients, no starvation."""

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
MAX_PASSED_S: Final = 10.0  # longest time that others may go first

Event = StepEvent | InfillResponse | RequestError
Listener = Callable[[Event], None]
Clock = Callable[[], float]  # in seconds


class Kind(StrEnum):
    SHORT = "short"
    LONG = "long"


@dataclass(eq=False)
class Ticket:
    """An open request. `listener` runs on the worker thread; its last event is no StepEvent. It hears of the steps
    before its forward passes only if it `watches`. `num_rows` are done.
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

    def __post_init__(self) -> None:
        self.kind = kind_of(self.request)

    def cancel(self) -> None:
        """Ends the work before its next step. Thread-safe; harmless if it has ended."""
        self.is_cancelled = True
        self.wake()


def kind_of(request: InfillRequest) -> Kind:
    """SHORT for a few lines, as an editor asks for at the cursor."""
    holes = [segment.hole for segment in request.segments if isinstance(segment, HoleSegment)]
    is_short = len(holes) <= SHORT_HOLES and request.n <= SHORT_ALTERNATIVES and all(map(is_line, holes))
    return Kind.SHORT if is_short else Kind.LONG


def is_line(hole: HoleSpec) -> bool:
    return "\n" in hole.forbid or (hole.max_tokens is not None and hole.max_tokens <= SHORT_HOLE_TOKENS)


class Turns:
    """`num_places` for fills of any kind, half as many more for short ones. Counts the rows each client got."""

    def __init__(self, num_places: int, clock: Clock = time.monotonic) -> None:
        self.num_places, self.clock = num_places, clock
        self.num_all = num_places + (num_places + 1) // 2
        self._rows: Counter[str] = Counter()

    def next(self, waiting: Sequence[Ticket], active: Sequence[Ticket]) -> Ticket | None:
        """The oldest ticket if it waited too long, else the newest of a document of the client with the fewest rows."""
        most = {Kind.SHORT: self.num_all, Kind.LONG: self.num_places}
        fitting = [ticket for ticket in waiting if len(active) < most[ticket.kind]]
        if not fitting:
            return None
        oldest = fitting[0]
        if self.clock() - oldest.submitted_s > MAX_PASSED_S:
            return oldest
        held = Counter(ticket.client for ticket in active)
        chosen = min(fitting, key=lambda ticket: (held[ticket.client], self._rows[ticket.client]))
        name = chosen.request.document
        return chosen if name is None else [ticket for ticket in fitting if ticket.request.document == name][-1]

    def choose(self, asking: Sequence[tuple[Ticket, Work]], max_rows: int) -> list[tuple[Ticket, Work]]:
        """The next forward pass: all work, but with short fills only `max_rows` rows of long ones, or one of them."""
        short = [each for each in asking if each[0].kind is Kind.SHORT]
        if len(short) in (0, len(asking)):
            return list(asking)
        long = [each for each in asking if each[0].kind is Kind.LONG]
        long.sort(key=lambda each: (self._rows[each[0].client], each[0].num_rows))
        totals = accumulate(work.num_rows for _, work in long)
        fitting = sum(total <= max_rows for total in totals)
        return short + long[: max(1, fitting)]

    def count(self, client: str, num_rows: int) -> None:
        self._rows[client] += num_rows

    def keep(self, clients: set[str]) -> None:
        """Forgets clients without open requests; the smallest count of the others becomes zero."""
        known = {client: self._rows[client] for client in clients if client in self._rows}
        least = min(known.values(), default=0)
        self._rows = Counter({client: rows - least for client, rows in known.items()})
