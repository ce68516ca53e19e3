"""Fills the holes of a run one at a time until the user's command passes with the tests that reach each.

Each hole is journaled before the next one begins. Fills that passed stay in the copy in which the next is tried.
"""

import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Options, fill
from midfill_infill.refactor.generating.engines import Engine
from midfill_infill.refactor.generating.generate import Made, Progress, RunFiller, Show, record, start
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FileRow, HoleRow, State, StateChange
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.refactor.writing.imports import weave
from midfill_infill.refactor.writing.reopening import reopen_stale
from midfill_infill.repository.places import Repository
from midfill_infill.sandbox.command import read_words
from midfill_infill.sandbox.copy import Copy, open_copy
from midfill_infill.sandbox.runner import Runner
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Anchor, Edit, Hole, Patch
from midfill_infill.until.choosing import Reach, add_tests, with_examples
from midfill_infill.until.lab import Lab
from midfill_infill.until.trying import Goal, Tried, Try

Say = Callable[[str], None]
# The copy contains the fills of holes in these states.
_STANDING = (State.GENERATED, State.ACCEPTED, State.APPLIED, State.VERIFIED)
# Errors that fail one hole; the run continues with the next.
_OF_A_HOLE = (
    "hole_stale", "until_passes", "until_unreached", "verify_flaky", "hole_too_large", "file_encoding", "engine_error",
)  # fmt: skip


@dataclass(frozen=True)
class _File:
    """A planned file and the fills that passed."""

    row: FileRow
    planned: bytes
    passed: Patch
    imports: frozenset[str]

    @property
    def document(self) -> Document:
        return Document(self.passed.apply(self.planned), self.row.language, Path(self.row.path))

    def move(self, hole: Hole) -> Hole:
        """Maps a planned hole to its current place."""
        shift = self.passed.shift
        anchors: list[Anchor] = []
        for anchor in hole.anchors:
            start, end = shift(anchor.start_byte), shift(anchor.end_byte)
            anchors.append(replace(anchor, start_byte=start, end_byte=end))
        return replace(
            hole,
            start_byte=shift(hole.start_byte),
            end_byte=shift(hole.end_byte),
            anchors=tuple(anchors),
            context=tuple((shift(start), shift(end)) for start, end in hole.context),
        )

    def complete(self, data: bytes, imports: frozenset[str]) -> bytes:
        document = Document(data, self.row.language, Path(self.row.path))
        return weave(document, Regions(data, {}), self.imports | imports).data


class Tester:
    """One copy of the tree for all holes of a run."""

    def __init__(self, journal: Journal, copy: Copy, filler: RunFiller, goal: Goal, say: Say) -> None:
        self._journal = journal
        self._copy = copy
        self._filler = filler
        self._goal = goal
        self._say = say
        self._reach = Reach(copy.place)
        self._standing: dict[str, bytes] = {}

    def fill(self, hole: HoleRow) -> Made:
        """Raises MidfillError for errors that other holes would have too."""
        try:
            file = self._open(hole)
            path = file.row.below(self._copy.root)
            tests = self._reach.of(Path(os.path.realpath(path)), hole.name)
            names = [test.relative_to(self._copy.root).as_posix() for test in tests]
            self._say(f"{file.row.path}: {hole.name or hole.kind} -> {', '.join(names) or 'no test imports it'}")
            command = self._goal.command
            line = add_tests(command.line, names)
            if line == command.line and not names:
                raise MidfillError("until_unreached", "no test imports its file")
            command = replace(command, words=read_words(line))
            with closing(Runner(self._copy, command)) as runner:
                return self._try(hole, file, runner, tests)
        except MidfillError as error:
            if error.code not in _OF_A_HOLE:
                raise
            state = State.STALE if error.code == "hole_stale" else State.FAILED
            return Made(hole, change=StateChange(hole.id, state, error.message))

    def _open(self, hole: HoleRow) -> _File:
        """The file of a hole as the fills that passed left it."""
        row = self._journal.file(hole.file)
        edits: list[Edit] = []
        imports: set[str] = set()
        for other in self._journal.holes(row.id):
            if other.state not in _STANDING:
                continue
            fill = self._journal.fill(other)
            if fill is not None:
                edits.append(Edit(other.start_byte, other.end_byte, fill.new))
                imports.update(fill.imports)
        return _File(row, self._filler.read_planned(row), Patch.of(edits), frozenset(imports))

    def _try(self, hole: HoleRow, file: _File, runner: Runner, tests: list[Path]) -> Made:
        """Fills a hole until the command passes."""
        document = file.document
        moved = file.move(hole.hole)

        def complete(patch: Patch) -> bytes:
            imports = set(hole.hole.imports)
            for edit in patch.edits:
                imports.update(self._filler.find_imports(document, hole, edit))
            return file.complete(patch.apply(document.data), frozenset(imports))

        lab = Lab(runner, document, file.row.path, self._standing, complete)
        references = self._filler.find_references(document, file.row)
        wanted = self._filler.options(document, file.row, hole, references)
        make = partial(fill, client=self._filler.engine)
        events = lab.fill(
            (with_examples(moved, tests),),
            wanted,
            make,
            self._goal.num_tries,
            lambda remark: self._say(f"  {remark}"),
            timeout_s=self._goal.timeout_s,
        )
        with closing(events):
            tried = next(event for event in events if isinstance(event, Tried))
        row = replace(hole, start_byte=moved.start_byte, end_byte=moved.end_byte)
        made = self._filler.describe(document, row, tried.filled, wanted)
        made = replace(made, hole=hole, source=file.planned)
        if not tried.passed:
            return replace(made, change=StateChange(hole.id, State.FAILED, tried.sentence))
        assert isinstance(tried.best, Try)
        self._standing[file.row.path] = complete(tried.filled.patch)
        self._say(f"  passes at try {tried.best.number}")
        return made


def generate_until(
    journal: Journal, place: Repository, engine: Engine, options: Options, goal: Goal, show: Show, say: Say
) -> Progress:
    """Like `generate`, one hole at a time. A hole fails if no candidate passes; its best fill is kept for review.
    Raises `sandbox_missing`, `disk_full` and `git_failed`.
    """
    reopen_stale(journal, place.root)
    holes = list(journal.holes_in(State.PLANNED))
    progress, began_s = start(journal), time.perf_counter()
    with open_copy(place, sandboxed=goal.command.sandboxed) as copy:
        tester = Tester(journal, copy, RunFiller(journal, place.root, engine, options), goal, say)
        for hole in holes:
            progress = record(journal, [tester.fill(hole)], progress, began_s)
            show(progress)
    return progress
