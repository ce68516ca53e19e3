"""What is remembered of an engine's failures, and what a fill that nobody asked for then does."""

import asyncio
import logging
import sys
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import NoReturn

import pytest

from midfill_engine.wire import MAX_EXCERPTS, FilledHole, InfillRequest, InfillResponse, Stats
from midfill_infill.context.excerpts import ShownExcerpts
from midfill_infill.context.references import Reference
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative
from midfill_infill.filling.fill import Filled, Options, Preview, fill
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import hole_at_cursor, hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_lsp.__main__ import Formatter
from midfill_lsp.engine import Engines, Say, WatchedFiller
from midfill_lsp.ghost import GhostRequest, GhostText, Suggestion
from midfill_lsp.settings import Settings
from midfill_lsp.text import SyncedDocument, Text
from midfill_lsp.views import DocumentView

TIMEOUT_S = 60
SETTINGS = Settings(debounce_ms=0)
STATS = Stats(steps=1, forwards=1, tokens=1, ms=1.0)


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
        if not self.works:
            yield Preview(0, 1, (), is_proposed=True)
            self.is_started.set()
            assert self.may_fail.wait(TIMEOUT_S)
            raise MidfillError("engine_failed", "the engine does not start")
        patch = splice(document, holes, ["pass"]).patch
        yield Filled(Alternative(patch, (), 0), (), STATS, "model")


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


@pytest.mark.parametrize("has_worked", [False, True])
async def test_ghost_text_that_is_superseded_waits_for_no_engine(has_worked: bool) -> None:
    engine = Engine()
    with ThreadPoolExecutor(3) as executor:
        watched, ghost = WatchedFiller(engine.fill, lambda: None), GhostText(executor, lambda view, offset: None)
        if has_worked:
            watched.succeed()  # and ended since, as after half an hour without work
        for number in range(4):
            asked = asyncio.ensure_future(suggest(ghost, watched))
            if not number:
                await asyncio.to_thread(engine.is_started.wait, TIMEOUT_S)
            await asyncio.sleep(0.1)
            asked.cancel()
        try:
            assert await asyncio.wait_for(asyncio.wrap_future(executor.submit(id, 1)), 5), "a worker is free"
        finally:
            engine.may_fail.set()


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


class FailingEngines(Engines):
    """None starts; counts how often one was to."""

    num_started = 0

    def _connect(self, wanted: object, say: object) -> NoReturn:
        self.num_started += 1
        raise MidfillError("engine_failed", "the engine does not start")


def test_a_proposal_is_there_while_the_engine_starts() -> None:
    """Only for a fill that somebody waits for; ghost text has shown it already."""
    engines = FailingEngines()
    document = Document(
        b"def f(path):\n    check(path)\n    return 1\n\n\ndef g(path):\n    \n    return 2\n", "python"
    )
    asked = document, [hole_at_cursor(document, document.data.index(b"    \n") + 4)], Options(), SETTINGS, print
    watched = WatchedFiller(engines.fill, lambda: None)
    events = watched.fill(*asked)
    first = next(events)
    assert isinstance(first, Preview) and first.is_proposed and [each.text for each in first.holes] == ["check(path)"]
    assert not engines.num_started
    with pytest.raises(MidfillError):
        list(events)
    with pytest.raises(MidfillError):
        next(WatchedFiller(engines.fill, lambda: None).fill_unasked(*asked))
    assert engines.num_started == 2


def test_a_fill_can_stop_while_its_engine_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    may_start = threading.Event()
    engines = Engines()
    monkeypatch.setattr(engines, "_connect", lambda wanted, say: may_start.wait(TIMEOUT_S))
    timer = threading.Timer(2, may_start.set)
    timer.start()
    events = engines.fill(Document.from_text("x = \n", "python"), [Hole(4, 4)], Options(), SETTINGS, print)
    assert [next(events).step, next(events).step] == [0, 0]
    events.close()
    assert not may_start.is_set()
    timer.cancel()
    may_start.set()


def test_the_engine_that_was_used_last_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Document.from_text("x = \n", "python"), [Hole(4, 4)], Options()

    def connect(endpoint: SimpleNamespace) -> SimpleNamespace:
        model = SimpleNamespace(id=endpoint.model, device="cpu", dtype="fp32", parameters=1)
        return SimpleNamespace(models=lambda: [model])

    monkeypatch.setattr("midfill_infill.engines.client.EngineClient", connect)
    monkeypatch.setattr(
        "midfill_infill.engines.supervise.ensure_engine",
        lambda wanted, say: SimpleNamespace(model=wanted.model, remote_host=""),
    )
    monkeypatch.setattr("midfill_infill.engines.offer.tell_where", lambda host: None)
    monkeypatch.setattr("midfill_lsp.engine.fill", lambda *asked: iter([Preview(0, 1, ())]))
    engines = Engines()
    for model in ("one", "two", "one"):
        list(engines.fill(*asked, Settings(model), print))
        assert engines.facts and engines.facts.model == model


class Recorder:
    """A client of an engine that writes `x`, and keeps what it is asked."""

    endpoint = SimpleNamespace(is_outside=False)

    def __init__(self) -> None:
        self.asked: list[InfillRequest] = []

    def models(self) -> list[object]:
        return [SimpleNamespace(id="m", max_context_tokens=512, keeps="lines", heeds=())]

    def infill(self, request: InfillRequest) -> Generator[InfillResponse, None, None]:
        self.asked.append(request)
        yield InfillResponse(model="m", holes=[FilledHole(text="x", tokens=[], confidence=[])], stats=STATS)


def test_ghost_text_asks_with_as_many_excerpts_as_a_request_holds() -> None:
    recorder = Recorder()
    text = Text("from parts import sum\n\n\ndef total(n):\n    \n")
    references = tuple(Reference("open", f"def part{number}(n): return sum(n)\n") for number in range(17))
    view = DocumentView("untitled:1", "python", text)
    request = GhostRequest.read(view, len(text.source) - 1, SETTINGS, lambda: Options(references=references), True)
    stop = threading.Event()
    request.fill(lambda d, h, o, s, say: fill(d, h, o, recorder), stop)  # type: ignore[arg-type]
    assert len(recorder.asked[0].excerpts) == MAX_EXCERPTS
    stop.set()
    request.fill(lambda d, h, o, s, say: fill(d, h, o, recorder), stop)  # type: ignore[arg-type]
    assert len(recorder.asked) == 1, "one that was superseded while it waited for a worker asks no engine"


def test_a_fill_keeps_the_excerpts_of_the_one_before_and_tells_its_own() -> None:
    recorder = Recorder()
    document = Document.from_text("rows = parse_invoice(path)\n\n", "python")
    hole = hole_at_range(document, len(document.data) - 1, len(document.data) - 1)
    references = tuple(Reference("open", f"{name}(parse_invoice)\n") for name in ("one", "two"))
    shown = ShownExcerpts()
    for order in (references, references[::-1]):
        options = Options(references=order, shown=shown)
        list(fill(document, [hole], options, recorder))  # type: ignore[arg-type]
    list(fill(document, [hole], Options(references=references[::-1]), recorder))  # type: ignore[arg-type]
    first, second, alone = (request.excerpts for request in recorder.asked)
    assert first == second == list(shown.texts) == alone[::-1] and len(first) == 2


def test_a_log_shows_an_errors_type_and_place_but_not_its_text() -> None:
    code = "def secret(): pass"
    try:
        raise ValueError(code)
    except ValueError:
        record = logging.makeLogRecord({"msg": "a task failed", "exc_info": sys.exc_info()})
    said = Formatter("%(message)s").format(record)
    assert "a task failed" in said and "ValueError" in said and "test_watched_filler" in said
    assert "secret" not in said
