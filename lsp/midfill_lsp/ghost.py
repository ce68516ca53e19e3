"""Ghost text at the cursor: when to make it, what to show, how long to reuse it. Knows no engine."""

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from lsprotocol import types

from midfill_infill.config import choose_seconds
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative
from midfill_infill.filling.fill import Filled, Options, propose_fill
from midfill_infill.syntax.holes import hole_at_cursor
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
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
MIN_REPEATED_CHARS = 3  # a shorter start of the rest of the line may be meant, as a quote before another one


@dataclass(frozen=True)
class Suggestion:
    """`text` goes to the cursor and replaces `num_replaced` code points behind it."""

    text: str
    num_replaced: int


class GhostText:
    """Makes suggestions, one at a time per document: a newer request cancels the older one. Recent suggestions are
    reused while the user types along. A likely proposal of the file is shown until the engine has judged it.
    """

    def __init__(self, executor: Executor, tell: Callable[[DocumentView, int], None]) -> None:
        """`tell` is called if other suggestions replace those that were shown at an offset."""
        self._executor, self._tell = executor, tell
        self._kept: dict[tuple[str, bool, str, str], tuple[Suggestion, ...]] = {}
        self._stops: dict[str, threading.Event] = {}
        self._judging = set[asyncio.Task[tuple[Suggestion, ...]]]()  # the event loop holds tasks weakly

    async def suggest(
        self, view: DocumentView, offset: int, settings: Settings, filler: Filler,
        surroundings: Callable[[], Options], *, invoked: bool, document: SyncedDocument,
    ) -> tuple[Suggestion, ...]:  # fmt: skip
        """Raises MidfillError and CancelledError; empty if the document changed meanwhile."""
        if (found := self._recall(view, offset, invoked)) is not None:
            return found
        stop = threading.Event()
        self._stops.pop(view.uri, threading.Event()).set()
        self._stops[view.uri] = stop
        run = partial(asyncio.get_running_loop().run_in_executor, self._executor)
        try:
            await asyncio.sleep(0 if invoked else settings.debounce_ms / 1000)
            if stop.is_set():
                return ()
            asked = await run(GhostRequest.read, view, offset, settings, surroundings, invoked)
            shown = () if invoked else await run(asked.propose)
            if shown:
                self._kept[asked.key] = shown
            judging = asyncio.create_task(self._judge(run(asked.fill, filler, stop), asked, stop, shown, document))
            self._judging.add(judging)
            judging.add_done_callback(self._judging.discard)
            made = shown or await judging
        except BaseException:
            stop.set()
            raise
        return made if document.text is view.text else ()

    async def _judge(
        self, filling: Awaitable[tuple[Suggestion, ...] | None], asked: "GhostRequest", stop: threading.Event,
        shown: tuple[Suggestion, ...], document: SyncedDocument,
    ) -> tuple[Suggestion, ...]:  # fmt: skip
        """Raises MidfillError, unless something is shown already."""
        made = None
        try:
            made = await filling
        except MidfillError:
            if not shown:
                raise
        finally:
            stop.set()
            if self._stops.get(asked.view.uri) is stop:
                del self._stops[asked.view.uri]
            if made is None:
                self._kept.pop(asked.key, None)
        if made is None:
            return ()
        self._kept[asked.key] = made
        if len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        if shown and made != shown and document.text is asked.view.text:
            self._tell(asked.view, asked.offset)
        return made

    def _recall(self, view: DocumentView, offset: int, invoked: bool) -> tuple[Suggestion, ...] | None:
        """What was judged here, or the rest of the latest suggestions that match what was typed since."""
        if (found := self._kept.get(_key(view, offset, offset, invoked))) is not None:
            return found
        for num_typed in range(1, min(offset, MAX_TYPED_CHARS) + 1):
            typed = view.text.source[offset - num_typed : offset]
            kept = self._kept.get(_key(view, offset - num_typed, offset, invoked), ())
            if fits := [found for found in kept if found.text.startswith(typed) and found.text != typed]:
                return tuple(Suggestion(found.text[num_typed:], found.num_replaced) for found in fits)
        return None


def _key(view: DocumentView, start: int, end: int, invoked: bool) -> tuple[str, bool, str, str]:
    source = view.text.source
    return view.uri, invoked, source[max(0, start - HEAD_CHARS) : start], source[end : end + TAIL_CHARS]


@dataclass(frozen=True)
class GhostRequest:
    """A request for ghost text at `offset`, with the hole there and the options of its fill."""

    view: DocumentView
    offset: int
    settings: Settings
    invoked: bool
    document: Document
    hole: Hole
    options: Options

    @property
    def key(self) -> tuple[str, bool, str, str]:
        return _key(self.view, self.offset, self.offset, self.invoked)

    @classmethod
    def read(
        cls, view: DocumentView, offset: int, settings: Settings, surroundings: Callable[[], Options], invoked: bool
    ) -> "GhostRequest":
        document = view.read()
        options = replace(
            surroundings(),
            seed=settings.seed,
            steps=settings.steps,
            seconds=choose_seconds()[0],
            presets=("steps",),
            max_tokens=settings.max_hole_tokens,
            n=NUM_INVOKED if invoked else 1,
            single_line=bool(view.text.source[offset:].partition("\n")[0].strip()),
            repair=False,
        )
        hole = hole_at_cursor(document, view.byte(offset))
        return cls(view, offset, settings, invoked, document, hole, options)

    def propose(self) -> tuple[Suggestion, ...]:
        """The file's own proposal, if it is likely enough. Asks no engine."""
        proposed = propose_fill(self.document, [self.hole], self.options)
        return self._choose([proposed] if proposed else [])

    def fill(self, filler: Filler, stop: threading.Event) -> tuple[Suggestion, ...] | None:
        """None if it was stopped."""
        options = replace(self.options, max_tokens=min(self.options.max_tokens or MAX_TOKENS, MAX_TOKENS))
        with closing(filler(self.document, [self.hole], options, self.settings, lambda phrase: None)) as events:
            for event in events:
                if stop.is_set():
                    return None
                if isinstance(event, Filled):
                    return self._choose((event.best, *event.alternatives))
        return None

    def _choose(self, rows: Sequence[Alternative]) -> tuple[Suggestion, ...]:
        """The different candidates worth showing, without blank ones and those that are behind the cursor already."""
        num_replaced = self.view.span(self.hole)[1] - self.offset
        behind = self.view.text.source[self.offset + num_replaced :]
        texts = (
            row.patch.edits[0].replacement.decode("utf-8", "surrogatepass")
            for row in rows
            if self.invoked or _is_worth_showing(row, self.settings)
        )
        shown = ((text.splitlines() or [""])[0] if self.options.single_line else text for text in texts)
        return tuple(Suggestion(text, num_replaced) for text in dict.fromkeys(shown) if not is_repeated(text, behind))


def _is_worth_showing(row: Alternative, settings: Settings) -> bool:
    """True for unrequested ghost text that adds no error and is certain enough. Where the engine gives no certainty, it
    must do something, and its tokens must be likely enough if there is a threshold and the engine gives probabilities.
    """
    if row.new_errors:
        return False
    if row.certainty is not None:
        return row.certainty >= settings.ghost_text_certainty
    least, known = settings.ghost_text_log_probability, [each for fill in row.fills for each in fill.confidence]
    return not row.is_idle and (least is None or not known or _mean_log(known) >= least)


def _mean_log(probabilities: Sequence[float]) -> float:
    """In nats; minus infinity if one is 0."""
    return sum(math.log(each) if each else -math.inf for each in probabilities) / len(probabilities)


def is_repeated(text: str, behind: str) -> bool:
    """True if a text only repeats the rest of the line or the lines behind the cursor. Blank text does."""
    said, held = ([line.strip() for line in each.splitlines() if line.strip()] for each in (text, behind))
    rest = behind.partition("\n")[0].strip()
    if rest and len(said) == 1:
        return said[0] == rest or (len(said[0]) >= MIN_REPEATED_CHARS and rest.startswith(said[0]))
    shared = min(len(said), len(held))
    return not said or (shared > 0 and said[:shared] == held[:shared])


def to_items(document: SyncedDocument, offset: int, found: tuple[Suggestion, ...]) -> types.InlineCompletionList:
    items = [
        types.InlineCompletionItem(item.text, range=document.text.range((offset, offset + item.num_replaced)))
        for item in found
    ]
    return types.InlineCompletionList(items)
