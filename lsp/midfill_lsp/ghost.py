"""Makes ghost text at the cursor: decides when to make it, what to show, and how long to reuse it. Knows no engine."""

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
from midfill_lsp.host import Host
from midfill_lsp.messages import Range, StaleGhostText
from midfill_lsp.settings import Settings
from midfill_lsp.text import SyncedDocument, Text
from midfill_lsp.views import DocumentView

MAX_KEPT = 200  # places for which suggestions are kept
HEAD_CHARS = 2048  # text before and behind the cursor by which a place is known again
TAIL_CHARS = 512
MAX_TYPED_CHARS = 128
MAX_TOKENS = 48
NUM_INVOKED = 3  # suggestions that an explicit request asks for
MIN_REPEATED_CHARS = 3  # a shorter text that also begins the rest of the line may be meant, as a quote before another


@dataclass(frozen=True)
class Suggestion:
    """`text` goes to the cursor and replaces `num_replaced` code points behind it."""

    text: str
    num_replaced: int


class GhostText:
    """Makes suggestions, one at a time per document: a newer request cancels the older one. Recent suggestions are
    reused while the user types their text. A likely proposal of the file is shown until the engine has judged it.
    """

    def __init__(self, executor: Executor, tell: Callable[[DocumentView, int], None]) -> None:
        """`tell` is called if other suggestions replace those that were shown at an offset."""
        self._executor, self._tell = executor, tell
        self._kept: dict[tuple[str, bool, str, str], tuple[Suggestion, ...]] = {}  # by `_key`, the oldest first
        self._settings = Settings()  # of the last request
        self._stops: dict[str, threading.Event] = {}  # by URI, for the running request
        self._judging = set[asyncio.Task[tuple[Suggestion, ...]]]()  # the event loop holds tasks weakly

    async def suggest(
        self, view: DocumentView, offset: int, settings: Settings, filler: Filler,
        surroundings: Callable[[], Options], *, invoked: bool, document: SyncedDocument,
    ) -> tuple[Suggestion, ...]:  # fmt: skip
        """Suggestions at an offset; none if the document changes meanwhile. Raises MidfillError and CancelledError."""
        if settings != self._settings:  # other settings may suggest something where these suggested nothing
            self._settings = settings
            self._kept = {key: kept for key, kept in self._kept.items() if kept}
        recalled = self._recall(view, offset, invoked)
        if recalled is not None:
            return recalled
        stop = threading.Event()
        if view.uri in self._stops:
            self._stops[view.uri].set()
        self._stops[view.uri] = stop
        run = partial(asyncio.get_running_loop().run_in_executor, self._executor)
        try:
            await asyncio.sleep(0 if invoked else settings.debounce_ms / 1000)
            if stop.is_set():
                return ()
            request = await run(GhostRequest.read, view, offset, settings, surroundings, invoked)
            shown = () if invoked else await run(request.propose)
            if shown:
                self._kept[request.key] = shown
            filling = run(request.fill, filler, stop)
            judging = asyncio.create_task(self._judge(filling, request, stop, shown, document))
            self._judging.add(judging)
            judging.add_done_callback(self._judging.discard)
            suggestions = shown or await judging
        except BaseException:
            stop.set()
            raise
        return suggestions if document.text is view.text else ()

    async def _judge(
        self, filling: Awaitable[tuple[Suggestion, ...] | None], request: "GhostRequest", stop: threading.Event,
        shown: tuple[Suggestion, ...], document: SyncedDocument,
    ) -> tuple[Suggestion, ...]:  # fmt: skip
        """Waits for the engine's suggestions, and keeps them. Raises MidfillError if nothing is `shown` yet."""
        judged = None
        try:
            judged = await filling
        except MidfillError:
            if not shown:
                raise
        finally:
            stop.set()
            if self._stops.get(request.view.uri) is stop:
                del self._stops[request.view.uri]
            if judged is None:
                self._kept.pop(request.key, None)
        if judged is None:
            return ()
        self._kept[request.key] = judged
        if len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        if shown and judged != shown and document.text is request.view.text:
            self._tell(request.view, request.offset)
        return judged

    def _recall(self, view: DocumentView, offset: int, invoked: bool) -> tuple[Suggestion, ...] | None:
        """Kept suggestions for this place, or for a place before it, if the user has typed their beginning since."""
        kept = self._kept.get(_key(view, offset, offset, invoked))
        if kept is not None:
            return kept
        for num_typed in range(1, min(offset, MAX_TYPED_CHARS) + 1):
            typed = view.text.source[offset - num_typed : offset]
            earlier = self._kept.get(_key(view, offset - num_typed, offset, invoked), ())
            matching = [kept for kept in earlier if kept.text.startswith(typed) and kept.text != typed]
            if matching:
                return tuple(Suggestion(kept.text[num_typed:], kept.num_replaced) for kept in matching)
        return None


def _key(view: DocumentView, start: int, end: int, invoked: bool) -> tuple[str, bool, str, str]:
    """What a place is known again by: the document, and its text before `start` and behind `end`."""
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
        """Parses the document, so call it in a worker thread. Raises MidfillError if it cannot be filled."""
        document = view.read()
        options = replace(
            surroundings(),
            seed=settings.seed,
            steps=settings.steps,
            seconds=choose_seconds()[0],
            presets=("steps",),
            max_tokens=settings.max_hole_tokens,
            n=NUM_INVOKED if invoked else 1,
            spares_queries=True,
            single_line=bool(view.text.source[offset:].partition("\n")[0].strip()),
            repair=False,
        )
        hole = hole_at_cursor(document, view.byte(offset))
        return cls(view, offset, settings, invoked, document=document, hole=hole, options=options)

    def propose(self) -> tuple[Suggestion, ...]:
        """The file's own proposal, if it is likely enough. Asks no engine."""
        proposed = propose_fill(self.document, [self.hole], self.options)
        return self._choose([proposed] if proposed else [])

    def fill(self, filler: Filler, stop: threading.Event) -> tuple[Suggestion, ...] | None:
        """The engine's suggestions; None if the fill was stopped."""
        if stop.is_set():
            return None
        options = replace(self.options, max_tokens=min(self.options.max_tokens or MAX_TOKENS, MAX_TOKENS))
        with closing(filler(self.document, [self.hole], options, self.settings, lambda phrase: None)) as events:
            for event in events:
                if stop.is_set():
                    return None
                if isinstance(event, Filled):
                    return self._choose((event.best, *event.alternatives))
        return None

    def _choose(self, candidates: Sequence[Alternative]) -> tuple[Suggestion, ...]:
        """The different candidates worth showing, without blank ones and those that are behind the cursor already."""
        num_replaced = self.view.span(self.hole)[1] - self.offset
        behind = self.view.text.source[self.offset + num_replaced :]
        texts = (
            candidate.patch.edits[0].replacement.decode("utf-8", "surrogatepass")
            for candidate in candidates
            if self.invoked or _is_worth_showing(candidate, self.settings)
        )
        shown = (Text(text).lines[0] if self.options.single_line else text for text in texts)
        return tuple(Suggestion(text, num_replaced) for text in dict.fromkeys(shown) if not is_repeated(text, behind))


def _is_worth_showing(candidate: Alternative, settings: Settings) -> bool:
    """True for unrequested ghost text that adds no error and is certain enough. Where the engine gives no certainty, it
    must do something, and its tokens must be likely enough if there is a threshold and the engine gives probabilities.
    """
    if candidate.new_errors:
        return False
    if candidate.certainty is not None:
        return candidate.certainty >= settings.ghost_text_certainty
    threshold = settings.ghost_text_log_probability
    probabilities = [probability for fill in candidate.fills for probability in fill.confidence]
    is_likely = threshold is None or not probabilities or _mean_log(probabilities) >= threshold
    return not candidate.is_idle and is_likely


def _mean_log(probabilities: Sequence[float]) -> float:
    """The mean of the logarithms in nats; minus infinity if a probability is 0."""
    return sum(math.log(value) if value else -math.inf for value in probabilities) / len(probabilities)


def is_repeated(text: str, behind: str) -> bool:
    """True if a text only repeats the rest of the line or the lines behind the cursor, and for a blank text."""
    text_lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines_behind = [line.strip() for line in behind.splitlines() if line.strip()]
    rest_of_line = behind.partition("\n")[0].strip()
    if rest_of_line and len(text_lines) == 1:
        (line,) = text_lines
        return line == rest_of_line or (len(line) >= MIN_REPEATED_CHARS and rest_of_line.startswith(line))
    num_compared = min(len(text_lines), len(lines_behind))
    return not text_lines or (num_compared > 0 and text_lines[:num_compared] == lines_behind[:num_compared])


def to_items(document: SyncedDocument, offset: int, suggestions: Sequence[Suggestion]) -> types.InlineCompletionList:
    r"""The suggestions at an offset as LSP has them. Editors give lines that end at `\n` the ends of their document;
    Neovim splits at `\n` only, and would keep the `\r` of a `\r\n`.
    """
    items = [
        types.InlineCompletionItem(
            suggestion.text.replace("\r\n", "\n"), range=document.text.range((offset, offset + suggestion.num_replaced))
        )
        for suggestion in suggestions
    ]
    return types.InlineCompletionList(items)


def tell_judged(server: Host, view: DocumentView, offset: int) -> None:
    """Tells the client that its ghost text at `offset` is stale, because the engine has judged it."""
    place = Range.of(view.text.range((offset, offset))).start
    server.tell("midfill/didJudge", StaleGhostText(uri=view.uri, position=place), view.uri)
