"""What is remembered of an engine's failures, and what a fill that nobody asked for then does."""

import asyncio
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from midfill_engine.wire import Stats
from midfill_infill.candidates import Alternative
from midfill_infill.errors import MidfillError
from midfill_infill.fill import Filled, Options, Preview
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import hole_at_cursor
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_lsp.engine import Engines, Say, WatchedFiller
from midfill_lsp.ghost import GhostText, Suggestion
from midfill_lsp.settings import Settings
from midfill_lsp.text import SyncedDocument, Text
from midfill_lsp.views import DocumentView

TIMEOUT_S = 60
SETTINGS = Settings(debounce_ms=0)


class Engine:
    """Fails when it is told to, or works."""

    def __init__(self, *, works: bool = False) -> None:
        self.works = works
        self.num_starts = 0
        self.is_started, self.may_fail = threading.Event(), threading.Event()

    def fill(
        self, document: Document, holes: Sequence[Hole], options: Options, settings: Settings, say: Say
    ) -> Generator[Preview | Filled, None, None]:
        self.num_starts += 1
        self.is_started.set()
        if not self.works:
            assert self.may_fail.wait(TIMEOUT_S)
            raise MidfillError("engine_failed", "the engine does not start")
        patch = splice(document, holes, ["pass"]).patch
        yield Filled(Alternative(patch, (), 0), (), Stats(steps=1, forwards=1, tokens=1, ms=1.0), "model")


async def suggest(ghost: GhostText, watched: WatchedFiller, *, invoked: bool = False) -> tuple[Suggestion, ...]:
    text = Text("def f():\n    \n")
    view, document = DocumentView("untitled:1", "python", text), SyncedDocument("untitled:1", text, 1, "python")
    document.text = text
    filler = watched.fill if invoked else watched.fill_unasked
    return await ghost.suggest(view, 13, SETTINGS, filler, Options, invoked=invoked, document=document)


async def test_a_failure_that_nobody_waits_for_lets_the_engine_rest() -> None:
    engine, is_told = Engine(), threading.Event()
    with ThreadPoolExecutor(8) as executor:
        watched, ghost = WatchedFiller(engine.fill, is_told.set), GhostText(executor, lambda view, offset: None)
        for number in range(5):  # a key each, and the client cancels the one before
            asked = asyncio.ensure_future(suggest(ghost, watched))
            if not number:
                await asyncio.to_thread(engine.is_started.wait, TIMEOUT_S)
            await asyncio.sleep(0)
            asked.cancel()
        last = asyncio.ensure_future(suggest(ghost, watched))
        engine.may_fail.set()
        assert await last == () and await asyncio.to_thread(is_told.wait, TIMEOUT_S)
        assert engine.num_starts == 1 and watched.is_resting
        assert watched.error and watched.error.code == "engine_failed"
        assert await suggest(ghost, watched) == () and engine.num_starts == 1
        with pytest.raises(MidfillError):
            await suggest(ghost, watched, invoked=True)
        engine.works = True
        assert [found.text for found in await suggest(ghost, watched, invoked=True)] == ["pass"]
        assert watched.error is None and not watched.is_resting


def test_only_a_fill_takes_an_error_back() -> None:
    engine, told = Engine(), []
    engine.may_fail.set()
    watched = WatchedFiller(engine.fill, lambda: told.append(watched.error))
    document = Document.from_text("x = 1\n", "python")
    asked = document, [Hole(4, 5)], Options(), SETTINGS, print
    with pytest.raises(MidfillError):
        list(watched.fill(*asked))
    assert list(watched.fill_unasked(*asked)) == [] and watched.error and engine.num_starts == 1
    engine.works = True
    assert list(watched.fill(*asked)) and list(watched.fill_unasked(*asked))
    assert [error and error.code for error in told] == ["engine_failed", None]


def test_a_proposal_is_there_while_the_engine_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for a fill that somebody waits for; ghost text has shown it already."""
    engines, started = Engines(), []

    def fail(wanted: object, say: object) -> NoReturn:
        started.append(wanted)
        raise MidfillError("engine_failed", "the engine does not start")

    monkeypatch.setattr(engines, "_connect", fail)
    document = Document(
        b"def f(path):\n    check(path)\n    return 1\n\n\ndef g(path):\n    \n    return 2\n", "python"
    )
    asked = document, [hole_at_cursor(document, document.data.index(b"    \n") + 4)], Options(), SETTINGS, print
    watched = WatchedFiller(engines.fill, lambda: None)
    events = watched.fill(*asked)
    first = next(events)
    assert isinstance(first, Preview) and first.is_proposed and [each.text for each in first.holes] == ["check(path)"]
    assert not started
    with pytest.raises(MidfillError):
        next(events)
    with pytest.raises(MidfillError):
        next(WatchedFiller(engines.fill, lambda: None).fill_unasked(*asked))
    assert len(started) == 2
