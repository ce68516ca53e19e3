"""Coroutines of a fill that advance side by side, how many forward passes they take, and how they end."""

from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine import tiny
from tests.engine.in_process import complete

from midfill_engine.causal import filler
from midfill_engine.causal.filler import Filler
from midfill_engine.causal.stretch import Stretch
from midfill_engine.families import FAMILIES
from midfill_engine.judging import Candidate
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.scheduling.work import MAX_ROWS, ForwardCounter, Work, gather

BEFORE = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n"
AFTER = "\n    print(count, key)\n"


async def compute(name: str, count: int, num_rows: int) -> list[Any]:
    """Awaits `count` passes, one after another, that are called by its name and number."""
    found: list[Any] = []
    for number in range(count):
        found += await Work([f"{name}{number}"], num_rows)  # type: ignore[list-item]
    return found


@pytest.mark.parametrize("num_rows", [5, MAX_ROWS // 2, MAX_ROWS])
def test_passes_that_are_awaited_at_once_share_a_forward_as_far_as_it_has_room(num_rows: int) -> None:
    forwards, seen = ForwardCounter(), list[Work]()
    parts = [compute("a", 3, num_rows), compute("b", 1, num_rows), compute("c", 0, num_rows), compute("d", 2, num_rows)]
    runtime: Any = SimpleNamespace(run=lambda passes: [f"{each}!" for each in passes])
    found = complete(runtime, forwards.run(gather(*parts)), seen.append)
    assert found == (["a0!", "a1!", "a2!"], ["b0!"], [], ["d0!", "d1!"])
    assert all(work.num_rows == num_rows * len(work.passes) <= MAX_ROWS for work in seen)
    shared = {
        5: [["a0", "b0", "d0"], ["a1", "d1"], ["a2"]],
        MAX_ROWS // 2: [["a0", "b0"], ["d0"], ["a1", "d1"], ["a2"]],
        MAX_ROWS: [["a0"], ["b0"], ["d0"], ["a1"], ["d1"], ["a2"]],
    }
    assert [work.passes for work in seen] == shared[num_rows] and forwards.count == len(seen)


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_error_in_one_coroutine_and_closing_end_all(is_closed: bool) -> None:
    ended = list[str]()

    async def part(name: str) -> None:
        try:
            await compute(name, 2, 1)
            raise ValueError("broken")
        finally:
            ended.append(name)

    whole = ForwardCounter().run(gather(part("a"), part("b")))
    whole.send(None)
    whole.send(["a0!", "b0!"])
    assert not ended
    if is_closed:
        whole.close()
    else:
        with pytest.raises(ValueError, match="broken"):
            whole.send(["a1!", "b1!"])
    assert ended == ["a", "b"]


def test_an_error_before_the_others_began_ends_them_without_a_warning() -> None:
    async def fail() -> list[Any]:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        gather(fail(), compute("a", 1, 1)).send(None)


def test_drafts_that_share_forwards_are_those_of_drafts_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.make_random(tmp_path / "tiny", FAMILIES.find("causal"))
    base = load_runtime(str(tmp_path / "tiny"), "cpu", dtype="fp32")
    stretch = Stretch(BEFORE + "def other(items):\n    ", AFTER, False, (), 24, "    ")
    given = [Candidate("count = 0", certainty=0.2)]

    def fill() -> tuple[list[Candidate], int]:
        one, forwards = Filler(base, stretch, names=("count",), unused=("key",)), ForwardCounter()
        return complete(base, forwards.run(one.fill(given))), forwards.count

    async def in_turn(*coroutines: Coroutine[Any, Any, Any]) -> list[Any]:
        return [await each for each in coroutines]

    shared, num_shared = fill()
    monkeypatch.setattr(filler, "gather", in_turn)
    base.prefixes.clear()
    alone, num_alone = fill()
    assert [each.text for each in shared] == [each.text for each in alone]
    assert [each.nats for each in shared] == pytest.approx([each.nats for each in alone], abs=1e-3)
    assert 1 < num_shared < num_alone
