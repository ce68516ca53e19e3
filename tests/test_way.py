"""The way of a fill, from the command to the diff, is short, and ARCHITECTURE.md shows it as it is."""

import http.client
import signal
import sys
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.command import run_main
from tests.cli.engines import use_engine
from tests.engine.running import RunningServer, serve_causal

from midfill_engine.causal import filler
from midfill_engine.scheduling.scheduler import Scheduler
from midfill_infill.cli import results
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.splicing.splice import Splicer

MOMENTS = {
    "asks": (http.client.HTTPConnection, "request"),
    "is admitted": (Scheduler, "submit"),
    "reads": (filler, "read_prefix"),
    "computes": (torch.nn.functional, "scaled_dot_product_attention"),
    "judges": (filler, "score"),
    "splices": (Splicer, "splice"),
    "shows": (results, "write_bytes"),
}
MAX_FUNCTIONS, MAX_CHANGES = 35, 25
Step = tuple[str, str]  # room and function


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with serve_causal(tmp_path) as server:
        yield server


def test_the_calls_of_a_fill_are_few_and_the_page_draws_them(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[Step]] = {}

    def tap(name: str, owner: Any, attribute: str) -> None:
        own = getattr(owner, attribute)

        def tapped(*arguments: Any, **options: Any) -> Any:
            if "/v1/infill" in arguments or name != "asks":
                seen.setdefault(name, list_callers())
            return own(*arguments, **options)

        monkeypatch.setattr(owner, attribute, tapped)

    for name, (owner, attribute) in MOMENTS.items():
        tap(name, owner, attribute)
    use_engine(Endpoint(socket=server.socket), monkeypatch)
    path = tmp_path / "shop.py"
    path.write_text("def total(items):\n    ...\n", encoding="utf-8")
    interrupts = signal.getsignal(signal.SIGINT)
    code = run_main(monkeypatch, "fill", str(path), "--function", "total")
    signal.signal(signal.SIGINT, interrupts)  # the command ignores them at its end
    assert code == 0 and list(seen) == list(MOMENTS)
    steps = [step for leg in seen.values() for step in leg]
    functions = list(dict.fromkeys(steps))
    rooms = [room for room, _ in functions]
    assert len(functions) <= MAX_FUNCTIONS
    assert sum(one != other for one, other in pairwise(rooms)) <= MAX_CHANGES
    drawn = Path("ARCHITECTURE.md").read_text(encoding="utf-8")
    missing = [line for line in draw(seen) if line not in drawn.splitlines()]
    assert not missing, "ARCHITECTURE.md draws another way than\n" + "\n".join(draw(seen))


def list_callers() -> list[Step]:
    """The functions of ours that are being called, the outermost first."""
    found, frame = [], sys._getframe(2)
    while frame.f_back is not None:
        parts = Path(frame.f_code.co_filename).with_suffix("").parts
        package = next(
            (place for place, part in enumerate(parts) if part in ("midfill_infill", "midfill_engine")), None
        )
        if package is not None:
            room = "/".join((parts[package].removeprefix("midfill_"), *parts[package + 1 : -1]))
            found.append((room, frame.f_code.co_qualname.replace(".<locals>", "")))
        frame = frame.f_back
    return found[::-1]


def draw(seen: dict[str, list[Step]]) -> list[str]:
    """A line a leg: what is new on it, by rooms."""
    known: set[Step] = set()
    lines = []
    for name, leg in seen.items():
        new = [step for step in dict.fromkeys(leg) if step not in known]
        known |= set(new)
        rooms = (
            f"{room}: {' > '.join(function for _, function in steps)}"
            for room, steps in groupby(new, key=lambda step: step[0])
        )
        lines.append(f"    {name:<12} {'; '.join(rooms)}")
    return lines
