"""Handles the commands for fills: starts them, accepts or discards pending ones, makes ghost text, tells the status."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from lsprotocol.types import MessageType

from midfill_infill.errors import MidfillError
from midfill_infill.filling import written
from midfill_infill.filling.fill import Options
from midfill_infill.filling.reroll import KEEP_SHARE
from midfill_infill.filling.wishes import tell_left_out
from midfill_infill.filling.written import Written
from midfill_lsp.edits import FillFailed, Replacement, apply_edits
from midfill_lsp.engine import Filler, WatchedFiller
from midfill_lsp.filling import FillJob, apply_fill, check_params, explain
from midfill_lsp.ghost import GhostText, Suggestion, tell_judged
from midfill_lsp.host import Host
from midfill_lsp.messages import Done, FillParams, FillResult, PendingParams, Range, SnoozeParams, Status, What
from midfill_lsp.pending import Pending, PendingHole, PendingStore
from midfill_lsp.related import RelatedText
from midfill_lsp.settings import Settings
from midfill_lsp.telling import PendingTeller, tell_of_better_models
from midfill_lsp.text import Span, SyncedDocument, find_at
from midfill_lsp.until import ask_for_command, find_folder
from midfill_lsp.views import find_exclusion, read_ahead, take_view

READ_DELAY_S = 0.1  # how long a document is idle before it is read ahead
STATUS_DELAY_S = 0.02

Fill = TypeVar("Fill", bound=FillJob | Pending)


def keep_after(earlier: Future[None], texts: Sequence[str]) -> None:
    """Writes down accepted texts once earlier ones are, because each time the whole file is read and replaced."""
    wait([earlier])
    written.forget(texts)


class Fills:
    """All fills of the server. Use it on the event loop only, except for functions passed to `executor`."""

    def __init__(self, server: Host, filler: Filler, executor: Executor) -> None:
        self._server, self._executor = server, executor
        self._filler = WatchedFiller(filler, self._tell_from_thread)
        self._pending = PendingStore()
        self._teller = PendingTeller(server, self._pending)
        self._running: list[FillJob] = []
        self._ghost = GhostText(executor, partial(tell_judged, server))
        self._related = RelatedText(server.freeze_settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._commands: dict[Path | None, str] = {}  # which fills must pass, by workspace folder
        self._last_keeping = Future[None]()  # done when all that the user has accepted is written down
        self._last_keeping.set_result(None)
        self._num_busy = 0
        self._warnings = set[str]()  # shown sentences about settings that a model did not heed
        self._read_timer: asyncio.TimerHandle | None = None
        self._snooze_timer: asyncio.TimerHandle | None = None
        self._status_timer: asyncio.TimerHandle | None = None

    async def fill(self, params: FillParams, rerolled: Pending | None = None) -> FillResult:
        """Fills. `rerolled` is a pending fill that the new one replaces. Raises MidfillError and JsonRpcException."""
        self.check_included(params.uri)
        settings = self._server.settings_of(params.uri)
        job = FillJob(
            next(self._pending.ids), self._server, check_params(params), filler=self._filler.fill, settings=settings,
            find_surroundings=self._look_around(params.uri), rerolled=rerolled,
        )  # fmt: skip
        self._running.append(job)
        try:
            with self._counted():
                result = await job.run(self._executor, self._pending)
                self._filler.succeed()  # also for a fill that was ended early
        finally:
            self._running.remove(job)
        if rerolled:
            self._pending.drop(rerolled)
        self._tell_pending(job.document)
        task = asyncio.current_task()
        if result.id is not None and not rerolled and task and task.cancelling():
            await self.discard(PendingParams(id=job.id))
            raise asyncio.CancelledError
        tell_of_better_models(self._server, settings.model, result.model)
        sentence = tell_left_out(result.model, job.left_out)
        if sentence is not None and sentence not in self._warnings:
            self._warnings.add(sentence)
            self._server.show(f"Midfill: {sentence}.", MessageType.Warning)
        return result

    async def until(self, params: FillParams) -> FillResult:
        """Fills until the command of this workspace passes. Asks for the command once."""
        folder = find_folder(self._server.workspace, params.uri)
        line = params.until or self._commands.get(folder)
        if line is None:
            self._commands[folder] = line = await ask_for_command(self._server, params.uri)
        return await self.fill(params.model_copy(update={"until": line}))

    async def finish(self, params: PendingParams) -> Done:
        """Ends a running fill now."""
        job = self._choose(params, self._running)
        if job is None:
            raise FillFailed("Midfill: no fill is running here.")
        job.end(keeps=True)
        return Done(id=job.id, uri=job.document.uri)

    async def accept(self, params: PendingParams) -> Done:
        """Keeps the text; a running fill keeps its current guesses."""
        return await self._decide(params, keeps=True)

    async def discard(self, params: PendingParams) -> Done:
        """Restores the text before the first fill; a running fill is cancelled."""
        return await self._decide(params, keeps=False)

    async def _decide(self, params: PendingParams, *, keeps: bool) -> Done:
        """Accepts or discards a whole fill, or only its hole or hunk at a place; its other parts stay pending."""
        title = "Midfill: put back"
        if params.part == "all":
            title = "Midfill: discard"
            chosen = self._choose(params, [*self._running, *self._pending])
            if isinstance(chosen, FillJob):
                chosen.end(keeps=keeps)
                return Done(id=chosen.id, uri=chosen.document.uri)
        pending = self._find_pending(params)
        document = pending.document
        holes, hunk_index = pending.holes, None
        if params.part != "all":
            hole, hunk_index = pending.find_part(params.part, params.position)
            holes = [hole]
        first = holes[0]

        def find_edits() -> list[Replacement]:
            remaining = self._check_pending(pending).holes
            if hunk_index is not None:
                return first.hunks(document.source)[hunk_index : hunk_index + 1]
            return [(hole.outer, hole.original) for hole in remaining if hole in holes]

        if not keeps:
            await apply_edits(self._server, document, find_edits, title)
        elif hunk_index is None:
            self._record_accepted([hole.inner for hole in holes], document)
        else:
            span, _ = first.hunks(document.source)[hunk_index]
            self._record_accepted([span], document)
            first.keep_hunk(hunk_index, document.source)
        if hunk_index is not None:
            pending.decide(first)
        if hunk_index is None or document.source[slice(*first.outer)] == first.original:  # no hunk is left
            pending.narrow([hole for hole in pending.holes if hole not in holes])
        if not pending.holes:
            return self._close(pending)
        self._tell_pending(document)
        return Done(id=pending.id, uri=document.uri)

    async def reroll(self, params: PendingParams) -> FillResult:
        """Fills again with the next seed. Typed text stays, and of the other tokens the surest share: `params.keep`, by
        default KEEP_SHARE at the same length and 0 at another one.
        """
        pending = self._find_pending(params)
        default_share = KEEP_SHARE if params.length == "same" else 0.0
        share = default_share if params.keep is None else params.keep
        document = pending.document
        ranges = [document.text.range(hole.inner) for hole in pending.holes]
        asked = FillParams(
            uri=document.uri,
            what=What.SELECTION,
            ranges=tuple(map(Range.of, ranges)),
            drafts=pending.drafts(share),
            seed=(pending.seed + 1) % 2**63,
            length=params.length,
            apply=True,
            preview_token=params.preview_token,
            work_done_token=params.work_done_token,
        )
        return await self.fill(asked, pending)

    async def next(self, params: PendingParams) -> FillResult:
        """Shows a fill's next alternative; the current one becomes the last."""
        pending = self._find_pending(params)
        if not pending.filled.alternatives:
            raise FillFailed("Midfill: this fill has no alternatives; reroll for another text.")
        id, rotated = next(self._pending.ids), pending.rotated()
        made = Pending(id, pending.document, rotated, pending.seed, pending.newline)

        def find() -> tuple[list[Replacement], list[PendingHole]]:
            return self._check_pending(pending).replace_by(rotated)

        result = await apply_fill(self._server, self._pending, made, find, "Midfill: next alternative")
        self._close(pending)
        return result

    async def suggest(
        self, document: SyncedDocument, offset: int, settings: Settings, *, invoked: bool
    ) -> tuple[Suggestion, ...]:
        """Ghost text; none for excluded files, and none unasked while a failed engine rests. Raises MidfillError."""
        if self.find_exclusion(document.uri) or (self._filler.is_resting and not invoked):
            return ()
        view = take_view(self._server.workspace, document)
        surroundings = self._look_around(document.uri)
        filler = self._filler.fill if invoked else self._filler.fill_unasked
        with self._counted():
            return await self._ghost.suggest(
                view, offset, settings, filler, surroundings, invoked=invoked, document=document
            )

    async def snooze(self, params: SnoozeParams) -> Status:
        """Turns ghost text off for some minutes."""
        loop = asyncio.get_running_loop()
        if self._snooze_timer:
            self._snooze_timer.cancel()
            self._snooze_timer = None
        if params.minutes:
            self._snooze_timer = loop.call_later(params.minutes * 60, self._wake)
        self._tell_status()
        return self.status()

    def _wake(self) -> None:
        self._snooze_timer = None
        self._tell_status()

    @property
    def is_snoozing(self) -> bool:
        return self._snooze_timer is not None

    def check_included(self, uri: str) -> None:
        """Raises MidfillError `file_excluded`."""
        reason = self.find_exclusion(uri)
        if reason:
            raise MidfillError("file_excluded", f"this file is left out: {reason}")

    def find_exclusion(self, uri: str) -> str | None:
        return find_exclusion(uri, self._server.settings_of(uri).exclude)

    def pending_in(self, document: object) -> list[Pending]:
        return self._pending.of(document) if isinstance(document, SyncedDocument) else []

    def follow(self, uri: str) -> None:
        """Call when a document was opened or changed."""
        document = self._server.workspace.open_document(uri)
        if document is None:
            return
        lost = self._pending.follow(document)
        if lost and not document.num_edits:
            self._tell_pending(document)
        elif lost or self._pending.of(document):
            self._teller.tell_soon(document)
        if self._read_timer:
            self._read_timer.cancel()
        self._read_timer = asyncio.get_running_loop().call_later(READ_DELAY_S, self._read_ahead, document)

    def _read_ahead(self, document: SyncedDocument) -> None:
        """Parses an idle document in a worker thread, so that the next fill starts at once."""
        if document.version is not None:
            exclude = self._server.settings_of(document.uri).exclude
            self._executor.submit(read_ahead, take_view(self._server.workspace, document), exclude)

    def forget(self, uri: str) -> None:
        """Call when a document was closed."""
        closed = [pending for pending in self._pending if pending.document.uri == uri]
        for pending in closed:
            self._pending.drop(pending)
        for pending in closed:
            self._teller.tell(pending.document)

    def status(self, uri: str | None = None) -> Status:
        facts = self._server.engines.facts
        kind: Literal["Normal", "Error", "Inactive"] = "Normal"
        message = "Midfill is ready."
        error = self._filler.error
        if error:
            kind, message = "Error", explain(error)
        reason = self._find_obstacle(uri) if uri else None
        if reason:
            kind, message = "Inactive", f"Midfill {reason}."
        return Status(
            kind=kind,
            busy=self._num_busy > 0,
            message=message,
            version=str(self._server.version),
            **(vars(facts) if facts else {}),
            pending=len(self._pending),
            snoozing=self.is_snoozing,
        )

    def _find_obstacle(self, uri: str) -> str | None:
        """Why nothing is filled in a document; None if it can be filled. Of a closed one only exclusions are known."""
        reason = self.find_exclusion(uri)
        if reason is not None:
            return f"leaves this file out: {reason}"
        document = self._server.workspace.open_document(uri)
        try:
            if document is not None:
                take_view(self._server.workspace, document).read()
        except MidfillError as error:
            return f"cannot fill this file: {error.message}"
        return None

    def _look_around(self, uri: str) -> Callable[[], Options]:
        """A function for a worker thread. It returns options with the related files, and with what Midfill wrote: texts
        that are pending or, as the file says, that nobody has kept.
        """
        find_related, last_keeping = self._related.near(self._server.workspace, uri), self._last_keeping
        pending = Written.of(hole.fill.text for fill in self._pending for hole in fill.holes)

        def look() -> Options:
            wait([last_keeping])
            return replace(find_related(), written=Written(written.load() | pending))

        return look

    def _record_accepted(self, spans: Sequence[Span], document: SyncedDocument) -> None:
        """Writes down in a worker thread that the user keeps the texts of these spans."""
        texts = [document.source[slice(*span)].replace("\r\n", "\n") for span in spans]
        self._last_keeping = self._executor.submit(keep_after, self._last_keeping, texts)

    def _choose(self, params: PendingParams, fills: Iterable[Fill]) -> Fill | None:
        """The fill with the id. Without an id, the latest fill at the cursor, otherwise on its line, otherwise in the
        document; without a document, the latest of all.
        """
        ordered = sorted(fills, key=lambda fill: fill.id)
        if params.id is not None:
            ordered = [fill for fill in ordered if fill.id == params.id]
        elif params.uri is not None:
            document = self._server.workspace.open_document(params.uri)
            ordered = [fill for fill in ordered if fill.document is document]
            if document and params.position is not None:
                offset = document.text.offset(params.position.to_lsp())
                placed = ((span, fill) for fill in ordered for span in fill.spans)
                ordered = find_at(document.text, offset, placed) or ordered
        return ordered[-1] if ordered else None

    def _find_pending(self, params: PendingParams) -> Pending:
        """The pending fill that the parameters name; a reroll of it that runs is cancelled. Raises FillFailed."""
        chosen = self._choose(params, self._pending)
        if chosen is None and params.id is None:
            raise FillFailed("Midfill: nothing is pending here.")
        pending = self._check_pending(chosen)
        for job in self._running:
            if job.rerolled is pending:
                job.end(keeps=False)
        return pending

    def _check_pending(self, pending: Pending | None) -> Pending:
        """Returns the fill. Raises FillFailed if it is not pending any more or the client has not confirmed it yet."""
        if pending is None or pending not in self._pending.of(pending.document):
            raise FillFailed("Midfill: that fill is no longer pending.", data={"pending": False})
        if pending.expected is not None:
            raise FillFailed("Midfill: the editor has not told yet that it took the fill; try again.")
        return pending

    def _close(self, pending: Pending) -> Done:
        """Forgets a fill of which nothing is pending any more."""
        self._pending.drop(pending)
        self._tell_pending(pending.document)
        return Done(id=pending.id, uri=pending.document.uri)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Counts a fill as running in the status, from the beginning of the `with` block to its end."""
        self._num_busy += 1
        self._loop = asyncio.get_running_loop()
        # Yields to more urgent callbacks.
        self._status_timer = self._loop.call_later(STATUS_DELAY_S, self._tell_status)
        try:
            yield
        finally:
            self._num_busy -= 1
            self._tell_status()

    def _tell_from_thread(self) -> None:
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell_status)

    def _tell_status(self) -> None:
        if self._status_timer:
            self._status_timer.cancel()
        self._server.tell("midfill/didChangeStatus", self.status())

    def _tell_pending(self, document: SyncedDocument) -> None:
        for changed in [*(pending.document for pending in self._pending.shrink()), document]:
            self._teller.tell(changed)
        workspace = self._server.client_capabilities.workspace
        if workspace and workspace.code_lens and workspace.code_lens.refresh_support:
            self._server.workspace_code_lens_refresh(None, callback=lambda _: None)
