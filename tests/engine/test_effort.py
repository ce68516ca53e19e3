"""The time that a fill should take: widths by what passes cost, the same whatever a fill takes, and a clock at last."""

from collections.abc import Callable
from dataclasses import astuple
from itertools import count, pairwise
from typing import Any

import pytest
import torch
from tests.engine.fakes import CountedFill
from tests.engine.requests import body, line, selection

from midfill_engine.causal.continuing import limit_search
from midfill_engine.causal.effort import (
    CLOCK_FACTOR,
    EFFORTS,
    MAX_EXTENSION,
    MAX_LATENESS,
    SMALL,
    WHOLE,
    WORTHWHILE,
    Effort,
    allow_small,
    choose_effort,
)
from midfill_engine.causal.filler import Filler
from midfill_engine.causal.stretch import Stretch
from midfill_engine.causal.writing import Drawing
from midfill_engine.loading.pace import ROUNDS, ROWS, Pace
from midfill_engine.loading.runtime import Runtime
from midfill_engine.requests.timer import Timer
from midfill_engine.wire import GivenText, HoleSpec, InfillRequest, InfillResponse

FREE, SLOW = Pace(), Pace(pass_s=1.0, row_s=10.0)
GIVEN = [GivenText(text=f"return {number}", certainty=0.1) for number in range(9)]


def set_pace(base: Runtime, monkeypatch: pytest.MonkeyPatch, pace: Pace) -> None:
    monkeypatch.setitem(vars(base), "pace", pace)


def run(base: Runtime, request: InfillRequest, pass_s: float = 0.0) -> tuple[InfillResponse, int]:
    """The answer and the number of rows of its passes, each of which takes `pass_s` by its clock."""
    base.prefixes.clear()
    counted = CountedFill()
    return counted.run(base, request, lambda: counted.passes * pass_s), counted.rows


@pytest.mark.parametrize("is_body", [False, True])
def test_narrower_searches_cost_less(is_body: bool) -> None:
    """By any share of a pass and its rows; and nothing about them grows."""
    for pace in (Pace(1.0, 0.0), Pace(0.0, 1.0), Pace(0.02, 0.001)):
        costs = [effort.estimate_s(pace, is_body=is_body) for effort in EFFORTS]
        assert all(first >= second > 0 for first, second in pairwise(costs)) and (
            not pace.row_s or costs[0] > costs[-1]
        )
    for wide, narrow in pairwise(EFFORTS):
        assert all(first >= second for first, second in zip(astuple(wide), astuple(narrow), strict=True))
    assert EFFORTS[0] == WHOLE == Effort()


@pytest.mark.parametrize("is_body", [False, True])
def test_a_search_is_narrower_only_if_it_would_be_much_too_late(is_body: bool) -> None:
    pace = Pace(0.02, 0.001)
    whole_s = WHOLE.estimate_s(pace, is_body=is_body)
    assert choose_effort(pace, whole_s / MAX_LATENESS + 1e-9, is_body=is_body) == WHOLE
    assert choose_effort(pace, whole_s / MAX_LATENESS - 1e-9, is_body=is_body) == EFFORTS[1]
    assert choose_effort(FREE, 1e-9, is_body=is_body) == WHOLE
    narrow_s, narrowest_s = (effort.estimate_s(SLOW, is_body=is_body) for effort in (EFFORTS[-2], EFFORTS[-1]))
    assert choose_effort(SLOW, 1e-9, is_body=is_body) == EFFORTS[-2 if narrow_s <= WORTHWHILE * narrowest_s else -1]
    assert choose_effort(Pace(1.0, 1e-5), 1e-9, is_body=is_body) == WHOLE, "it would save nothing"
    assert [allow_small(2.0, SMALL * share) for share in (9, 1, 0.5, 0.1)] == [2.0, 2.0, 4.0, 2 * MAX_EXTENSION]
    chosen = [EFFORTS.index(choose_effort(pace, whole_s * share / 100, is_body=is_body)) for share in range(100)]
    assert chosen == sorted(chosen, reverse=True) and len(set(chosen)) > 2


def test_a_pace_is_that_of_its_passes(base: Runtime, record_calls: Callable[..., list[Any]]) -> None:
    assert Pace.of((4, 0.05), (24, 0.07)) == Pace(pytest.approx(0.046), pytest.approx(0.001))
    assert Pace.of((4, 0.05), (24, 0.04)) == Pace(0.05, 0.0), "measured by chance"
    assert Pace(0.5, 0.25).cost_s(3, 2) == 2.0
    runtime, ran = Runtime.of(base.loaded, family=base.family), record_calls(Runtime, "run")
    first = runtime.pace
    assert [len(passes[0].ids) for _, passes in ran] == [*ROWS] * ROUNDS and first.pass_s > 0
    assert runtime.pace is first and len(ran) == 2 * ROUNDS, "measured once"


@pytest.mark.parametrize("place", [body, selection, line])
@pytest.mark.parametrize("options", [{}, {"n": 2, "temperature": 0.8, "seed": 4}])
def test_a_fill_with_time_enough_is_the_fill_without_a_time(
    base: Runtime, monkeypatch: pytest.MonkeyPatch, place: Any, options: dict[str, Any]
) -> None:
    spec = HoleSpec(indent=None if place is line else "    ", candidates=[] if place is line else GIVEN)
    plain, num_rows = run(base, place(spec, **options))
    set_pace(base, monkeypatch, FREE)
    timed, same_rows = run(base, place(spec, line_ms=1000, body_ms=3000, **options))
    assert (timed.holes, timed.alternatives, timed.candidates) == (plain.holes, plain.alternatives, plain.candidates)
    assert num_rows == same_rows
    set_pace(base, monkeypatch, SLOW)
    slow, few_rows = run(base, place(spec, line_ms=1000, body_ms=3000, **options))
    assert few_rows < num_rows and slow.holes[0].text.strip()
    assert not slow.holes[0].cut, "by widths, not by the clock"


def test_lines_and_bodies_have_their_own_seconds(base: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    set_pace(base, monkeypatch, SLOW)
    request = body(HoleSpec(indent="    "), body_ms=3000)
    whole, narrow = Stretch("x", "\n", single=True), Stretch("x", "\n", single=False, indent="    ")
    assert limit_search(base, request, whole) == (WHOLE, float("inf"))
    effort, most_s = limit_search(base, request, narrow)
    assert effort.width < WHOLE.width and most_s == 3 * MAX_EXTENSION
    request = body(HoleSpec(indent="    "), line_ms=500)
    effort, most_s = limit_search(base, request, whole)
    assert effort.width < WHOLE.width and most_s == 0.5 * MAX_EXTENSION
    assert limit_search(base, request, narrow) == (WHOLE, float("inf"))


def test_widths_do_not_depend_on_what_a_fill_takes(base: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the clock's end, which counts from when the context is read."""
    set_pace(base, monkeypatch, FREE)
    request = body(HoleSpec(indent="    "), body_ms=1000)
    quick, num_rows = run(base, request)
    passes = quick.stats.forwards
    slower, _ = run(base, request, pass_s=MAX_EXTENSION * CLOCK_FACTOR / (passes + 1))
    assert slower.holes == quick.holes and not slower.holes[0].cut
    cut, fewer = run(base, request, pass_s=MAX_EXTENSION * CLOCK_FACTOR / (passes / 2))
    assert cut.holes[0].cut and fewer < num_rows and cut.holes[0].text.strip()
    long_read, _ = run(base, body(HoleSpec(indent="    "), line_ms=1))
    assert not long_read.holes[0].cut


def test_what_is_asked_for_is_made_however_slow_it_is(base: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    set_pace(base, monkeypatch, SLOW)
    request = line(HoleSpec(), n=3, temperature=0.8, seed=2, line_ms=1)
    assert len(run(base, request)[0].alternatives) == 2
    assert Filler(base, Stretch("x = ", "\n", True), Drawing(3), effort=EFFORTS[-1]).width == 3


def test_a_timer_ends_at_the_earlier_time() -> None:
    ticks = count()
    timer = Timer.of(10_000, lambda: float(next(ticks)))
    assert timer.ends_s == 10 and timer.begin(1.0).ends_s == 2
    assert timer.begin(100.0).ends_s == 10 and timer.begin(float("inf")) is timer
    assert not Timer().is_over and Timer(lambda: 5.0, 5.0).is_over and torch.get_num_threads() == 1
