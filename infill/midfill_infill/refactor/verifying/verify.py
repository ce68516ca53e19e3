"""Runs a command over a copy of the tree with fills in it, finds the guilty ones and rolls back only those.

The user's tree is written once, at the end, and by `apply.Writer` only.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal import guards
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.places import Place
from midfill_infill.refactor.journal.records import WRITTEN, Change, HoleRow, Report, State, Trouble
from midfill_infill.refactor.planning import walk
from midfill_infill.refactor.verifying import sandbox
from midfill_infill.refactor.verifying.bisect import Verdict, find_guilty
from midfill_infill.refactor.writing import replace
from midfill_infill.refactor.writing.apply import Writer, trouble_with
from midfill_infill.refactor.writing.edits import Regions

Note = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """`command` is words, no shell. `flake_runs` repeats the command without fills and at the end with them."""

    command: tuple[str, ...]
    limits: sandbox.Limits = sandbox.Limits()
    sandboxed: bool = True
    flake_runs: int = 1


@dataclass(frozen=True)
class Verified:
    """What the command said of the suspects, and what was written for it."""

    verdict: Verdict
    report: Report
    num_runs: int


class Scratch:
    """A copy of the tree in which any choice of fills can be put. Holds one file's texts at a time.

    A file that its fills cannot be put into is among `troubles`, and its holes are no suspects any more.
    """

    def __init__(self, place: Place, journal: Journal, folder: Path, suspects: Sequence[int]) -> None:
        self.folder, self.root = folder, place.root
        self.troubles: list[Trouble] = []
        self._journal, self._place = journal, place
        self._suspects: dict[int, list[HoleRow]] = {}
        self._standing: dict[int, frozenset[int] | None] = {}
        for hole in map(journal.hole, suspects):
            self._suspects.setdefault(hole.file, []).append(hole)
            self._standing[hole.file] = None
        for name in walk.list_files(place):
            self._copy(name)

    @property
    def suspects(self) -> list[int]:
        return [hole.id for holes in self._suspects.values() for hole in holes]

    def _copy(self, name: str) -> None:
        source, target = self._place.root / name, self.folder / name
        if not os.path.lexists(source) or source.is_dir():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)

    def put(self, chosen: Sequence[int]) -> None:
        """Writes the files so that just the fills of `chosen` are in them.

        Raises `file_changed` where fills cannot be taken out of a file of the copy again.
        """
        wanted = frozenset(chosen)
        for number, holes in list(self._suspects.items()):
            here = wanted & {hole.id for hole in holes}
            if self._standing[number] == here:
                continue
            try:
                self._put_file(number, holes, here)
            except (MidfillError, OSError) as error:
                trouble = trouble_with(self._journal.file(number), error)
                if self._standing[number]:
                    raise MidfillError("file_changed", trouble.message) from None
                self.troubles.append(trouble)
                del self._suspects[number]
            else:
                self._standing[number] = here

    def _put_file(self, number: int, suspects: Sequence[HoleRow], chosen: frozenset[int]) -> None:
        file = self._journal.file(number)
        path = file.below(self._place.root)
        target = guards.find_target(self._place.root, path)
        data, known = replace.read_content(target).data, self._journal.snapshot(file.known_hash)
        assert known is not None, "a file with fills has a snapshot"
        regions = Regions.find(self._journal.holes(number), known, data)
        texts = {}
        for hole in suspects:
            fill = self._journal.fill(hole)
            assert fill is not None
            if regions.text(hole.id) == (fill.new if hole.is_written else fill.old):
                texts[hole.id] = fill.new if hole.id in chosen else fill.old
        copy = self.folder / target.relative_to(self._place.root)
        copy.write_bytes(regions.replace(texts).data)


@contextmanager
def open_scratch(place: Place, journal: Journal, suspects: Sequence[int]) -> Iterator[Scratch]:
    """A copy of the tree in the temporary folder, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="midfill-verify-"))
    try:
        yield Scratch(place, journal, folder, suspects)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Verifier:
    """The command over one scratch copy. Counts its runs."""

    def __init__(self, scratch: Scratch, options: Options, note: Note = lambda _: None) -> None:
        self.scratch, self.options, self.note = scratch, options, note
        self.num_runs = 0

    def passes(self, chosen: Sequence[int]) -> bool:
        return self.run(chosen).passed

    def run(self, chosen: Sequence[int]) -> sandbox.Outcome:
        """Raises `bad_request` where the command cannot be started."""
        self.scratch.put(chosen)
        self.num_runs += 1
        try:
            outcome = sandbox.run(
                self.options.command,
                self.scratch.folder,
                self.options.limits,
                sandboxed=self.options.sandboxed,
                copy_of=self.scratch.root,
            )
        except OSError as error:
            said = f"{self.options.command[0]} cannot be run ({error.strerror})"
            raise MidfillError("bad_request", said, next_step="give another --command") from None
        state = "passes" if outcome.passed else "does not end in time" if outcome.code is None else "fails"
        self.note(f"run {self.num_runs}: {len(chosen)} fills, {state}")
        return outcome

    def check_baseline(self) -> None:
        """Raises `verify_baseline` where the command fails without any fill, `verify_flaky` where it does at times."""
        outcomes = [self.run([]) for _ in range(self.options.flake_runs)]
        failed = [outcome for outcome in outcomes if not outcome.passed]
        if failed and len(failed) < len(outcomes):
            raise MidfillError(
                "verify_flaky", f"the command fails {len(failed)} of {len(outcomes)} times without fills"
            )
        if failed:
            last = (failed[0].output.strip().splitlines() or ["it prints nothing"])[-1]
            raise MidfillError("verify_baseline", f"the command fails without any fill: {last}")


def check_sandbox(*, wanted: bool) -> None:
    """Raises `sandbox_missing` where the command could do anything that the user can."""
    if wanted and sandbox.find_bubblewrap() is None:
        raise MidfillError("sandbox_missing", "bubblewrap is not installed or does not work here")


def verify(
    place: Place,
    journal: Journal,
    writer: Writer,
    suspects: Sequence[int],
    options: Options,
    note: Note = lambda _: None,
) -> Verified:
    """Tests the holes of `suspects` and rolls back the guilty. The caller holds the lock.

    Those of a file that cannot be read are neither good nor guilty. Raises `verify_baseline`, `verify_flaky` and
    `sandbox_missing` before anything has been changed.
    """
    check_sandbox(wanted=options.sandboxed)
    with open_scratch(place, journal, suspects) as scratch:
        verifier = Verifier(scratch, options, note)
        verifier.check_baseline()
        verdict = find_guilty(scratch.suspects, verifier.passes)
        again = [verifier.passes(verdict.good) for _ in range(options.flake_runs - 1)]
        if not all(again):
            raise MidfillError(
                "verify_flaky", f"the command fails {again.count(False)} of {len(again)} times at the end"
            )
        known = set(scratch.suspects)
        verdict.good, verdict.guilty = ([n for n in found if n in known] for found in (verdict.good, verdict.guilty))
    report = _settle(journal, writer, verdict)
    report.troubles += scratch.troubles
    return Verified(verdict, report, verifier.num_runs)


def _settle(journal: Journal, writer: Writer, verdict: Verdict) -> Report:
    reason = "the command fails with it"
    guilty, good = ([journal.hole(number) for number in numbers] for numbers in (verdict.guilty, verdict.good))
    report = writer.undo([hole for hole in guilty if hole.is_written], State.ROLLED_BACK, reason)
    unwritten = [Change(hole.id, State.ROLLED_BACK, reason) for hole in guilty if not hole.is_written]
    kept = [Change(hole.id, State.VERIFIED) for hole in good if hole.state in WRITTEN]
    journal.set_states([*unwritten, *kept])
    report.holes += [*unwritten, *kept]
    return report
