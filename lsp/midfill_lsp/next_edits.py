"""Finds other places for the last change of a document, which it tracks: next edits. `infill` judges the places."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from lsprotocol import types

from midfill_infill.errors import MidfillError
from midfill_infill.repeats.repeat import Repeat, find_repeats
from midfill_infill.text.spans import Hole, find_gaps
from midfill_lsp.edits import FillFailed, Replacement, apply_edits, check_takes_edits, find_document
from midfill_lsp.fills import Fills
from midfill_lsp.host import Host
from midfill_lsp.messages import DraftParams, FillParams, Range, Repeated, RepeatParams, RepeatPlace, Repeats, What
from midfill_lsp.text import Span, SyncedDocument, Text, to_units, trim
from midfill_lsp.views import DocumentView, take_view

REST_S = 0.25  # how long a document is idle before likely repeats are searched
NOTHING = "Midfill: the last change fits nowhere else in this file; make one first, then ask."


@dataclass
class Burst:
    """Consecutive changes of the same lines, which count as one change: the text `before` became `now`. `span` is what
    changed in `now`, None if nothing did. `earlier` are the texts before and after the previous burst.
    """

    before: Text
    now: Text
    span: Span | None = None
    earlier: tuple[Text, Text] | None = None

    def follow(self, text: Text) -> "Burst":
        """The burst after the document changed from `now` to `text`."""
        old, new = self.now.source, text.source
        start, end = trim(old, new)
        growth = len(new) - len(old)
        if self.span is None:
            return Burst(self.now, text, (start, end + growth), self.earlier)
        lines_start, lines_end = self.now.whole_lines(self.span)
        if start > lines_end or end < lines_start:  # other lines: a new burst begins
            return Burst(self.now, text, (start, end + growth), (self.before, self.now))
        if self.before.source == new:  # the user took the change back
            return Burst(self.before, text, None, self.earlier)
        first, last = self.span
        span = min(first, start), max(last, end) + growth
        return Burst(self.before, text, span, self.earlier)


@dataclass(frozen=True)
class PlacedRepeat:
    """A repeat at its place in a document's text."""

    span: Span
    repeat: Repeat


class NextEdits:
    """The last change of each open document, and the places where it may be repeated. Use it on the event loop only."""

    def __init__(self, server: Host, fills: Fills) -> None:
        self._server, self._fills = server, fills
        self._bursts: dict[str, Burst] = {}  # by URI, as the next two
        self._repeats: dict[str, tuple[Text, Sequence[PlacedRepeat]]] = {}  # with the text that was searched
        self._searches: dict[str, asyncio.Task[None]] = {}

    def follow(self, uri: str) -> None:
        """Call when a document was opened or changed."""
        document = self._server.workspace.open_document(uri)
        burst = self._bursts.get(uri)
        if document is None or (burst and burst.now.source == document.source):
            return
        self._bursts[uri] = burst.follow(document.text) if burst else Burst(document.text, document.text)
        self._tell(document, ())
        if uri in self._searches:
            self._searches.pop(uri).cancel()
        is_own = document.num_edits > 0  # a fill becomes pending when the client confirms the edit
        if burst and not is_own and self._server.settings_of(uri).next_edits and self._server.speaks_midfill:
            self._searches[uri] = asyncio.get_running_loop().create_task(self._propose(document))

    def forget(self, uri: str) -> None:
        """Call when a document was closed."""
        self._bursts.pop(uri, None)
        self._repeats.pop(uri, None)
        if uri in self._searches:
            self._searches.pop(uri).cancel()

    async def repeat(self, params: RepeatParams) -> Repeated:
        """Repeats the last change at the cursor or everywhere, and shows the next place. Raises what a fill raises."""
        document = find_document(self._server, params.uri, None)
        if params.action == "dismiss":
            self._bursts[params.uri] = Burst(document.text, document.text)
            self._repeats.pop(params.uri, None)
            self._tell(document, ())
            return Repeated(applied=0, left=0)
        check_takes_edits(self._server)
        self._fills.check_included(params.uri)
        repeats = await self.find(document)
        if not repeats:
            raise FillFailed(NOTHING)
        text = document.text
        offset = text.offset(params.position.to_lsp()) if params.position else 0
        chosen = repeats
        if params.action != "all":
            line_start, line_end = text.whole_lines((offset, offset))
            on_line = [placed for placed in repeats if placed.span[0] <= line_end and line_start <= placed.span[1]]
            chosen = on_line[:1]
        num_applied = await self._apply(document, chosen)
        remaining = await self.find(document) if chosen else repeats
        self._tell(document, remaining)
        repeated = Repeated(applied=num_applied, left=len(remaining))
        if not remaining or params.action != "next":
            return repeated
        following = next((placed for placed in remaining if placed.span[0] >= offset), remaining[0])
        place = document.text.range(following.span)
        await self._show(document.uri, place)
        return repeated.model_copy(update={"range": Range.of(place)})

    def recall(self, document: SyncedDocument) -> Sequence[PlacedRepeat] | None:
        """The repeats that a search has found in the current text; None if nobody has searched it."""
        text, repeats = self._repeats.get(document.uri, (None, ()))
        return repeats if text is document.text else None

    async def find(self, document: SyncedDocument, *, unasked: bool = False) -> Sequence[PlacedRepeat]:
        """Finds places for the last change, if `unasked` only for one that was made twice; none after a new change."""
        text, burst = document.text, self._bursts.get(document.uri)
        if burst is None or burst.span is None or self._fills.find_exclusion(document.uri):
            return ()
        repeats = self.recall(document)
        if repeats is None:
            view = take_view(self._server.workspace, document)
            search = partial(_search, replace(view, text=burst.before), view, burst.earlier, unasked=unasked)
            repeats = await asyncio.to_thread(search)
        if document.text is not text or self._bursts.get(document.uri) is not burst:
            return ()
        if repeats or not unasked:
            self._repeats[document.uri] = text, repeats
        return repeats

    async def _apply(self, document: SyncedDocument, repeats: Sequence[PlacedRepeat]) -> int:
        """Makes the repeats with one edit; returns how many it made. If the model must choose words of some, it makes
        only these, by a fill.
        """
        text = document.text
        drafts = [_draft(text, placed) for placed in repeats if placed.repeat.unmatched]
        if drafts:
            params = FillParams(
                uri=document.uri,
                version=document.version,
                what=What.SELECTION,
                ranges=tuple(Range.of(text.range(span)) for span, _ in drafts),
                drafts=tuple(draft for _, draft in drafts),
                apply=True,
            )
            await self._fills.fill(params)
            return len(drafts)

        def find_edits() -> list[Replacement]:
            if document.text is not text:
                raise FillFailed("Midfill: the document changed meanwhile; ask again.")
            return [(placed.span, placed.repeat.text) for placed in repeats]

        await apply_edits(self._server, document, find_edits, "Midfill: next edit")
        return len(repeats)

    async def _show(self, uri: str, place: types.Range) -> None:
        """Puts the cursor to the start of a place, if the client can."""
        window = self._server.client_capabilities.window
        if window and window.show_document and window.show_document.support:
            start = types.Range(place.start, place.start)
            params = types.ShowDocumentParams(uri, take_focus=True, selection=start)
            await self._server.window_show_document_async(params)

    async def _propose(self, document: SyncedDocument) -> None:
        """Shows likely repeats once the document has been idle."""
        await asyncio.sleep(REST_S)
        text = document.text
        if self._is_fill(document):
            return
        repeats = await self.find(document, unasked=True)
        if document.text is text and document.version is not None:
            self._tell(document, [placed for placed in repeats if placed.repeat.is_likely])

    def _is_fill(self, document: SyncedDocument) -> bool:
        """True if the last change touches a pending fill."""
        burst = self._bursts.get(document.uri)
        if burst is None or burst.span is None:
            return False
        start, end = burst.span
        spans = [span for pending in self._fills.pending_in(document) for span in pending.spans]
        return any(start <= last and first <= end for first, last in spans)

    def _tell(self, document: SyncedDocument, repeats: Sequence[PlacedRepeat]) -> None:
        ranges = [Range.of(document.text.range(placed.span)) for placed in repeats]
        texts = [placed.repeat.text for placed in repeats]
        places = tuple(RepeatPlace(range=range, text=text) for range, text in zip(ranges, texts, strict=True))
        message = Repeats(uri=document.uri, places=places)
        self._server.tell("midfill/didChangeRepeats", message, document.uri, is_empty=not repeats)


def _search(
    before: DocumentView, after: DocumentView, earlier: tuple[Text, Text] | None, *, unasked: bool
) -> Sequence[PlacedRepeat]:
    """Finds the repeats of the change from `before` to `after`; `earlier` are the texts around the change before that
    one. Runs in a worker thread.
    """
    earlier_versions = earlier and (earlier[0].data, earlier[1].data)
    repeats: list[PlacedRepeat] = []
    with suppress(MidfillError):
        for repeat in find_repeats(before.read(), after.read(), earlier_versions, unasked=unasked):
            edit = repeat.edit
            with suppress(MidfillError):  # the place is in another cell
                span = after.span(Hole(edit.start_byte, edit.end_byte))
                repeats.append(PlacedRepeat(span, repeat))
    return repeats


def _draft(text: Text, placed: PlacedRepeat) -> tuple[Span, DraftParams]:
    """The span of a place's lines without their first indent, and their text after the change as a draft, in which all
    but the words that the model must choose are anchors.
    """
    lines_start, end = text.whole_lines(placed.span)
    lines = text.source[lines_start:end]
    start = lines_start + len(lines) - len(lines.lstrip())
    first, last = placed.span
    num_before = first - start
    draft = text.source[start:first] + placed.repeat.text + text.source[last:end]
    unmatched = [(word_start + num_before, word_end + num_before) for word_start, word_end in placed.repeat.unmatched]
    keep = find_gaps(unmatched, len(draft))
    return (start, end), DraftParams(text=draft, keep=to_units(draft, keep, text.encoding))
