"""Fills the holes of a run: many in flight, each journaled before it counts. Knows documents and the journal, no engine
of its own.

A fill depends on its file's planned bytes, its range, the run's seed, the engine and the files it may refer to, not on
what runs beside it. So one machine, many machines, or a resumed run give the same patch.
"""

import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from midfill_infill import written
from midfill_infill.context.references import Read, Reference, find_references, read_text, show_text
from midfill_infill.errors import MidfillError
from midfill_infill.fill import Filled, Preview, fill
from midfill_infill.fill import Options as FillOptions
from midfill_infill.refactor.generating.engines import Engine
from midfill_infill.refactor.generating.needs import Resolver
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FillRow, HoleRow, State, StateChange, digest
from midfill_infill.refactor.writing.replace import read_content
from midfill_infill.text.document import Document

# Errors that another hole may not have; others (no engine, no model) would repeat.
_OF_THIS_HOLE: Final = ("hole_too_large", "file_encoding", "file_binary", "overlapping_holes", "position_outside")
# Errors of the hole or of the engine: many holes in a row mean the engine.
_DOUBTFUL: Final = ("engine_error", "out_of_memory", "bad_request")
_MAX_DOUBTFUL: Final = 8
_ENGINE_AGAIN: Final = ("engine_died", "engine_busy", "engine_error", "out_of_memory")
_TRIES: Final = 4
_WAIT_S: Final = 0.5


@dataclass(frozen=True)
class GenerateOptions:
    """How to generate. `jobs` is the number of holes in flight, `fill` what every fill is asked with; the run sets its
    intent and the import resolver.
    """

    jobs: int = 4
    fill: FillOptions = FillOptions()
    resolver: Resolver | None = None


@dataclass(frozen=True)
class Made:
    """Result for one hole: a fill and the bytes it was made for, or a state and a reason.

    `error` may be the engine's fault.
    """

    hole: HoleRow
    fill: FillRow | None = None
    source: bytes = b""
    change: StateChange | None = None
    error: MidfillError | None = None


@dataclass(frozen=True)
class Progress:
    """Progress of a run. `accepted` counts fills that add no syntax error and change something."""

    done: int
    total: int
    accepted: int
    failed: int
    elapsed_s: float

    @property
    def per_minute(self) -> float:
        return 60 * self.done / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds to the end; None before there is a rate."""
        return (self.total - self.done) * self.elapsed_s / self.done if self.done else None


Show = Callable[[Progress], None]


def hole_seed(run_seed: int, file_hash: bytes, hole: HoleRow, attempt: int = 0) -> int:
    """Seed of one hole. Run seed 0 asks for the most likely fill, so the first attempt gets 0 too."""
    if run_seed == 0 and attempt == 0:
        return 0
    text = f"{run_seed}:{attempt}:{file_hash.hex()}:{hole.start_byte}:{hole.end_byte}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") | 1


def generate(
    journal: Journal,
    root: Path,
    engine: Engine,
    options: GenerateOptions,
    show: Show = lambda _: None,
    only: Callable[[HoleRow], bool] = lambda _: True,
) -> Progress:
    """Fills the planned holes that `only` says yes to. Calling it again resumes.

    Raises MidfillError if no engine is available; earlier results are kept.
    """
    options, holes = of_run(journal, root, options), filter(only, journal.holes_in(State.PLANNED))
    progress = Progress(0, sum(1 for _ in filter(only, journal.holes_in(State.PLANNED))), 0, 0, 0.0)
    started_s = time.perf_counter()
    with closing(_without_doubt(_in_flight(journal, root, engine, options, holes))) as batches:
        for batch in batches:
            write(journal, batch)
            progress = add(progress, batch, time.perf_counter() - started_s)
            show(progress)
    return progress


def of_run(journal: Journal, root: Path, options: GenerateOptions) -> GenerateOptions:
    """With what the run itself brings."""
    intended = replace(options.fill, intent=str(journal.get_meta("intent") or ""))
    return replace(options, fill=intended, resolver=Resolver(root))


def add(progress: Progress, batch: Sequence[Made], elapsed_s: float) -> Progress:
    return Progress(
        progress.done + len(batch),
        progress.total,
        progress.accepted + sum(_is_good(made) for made in batch),
        progress.failed + sum(made.change is not None for made in batch),
        elapsed_s,
    )


def write(journal: Journal, batch: Sequence[Made]) -> None:
    """Journals a batch in one transaction."""
    fills = [(made.fill, made.source) for made in batch if made.fill is not None]
    journal.add_fills(fills, [made.change for made in batch if made.change is not None])


def _is_good(made: Made) -> bool:
    row = made.fill if made.change is None else None
    return row is not None and row.new_errors == 0 and row.new != row.old


def _without_doubt(batches: Generator[list[Made], None, None]) -> Generator[list[Made], None, None]:
    """`batches`, where a hole counts as failed only after another one was filled, or at the end.

    Raises the error that too many holes in a row have; those are in no batch and can be asked again.
    """
    doubtful: list[Made] = []
    with closing(batches):
        for batch in batches:
            doubtful += [made for made in batch if made.error is not None]
            certain = [made for made in batch if made.error is None]
            if any(made.fill is not None for made in certain):
                certain += doubtful
                doubtful = []
            if certain:
                yield certain
            if len(doubtful) >= _MAX_DOUBTFUL and (error := doubtful[-1].error) is not None:
                raise error
    if doubtful:
        yield doubtful


def _in_flight(
    journal: Journal, root: Path, engine: Engine, options: GenerateOptions, holes: Iterable[HoleRow]
) -> Generator[list[Made], None, None]:
    """Batches as they finish. Closing it, or an error, waits for what is in flight and drops it."""
    stop = threading.Event()
    tasks = _tasks(journal, root, engine, options, holes, stop)
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        running: set[Future[Made]] = set()
        try:
            while True:
                for task in itertools.islice(tasks, max(0, 2 * options.jobs - len(running))):
                    running.add(pool.submit(task))
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


def _tasks(
    journal: Journal,
    root: Path,
    engine: Engine,
    options: GenerateOptions,
    holes: Iterable[HoleRow],
    stop: threading.Event,
) -> Iterator[Callable[[], Made]]:
    """One task per hole; a file is read once for all of its holes.

    If the journal has the planned bytes they are used: `apply` finds the holes in the current file.
    """
    seed, read = int(journal.get_meta("seed") or 0), planned_reader(journal, root)
    for number, group in itertools.groupby(holes, key=lambda hole: hole.file):
        file = journal.file(number)
        rows = list(group)
        try:
            data = journal.snapshot(file.planned_hash)
            if data is None:
                data = read_content(file.below(root).resolve()).data
            document = Document(data, file.language, Path(file.path))
            reason = "" if digest(data) == file.planned_hash else "its file changed after it was planned"
        except (OSError, MidfillError) as error:
            reason, document = f"its file cannot be read ({error})", None
        if reason or document is None:
            yield from (_failed(row, State.STALE, reason) for row in rows)
            continue
        references = find_references(document, file.below(root), root=root, read=read)
        for row in rows:
            row_seed = hole_seed(seed, file.planned_hash, row, row.attempt)
            yield partial(make, document, row, engine, row_seed, options, stop, references)


def planned_reader(journal: Journal, root: Path) -> Read:
    """Reads files below `root`, those that the journal has a copy of as they were planned: `apply` may be through."""
    planned = {file.below(root): file.planned_hash for file in journal.files()}

    def read(path: Path) -> str | None:
        data = journal.snapshot(planned[path]) if path in planned else None
        return read_text(path) if data is None else show_text(data, path)

    return read


def _failed(hole: HoleRow, state: State, reason: str) -> Callable[[], Made]:
    return lambda: Made(hole, change=StateChange(hole.id, state, reason))


def make(
    document: Document,
    hole: HoleRow,
    engine: Engine,
    seed: int,
    options: GenerateOptions,
    stop: threading.Event,
    references: tuple[Reference, ...] = (),
) -> Made:
    """Fills one hole. Waits until `stop` if the engine is busy.

    Raises MidfillError if other holes would fail the same way.
    """
    tries = waits = 0
    while True:
        try:
            return _make_once(document, hole, engine, seed, options, references)
        except MidfillError as error:
            tries, waits = tries + (error.code != "engine_busy"), waits + 1
            is_last = error.code not in _ENGINE_AGAIN or tries == _TRIES or stop.is_set()
            if is_last and error.code in (*_OF_THIS_HOLE, *_DOUBTFUL):
                change = StateChange(hole.id, State.FAILED, error.message)
                return Made(hole, change=change, error=error if error.code in _DOUBTFUL else None)
            if is_last:
                raise
            stop.wait(_WAIT_S * min(waits, _TRIES))
            if error.code == "engine_died":
                engine.revive()


def _make_once(
    document: Document,
    hole: HoleRow,
    engine: Engine,
    seed: int,
    options: GenerateOptions,
    references: tuple[Reference, ...],
) -> Made:
    wanted = to_fill_options(document, options, seed, references)
    with closing(fill(document, (hole.hole,), wanted, engine)) as events:
        for event in events:
            if not isinstance(event, Preview):
                return describe(document, hole, event, seed, options.resolver)
    raise AssertionError("a fill ends with Filled")


def to_fill_options(
    document: Document, options: GenerateOptions, seed: int, references: tuple[Reference, ...]
) -> FillOptions:
    can_import = options.resolver.knows if options.resolver and document.language == "python" else None
    return replace(options.fill, seed=seed, references=references, written=written.load(), can_import=can_import)


def describe(document: Document, hole: HoleRow, filled: Filled, seed: int, resolver: Resolver | None) -> Made:
    """What the journal keeps of a fill of one hole."""
    edits = filled.patch.edits
    assert len(edits) == 1 and (edits[0].start_byte, edits[0].end_byte) == (hole.start_byte, hole.end_byte)
    old, new = document.data[hole.start_byte : hole.end_byte], edits[0].replacement
    row = FillRow(
        hole=hole.id,
        attempt=hole.attempt,
        seed=seed,
        old=old,
        new=new,
        new_errors=filled.new_errors,
        certainty=filled.fills[0].certainty,
        ms=round(filled.stats.ms, 1),
        imports=tuple(sorted({*hole.hole.imports, *(resolver.find(document, edits[0]) if resolver else ())})),
    )
    if new == old:
        return Made(hole, row, document.data, StateChange(hole.id, State.FAILED, "the model left it as it was"))
    return Made(hole, row, document.data)


def reroll(journal: Journal, root: Path, hole: HoleRow, engine: Engine, options: GenerateOptions) -> HoleRow:
    """Fills one hole with another seed and journals it as the next attempt. Raises MidfillError."""
    file = journal.file(hole.file)
    source = journal.snapshot(file.planned_hash)
    if source is None:
        raise MidfillError("hole_stale", f"hole {hole.id} has no fill yet", "run `midfill refactor generate`")
    again = replace(hole, attempt=hole.attempt + 1)
    seed = hole_seed(int(journal.get_meta("seed") or 0), file.planned_hash, again, again.attempt)
    document = Document(source, file.language, Path(file.path))
    references = find_references(document, file.below(root), root=root, read=planned_reader(journal, root))
    made = make(document, again, engine, seed, of_run(journal, root, options), threading.Event(), references)
    if made.error is not None:
        raise made.error
    write(journal, [made])
    return journal.hole(hole.id)
