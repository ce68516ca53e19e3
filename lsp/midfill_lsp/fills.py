"""All fills of the server: running ones, pending ones, ghost text, and the status line."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from dataclasses import replace
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
from midfill_lsp.filling import FillJob, check, explain, put_in
from midfill_lsp.ghost import GhostText, Suggestion
from midfill_lsp.host import Host
from midfill_lsp.messages import (
    Done,
    FillParams,
    FillResult,
    PendingParams,
    Range,
    SnoozeParams,
    StaleGhostText,
    Status,
    What,
)
from midfill_lsp.pending import Pending, PendingHole, PendingStore
from midfill_lsp.related import RelatedText
from midfill_lsp.settings import Settings
from midfill_lsp.telling import PendingTeller, tell_of_better_models
from midfill_lsp.text import SyncedDocument, find_at
from midfill_lsp.until import ask_for_command, find_folder
from midfill_lsp.views import DocumentView, find_exclusion, read_ahead, take_view

REST_S = 0.1
TELL_S = 0.02

Fill = TypeVar("Fill", bound=FillJob | Pending)


def keep_behind(earlier: Future[None], texts: Sequence[str]) -> None:
    """Writes down accepted texts after earlier ones, because each time the whole file is read and replaced."""
    wait([earlier])
    written.keep(texts)


class Fills:
    """Use it on the event loop only, except for functions passed to `executor`."""

    def __init__(self, server: Host, filler: Filler, executor: Executor) -> None:
        self._server, self._executor = server, executor
        self._filler = WatchedFiller(filler, self._tell_from_thread)
        self._pending = PendingStore()
        self._teller = PendingTeller(server, self._pending)
        self._running: list[FillJob] = []
        self._ghost = GhostText(executor, self._tell_judged)
        self._related = RelatedText(server.freeze_settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._commands: dict[Path | None, str] = {}
        self._kept = Future[None]()  # done when all that the user accepted is written down
        self._kept.set_result(None)
        self._num_busy = 0
        self._told = set[str]()  # of settings that are left out
        self._rest: asyncio.TimerHandle | None = None
        self._snooze: asyncio.TimerHandle | None = None
        self._telling: asyncio.TimerHandle | None = None

    async def fill(self, params: FillParams, rerolled: Pending | None = None) -> FillResult:
        """Fills, and replaces `rerolled` if given. Raises MidfillError and the exceptions of JSON-RPC."""
        if reason := self.find_exclusion(params.uri):
            raise MidfillError("file_excluded", f"this file is left out: {reason}")
        settings = self._server.settings_of(params.uri)
        surroundings = self._look_around(params.uri)
        before: tuple[PendingHole, ...] = ()
        if rerolled:
            before = tuple(replace(hole) for hole in rerolled.holes)
        id = next(self._pending.ids)
        job = FillJob(id, self._server, check(params), self._filler.fill, settings, surroundings, before)
        self._running.append(job)
        try:
            with self._watch():
                result = await job.run(self._executor, self._pending)
                self._filler.succeed()  # including one that was ended early
        finally:
            self._running.remove(job)
        if rerolled:
            self._pending.drop(rerolled)
        self._tell_pending(job.document)
        tell_of_better_models(self._server, settings.model, result.model)
        sentence = tell_left_out(result.model, job.left_out)
        if sentence is not None and sentence not in self._told:
            self._told.add(sentence)
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
        job = self._find_meant(params, self._running)
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
        """Accepts or discards a fill, or its hole or hunk at a place; the rest stays pending."""
        title = "Midfill: put back"
        if params.part == "all":
            title = "Midfill: discard"
            meant = self._find_meant(params, [*self._running, *self._pending])
            if isinstance(meant, FillJob):
                meant.end(keeps=keeps)
                return Done(id=meant.id, uri=meant.document.uri)
        pending = self._find(params)
        document = pending.document
        holes, number = pending.holes, None
        if params.part != "all":
            hole, number = pending.find_part(params.part, params.position)
            holes = [hole]
        first = holes[0]

        def find_edits() -> list[Replacement]:
            left = self._same(pending).holes
            if number is not None:
                return first.hunks(document.source)[number : number + 1]
            return [(hole.outer, hole.original) for hole in left if hole in holes]

        if not keeps:
            await apply_edits(self._server, document, find_edits, title)
        elif number is None:
            self._take(holes, document)
        else:
            first.keep_hunk(number, document.source)
        if number is not None:
            pending.decide(first)
        if number is None or document.source[slice(*first.outer)] == first.original:
            pending.narrow([hole for hole in pending.holes if hole not in holes])
        if not pending.holes:
            return self._close(pending)
        self._tell_pending(document)
        return Done(id=pending.id, uri=document.uri)

    async def reroll(self, params: PendingParams) -> FillResult:
        """Fills again with the next seed; typed text and, at the same length, the surer half of the rest stay."""
        pending = self._find(params)
        share = 0.0
        if params.keep is not None:
            share = params.keep
        elif params.length == "same":
            share = KEEP_SHARE
        document = pending.document
        ranges = [document.text.range(hole.inner) for hole in pending.holes]
        asked = FillParams(
            uri=document.uri,
            what=What.SELECTION,
            ranges=tuple(map(Range.of, ranges)),
            drafts=pending.drafts(share),
            seed=pending.seed + 1,
            length=params.length,
            apply=True,
            preview_token=params.preview_token,
            work_done_token=params.work_done_token,
        )
        return await self.fill(asked, pending)

    async def next(self, params: PendingParams) -> FillResult:
        """Shows a fill's next alternative; the current one becomes the last."""
        pending = self._find(params)
        if not pending.filled.alternatives:
            raise FillFailed("Midfill: this fill has no alternatives; ask for some, or reroll.")
        id, rotated = next(self._pending.ids), pending.rotated()
        made = Pending(id, pending.document, rotated, pending.seed, pending.newline)

        def find() -> tuple[list[Replacement], list[PendingHole]]:
            return self._same(pending).show(rotated)

        result = await put_in(self._server, self._pending, made, find, "Midfill: next alternative")
        self._close(pending)
        return result

    async def suggest(
        self, document: SyncedDocument, offset: int, settings: Settings, *, invoked: bool
    ) -> tuple[Suggestion, ...]:
        """Ghost text. Raises MidfillError; None for excluded files and while a failed engine rests."""
        if self.find_exclusion(document.uri) or (self._filler.is_resting and not invoked):
            return ()
        view = take_view(self._server.workspace, document)
        surroundings = self._look_around(document.uri)
        filler = self._filler.fill if invoked else self._filler.fill_unasked
        with self._watch():
            return await self._ghost.suggest(
                view, offset, settings, filler, surroundings, invoked=invoked, document=document
            )

    def _tell_judged(self, view: DocumentView, offset: int) -> None:
        place = Range.of(view.text.range((offset, offset))).start
        self._server.tell("midfill/didJudge", StaleGhostText(uri=view.uri, position=place), view.uri)

    async def snooze(self, params: SnoozeParams) -> Status:
        """Turns ghost text off for some minutes."""
        loop = asyncio.get_running_loop()
        if self._snooze:
            self._snooze.cancel()
            self._snooze = None
        if params.minutes:
            self._snooze = loop.call_later(params.minutes * 60, self._wake)
        self._tell_status()
        return self.status()

    def _wake(self) -> None:
        self._snooze = None
        self._tell_status()

    @property
    def is_snoozing(self) -> bool:
        return self._snooze is not None

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
        if self._rest:
            self._rest.cancel()
        self._rest = asyncio.get_running_loop().call_later(REST_S, self._read, document)

    def _read(self, document: SyncedDocument) -> None:
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
        if error := self._filler.error:
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
        """Why nothing is filled in a document; None if it is open and can be filled, or not open."""
        if (reason := self.find_exclusion(uri)) is not None:
            return f"leaves this file out: {reason}"
        document = self._server.workspace.open_document(uri)
        try:
            if document is not None:
                take_view(self._server.workspace, document).read()
        except MidfillError as error:
            return f"cannot fill this file: {error.message}"
        return None

    def _look_around(self, uri: str) -> Callable[[], Options]:
        near, kept = self._related.near(self._server.workspace, uri), self._kept
        pending = Written.of(hole.fill.text for each in self._pending for hole in each.holes)

        def look() -> Options:
            wait([kept])
            return replace(near(), written=Written(written.load() | pending))

        return look

    def _take(self, holes: Sequence[PendingHole], document: SyncedDocument) -> None:
        """Records texts that the user accepts."""
        texts = [document.source[slice(*hole.inner)].replace("\r\n", "\n") for hole in holes]
        self._kept = self._executor.submit(keep_behind, self._kept, texts)

    def _find_meant(self, params: PendingParams, fills: Iterable[Fill]) -> Fill | None:
        """The fill by id; otherwise the latest at the cursor or on its line, or else of the document, or of all."""
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

    def _find(self, params: PendingParams) -> Pending:
        found = self._find_meant(params, self._pending)
        if found is None and params.id is None:
            raise FillFailed("Midfill: nothing is pending here.")
        return self._same(found)

    def _same(self, pending: Pending | None) -> Pending:
        """The fill. Raises FillFailed if it is not pending any more or the client has not confirmed it yet."""
        if pending is None or pending not in self._pending.of(pending.document):
            raise FillFailed("Midfill: that fill is no longer pending.", data={"pending": False})
        if pending.expected is not None:
            raise FillFailed("Midfill: the editor has not told yet that it took the fill; try again.")
        return pending

    def _close(self, pending: Pending) -> Done:
        self._pending.drop(pending)
        self._tell_pending(pending.document)
        return Done(id=pending.id, uri=pending.document.uri)

    @contextmanager
    def _watch(self) -> Iterator[None]:
        """Counts a running fill in the status."""
        self._num_busy += 1
        self._loop = asyncio.get_running_loop()
        # Yields to more urgent callbacks.
        self._telling = self._loop.call_later(TELL_S, self._tell_status)
        try:
            yield
        finally:
            self._num_busy -= 1
            self._tell_status()

    def _tell_from_thread(self) -> None:
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell_status)

    def _tell_status(self) -> None:
        if self._telling:
            self._telling.cancel()
        self._server.tell("midfill/didChangeStatus", self.status())

    def _tell_pending(self, document: SyncedDocument) -> None:
        self._teller.tell(document)
        workspace = self._server.client_capabilities.workspace
        if workspace and workspace.code_lens and workspace.code_lens.refresh_support:
            self._server.workspace_code_lens_refresh(None, callback=lambda _: None)
