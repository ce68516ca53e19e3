"""Ghost text at the cursor: when to make it, what to show, how long to reuse it. Knows no engine."""

import asyncio
import threading
from collections.abc import Callable, Sequence
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


class GhostText:
    """Makes suggestions, one at a time per document: a newer request cancels the older one. Recent suggestions are
    reused while the user types along.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._kept: dict[tuple[str, bool, str, str], tuple[Suggestion, ...]] = {}
        self._stops: dict[str, threading.Event] = {}

    async def suggest(
        self, view: DocumentView, offset: int, settings: Settings, filler: Filler,
        surroundings: Callable[[], Options], *, invoked: bool, document: SyncedDocument,
    ) -> tuple[Suggestion, ...]:  # fmt: skip
        """Raises MidfillError and CancelledError; empty if the document changed meanwhile."""
        if found := self._recall(view, offset, invoked):
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
            self._kept[_key(view, offset, offset, invoked)] = made
            if len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return made if document.text is view.text else ()

    def _recall(self, view: DocumentView, offset: int, invoked: bool) -> tuple[Suggestion, ...]:
        """The rest of the latest suggestions that match what was typed since; empty if none does."""
        for num_typed in range(min(offset, MAX_TYPED_CHARS) + 1):
            typed = view.text.source[offset - num_typed : offset]
            kept = self._kept.get(_key(view, offset - num_typed, offset, invoked), ())
            if fits := [found for found in kept if found.text.startswith(typed) and found.text != typed]:
                return tuple(Suggestion(found.text[num_typed:], found.num_replaced) for found in fits)
        return ()


def _key(view: DocumentView, start: int, end: int, invoked: bool) -> tuple[str, bool, str, str]:
    source = view.text.source
    return view.uri, invoked, source[max(0, start - HEAD_CHARS) : start], source[end : end + TAIL_CHARS]


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
                least = None if invoked else settings.ghost_text_certainty
                rows = [row for row in (event.best, *event.alternatives) if _is_worth_showing(row, least)]
                return _choose(view, offset, view.span(hole)[1] - offset, rows, single_line=single_line)
    return ()


def _is_worth_showing(row: Alternative, least: float | None) -> bool:
    """True if ghost text was requested, or adds no error and is certain enough, where the engine knows."""
    return least is None or (not row.new_errors and (row.certainty is None or row.certainty >= least))


def _choose(
    view: DocumentView, offset: int, num_replaced: int, rows: Sequence[Alternative], *, single_line: bool
) -> tuple[Suggestion, ...]:
    """The different candidates, without blank ones and those that equal the next line."""
    following = view.text.source[offset + num_replaced :].lstrip("\r\n").partition("\n")[0].strip()
    texts = (row.patch.edits[0].replacement.decode("utf-8", "surrogatepass") for row in rows)
    shown = ((text.splitlines() or [""])[0] if single_line else text for text in texts)
    return tuple(Suggestion(text, num_replaced) for text in dict.fromkeys(shown) if text.strip() not in ("", following))


def to_items(document: SyncedDocument, offset: int, found: tuple[Suggestion, ...]) -> types.InlineCompletionList:
    items = [
        types.InlineCompletionItem(item.text, range=document.text.range((offset, offset + item.num_replaced)))
        for item in found
    ]
    return types.InlineCompletionList(items)
