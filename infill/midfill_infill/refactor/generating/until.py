"""Fills the holes of a run one at a time until the user's command passes with the tests that reach each.

Each hole is journaled before the next one begins. Fills that passed stay in the copy in which the next is tried. A fill
of which tests have yet to tell, because they stop in functions that are not filled, is journaled as not proven.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative
from midfill_infill.filling.fill import Options, fill
from midfill_infill.refactor.generating.engines import Engine
from midfill_infill.refactor.generating.generate import HoleResult, Progress, RunFiller, Show, record, start
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import (
    BESIDE_UNPROVEN,
    UNPROVEN,
    FileRow,
    HoleRow,
    State,
    StateChange,
)
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.refactor.writing.imports import weave
from midfill_infill.refactor.writing.reopening import reopen_stale
from midfill_infill.refactor.writing.stops import find_stub_stops
from midfill_infill.repository.roots import Repository
from midfill_infill.sandbox.command import read_words
from midfill_infill.sandbox.copy import Copy, open_copy
from midfill_infill.sandbox.runner import Runner
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Anchor, Edit, Hole, Patch
from midfill_infill.until.choosing import ReachingTests, add_tests, takes_tests, with_examples
from midfill_infill.until.lab import Lab
from midfill_infill.until.trying import Goal, Tried, Try

Say = Callable[[str], None]
# The copy contains the fills of holes in these states.
_STANDING = (State.GENERATED, State.ACCEPTED, State.APPLIED, State.VERIFIED)
_NO_EDITS = Patch(())
_NO_TEST = "no test imports its file"
# Errors that fail one hole; the run continues with the next.
_OF_A_HOLE = (
    "hole_stale", "until_passes", "until_unreached", "verify_flaky", "hole_too_large", "file_encoding", "engine_error",
)  # fmt: skip


@dataclass(frozen=True)
class _File:
    """A planned file, the fills that passed, and `stops`: the stubs that have none raise an error for tests."""

    row: FileRow
    planned: bytes
    passed: Patch
    imports: frozenset[str]
    stops: tuple[Edit, ...]

    @cached_property
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

    def complete(self, patch: Patch = _NO_EDITS, imports: frozenset[str] = frozenset()) -> bytes:
        """The file's bytes for a run, with the edits of `patch` to `document`."""
        shift = self.passed.shift
        stops = (replace(stop, start_byte=shift(stop.start_byte), end_byte=shift(stop.end_byte)) for stop in self.stops)
        data = Patch.of((*patch.edits, *stops)).apply(self.document.data)
        document = Document(data, self.row.language, Path(self.row.path))
        return weave(document, Regions(data, {}), self.imports | imports).data


class Tester:
    """One copy of the tree for all holes of a run. Until a stub is filled, tests that come to it stop there."""

    def __init__(self, journal: Journal, copy: Copy, filler: RunFiller, goal: Goal, say: Say) -> None:
        self._journal = journal
        self._copy = copy
        self._filler = filler
        self._goal = goal
        self._say = say
        self._said: set[str] = set()  # remarks about commands
        self._runner: Runner | None = None  # of the last command, which it may keep warm for the next hole
        self._reaching_tests = ReachingTests(copy.repository)
        self._files = {os.path.realpath(file.below(copy.root)): file for file in journal.files()}
        self._stops: dict[int, dict[int, Edit]] = {}  # by the ids of the file and the hole, of the planned bytes
        self._completed: dict[int, bytes] = {}  # by the id of the file, until its fills change
        self._clean: set[tuple[str, ...]] = set()  # words of commands in which every test passes with all fills
        with_fills = journal.files(State.GENERATED, State.ACCEPTED, State.PLANNED)
        self._with_fills = {row.id: row for row in with_fills if any(map(_stands, journal.holes(row.id)))}

    def close(self) -> None:
        """Ends the command that is kept warm."""
        if self._runner is not None:
            self._runner.close()

    def fill(self, hole: HoleRow) -> tuple[HoleResult, bool]:
        """Fills a hole until the command passes. The result's reason is one of records.py if it has a fill that `prove`
        has still to prove. True if the command does not come to the hole, but may once others are filled. Raises
        MidfillError for errors that other holes would have too.
        """
        try:
            lab, file, tests = self._open_lab(hole)
            return self._try(hole, lab, file, tests), False
        except MidfillError as error:
            self._say(f"  {error.message}")
            return self._fail(hole, error), error.code == "until_unreached" and error.message != _NO_TEST

    def prove(self, hole: HoleRow) -> HoleResult:
        """Tries the fill of a hole once more, with those of the others: one of its tests must pass, and none may fail
        but in functions that are not filled.
        """
        name = f"{self._journal.file(hole.file).path}: {hole.name or hole.kind}"
        try:
            made = self.read_result(hole)
            assert made.fill is not None, "an unproven hole has a fill"
            lab, file, tests = self._open_lab(hole, quiet=True)
            words = lab.runner.command.words
            if words in self._clean or lab.runner.run(self._write_files(tests), cold=True).is_good:
                self._clean.add(words)
                self._say(f"{name} passes with the others")
                return made
            moved = file.move(hole.hole)
            lab.start((moved,), self._say_once, timeout_s=self._goal.timeout_s)
            ran = lab.run(Alternative(Patch((Edit(moved.start_byte, moved.end_byte, made.fill.new),)), (), 0))
        except MidfillError as error:
            return self._refuse(name, self._fail(hole, error))
        if ran.is_good and not (ran.failed and lab.touched <= ran.failed):
            self._say(f"{name} passes with the others")
            return made
        reason = "its tests stop in functions that are not filled"
        if not ran.is_good:
            reason = f"its tests fail once others are filled: {ran.reason or ran.verdict}"
        return self._refuse(name, replace(made, change=StateChange(hole.id, State.FAILED, reason)))

    def _refuse(self, name: str, result: HoleResult) -> HoleResult:
        """The result for a fill that is not proven: from now on it is not in the copy."""
        assert result.change is not None
        self._say(f"{name}: {result.change.reason}")
        self._completed.pop(result.hole.file, None)
        self._clean.clear()
        return result

    def read_result(self, hole: HoleRow) -> HoleResult:
        """The result for a hole that has a fill in the journal. Raises MidfillError `hole_stale`."""
        return HoleResult(hole, self._journal.fill(hole), self._filler.read_planned(self._journal.file(hole.file)))

    def _fail(self, hole: HoleRow, error: MidfillError) -> HoleResult:
        """The result of a hole that failed; raises the error if it is not the hole's alone."""
        if error.code not in _OF_A_HOLE:
            raise error
        state = State.STALE if error.code == "hole_stale" else State.FAILED
        return HoleResult(hole, change=StateChange(hole.id, state, error.message))

    def _open_lab(self, hole: HoleRow, *, quiet: bool = False) -> tuple[Lab, _File, list[Path]]:
        """A lab for a hole, its file, and the tests that reach it, which are told unless `quiet`."""
        file = self._open(self._journal.file(hole.file), hole)
        path = file.row.below(self._copy.root)
        tests = self._reaching_tests.find(Path(os.path.realpath(path)), hole.name)
        names = [test.relative_to(self._copy.root).as_posix() for test in tests]
        if not quiet:
            self._say(f"{file.row.path}: {hole.name or hole.kind} -> {', '.join(names) or 'no test imports it'}")
        line = self._goal.command.line
        if not names and takes_tests(line, self._copy.root):
            raise MidfillError("until_unreached", _NO_TEST)
        runner = self._open_runner(read_words(add_tests(line, names, self._copy.root)))

        def complete(patch: Patch) -> bytes:
            imports = set(hole.hole.imports)
            for edit in patch.edits:
                imports.update(self._filler.find_imports(file.document, hole, edit))
            return file.complete(patch, frozenset(imports))

        others = self._write_files(tests)
        return Lab(runner, file.document, file.row.path, others, complete, is_partial=True), file, tests

    def _say_once(self, remark: str) -> None:
        if remark not in self._said:
            self._said.add(remark)
            self._say(f"  {remark}")

    def _open_runner(self, words: tuple[str, ...]) -> Runner:
        """The runner of a command; the last one, which may be warm, if that has the same words."""
        command = replace(self._goal.command, words=words)
        if self._runner is None or self._runner.command.words != words:
            self.close()
            self._runner = Runner(self._copy, command)
        self._runner.command = command  # with its whole time: tests go further than for the last hole
        return self._runner

    def _open(self, row: FileRow, hole: HoleRow | None = None) -> _File:
        """A file as the fills that passed left it, with the stops of its other stubs than `hole`."""
        planned = self._filler.read_planned(row)
        edits: list[Edit] = []
        imports: set[str] = set()
        stops = dict(self._find_stops(row, planned))
        for other in self._journal.holes(row.id):
            is_open = hole is not None and other.id == hole.id
            fill = self._journal.fill(other) if _stands(other) and not is_open else None
            if fill is not None:
                edits.append(Edit(other.start_byte, other.end_byte, fill.new))
                imports.update(fill.imports)
            if fill is not None or is_open:
                stops.pop(other.id, None)
        return _File(row, planned, Patch.of(edits), frozenset(imports), tuple(stops.values()))

    def _find_stops(self, row: FileRow, planned: bytes) -> Mapping[int, Edit]:
        """As `find_stub_stops`, for all holes of a file."""
        if row.id not in self._stops:
            document = Document(planned, row.language, Path(row.path))
            self._stops[row.id] = find_stub_stops(document, self._journal.holes(row.id))
        return self._stops[row.id]

    def _write_files(self, tests: Sequence[Path]) -> dict[str, bytes]:
        """The planned files that these tests reach, and those with fills that passed, by their names in the copy."""
        reached = map(str, self._reaching_tests.find_files(tests))
        rows = {row.id: row for path in reached if (row := self._files.get(path)) is not None}
        files: dict[str, bytes] = {}
        for row in {**rows, **self._with_fills}.values():
            with suppress(MidfillError, OSError):  # a file that has changed stays as the copy has it
                files[row.path] = self._complete(row)
        return files

    def _complete(self, row: FileRow) -> bytes:
        """A file's bytes for a run, with the fills that passed and the stops of its other stubs."""
        if row.id not in self._completed:
            self._completed[row.id] = self._open(row).complete()
        return self._completed[row.id]

    def _try(self, hole: HoleRow, lab: Lab, file: _File, tests: list[Path]) -> HoleResult:
        """Fills a hole until the command passes."""
        document = file.document
        moved = file.move(hole.hole)
        references = self._filler.find_references(document, file.row)
        wanted = self._filler.options(document, file.row, hole, references)
        make = partial(fill, client=self._filler.engine)
        events = lab.fill(
            (with_examples(moved, tests),),
            wanted,
            make,
            self._goal.num_tries,
            self._say_once,
            timeout_s=self._goal.timeout_s,
        )
        with closing(events):
            tried = next(event for event in events if isinstance(event, Tried))
        row = replace(hole, start_byte=moved.start_byte, end_byte=moved.end_byte)
        made = self._filler.describe(document, row, tried.filled, wanted)
        made = replace(made, hole=hole, source=file.planned)
        if not tried.passed:
            self._say(f"  {tried.sentence}")
            return replace(made, change=StateChange(hole.id, State.FAILED, tried.sentence))
        if made.change is not None:
            return made
        assert isinstance(tried.best, Try)
        self._completed.pop(file.row.id, None)
        self._with_fills[file.row.id] = file.row
        number = tried.best.number
        failed = tried.best.ran.failed or frozenset()
        if lab.touched.isdisjoint(failed):
            self._say(f"  passes at try {number}")
        else:
            self._say(f"  goes on at try {number} into functions that are not filled yet")
        if not failed <= lab.unrelated.keys():
            return replace(made, change=StateChange(hole.id, State.PLANNED, UNPROVEN))
        if _list_unproven(self._journal):
            return replace(made, change=StateChange(hole.id, State.PLANNED, BESIDE_UNPROVEN))
        return made


def _stands(hole: HoleRow) -> bool:
    """True for a hole whose fill is in the copy."""
    return hole.state in _STANDING or hole.is_unproven


def generate_until(
    journal: Journal, repository: Repository, engine: Engine, options: Options, goal: Goal, show: Show, say: Say
) -> Progress:
    """Like `generate`, one hole at a time. A hole fails if no candidate passes; its best fill is kept for review. Holes
    that must wait for others are filled in later rounds, as long as a round fills any.

    Raises `sandbox_missing`, `disk_full` and `git_failed`.
    """
    reopen_stale(journal, repository.root)
    # After an interruption nobody knows what each of these passed beside.
    journal.set_states([StateChange(hole.id, State.PLANNED, UNPROVEN) for hole in _list_unproven(journal)])
    pending = [hole for hole in journal.holes_in(State.PLANNED) if not hole.is_unproven]
    progress, began_s = start(journal), time.perf_counter()
    filler = RunFiller(journal, repository.root, engine, options)
    with (
        open_copy(repository, sandboxed=goal.command.sandboxed) as copy,
        closing(Tester(journal, copy, filler, goal, say)) as tester,
    ):

        def settle(results: Sequence[HoleResult]) -> None:
            nonlocal progress
            if results:
                progress = record(journal, results, progress, began_s)
                show(progress)

        has_filled = True
        while pending and has_filled:
            has_filled = False
            waiting: list[HoleResult] = []
            for hole in pending:
                result, must_wait = tester.fill(hole)
                if must_wait:
                    waiting.append(result)
                elif result.change is not None and result.change.state is State.PLANNED:
                    has_filled = True
                    record(journal, [result], progress, began_s)  # it counts when it is proven
                else:
                    has_filled |= result.is_good
                    settle([result])
            if not has_filled:
                settle(waiting)
            pending = [result.hole for result in waiting]
        unproven = [hole for hole in _list_unproven(journal) if hole.reason == UNPROVEN]
        while unproven:
            has_refused = False
            for hole in unproven:
                result = tester.prove(hole)
                if result.change is not None:
                    has_refused = True
                    settle([result])
            unproven = _list_unproven(journal) if has_refused else []  # those may have passed only with the refused
        settle([tester.read_result(hole) for hole in _list_unproven(journal)])
    return progress


def _list_unproven(journal: Journal) -> list[HoleRow]:
    return [hole for hole in journal.holes_in(State.PLANNED) if hole.is_unproven]
