"""Runs one fill from request to answer while the document changes. `infill` makes the fill."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from pygls.exceptions import JsonRpcContentModified, JsonRpcInvalidParams

from midfill_infill.config import choose_quality, choose_seconds
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, Preview, finish
from midfill_infill.syntax.holes import find_large, measure
from midfill_lsp.edits import Replacement, apply_edits, check_takes_edits, check_unlost, find_document
from midfill_lsp.engine import Filler
from midfill_lsp.host import Host
from midfill_lsp.messages import FillParams, FillResult, What
from midfill_lsp.offers import TITLES, UNTIL
from midfill_lsp.pending import Pending, PendingHole, PendingStore, place_holes
from midfill_lsp.progress import FillProgress, PreviewSender, show_progress
from midfill_lsp.settings import Settings
from midfill_lsp.telling import describe_fill, make_result
from midfill_lsp.text import Moves, Span
from midfill_lsp.until import until_passes
from midfill_lsp.views import find_holes, sort_with_drafts, take_view

GO_ON = "Fill"

# Next steps for editors, where the table's advice is for the command line.
_NEXT_STEPS = {
    "no_hole": "put the cursor into a function or select the text to fill",
    "no_stubs": "put the cursor into a function or select the text to fill",
    "unknown_language": "select the text to fill",
    "overlapping_holes": "select ranges that do not touch each other",
    "hole_too_large": "select less text",
    "large_hole": "select the lines to fill, or answer that it may go",
    "engine_died": "fill again: a new engine is started",
    "out_of_memory": "choose a smaller model or the device cpu in the settings",
    "unknown_model": "choose another model in the settings",
    "sandbox_missing": "install bubblewrap, or run `midfill fill --until` in a terminal with --no-sandbox",
    "until_failed": "fill again, or choose a larger model in the settings",
    "file_excluded": "rename the file or change the setting `exclude`",
}


def explain(error: MidfillError) -> str:
    """The error's sentence, with advice for editors."""
    return f"Midfill: {error.message}; {_NEXT_STEPS.get(error.code, error.next_step)}."


def check_params(params: FillParams) -> FillParams:
    """Returns `params`. Raises JsonRpcInvalidParams for violations that types cannot express."""
    if params.what is not What.STUBS and not params.ranges:
        raise JsonRpcInvalidParams(f"midfill.fill takes one object; {params.what} needs a range.")
    if params.drafts and params.what is What.STUBS:
        raise JsonRpcInvalidParams("midfill.fill takes one object; stubs takes no drafts.")
    num_holes = 1 if params.what is What.BODY else len(params.ranges)
    if params.drafts and len(params.drafts) != num_holes:
        raise JsonRpcInvalidParams("midfill.fill takes one object; there is one draft a range.")
    return params


class _LargeBody(Exception):
    """The fill replaces a body so large that the user must confirm; the message asks for that."""


class FillJob:
    """One fill of one document. Only `_make_fill` runs in a worker thread; its results are read after it ended."""

    def __init__(
        self, id: int, server: Host, params: FillParams, filler: Filler, settings: Settings,
        find_surroundings: Callable[[], Options], rerolled: Pending | None = None,
    ) -> None:  # fmt: skip
        """`find_surroundings` is for the worker thread. `rerolled` is the pending fill that this one replaces. Raises
        MidfillError, FillFailed or JsonRpcContentModified if the document cannot be filled now.
        """
        if params.apply:
            check_takes_edits(server)
        self.id = id
        self.params = params
        self._task = asyncio.current_task()
        self._server = server
        self._filler = filler
        self._settings = settings
        self._find_surroundings = find_surroundings
        self.rerolled = rerolled
        self._rerolled_holes = [replace(hole) for hole in rerolled.holes] if rerolled else []
        self.document = find_document(server, params.uri, params.version)
        self._view = take_view(server.workspace, self.document)
        self._text = self.document.text
        self._title = f"Midfill: {TITLES[params.what].lower()}"
        self._stop, self._finish = threading.Event(), threading.Event()  # drop all, or keep the current guesses
        if params.until is not None:
            self._filler = until_passes(
                server.workspace, self.document, params.until, params.tries, self._stop.is_set, filler
            )
            self._title = f"Midfill: {UNTIL.lower()}"
        self._moves = Moves()
        self._spans = [self._text.span(range.to_lsp()) for range in params.ranges]
        self._newline = "\n"
        self.left_out: tuple[str, ...] = ()

    def end(self, *, keeps: bool) -> None:
        """Ends the fill now. If it keeps its text, unsettled positions take their guesses; otherwise the fill is
        cancelled, as by the client's cancel button.
        """
        if keeps:
            self._finish.set()
        elif self._task is not None:
            self._task.cancel()

    @property
    def spans(self) -> list[Span]:
        """The current spans of the holes that nobody has edited since the fill began."""
        return self._moves.carry_all(self._spans)

    @property
    def _seed(self) -> int:
        return self._settings.seed if self.params.seed is None else self.params.seed

    async def run(self, executor: Executor, pending: PendingStore) -> FillResult:
        """Fills, applies one versioned edit if requested, and describes the result. Raises MidfillError, FillFailed,
        CancelledError, and JsonRpcContentModified if a hole changed meanwhile.
        """
        self._moves = self.document.record()
        try:
            async with show_progress(self._server, self.params.work_done_token, self._title) as progress:
                filled = await self._run_in_thread(executor, progress)
                if not self.params.apply:
                    return self._answer(filled)
                return await self._apply(filled, pending)
        finally:
            self.document.forget(self._moves)

    async def _run_in_thread(self, executor: Executor, progress: FillProgress) -> Filled:
        """Makes the fill in a worker thread, and asks the user before a large body is replaced."""
        loop = asyncio.get_running_loop()
        previews = PreviewSender(self._server, self.id, self.params.preview_token, self._text.encoding)

        def tell(report: Callable[..., object], *values: Any) -> None:
            if not self._stop.is_set():
                loop.call_soon_threadsafe(lambda: self._stop.is_set() or report(*values))

        make_fill = partial(loop.run_in_executor, executor, self._make_fill, progress, previews, tell)
        try:
            return await make_fill()
        except _LargeBody as question:
            if await self._server.ask(str(question), GO_ON, "Cancel") != GO_ON:
                raise MidfillError("large_hole", "not confirmed, nothing was filled") from None
            self.params = self.params.model_copy(update={"large": True})
            return await make_fill()
        finally:
            self._stop.set()

    def _make_fill(self, progress: FillProgress, previews: PreviewSender, tell: Callable[..., None]) -> Filled:
        """Finds the holes and fills them. `tell` calls a function on the event loop, unless the fill has stopped."""
        document = self._view.read()
        self._newline = document.newline
        ranges = [range.to_lsp() for range in self.params.ranges]
        target_holes = find_holes(self._view, document, self.params.what, ranges)
        if self.params.what is What.BODY and not self.params.large:
            large_bodies = find_large(document, target_holes)
            if large_bodies:
                size = measure(document, large_bodies[0])
                name = large_bodies[0].name or "this function"
                raise _LargeBody(f"Midfill: this replaces {size.num_lines} of {size.of_lines} lines ({name}).")
        selected = [self._text.span(range) for range in ranges] if self.params.what is What.SELECTION else []
        earlier = [hole.fill.hole for hole in self._rerolled_holes]
        self._spans, document, holes = sort_with_drafts(
            self._view, document, target_holes, self.params.drafts, selected, earlier
        )
        say = partial(tell, progress.say)
        latest: Preview | None = None
        with closing(self._filler(document, holes, self._options(), self._settings, say)) as events:
            for event in events:
                if self._stop.is_set():
                    raise MidfillError("cancelled", "the fill was cancelled")
                for span in self._spans:
                    self._carry(span)  # raises if the user has edited the hole
                if isinstance(event, Preview) and not event.holes:  # only tells that the command has tried a candidate
                    continue
                if isinstance(event, Filled):
                    self.left_out = event.left_out
                    return event
                if event.step:
                    latest = event
                if previews.is_due(event):
                    tell(self._preview, previews, event)
                tell(progress.step, event.step, event.num_steps, [hole.masked for hole in event.holes])
                if latest and self._finish.is_set():
                    return finish(document, holes, latest)
        raise AssertionError("a fill ends with Filled or an error")

    def _options(self) -> Options:
        params, settings = self.params, self._settings
        seconds, is_set = choose_seconds()
        return replace(
            self._find_surroundings(),
            seed=self._seed,
            steps=settings.steps,
            quality=choose_quality(None),
            seconds=seconds,
            presets=("steps", "quality", "seconds") if is_set else ("steps", "quality"),
            max_tokens=params.max_tokens or settings.max_hole_tokens,
            min_tokens=params.min_tokens or 0,
            length=params.length,
            sizes=tuple(len(hole.fill.tokens) for hole in self._rerolled_holes),
            n=params.alternatives,
            spares_queries=True,
        )

    def _preview(self, previews: PreviewSender, event: Preview) -> None:
        """Sends a preview, unless the user has edited a hole."""
        with suppress(JsonRpcContentModified):
            previews.send([self.document.text.range(self._carry(span)) for span in self._spans], event)

    def _carry(self, span: Span) -> Span:
        """Where a span of the document stands now. Raises JsonRpcContentModified if the user has edited it."""
        carried = self._moves.carry(span)
        if carried is None:
            raise JsonRpcContentModified("Midfill: the text to fill changed meanwhile; nothing was filled.")
        return carried

    def _find_edits(self, filled: Filled) -> list[Replacement]:
        texts = [edit.replacement.decode("utf-8", "surrogatepass") for edit in filled.patch.edits]
        return list(zip(map(self._carry, self._spans), texts, strict=True))

    def _answer(self, filled: Filled) -> FillResult:
        """The edits for the client to apply to the current document."""
        check_unlost(self._server, self.document)
        text = self.document.text
        pairs = zip(filled.fills, self._find_edits(filled), strict=True)
        holes = [describe_fill(fill, text.range(span), text.encoding, new) for fill, (span, new) in pairs]
        return make_result(filled, holes, version=self.document.version, applied=False)

    async def _apply(self, filled: Filled, pending: PendingStore) -> FillResult:
        """Puts the fill into the document with one edit that the client applies."""

        def find() -> tuple[list[Replacement], list[PendingHole]]:
            edits = self._find_edits(filled)
            return edits, self._place_holes(filled, [span for span, _ in edits])

        client = self._server.client_capabilities.workspace
        can_confirm = client and client.workspace_edit and client.workspace_edit.change_annotation_support
        confirm = bool(can_confirm) and self.params.confirm and len(self._spans) > 1
        made = Pending(self.id, self.document, filled, self._seed, self._newline)
        return await apply_fill(self._server, pending, made, find, self._title, confirm=confirm)

    def _place_holes(self, filled: Filled, spans: Sequence[Span]) -> list[PendingHole]:
        """The holes after the edit. A reroll keeps the text from before the first fill as the original."""
        originals = [self._text.source[slice(*span)] for span in self._spans]
        placed = place_holes(filled.best, spans, originals, self._newline)
        if not self._rerolled_holes:
            return placed
        source, holes = self._text.source, []
        for new, (start, end), old in zip(placed, self._spans, self._rerolled_holes, strict=True):
            # A reroll's hole may be larger than the earlier fill, because surrounding blanks belong to the hole.
            old_start, old_end = old.outer
            first, last = min(start, old_start), max(end, old_end)
            original = source[first:old_start] + old.original + source[old_end:last]
            new_start, new_end = new.outer
            outer = new_start - (start - first), new_end + (last - end)
            holes.append(replace(new, outer=outer, original=original, is_decided=old.is_decided))
        return holes


async def apply_fill(
    server: Host, store: PendingStore, made: Pending,
    find: Callable[[], tuple[list[Replacement], list[PendingHole]]], title: str, *, confirm: bool = False,
) -> FillResult:  # fmt: skip
    """Applies one versioned edit and keeps the fill `made` as pending. With `confirm` the user ticks the holes that are
    filled; these are accepted at once, and nothing is pending.

    `find` returns the replacements in the current text and the holes after them; it may raise.
    """
    made.moves = made.document.record()

    def find_edits() -> list[Replacement]:
        made.before = made.document.source
        made.moves.clear()
        edits, made.holes = find()
        return edits

    try:
        version, made.expected = await apply_edits(server, made.document, find_edits, title, confirm=confirm)
    except BaseException:
        made.document.forget(made.moves)
        raise
    text = made.text
    described = [describe_fill(hole.fill, text.range(hole.inner), text.encoding) for hole in made.holes]
    result = make_result(made.filled, described, version=version, applied=True)
    if confirm or server.workspace.open_document(made.document.uri) is not made.document:  # it was closed meanwhile
        made.document.forget(made.moves)
        return result
    store.add(made)
    return result.model_copy(update={"id": made.id})
