"""Parts of a fill that advance side by side, and how many forward passes they take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engine import tiny
from tests.engine.fakes import drain_work

from midfill_engine.causal import filler
from midfill_engine.causal.filler import Filler
from midfill_engine.causal.judging import Candidate
from midfill_engine.causal.stretch import Stretch
from midfill_engine.families import FAMILIES
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.scheduling.work import MAX_ROWS, Asking, Work, counted, together

BEFORE = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n\n"
AFTER = "\n    print(count, key)\n"


def asking(name: str, count: int, num_rows: int) -> Asking[list[Any]]:
    """Asks `count` times for a pass that is called by its name and number."""
    found: list[Any] = []
    for number in range(count):
        found += yield Work([f"{name}{number}"], num_rows)  # type: ignore[list-item]
    return found


@pytest.mark.parametrize("num_rows", [5, MAX_ROWS // 2, MAX_ROWS])
def test_passes_that_are_asked_for_at_once_share_a_forward_as_far_as_it_has_room(num_rows: int) -> None:
    parts = [asking("a", 3, num_rows), asking("b", 1, num_rows), asking("c", 0, num_rows), asking("d", 2, num_rows)]
    work, seen, answer = counted(together(*parts)), list[Sequence[Any]](), None
    while True:
        try:
            step = work.send(answer)  # type: ignore[arg-type]
        except StopIteration as stop:
            found, num_forwards = stop.value
            break
        assert step.num_rows == num_rows * len(step.passes) <= MAX_ROWS
        seen.append(step.passes)
        answer = [f"{each}!" for each in step.passes]
    assert found == [["a0!", "a1!", "a2!"], ["b0!"], [], ["d0!", "d1!"]]
    shared = {
        5: [["a0", "b0", "d0"], ["a1", "d1"], ["a2"]],
        MAX_ROWS // 2: [["a0", "b0"], ["d0"], ["a1", "d1"], ["a2"]],
        MAX_ROWS: [["a0"], ["b0"], ["d0"], ["a1"], ["d1"], ["a2"]],
    }
    assert seen == shared[num_rows] and num_forwards == len(seen)


def test_an_error_in_one_part_ends_all() -> None:
    def failing() -> Asking[None]:
        yield Work([], 1)
        raise ValueError("broken")

    work = together(asking("a", 3, 1), failing())
    next(work)
    with pytest.raises(ValueError, match="broken"):
        work.send(["a0!"])


def test_drafts_that_share_forwards_are_those_of_drafts_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.make_random(tmp_path / "tiny", FAMILIES.find("causal"))
    base = load_runtime(str(tmp_path / "tiny"), "cpu", dtype="fp32")
    stretch = Stretch(BEFORE + "def other(items):\n    ", AFTER, False, (), 24, "    ")
    given = [Candidate("count = 0", certainty=0.2)]

    def fill() -> tuple[list[Candidate], int]:
        one = Filler(base, stretch, names=("count",), unused=("key",))
        return drain_work(base, counted(one.fill(given)))

    def in_turn(*askings: Asking[Any]) -> Asking[list[Any]]:
        found = []
        for each in askings:
            found.append((yield from each))
        return found

    shared, num_shared = fill()
    monkeypatch.setattr(filler, "together", in_turn)
    base.prefixes.clear()
    alone, num_alone = fill()
    assert [each.text for each in shared] == [each.text for each in alone]
    assert [each.nats for each in shared] == pytest.approx([each.nats for each in alone], abs=1e-3)
    assert 1 < num_shared < num_alone
