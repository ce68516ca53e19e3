"""Ghost text at the cursor: when to make it, what to show, how long to reuse it. Knows no engine."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace

from lsprotocol import types

from midfill_infill.candidates import Alternative
from midfill_infill.fill import Filled, Options
from midfill_infill.syntax.holes import hole_at_cursor
from midfill_lsp.engine import Filler
from midfill_lsp.settings import Settings
from midfill_lsp.text import SyncedDocument
from midfill_lsp.views import DocumentView

MAX_KEPT = 200
HEAD_CHARS = 2048
TAIL_CHARS = 512
MAX_TYPED_CHARS = 128
MAX_TOKENS = 48
NUM_INVOKED = 3


@dataclass(frozen=True)
class Suggestion:
    """`text` goes to the cursor and replaces `num_replaced` code points behind it."""

    text: str
    num_replaced: int


class Suggestions:
    """Recent suggestions, reused while the user types along."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, bool, str, str], tuple[Suggestion, ...]] = OrderedDict()

    def put(self, uri: str, source: str, offset: int, suggestions: tuple[Suggestion, ...], *, invoked: bool) -> None:
        self._kept[self._key(uri, source, offset, offset, invoked)] = suggestions
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def find(self, uri: str, source: str, offset: int, *, invoked: bool) -> tuple[Suggestion, ...]:
        """The rest of the latest suggestions that match what was typed since; empty if none does."""
        for num_typed in range(min(offset, MAX_TYPED_CHARS) + 1):
            typed = source[offset - num_typed : offset]
            kept = self._kept.get(self._key(uri, source, offset - num_typed, offset, invoked), ())
            fits = [found for found in kept if found.text.startswith(typed) and found.text != typed]
            if fits:
                return tuple(Suggestion(found.text[num_typed:], found.num_replaced) for found in fits)
        return ()

    @staticmethod
    def _key(uri: str, source: str, start: int, end: int, invoked: bool) -> tuple[str, bool, str, str]:
        return uri, invoked, source[max(0, start - HEAD_CHARS) : start], source[end : end + TAIL_CHARS]


class GhostText:
    """Makes suggestions, one at a time per document: a newer request cancels the older one."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._suggestions = Suggestions()
        self._stops: dict[str, threading.Event] = {}

    async def suggest(
        self, view: DocumentView, offset: int, settings: Settings, filler: Filler,
        surroundings: Callable[[], Options], *, invoked: bool, document: SyncedDocument,
    ) -> tuple[Suggestion, ...]:  # fmt: skip
        """Raises MidfillError and CancelledError; nothing where the document moved on meanwhile."""
        if found := self._suggestions.find(view.uri, view.text.source, offset, invoked=invoked):
            return found
        stop = threading.Event()
        self._stops.pop(view.uri, threading.Event()).set()
        self._stops[view.uri] = stop
        try:
            await asyncio.sleep(0 if invoked else settings.debounce_ms / 1000)
            if stop.is_set():
                return ()
            loop = asyncio.get_running_loop()
            made = await loop.run_in_executor(
                self._executor, _make, view, offset, settings, filler, surroundings, invoked, stop
            )
        finally:
            stop.set()
            if self._stops.get(view.uri) is stop:
                del self._stops[view.uri]
        if made:
            self._suggestions.put(view.uri, view.text.source, offset, made, invoked=invoked)
        return made if document.text is view.text else ()


def _make(
    view: DocumentView, offset: int, settings: Settings, filler: Filler, surroundings: Callable[[], Options],
    invoked: bool, stop: threading.Event,
) -> tuple[Suggestion, ...]:  # fmt: skip
    document = view.read()
    hole = hole_at_cursor(document, view.byte(offset))
    single_line = bool(view.text.source[offset:].partition("\n")[0].strip())
    options = replace(
        surroundings(),
        seed=settings.seed,
        steps=settings.steps,
        max_tokens=min(settings.max_hole_tokens or MAX_TOKENS, MAX_TOKENS),
        n=NUM_INVOKED if invoked else 1,
        single_line=single_line,
        repair=False,
    )
    with closing(filler(document, [hole], options, settings, lambda phrase: None)) as events:
        for event in events:
            if stop.is_set():
                return ()
            if isinstance(event, Filled):
                rows = (event.best, *event.alternatives)
                num_replaced = view.span(hole)[1] - offset
                if not invoked:
                    rows = tuple(row for row in rows if _is_worth_showing(row, settings.ghost_text_certainty))
                return _choose(view, offset, num_replaced, rows, single_line=single_line)
    return ()


def _is_worth_showing(row: Alternative, least: float) -> bool:
    """Whether unrequested ghost text may be shown: no new error, and certain enough if the engine knows."""
    return not row.new_errors and (row.certainty is None or row.certainty >= least)


def _choose(
    view: DocumentView, offset: int, num_replaced: int, rows: tuple[Alternative, ...], *, single_line: bool
) -> tuple[Suggestion, ...]:
    """The first candidate that is not blank and not the line that follows anyway."""
    following = view.text.source[offset + num_replaced :].lstrip("\r\n").partition("\n")[0].strip()
    found: dict[str, Suggestion] = {}
    for row in rows:
        text = row.patch.edits[0].replacement.decode("utf-8", "surrogatepass")
        if single_line:
            text = text.splitlines()[0] if text.strip() else ""
        if text.strip() and text.strip() != following:
            found[text] = Suggestion(text, num_replaced)
    return tuple(found.values())


def to_items(document: SyncedDocument, offset: int, found: tuple[Suggestion, ...]) -> types.InlineCompletionList:
    items = [
        types.InlineCompletionItem(item.text, range=document.text.range((offset, offset + item.num_replaced)))
        for item in found
    ]
    return types.InlineCompletionList(items)
