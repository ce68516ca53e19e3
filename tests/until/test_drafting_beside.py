"""The first candidates are drafted while the command runs on the tree as it is."""

import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.until.shops import PYTEST, UNITTEST, is_running, needs_bubblewrap

from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, Preview
from midfill_infill.sandbox.command import read_command
from midfill_infill.sandbox.copy import Copy
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_infill.until.lab import open_lab
from midfill_infill.until.trying import Make, Tried, Try

pytestmark = needs_bubblewrap
Events = Generator[Preview | Try | Tried, None, None]
PREVIEW = Preview(0, 1, ())


def fill_by(shop: Path, line: str, make: Make, use: Callable[[Events], None], *, sandboxed: bool = True) -> None:
    document, command = Document.read(shop / "shop.py"), read_command(line, 60, sandboxed=sandboxed)
    with open_lab(document, shop / "shop.py", command, shop) as lab:
        use(lab.fill(find_stubs(document), Options(), make, 3))


def stop_engine(document: Document, holes: Sequence[Hole], options: Options) -> Generator[Preview | Filled, None, None]:
    yield PREVIEW
    raise MidfillError("engine_failed", "the engine ended")


def test_a_request_is_made_before_the_command_has_run(shop: Path, tmp_path: Path) -> None:
    drafting = tmp_path / "drafting"
    wait = "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)"
    (shop / "check.py").write_text(f"import pathlib, sys, time\n{wait}\nsys.exit(1)\n")

    def make(document: Document, holes: Sequence[Hole], options: Options) -> Generator[Preview | Filled, None, None]:
        drafting.touch()
        yield from stop_engine(document, holes, options)

    line = f"{sys.executable} check.py {drafting}"
    with pytest.raises(MidfillError, match="does not come to|before it comes to discount"):
        fill_by(shop, line, make, list, sandboxed=False)


def test_a_command_is_refused_before_an_engine_fails(shop: Path) -> None:
    with pytest.raises(MidfillError, match="passes already"):
        fill_by(shop, "true", stop_engine, list)


def test_an_engine_that_fails_is_told_where_the_command_is_fine(shop: Path) -> None:
    with pytest.raises(MidfillError, match="the engine ended"):
        fill_by(shop, f"{sys.executable} check.py", stop_engine, list)


def test_a_refusal_ends_the_drafting(shop: Path) -> None:
    def draft(document: Document, holes: Sequence[Hole], options: Options) -> Generator[Preview | Filled, None, None]:
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            time.sleep(0.02)
            yield PREVIEW
        raise AssertionError("nothing ended it")

    with pytest.raises(MidfillError, match="passes already"):
        fill_by(shop, "true", draft, list)


def comes_to(is_running_then: bool, word: str) -> bool:
    """Whether a process with that word runs, or no longer does, within a minute."""
    until_s = time.monotonic() + 60
    while is_running(word) != is_running_then and time.monotonic() < until_s:
        time.sleep(0.02)
    return is_running(word) == is_running_then


def test_who_leaves_ends_the_command(shop: Path) -> None:
    named = str(uuid4())

    def leave(events: Events) -> None:
        assert next(events) is PREVIEW
        assert comes_to(True, named)
        events.close()

    (shop / "check.py").write_text("import time\ntime.sleep(600)\n")
    fill_by(shop, f"{sys.executable} check.py {named}", stop_engine, leave)
    assert comes_to(False, named)


@pytest.mark.parametrize(("line", "num_runs"), [(PYTEST, 1), (UNITTEST, 3)])
def test_warm_pytest_is_the_second_run(
    shop: Path, line: str, num_runs: int, record_calls: Callable[..., list[Any]]
) -> None:
    """Without it: two runs on the tree as it is, one that looks who comes here."""
    runs = record_calls(Copy, "run")
    with pytest.raises(MidfillError, match="the engine ended"):
        fill_by(shop, line, stop_engine, list)
    assert len(runs) == num_runs
