"""Fills the holes of a run, many at a time, and journals each fill before it counts. Knows documents and the journal;
asks the engine that it is given.

A fill depends on its file's planned bytes, its range, the run's seed, the engine and the related files, but not on the
fills that run beside it. So one machine, many machines, or a resumed run give the same patch.
"""

import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from midfill_infill import config
from midfill_infill.context.references import Reference, find_references, read_text, show_text
from midfill_infill.errors import OF_HOLE_OR_ENGINE, OF_ONE_HOLE, MidfillError
from midfill_infill.filling import written
from midfill_infill.filling.fill import Filled, fill
from midfill_infill.filling.fill import Options as FillOptions
from midfill_infill.refactor.generating.engines import Engine
from midfill_infill.refactor.generating.needs import Resolver
from midfill_infill.refactor.generating.promises import find_promise
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FileRow, FillRow, HoleRow, State, StateChange
from midfill_infill.refactor.writing.reopening import reopen_stale
from midfill_infill.repository.content import digest, read_content
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit

# After so many holes in a row have failed by what may be the engine's fault, the run ends.
_MAX_DOUBTFUL: Final = 8
_TRY_AGAIN: Final = (
    "engine_died", "engine_busy", "engine_silent", "engine_unreachable", "engine_error", "out_of_memory"
)  # fmt: skip
_MAX_TRIES: Final = 4
_FIRST_WAIT_S: Final = 0.5
_DEFAULTS: Final = FillOptions()
CHANGED: Final = "its file changed after it was planned"


@dataclass(frozen=True)
class HoleResult:
    """The result for one hole. `fill` and `source`, the planned bytes of its file, are set if the engine filled it;
    `change` if it failed or is stale, with the reason. `error` is set if the failure may be the engine's fault.
    """

    hole: HoleRow
    fill: FillRow | None = None
    source: bytes = b""
    change: StateChange | None = None
    error: MidfillError | None = None

    @property
    def is_good(self) -> bool:
        """True for a fill that did not fail and adds no syntax error."""
        return self.fill is not None and self.change is None and self.fill.new_errors == 0


@dataclass(frozen=True)
class Progress:
    """How many of the `total` holes are done; of these, how many have a good fill (`accepted`) or `failed`. Others, of
    which `unfilled_before` tells the number, got no good fill in an earlier call and are not tried again.
    """

    total: int
    done: int = 0
    accepted: int = 0
    failed: int = 0
    elapsed_s: float = 0.0
    unfilled_before: int = 0

    @property
    def per_minute(self) -> float:
        return 60 * self.done / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """The estimated seconds to the end; None before the first hole is done."""
        if self.done == 0:
            return None
        return (self.total - self.done) * self.elapsed_s / self.done


Show = Callable[[Progress], None]


def hole_seed(run_seed: int, file_hash: bytes, hole: HoleRow) -> int:
    """The seed of a hole's attempt. The run's seed 0 asks for the most likely fill, so the first attempt gets 0 too."""
    if run_seed == 0 and hole.attempt == 0:
        return 0
    text = f"{run_seed}:{hole.attempt}:{file_hash.hex()}:{hole.start_byte}:{hole.end_byte}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") | 1


def generate(
    journal: Journal,
    root: Path,
    engine: Engine,
    options: FillOptions = _DEFAULTS,
    *,
    jobs: int = 4,
    show: Show = lambda _: None,
    only: Callable[[HoleRow], bool] = lambda _: True,
) -> Progress:
    """Fills the planned holes that `only` accepts, `jobs` at a time. Calling it again resumes, also with stale holes
    whose file is as it was planned. Raises MidfillError if no engine is available; earlier results are kept.
    """
    reopen_stale(journal, root)
    holes = filter(only, journal.holes_in(State.PLANNED))
    progress = start(journal, only)
    began_s = time.perf_counter()
    tasks = RunFiller(journal, root, engine, options).tasks(holes)
    with closing(_hold_back_doubtful(_run_in_threads(tasks, jobs))) as batches:
        for batch in batches:
            progress = record(journal, batch, progress, began_s)
            show(progress)
    return progress


def start(journal: Journal, only: Callable[[HoleRow], bool] = lambda _: True) -> Progress:
    """The progress before the first one of the planned holes that `only` accepts is filled."""
    unfilled = filter(only, journal.unfilled_holes())
    return Progress(sum(1 for _ in filter(only, journal.holes_in(State.PLANNED))), unfilled_before=len(list(unfilled)))


def record(journal: Journal, batch: Sequence[HoleResult], progress: Progress, began_s: float) -> Progress:
    """Journals the results of a batch in one transaction. Returns the progress with them counted."""
    fills = [(result.fill, result.source) for result in batch if result.fill is not None]
    journal.add_fills(fills, [result.change for result in batch if result.change is not None])
    return replace(
        progress,
        done=progress.done + len(batch),
        accepted=progress.accepted + sum(result.is_good for result in batch),
        failed=progress.failed + sum(result.change is not None for result in batch),
        elapsed_s=time.perf_counter() - began_s,
    )


def _hold_back_doubtful(batches: Generator[list[HoleResult], None, None]) -> Generator[list[HoleResult], None, None]:
    """Yields `batches`, but a hole that failed by what may be the engine's fault only after another hole was filled, or
    at the end. Raises the error of too many such holes in a row; these are in no batch and can be asked again.
    """
    doubtful: list[HoleResult] = []
    with closing(batches):
        for batch in batches:
            doubtful += [result for result in batch if result.error is not None]
            certain = [result for result in batch if result.error is None]
            if any(result.fill is not None for result in certain):
                certain += doubtful
                doubtful = []
            if certain:
                yield certain
            if len(doubtful) >= _MAX_DOUBTFUL and (error := doubtful[-1].error) is not None:
                raise error
    if doubtful:
        yield doubtful


def _run_in_threads(tasks: "Iterator[Task]", jobs: int) -> Generator[list[HoleResult], None, None]:
    """Yields the results of `tasks` as they finish in `jobs` threads. Closing this generator, or an error, waits for
    the tasks that run and drops their results.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        running: set[Future[HoleResult]] = set()
        try:
            while True:
                for task in itertools.islice(tasks, max(0, 2 * jobs - len(running))):
                    running.add(pool.submit(task, stop))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                failed = [error for future in done if (error := future.exception()) is not None]
                yield [future.result() for future in done if future.exception() is None]
                if failed:
                    raise failed[0]
        finally:
            stop.set()
            for future in running:
                future.cancel()


Task = Callable[[threading.Event], HoleResult]
"""Fills one hole. Does not try again once the event is set."""


class RunFiller:
    """Fills single holes of a run with `engine`. Its tasks may run in any thread, its methods only in the journal's."""

    def __init__(self, journal: Journal, root: Path, engine: Engine, options: FillOptions = _DEFAULTS) -> None:
        self._journal = journal
        self._root = root
        self.engine = engine
        self._options = replace(options, intent=str(journal.get_meta("intent") or ""))
        self._seed = int(journal.get_meta("seed") or 0)
        self._resolver = Resolver(root)
        selection = journal.get_meta("selection") or {}
        recipe = selection.get("recipe")
        is_query_alone = bool(selection.get("query")) and not recipe  # whose holes may be anything
        self._find_broken_promise = None if is_query_alone else find_promise(recipe)
        self._planned = {file.below(root): file.planned_hash for file in journal.files()}

    def tasks(self, holes: Iterable[HoleRow]) -> Iterator[Task]:
        """One task per hole. Reads a file once for all of its holes, which must follow each other in `holes`. If it
        cannot be read, their tasks report them as stale.
        """
        for file_id, group in itertools.groupby(holes, key=lambda hole: hole.file):
            file = self._journal.file(file_id)
            rows = list(group)
            try:
                document = Document(self.read_planned(file), file.language, Path(file.path))
            except (OSError, MidfillError) as error:
                reason = f"its file cannot be read ({error})"
                if isinstance(error, MidfillError) and error.code == "hole_stale":
                    reason = CHANGED
                yield from (_failed(row, State.STALE, reason) for row in rows)
                continue
            references = self.find_references(document, file)
            for row in rows:
                options = self.options(document, file, row, references)
                yield partial(self.make, document, row, options)

    def read_planned(self, file: FileRow) -> bytes:
        """The planned bytes of a file, from the journal if it has them, because `apply` may have written the file
        since, otherwise from the file. Raises OSError, and MidfillError `hole_stale` if the file was changed since.
        """
        data = self._journal.snapshot(file.planned_hash)
        if data is None:
            data = read_content(Path(os.path.realpath(file.below(self._root)))).data
        if digest(data) != file.planned_hash:
            raise MidfillError("hole_stale", CHANGED)
        return data

    def find_references(self, document: Document, file: FileRow) -> tuple[Reference, ...]:
        """The files related to a document, as they were planned; none if the user's settings turn them off."""
        if not config.shows_related(self._root):
            return ()
        return find_references(document, file.below(self._root), root=self._root, read=self._read_related)

    def _read_related(self, path: Path) -> str | None:
        """The text of a related file; of a planned one the planned text, which the journal has once it has fills."""
        if path in self._planned:
            data = self._journal.snapshot(self._planned[path])
            if data is not None:
                return show_text(data, path)
        return read_text(path)

    def options(
        self, document: Document, file: FileRow, hole: HoleRow, references: tuple[Reference, ...]
    ) -> FillOptions:
        """The options for the next attempt of a hole."""
        seed = hole_seed(self._seed, file.planned_hash, hole)
        return replace(self._options, seed=seed, references=references, written=written.load())

    def make(self, document: Document, hole: HoleRow, options: FillOptions, stop: threading.Event) -> HoleResult:
        """Fills one hole. If the engine fails, tries again a few times; while it is busy, until `stop`. Raises
        MidfillError if other holes would fail the same way.
        """
        tries = waits = 0
        while True:
            try:
                with closing(fill(document, (hole.hole,), options, self.engine)) as events:
                    filled = next(event for event in events if isinstance(event, Filled))
                return self.describe(document, hole, filled, options)
            except MidfillError as error:
                waits += 1
                if error.code != "engine_busy":
                    tries += 1
                if error.code not in _TRY_AGAIN or tries == _MAX_TRIES or stop.is_set():
                    may_be_of_engine = error.code in OF_HOLE_OR_ENGINE
                    if error.code not in OF_ONE_HOLE and not may_be_of_engine:
                        raise
                    change = StateChange(hole.id, State.FAILED, error.message)
                    return HoleResult(hole, change=change, error=error if may_be_of_engine else None)
                stop.wait(_FIRST_WAIT_S * min(waits, _MAX_TRIES))
                if error.code == "engine_died":
                    self.engine.revive()

    def describe(self, document: Document, hole: HoleRow, filled: Filled, options: FillOptions) -> HoleResult:
        """The result of a hole that was filled, as the rows that the journal keeps."""
        (edit,) = filled.patch.edits
        assert (edit.start_byte, edit.end_byte) == (hole.start_byte, hole.end_byte)
        row = FillRow(
            hole=hole.id,
            attempt=hole.attempt,
            seed=options.seed,
            old=document.data[hole.start_byte : hole.end_byte],
            new=edit.replacement,
            new_errors=filled.new_errors,
            certainty=filled.fills[0].certainty,
            is_suggestion=filled.fills[0].is_suggestion,
            ms=round(filled.stats.ms, 1),
            imports=self.find_imports(document, hole, edit),
        )
        reason = self._find_failure(document, edit, row)
        change = StateChange(hole.id, State.FAILED, reason) if reason else None
        return HoleResult(hole, row, document.data, change)

    def _find_failure(self, document: Document, edit: Edit, row: FillRow) -> str | None:
        """Why a fill fails: it changes nothing or, without new syntax errors, breaks its recipe's promise; or None."""
        if row.new == row.old:
            return "the model left it as it was"
        if self._find_broken_promise is None or row.new_errors:
            return None
        return self._find_broken_promise(document, edit, row.imports)

    def find_imports(self, document: Document, hole: HoleRow, edit: Edit) -> tuple[str, ...]:
        """The sorted import statements that a fill needs at the top of its file."""
        return tuple(sorted({*hole.hole.imports, *self._resolver.find(document, edit)}))


def _failed(hole: HoleRow, state: State, reason: str) -> Task:
    """A task that only reports a hole that cannot be filled."""
    return lambda _: HoleResult(hole, change=StateChange(hole.id, state, reason))


def reroll(journal: Journal, root: Path, hole: HoleRow, engine: Engine) -> HoleRow:
    """Fills one hole with another seed and journals it as the next attempt. A fill that fails is not taken: the one
    before stays, and MidfillError `holes_failed` says why. Raises MidfillError.
    """
    filler = RunFiller(journal, root, engine)
    file = journal.file(hole.file)
    source = journal.snapshot(file.planned_hash)
    if source is None:
        raise MidfillError("hole_stale", f"hole {hole.id} has no fill yet", "run `midfill refactor generate`")
    document = Document(source, file.language, Path(file.path))
    next_attempt = replace(hole, attempt=journal.next_attempt(hole))
    references = filler.find_references(document, file)
    options = filler.options(document, file, next_attempt, references)
    result = filler.make(document, next_attempt, options, threading.Event())
    if result.error is not None:
        raise result.error
    before = journal.fill(hole)
    if result.change is None or before is None:
        record(journal, [result], Progress(1), 0.0)
        return journal.hole(hole.id)
    if result.fill is not None:
        journal.add_fills([(result.fill, source), (before, source)])  # the last one counts
    raise MidfillError("holes_failed", f"{result.change.reason}: the fill before stays", "try again, or edit it")
