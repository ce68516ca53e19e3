"""Whose turn it is: short fills beside long ones, clients beside clients, and nobody for ever behind the others."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.fakes import LIMIT_S, wait_until
from tests.engine.in_process import complete

from midfill_engine.backends import open_fill
from midfill_engine.loading.runtime import Runtime
from midfill_engine.scheduling.scheduler import Scheduler
from midfill_engine.scheduling.turns import MAX_PASSED_S, Event, Kind, Turns, kind_of
from midfill_engine.scheduling.work import Claim, Fill, Work
from midfill_engine.wire import FilledHole, InfillRequest, InfillResponse, Stats, StepEvent

LINE: dict[str, Any] = {"forbid": ["\n"]}


def ask(*holes: dict[str, Any], **options: Any) -> InfillRequest:
    return InfillRequest.model_validate({"segments": [{"hole": hole} for hole in holes], **options})


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (ask(LINE), Kind.SHORT),
        (ask({"max_tokens": 32}), Kind.SHORT),
        (ask({"max_tokens": 33}), Kind.LONG),
        (ask({}), Kind.LONG),
        (ask(*[LINE] * 4), Kind.SHORT),
        (ask(*[LINE] * 5), Kind.LONG),
        (ask(LINE, {}), Kind.LONG),
        (ask(LINE, n=3), Kind.LONG),
    ],
)
def test_a_request_tells_its_kind(request_: InfillRequest, kind: Kind) -> None:
    assert kind_of(request_) is kind


def ticket(client: str = "", *, kind: Kind = Kind.LONG, s: float = 0.0, document: str | None = None) -> Any:
    request = ask(LINE if kind is Kind.SHORT else {}, document=document)
    return SimpleNamespace(request=request, kind=kind, client=client, submitted_s=s, num_rows=0)


def test_short_fills_have_places_of_their_own() -> None:
    turns, long = Turns(2, lambda: 0.0), [ticket(), ticket()]
    assert turns.next([ticket()], long) is None
    short = ticket(kind=Kind.SHORT)
    assert turns.next([ticket(), short], long) is short
    assert turns.next([short], [*long, ticket(kind=Kind.SHORT)]) is None


def test_places_go_to_the_client_with_least() -> None:
    turns, greedy, modest = Turns(4, lambda: 0.0), [ticket("a") for _ in range(3)], ticket("b")
    assert turns.next([*greedy, modest], []) is greedy[0]
    assert turns.next([*greedy[1:], modest], greedy[:1]) is modest
    turns.count("a", 10)
    turns.count("b", 20)
    assert turns.next([modest, *greedy], []) is greedy[0]
    turns.keep({"a", "b"})
    newcomer = ticket("c")
    assert turns.next([modest, newcomer], []) is newcomer
    assert turns.next([greedy[0], newcomer], []) is greedy[0]


def test_a_client_that_waits_for_its_first_place_has_fewer_rows_than_one_that_had_many() -> None:
    turns = Turns(1, lambda: 0.0)
    turns.count("greedy", 1000)
    turns.keep({"greedy", "new"})
    new = ticket("new")
    assert turns.next([ticket("greedy"), new], []) is new


def test_the_newest_of_a_document_is_one_of_the_same_client() -> None:
    turns, modest = Turns(4, lambda: 0.0), [ticket("b", document="a.py") for _ in range(2)]
    turns.count("a", 1000)
    turns.count("b", 1)
    assert turns.next([*modest, ticket("a", document="a.py")], []) is modest[1]


def test_a_request_that_others_overtook_for_long_goes_first() -> None:
    now_s = [0.0]
    turns, old, lucky = Turns(4, lambda: now_s[0]), ticket("a"), ticket("b", s=MAX_PASSED_S)
    turns.count("a", 1000)
    now_s[0] = MAX_PASSED_S
    assert turns.next([old, lucky], []) is lucky
    now_s[0] = MAX_PASSED_S + 1
    assert turns.next([old, lucky], []) is old


def test_long_fills_go_on_beside_short_ones_a_few_at_a_time() -> None:
    turns, short, long = Turns(8), ticket(kind=Kind.SHORT), [ticket(str(number)) for number in range(4)]
    asking = [(short, Work([], 8)), *((one, Work([], 40)) for one in long)]
    assert [one for one, _ in turns.choose(asking[1:], 64)] == long
    seen: list[Any] = []
    for _ in range(4):
        first, *rest = (one for one, _ in turns.choose(asking, 64))
        assert first is short and len(rest) == 1
        turns.count(rest[0].client, 40)
        seen += rest
    assert sorted(one.client for one in seen) == ["0", "1", "2", "3"]


async def working(num_steps: int, num_rows: int, num_bytes: int = 0) -> InfillResponse:
    await Claim(num_bytes)
    for step in range(num_steps):
        await Work([num_rows], num_rows, StepEvent(step=step, num_steps=num_steps, holes=[]))
    hole = FilledHole(text="x", tokens=[], confidence=[])
    return InfillResponse(model="fake", holes=[hole], stats=Stats(steps=num_steps, forwards=0, tokens=0, ms=0.0))


class Bench:
    """A scheduler whose every forward waits to be let through; notes each forward's rows and who has ended."""

    def __init__(self, **options: Any) -> None:
        self.forwards: list[list[int]] = []
        self.ended: list[str] = []
        self._permits = threading.Semaphore(0)
        self.scheduler = Scheduler(self._open, self._run, **options)

    def _open(self, request: InfillRequest) -> Fill:
        return working(3, 8) if request.tag == "line" else working(20, 96, 100)

    def _run(self, passes: list[int]) -> list[int]:
        assert self._permits.acquire(timeout=LIMIT_S)
        self.forwards.append(passes)
        return passes

    def submit(self, tag: str, client: str = "") -> None:
        def listen(event: Event) -> None:
            if not isinstance(event, StepEvent):
                self.ended.append(tag)

        self.scheduler.submit(ask(LINE if tag == "line" else {}, tag=tag), listen, client)

    def let(self, num_forwards: int) -> None:
        self._permits.release(num_forwards)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        made.append(Bench(**options))
        return made[-1]

    yield make
    for one in made:
        one.let(10**6)
        one.scheduler.close()


def test_a_line_does_not_wait_behind_bodies(bench: Callable[..., Bench]) -> None:
    """Eight bodies are at work and more wait: the line joins at once, and its forwards hold one of theirs each."""
    busy = bench()
    for _ in range(12):
        busy.submit("body")
    busy.let(1)
    wait_until(lambda: len(busy.forwards) == 1)
    busy.submit("line")
    busy.let(5)
    wait_until(lambda: "line" in busy.ended)
    with_line = [passes for passes in busy.forwards if 8 in passes]
    assert [sorted(passes) for passes in with_line] == [[8, 96]] * 3
    assert busy.ended == ["line"]
    text = busy.scheduler.metrics.show().decode()
    assert 'midfill_waiting_requests{kind="long"} 4.0' in text
    assert 'midfill_wait_seconds_count{kind="short"} 1.0' in text


def test_a_line_does_not_wait_for_the_memory_that_bodies_wait_for(bench: Callable[..., Bench]) -> None:
    busy = bench(max_bytes=150)
    for _ in range(3):
        busy.submit("body")
    busy.submit("line")
    busy.let(8)
    wait_until(lambda: "line" in busy.ended)
    assert busy.ended == ["line"]


def test_a_client_with_a_name_leaves_room_for_others(bench: Callable[..., Bench]) -> None:
    busy = bench(max_requests=8)
    for _ in range(6):
        busy.submit("body", "anna")
    with pytest.raises(Exception, match="open already"):
        busy.submit("body", "anna")
    busy.submit("line", "ben")


def test_the_same_seed_gives_the_same_bytes_whoever_else_is_served(runtime: Runtime) -> None:
    ends: list[InfillResponse] = []

    def listen(event: Event) -> None:
        if isinstance(event, InfillResponse):
            ends.append(event)

    def line(seed: int | None) -> InfillRequest:
        segments = [{"text": "x = ["}, {"hole": {"min_tokens": 8, "max_tokens": 12}}, {"text": "]\n"}]
        return InfillRequest.model_validate({"segments": segments, "temperature": 1.0, "seed": seed, "tag": "line"})

    scheduler = Scheduler(lambda request: open_fill(runtime, request), runtime.run, max_active=2)
    try:
        scheduler.submit(line(7), listen)
        wait_until(lambda: len(ends) == 1)
        for number in range(4):
            scheduler.submit(
                ask({"min_tokens": 40, "max_tokens": 40}, seed=number, temperature=1.0), lambda event: None
            )
        for seed in (7, 7, None, None, None):
            scheduler.submit(line(seed), listen)
        wait_until(lambda: len(ends) == 6)
    finally:
        scheduler.close()
    seeded = [end for end in ends if end.seed == 7]
    assert len(seeded) == 3 and len({end.holes[0].model_dump_json() for end in seeded}) == 1
    drawn = [end for end in ends if end.seed != 7]
    assert len({end.seed for end in drawn}) == 3
    assert len({end.holes[0].text for end in drawn}) > 1


@pytest.mark.parametrize(("max_ms", "num_steps"), [(1, 2), (3500, 5), (10**6, 40)])
def test_a_fill_ends_with_its_best_guesses_when_its_time_is_over(max_ms: int, num_steps: int, runtime: Runtime) -> None:
    """A step takes a second; the one that begins when the time is over settles all."""
    now_s = 0.0

    def count_steps(awaited: object) -> None:
        nonlocal now_s
        now_s += isinstance(awaited, Work)

    request = ask({"min_tokens": 40, "max_tokens": 40}, quality=1, max_ms=max_ms)
    end = complete(runtime, open_fill(runtime, request, clock=lambda: now_s), count_steps)
    assert end.stats.tokens == 40
    assert end.stats.steps == num_steps


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_wait_for_memory_is_not_the_time_of_a_fill(is_causal: bool, runtime: Runtime, base: Runtime) -> None:
    now_s = 0.0

    def wait_for_memory(awaited: object) -> None:
        nonlocal now_s
        now_s += 60.0 * isinstance(awaited, Claim)

    model = base if is_causal else runtime
    model.prefixes.clear()
    request = ask({"max_tokens": 9, "max_lines": 1} if is_causal else {"max_tokens": 9}, max_ms=10_000)
    end = complete(model, open_fill(model, request, clock=lambda: now_s), wait_for_memory)
    model.prefixes.clear()
    unlimited = complete(model, open_fill(model, request.model_copy(update={"max_ms": None})), lambda _: None)
    assert not end.holes[0].cut and end.stats.steps == unlimited.stats.steps
