"""Runs a command over a copy of the tree with fills in it, finds the guilty ones and rolls back only those.

The user's tree is written once, at the end, and by `apply.Writer` only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from midfill_infill.errors import MidfillError
from midfill_infill.filling import written
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import WRITTEN, HoleRow, Report, State, StateChange, Trouble
from midfill_infill.refactor.writing.apply import Writer
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.refactor.writing.imports import weave
from midfill_infill.repository import guards
from midfill_infill.repository.content import read_content
from midfill_infill.repository.places import Repository
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.copy import Copy, open_copy
from midfill_infill.sandbox.run import Outcome
from midfill_infill.text.document import Document

Test = Callable[[Sequence[int]], bool]


@dataclass
class Verdict:
    """`good` passes as a whole; adding any of `guilty` to it failed twice. `doubtful` items both passed and failed the
    same test. `num_runs` counts tests.
    """

    good: list[int] = field(default_factory=list)
    guilty: list[int] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)
    num_runs: int = 0


def find_guilty(suspects: Sequence[int], test: Test) -> Verdict:
    """Splits `suspects` into good and guilty. `test(chosen)` says whether the tree passes with `chosen` in it.

    One guilty item among n costs at most 2 + 2 * log2(n) tests; the last one repeats a known result and ends the search
    if it passes. Items that pass stay in the tree while others are tested, so of two that fail only together one
    becomes guilty. If one half passes, the other is known to fail and is not tested as a whole.
    """
    verdict = Verdict()

    def passes(chosen: Sequence[int]) -> bool:
        verdict.num_runs += 1
        return test([*verdict.good, *chosen])

    def search(chosen: Sequence[int], *, known_to_fail: bool) -> None:
        if not chosen or verdict.doubtful:
            return
        if not known_to_fail and passes(chosen):
            verdict.good.extend(chosen)
            return
        if len(chosen) == 1:
            if passes(chosen):
                verdict.doubtful.extend(chosen)
            else:
                verdict.guilty.extend(chosen)
            return
        middle = len(chosen) // 2
        num_good = len(verdict.good)
        search(chosen[:middle], known_to_fail=False)
        search(chosen[middle:], known_to_fail=len(verdict.good) == num_good + middle)

    search(suspects, known_to_fail=False)
    return verdict


Note = Callable[[str], None]


class Verifier:
    """Runs the command over a copy of the tree with any choice of fills in it. Counts its runs. If fills cannot be put
    into a file, it is among `troubles`, and its holes are no longer suspects.
    """

    def __init__(
        self, copy: Copy, journal: Journal, suspects: Sequence[int], command: Command, note: Note = lambda _: None
    ) -> None:
        self.copy = copy
        self.command = command
        self.note = note
        self.num_runs = 0
        self.troubles: list[Trouble] = []
        self._journal = journal
        self._mirror = copy.mirror
        self._firsts = copy.folder / "firsts"
        self._names: dict[int, str] = {}
        self._suspects: dict[int, list[HoleRow]] = {}
        self._standing: dict[int, frozenset[int] | None] = {}
        self._firsts.mkdir()
        for hole in map(journal.hole, suspects):
            self._suspects.setdefault(hole.file, []).append(hole)
        for number in list(self._suspects):
            self._guarded(number, self._keep_first)

    @property
    def suspects(self) -> list[int]:
        return [hole.id for holes in self._suspects.values() for hole in holes]

    def put(self, chosen: Sequence[int]) -> None:
        """Undoes what the last run did, and writes the files with exactly the fills of `chosen`. Raises `disk_full`,
        and `file_changed` if fills cannot be removed from a file again.
        """
        self._mirror.reset()
        wanted = frozenset(chosen)
        for number, holes in list(self._suspects.items()):
            here = wanted & {hole.id for hole in holes}
            if self._standing.get(number) != here:
                self._guarded(number, partial(self._put_file, chosen=here))
        self._mirror.settle()

    def _guarded(self, number: int, act: Callable[[int], None]) -> None:
        """Calls `act` with a file; if it fails, the file's holes are no longer suspects."""
        try:
            act(number)
        except (MidfillError, OSError) as error:
            trouble = Trouble.of(self._journal.file(number).path, error, reading=True)
            if self._standing.get(number) or trouble.code == "disk_full":
                raise MidfillError(trouble.code, trouble.message) from None
            self.troubles.append(trouble)
            del self._suspects[number]

    def _keep_first(self, number: int) -> None:
        """Saves the file as it is in the copy: the user may edit the original meanwhile."""
        target = guards.find_target(self.copy.root, self._journal.file(number).below(self.copy.root))
        data = read_content(target).data
        self._names[number] = target.relative_to(self.copy.root).as_posix()
        (self._firsts / str(number)).write_bytes(data)

    def _put_file(self, number: int, chosen: frozenset[int]) -> None:
        """Writes a file into the copy with the fills of `chosen`."""
        file = self._journal.file(number)
        data = (self._firsts / str(number)).read_bytes()
        known = self._journal.snapshot(file.known_hash)
        assert known is not None, "a file with fills has a snapshot"
        regions = Regions.find(self._journal.holes(number), known, data)
        texts: dict[int, bytes] = {}
        wanted: set[str] = set()
        unwanted: set[str] = set()
        for hole in self._suspects[number]:
            fill = self._journal.fill(hole)
            assert fill is not None
            expected = fill.new if hole.is_written else fill.old
            if regions.text(hole.id) != expected:
                continue
            if hole.id in chosen:
                texts[hole.id] = fill.new
                wanted.update(fill.imports)
            else:
                texts[hole.id] = fill.old
                unwanted.update(fill.imports)
        after = regions.replace(texts)
        if wanted or unwanted:
            document = Document(data, file.language, Path(file.path))
            after = weave(document, after, wanted, unwanted)
        self._mirror.write(self._names[number], after.data)
        self._standing[number] = chosen

    def passes(self, chosen: Sequence[int]) -> bool:
        return self.run(chosen).passed

    def run(self, chosen: Sequence[int]) -> Outcome:
        """Raises `bad_request` if the command cannot be started."""
        self.put(chosen)
        self.num_runs += 1
        outcome = self.copy.run(self.command)
        state = "fails"
        if outcome.passed:
            state = "passes"
        elif outcome.code is None:
            state = "does not end in time"
        self.note(f"run {self.num_runs}: {len(chosen)} fills, {state}")
        return outcome

    def check_baseline(self) -> None:
        """Raises `verify_baseline` if the command fails without any fill, `verify_flaky` if it fails only sometimes."""
        outcomes = [self.run([]) for _ in range(self.command.flake_runs)]
        failed = [outcome for outcome in outcomes if not outcome.passed]
        if not failed:
            return
        if len(failed) < len(outcomes):
            often = f"{len(failed)} of {len(outcomes)} times"
            raise MidfillError("verify_flaky", f"the command fails {often} without fills")
        for line in self.copy.explain(self.command, failed[0]):
            self.note(line)
        output = failed[0].output.strip().splitlines() or ["it prints nothing"]
        raise MidfillError("verify_baseline", f"the command fails without any fill: {output[-1]}")


def verify(
    place: Repository,
    journal: Journal,
    writer: Writer,
    suspects: Sequence[int],
    command: Command,
    note: Note = lambda _: None,
) -> tuple[Verdict, Report]:
    """Tests the holes of `suspects` and rolls back the guilty; the caller holds the lock.

    Holes of unreadable files are neither good nor guilty. Raises `verify_baseline`, `verify_flaky` and
    `sandbox_missing` before anything has been changed.
    """
    with open_copy(place, sandboxed=command.sandboxed) as copy:
        verifier = Verifier(copy, journal, suspects, command, note)
        try:
            verifier.check_baseline()
        except MidfillError as error:
            if error.code != "verify_baseline" or not (verifier.suspects and verifier.passes(verifier.suspects)):
                raise
            verdict = Verdict(good=list(verifier.suspects))  # the fills make it pass
        else:
            verdict = find_guilty(verifier.suspects, verifier.passes)
        if verdict.doubtful:
            names = ", ".join(map(str, verdict.doubtful))
            raise MidfillError("verify_flaky", f"with the same fills the command fails and passes (hole {names})")
        again = [verifier.passes(verdict.good) for _ in range(command.flake_runs - 1)]
        if not all(again):
            often = f"{again.count(False)} of {len(again)} times"
            raise MidfillError("verify_flaky", f"the command fails {often} at the end")
        verdict.num_runs = verifier.num_runs
        suspected = set(verifier.suspects)
        verdict.good = [hole for hole in verdict.good if hole in suspected]
        verdict.guilty = [hole for hole in verdict.guilty if hole in suspected]
    report = _settle(journal, writer, verdict)
    report.troubles += verifier.troubles
    return verdict, report


def _settle(journal: Journal, writer: Writer, verdict: Verdict) -> Report:
    """Rolls back the guilty, and keeps the good ones."""
    reason = "the command fails with it"
    written_ones: list[HoleRow] = []
    changes: list[StateChange] = []
    for hole in map(journal.hole, verdict.guilty):
        if hole.is_written:
            written_ones.append(hole)
        else:
            changes.append(StateChange(hole.id, State.ROLLED_BACK, reason))
    good = map(journal.hole, verdict.good)
    kept = [StateChange(hole.id, State.VERIFIED) for hole in good if hole.state in WRITTEN]
    report = writer.undo(written_ones, State.ROLLED_BACK, reason)
    changes += kept
    journal.set_states(changes)
    report.holes += changes
    written.keep(journal.texts_of((change.hole for change in kept), State.VERIFIED))
    return report
