"""Fills the holes of a run one at a time until the user's command passes with the tests that reach each.

Each hole is journaled before the next one begins, unless it has to wait for others. Fills that passed stay in the copy
in which the next is tried.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Options, fill
from midfill_infill.refactor.generating.engines import Engine
from midfill_infill.refactor.generating.generate import HoleResult, Progress, RunFiller, Show, record, start
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FileRow, HoleRow, State, StateChange
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.refactor.writing.imports import weave
from midfill_infill.refactor.writing.reopening import reopen_stale
from midfill_infill.repository.places import Repository
from midfill_infill.sandbox.command import Command, read_words
from midfill_infill.sandbox.copy import Copy, open_copy
from midfill_infill.sandbox.runner import Runner
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Anchor, Edit, Hole, Patch
from midfill_infill.until.choosing import ReachingTests, add_tests, takes_tests, with_examples
from midfill_infill.until.lab import NOT_FILLED_BODY, Lab, excuse
from midfill_infill.until.trying import Goal, Tried, Try

Say = Callable[[str], None]
# The copy contains the fills of holes in these states.
_STANDING = (State.GENERATED, State.ACCEPTED, State.APPLIED, State.VERIFIED)
_NO_EDITS = Patch(())
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


@dataclass(frozen=True)
class _Unproven:
    """A fill of which tests have yet to tell: they stopped in functions that were not filled then, behind the hole or
    before it. `passed` if all that came to the hole passed: such a fill is journaled already.
    """

    passed: bool
    made: HoleResult
    command: Command
    tests: Sequence[Path]
    touched: frozenset[str]  # as in `Lab`
    unrelated: Mapping[str, str]


class Tester:
    """One copy of the tree for all holes of a run. Until a stub is filled, tests that come to it stop there."""

    def __init__(self, journal: Journal, copy: Copy, filler: RunFiller, goal: Goal, say: Say) -> None:
        self._journal = journal
        self._copy = copy
        self._filler = filler
        self._goal = goal
        self._say = say
        self._reaching_tests = ReachingTests(copy.place)
        self._files = {os.path.realpath(file.below(copy.root)): file for file in journal.files()}
        self._stops: dict[int, dict[int, Edit]] = {}  # by the ids of the file and the hole, of the planned bytes
        self._with_fills: dict[str, FileRow] = {}  # by the real path: the files of fills that passed
        self._completed: dict[int, bytes] = {}  # by the id of the file, until its fills change
        self._unproven: dict[int, _Unproven] = {}  # by the id of the hole
        self.num_filled = 0

    def fill(self, hole: HoleRow) -> HoleResult | None:
        """Fills a hole until the command passes. None if that must wait for other holes: if the command does not come
        to the hole yet, or its tests go on into one of them; see `settle`. Raises MidfillError for errors that other
        holes would have too.
        """
        try:
            file = self._open(self._journal.file(hole.file), hole)
            path = file.row.below(self._copy.root)
            tests = self._reaching_tests.find(Path(os.path.realpath(path)), hole.name)
            names = [test.relative_to(self._copy.root).as_posix() for test in tests]
            self._say(f"{file.row.path}: {hole.name or hole.kind} -> {', '.join(names) or 'no test imports it'}")
            command = self._goal.command
            if not names and takes_tests(command.line):
                return self._fail(hole, MidfillError("until_unreached", "no test imports its file"))
            command = replace(command, words=read_words(add_tests(command.line, names)))
            with closing(Runner(self._copy, command)) as runner:
                return self._try(hole, file, runner, tests)
        except MidfillError as error:
            result = self._fail(hole, error)
            self._say(f"  {error.message}")
            return None if error.code == "until_unreached" else result

    def is_filled(self, hole: HoleRow) -> bool:
        """True for a hole whose fill is still to be proven."""
        return hole.id in self._unproven

    def settle(self, waiting: Sequence[HoleRow]) -> Iterator[tuple[HoleResult, bool]]:
        """Yields what came of the holes that had to wait, when nothing more is filled, and True for those of which
        `fill` has given a result before. `waiting` are those to which the command never came. A fill whose tests went
        on passes if one of them passes now, and none fails behind it.
        """
        for hole in waiting:
            yield self._fail(hole, MidfillError("until_unreached", "the command fails before it comes to it")), False
        for unproven in list(self._unproven.values()):
            try:
                yield self._prove(unproven), unproven.passed
            except MidfillError as error:
                yield self._fail(unproven.made.hole, error), unproven.passed

    def _fail(self, hole: HoleRow, error: MidfillError) -> HoleResult:
        """The result of a hole that failed; raises the error if it is not the hole's alone."""
        if error.code not in _OF_A_HOLE:
            raise error
        state = State.STALE if error.code == "hole_stale" else State.FAILED
        return HoleResult(hole, change=StateChange(hole.id, state, error.message))

    def _prove(self, unproven: _Unproven) -> HoleResult:
        """Tries a fill with those of the other holes."""
        made = unproven.made
        row = self._journal.file(made.hole.file)
        with closing(Runner(self._copy, unproven.command)) as runner:
            files = self._write_files(unproven.tests)
            files[row.path] = self._complete(row)
            ran = runner.run(files)
            if not ran.is_good:
                warm = runner.warm_up(files, ran)
                ran = excuse(warm, unproven.unrelated) if warm.is_warm else ran
        name = f"{row.path}: {made.hole.name or made.hole.kind}"
        if ran.is_good and not (ran.failed and unproven.touched <= ran.failed):
            if not unproven.passed:
                self._say(f"{name} passes with the others")
            return made
        reason = "its tests stop in functions that are not filled"
        if not ran.is_good:
            sentence = ran.failures[0].sentence if ran.failures else ran.verdict
            reason = f"its tests fail once others are filled: {sentence}"
        self._say(f"{name}: {reason}")
        del self._unproven[made.hole.id]
        self._completed.pop(row.id, None)
        return replace(made, change=StateChange(made.hole.id, State.FAILED, reason))

    def _open(self, row: FileRow, hole: HoleRow | None = None) -> _File:
        """A file as the fills that passed left it, with the stops of its other stubs than `hole`."""
        planned = self._filler.read_planned(row)
        edits: list[Edit] = []
        imports: set[str] = set()
        stops = dict(self._find_stops(row, planned))
        for other in self._journal.holes(row.id):
            unproven = self._unproven.get(other.id)
            fill = unproven.made.fill if unproven is not None else None
            if other.state in _STANDING:
                fill = self._journal.fill(other)
            if fill is not None:
                edits.append(Edit(other.start_byte, other.end_byte, fill.new))
                imports.update(fill.imports)
            if fill is not None or (hole is not None and other.id == hole.id):
                stops.pop(other.id, None)
        return _File(row, planned, Patch.of(edits), frozenset(imports), tuple(stops.values()))

    def _find_stops(self, row: FileRow, planned: bytes) -> Mapping[int, Edit]:
        """For each hole of a file that is a stub: the edit that makes it raise an error for tests. The number of lines
        stays, except for stubs on the line of their header.
        """
        if row.id not in self._stops and row.language == "python":
            document = Document(planned, row.language, Path(row.path))
            stubs = {(stub.start_byte, stub.end_byte) for stub in find_stubs(document)}
            holes = [hole for hole in self._journal.holes(row.id) if (hole.start_byte, hole.end_byte) in stubs]
            spliced = splice(document, [hole.hole for hole in holes], [NOT_FILLED_BODY] * len(holes))
            by_start = {edit.start_byte: edit for edit in spliced.patch.edits}
            stops: dict[int, Edit] = {}
            for hole in holes:
                edit = by_start[hole.start_byte]
                num_missing = planned.count(b"\n", edit.start_byte, edit.end_byte) - edit.replacement.count(b"\n")
                stops[hole.id] = replace(edit, replacement=edit.replacement + b"\n" * num_missing)
            self._stops[row.id] = stops
        return self._stops.get(row.id, {})

    def _write_files(self, tests: Sequence[Path]) -> dict[str, bytes]:
        """The planned files that these tests reach, and those with fills that passed, by their names in the copy."""
        reached = {str(path): self._files.get(str(path)) for path in self._reaching_tests.find_files(tests)}
        files: dict[str, bytes] = {}
        for row in {**reached, **self._with_fills}.values():
            if row is not None:
                with suppress(MidfillError, OSError):  # a file that has changed stays as the copy has it
                    files[row.path] = self._complete(row)
        return files

    def _complete(self, row: FileRow) -> bytes:
        """A file's bytes for a run, with the fills that passed and the stops of its other stubs."""
        if row.id not in self._completed:
            self._completed[row.id] = self._open(row).complete()
        return self._completed[row.id]

    def _try(self, hole: HoleRow, file: _File, runner: Runner, tests: list[Path]) -> HoleResult | None:
        """Fills a hole until the command passes."""
        document = file.document
        moved = file.move(hole.hole)

        def complete(patch: Patch) -> bytes:
            imports = set(hole.hole.imports)
            for edit in patch.edits:
                imports.update(self._filler.find_imports(document, hole, edit))
            return file.complete(patch, frozenset(imports))

        others = self._write_files(tests)
        lab = Lab(runner, document, file.row.path, others, complete, is_partial=True)
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
            self._say(f"  {tried.sentence}")
            return replace(made, change=StateChange(hole.id, State.FAILED, tried.sentence))
        if made.change is not None:
            return made
        assert isinstance(tried.best, Try)
        self.num_filled += 1
        self._completed.pop(file.row.id, None)
        self._with_fills[os.path.realpath(file.row.below(self._copy.root))] = file.row
        failed = tried.best.ran.failed or frozenset()
        has_passed = lab.touched.isdisjoint(failed)
        if not failed <= lab.unrelated.keys():
            unproven = _Unproven(has_passed, made, runner.command, tests, lab.touched, lab.unrelated)
            self._unproven[hole.id] = unproven
        if has_passed:
            self._say(f"  passes at try {tried.best.number}")
            return made
        self._say(f"  goes on at try {tried.best.number} into functions that are not filled yet")
        return None


def generate_until(
    journal: Journal, place: Repository, engine: Engine, options: Options, goal: Goal, show: Show, say: Say
) -> Progress:
    """Like `generate`, one hole at a time. A hole fails if no candidate passes; its best fill is kept for review. Holes
    that must wait for others are filled in later rounds, as long as a round fills any.

    Raises `sandbox_missing`, `disk_full` and `git_failed`.
    """
    reopen_stale(journal, place.root)
    pending = list(journal.holes_in(State.PLANNED))
    progress, began_s = start(journal), time.perf_counter()
    with open_copy(place, sandboxed=goal.command.sandboxed) as copy:
        tester = Tester(journal, copy, RunFiller(journal, place.root, engine, options), goal, say)

        def settle(made: HoleResult) -> None:
            nonlocal progress
            progress = record(journal, [made], progress, began_s)
            show(progress)

        num_filled = -1
        while pending and tester.num_filled > num_filled:
            num_filled = tester.num_filled
            waiting: list[HoleRow] = []
            for hole in pending:
                made = tester.fill(hole)
                if made is not None:
                    settle(made)
                elif not tester.is_filled(hole):
                    waiting.append(hole)
            pending = waiting
        for result, was_journaled in tester.settle(pending):
            if not was_journaled:
                settle(result)
            elif result.change is not None:
                journal.set_states([result.change])
                progress = replace(progress, accepted=progress.accepted - 1, failed=progress.failed + 1)
    return progress
