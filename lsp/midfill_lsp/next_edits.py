"""Next edits: tracks the last change of each document and finds other places for it. `infill` judges the places."""

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

REST_S = 0.25
APPLIED_WAIT_S = 2.0
NOTHING = "Midfill: the last change fits nowhere else in this file; make one first, then ask."


@dataclass
class Burst:
    """Consecutive changes of the same lines: `before` became `now`, in which `span` has changed (None at first).
    `earlier` are the texts around the previous burst.
    """

    before: Text
    now: Text
    span: Span | None = None
    earlier: tuple[Text, Text] | None = None

    def take(self, text: Text) -> "Burst":
        """The burst after the document changed to `text`."""
        old, new = self.now.source, text.source
        start, end = trim(old, new)
        grown = len(new) - len(old)
        if self.span is None:
            return Burst(self.now, text, (start, end + grown), self.earlier)
        lines_start, lines_end = self.now.whole_lines(self.span)
        if start > lines_end or end < lines_start:
            return Burst(self.now, text, (start, end + grown), (self.before, self.now))
        if self.before.source == new:
            return Burst(self.before, text, None, self.earlier)
        first, last = self.span
        span = min(first, start), max(last, end) + grown
        return Burst(self.before, text, span, self.earlier)


@dataclass(frozen=True)
class PlacedRepeat:
    """A repeat at its place in a document's text."""

    span: Span
    repeat: Repeat


class NextEdits:
    """Use it on the event loop only."""

    def __init__(self, server: Host, fills: Fills) -> None:
        self._server, self._fills = server, fills
        self._bursts: dict[str, Burst] = {}
        self._found: dict[str, tuple[Text, Sequence[PlacedRepeat]]] = {}
        self._searches: dict[str, asyncio.Task[None]] = {}

    def follow(self, uri: str) -> None:
        """Call when a document was opened or changed."""
        document = self._server.workspace.open_document(uri)
        burst = self._bursts.get(uri)
        if document is None or (burst and burst.now.source == document.source):
            return
        if burst:
            self._bursts[uri] = burst.take(document.text)
        else:
            self._bursts[uri] = Burst(document.text, document.text)
        self._tell(document, ())
        if uri in self._searches:
            self._searches.pop(uri).cancel()
        is_own = document.num_edits > 0  # a fill becomes pending when the client confirms the edit
        if burst and not is_own and self._server.settings_of(uri).next_edits and self._server.speaks_midfill:
            self._searches[uri] = asyncio.get_running_loop().create_task(self._propose(document))

    def forget(self, uri: str) -> None:
        """Call when a document was closed."""
        self._bursts.pop(uri, None)
        self._found.pop(uri, None)
        if document := self._server.workspace.open_document(uri):
            self._tell(document, ())
        if search := self._searches.pop(uri, None):
            search.cancel()

    async def repeat(self, params: RepeatParams) -> Repeated:
        """Repeats the last change at the cursor or everywhere, and shows the next place. Raises like a fill."""
        document = find_document(self._server, params.uri, None)
        if params.action == "dismiss":
            self._bursts[params.uri] = Burst(document.text, document.text)
            self._found.pop(params.uri, None)
            self._tell(document, ())
            return Repeated(applied=0, left=0)
        check_takes_edits(self._server)
        found = await self.find(document)
        if not found:
            raise FillFailed(NOTHING)
        text = document.text
        offset = 0
        if params.position:
            offset = text.offset(params.position.to_lsp())
        here = found
        if params.action != "all":
            line_start, line_end = text.whole_lines((offset, offset))
            here = [each for each in found if each.span[0] <= line_end and line_start <= each.span[1]][:1]
        await self._make(document, here)
        with suppress(TimeoutError):
            async with asyncio.timeout(APPLIED_WAIT_S):
                while here and document.text is text:  # until the client reports the edit that it applied
                    await asyncio.sleep(0.005)
        left = found
        if here:
            left = await self.find(document)
        self._tell(document, left)
        repeated = Repeated(applied=len(here), left=len(left))
        if not left or params.action != "next":
            return repeated
        next_one = next((each for each in left if each.span[0] >= offset), left[0])
        place = document.text.range(next_one.span)
        await self._show(document.uri, place)
        return repeated.model_copy(update={"range": Range.of(place)})

    def recall(self, document: SyncedDocument) -> Sequence[PlacedRepeat] | None:
        """The repeats found in the current document; None if nobody searched."""
        text, found = self._found.get(document.uri, (None, ()))
        return found if text is document.text else None

    async def find(self, document: SyncedDocument, *, unasked: bool = False) -> Sequence[PlacedRepeat]:
        """Finds places for the last change; empty if the document changes meanwhile."""
        text, burst = document.text, self._bursts.get(document.uri)
        if burst is None or burst.span is None or self._fills.find_exclusion(document.uri):
            return ()
        found = self.recall(document)
        if found is None:
            view = take_view(self._server.workspace, document)
            search = partial(_search, replace(view, text=burst.before), view, burst.earlier, unasked=unasked)
            found = await asyncio.to_thread(search)
            if found or not unasked:
                self._found[document.uri] = text, found
        if document.text is not text or self._bursts.get(document.uri) is not burst:
            return ()
        return found

    async def _make(self, document: SyncedDocument, found: Sequence[PlacedRepeat]) -> None:
        """Makes the repeats with one edit; if the model must choose words, as a pending fill."""
        text = document.text
        ranges: list[Range] = []
        drafts: list[DraftParams] = []
        for each in found:
            if each.repeat.foreign:
                span, draft = _draft(text, each)
                ranges.append(Range.of(text.range(span)))
                drafts.append(draft)
        if drafts:
            asked = FillParams(
                uri=document.uri,
                version=document.version,
                what=What.SELECTION,
                ranges=tuple(ranges),
                drafts=tuple(drafts),
                apply=True,
            )
            await self._fills.fill(asked)
        elif found:

            def find_edits() -> list[Replacement]:
                if document.text is not text:
                    raise FillFailed("Midfill: the document changed meanwhile; ask again.")
                return [(each.span, each.repeat.text) for each in found]

            await apply_edits(self._server, document, find_edits, "Midfill: next edit")

    async def _show(self, uri: str, place: types.Range) -> None:
        window = self._server.client_capabilities.window
        if window and window.show_document and window.show_document.support:
            start = types.Range(place.start, place.start)
            wanted = types.ShowDocumentParams(uri, take_focus=True, selection=start)
            await self._server.window_show_document_async(wanted)

    async def _propose(self, document: SyncedDocument) -> None:
        """Shows likely repeats once the document has been idle."""
        await asyncio.sleep(REST_S)
        text = document.text
        if self._is_fill(document):
            return
        found = await self.find(document, unasked=True)
        if document.text is text and document.version is not None:
            self._tell(document, [each for each in found if each.repeat.is_likely])

    def _is_fill(self, document: SyncedDocument) -> bool:
        burst = self._bursts.get(document.uri)
        if burst is None or burst.span is None:
            return False
        start, end = burst.span
        for pending in self._fills.pending_in(document):
            if any(start <= last and first <= end for first, last in pending.spans):
                return True
        return False

    def _tell(self, document: SyncedDocument, found: Sequence[PlacedRepeat]) -> None:
        places = []
        for each in found:
            range = document.text.range(each.span)
            places.append(RepeatPlace(range=Range.of(range), text=each.repeat.text))
        message = Repeats(uri=document.uri, places=tuple(places))
        self._server.tell("midfill/didChangeRepeats", message, document.uri, is_empty=not found)


def _search(
    before: DocumentView, after: DocumentView, earlier: tuple[Text, Text] | None, *, unasked: bool
) -> Sequence[PlacedRepeat]:
    """Runs in a worker thread."""
    versions = earlier and (earlier[0].data, earlier[1].data)
    found = []
    with suppress(MidfillError):
        for repeat in find_repeats(before.read(), after.read(), versions, unasked=unasked):
            edit = repeat.edit
            with suppress(MidfillError):  # belongs to another cell
                span = after.span(Hole(edit.start_byte, edit.end_byte))
                found.append(PlacedRepeat(span, repeat))
    return found


def _draft(text: Text, found: PlacedRepeat) -> tuple[Span, DraftParams]:
    """The changed lines of a place; everything but the words for the model is an anchor."""
    start, end = text.whole_lines(found.span)
    lines = text.source[start:end]
    start += len(lines) - len(lines.lstrip())
    first, last = found.span
    lead = first - start
    draft = text.source[start:first] + found.repeat.text + text.source[last:end]
    foreign = [(begin + lead, stop + lead) for begin, stop in found.repeat.foreign]
    keep = find_gaps(foreign, len(draft))
    return (start, end), DraftParams(text=draft, keep=to_units(draft, keep, text.encoding))
