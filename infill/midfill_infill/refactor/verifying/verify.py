"""Runs a command over a copy of the tree, finds the fills that make it fail, and takes only these out of the tree.

The user's tree is written once, at the end, and only by `apply.Writer`.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from midfill_infill.errors import MidfillError
from midfill_infill.filling import written
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FileRow, HoleRow, Report, State, StateChange, Trouble
from midfill_infill.refactor.writing.apply import Writer, choose_added
from midfill_infill.refactor.writing.bisecting import Verdict, find_guilty, find_guilty_apart, split
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.refactor.writing.imports import weave
from midfill_infill.refactor.writing.stops import find_stub_stops
from midfill_infill.repository import guards
from midfill_infill.repository.content import digest, read_content
from midfill_infill.repository.roots import Repository
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.copy import Copy, open_copy
from midfill_infill.sandbox.runner import MARKER, Ran, Runner
from midfill_infill.sandbox.view import choose_variables
from midfill_infill.sandbox.warm import tell_why_cold
from midfill_infill.text.document import Document
from midfill_infill.text.visible import plural
from midfill_infill.until.lab import excuse, find_unrelated, why_strict

# Time limit of a run with fills if the user sets none: a multiple of a run without fills, and at least _LEAST_S.
_SLOWER: Final = 5.0
_LEAST_S: Final = 60.0
_RAN_ADAPTER: Final = TypeAdapter(Ran)

Note = Callable[[str], None]  # shows the user a line about a run


class Verifier:
    """Runs the command over a copy of the tree with the fills of any `suspects` (ids of holes), and counts the runs. A
    file that fills cannot be put into, or a hole whose text is not found, goes to `troubles` and is no suspect.

    After `stop_unfilled`, stubs without a fill stop the tests that come to them. From then on a test may fail if a stub
    stops it, or if it comes to no fill and fails in the same way as without fills.
    """

    def __init__(
        self, copy: Copy, journal: Journal, suspects: Sequence[int], command: Command, note: Note = lambda _: None
    ) -> None:
        self.copy = copy
        self.command = command
        self.note = note
        self.runner = Runner(copy, command)
        self.num_runs = 0
        # By the id of a hole: why the command failed in the last run in which the hole's fill was the last one added.
        self.reasons = defaultdict[int, str](str)
        self.is_slow = False  # True if a run without any fill came to its time limit
        self.troubles: list[Trouble] = []
        self._journal = journal
        self._mirror = copy.mirror
        self._originals = copy.folder / "firsts"  # the folder of `_save_original`
        # The ids of tests that fail without any fill; None if they are unknown.
        self._failed_before: frozenset[str] | None = None
        # The ids of tests that fail although they execute no fill, see `run`: flaky ones do not count, steady ones do.
        self._flaky, self._steady = set[str](), set[str]()
        self._is_tracing = False  # True while the fills in the copy record which tests execute them
        self._unrelated: Mapping[str, str] = {}  # the result of `find_unrelated`
        self._without_stops: dict[str, bytes] = {}  # by name: the old bytes of files without suspects that got stops
        # By the id of a file:
        self._names: dict[int, str] = {}  # its path relative to the root
        self._suspects: dict[int, list[HoleRow]] = {}
        self._in_copy: dict[int, frozenset[int]] = {}  # the holes whose fills the copy has; missing: to be written
        self._stops: dict[int, dict[int, bytes]] = {}  # by the id of the hole: the text that stops tests there
        self._added: dict[int, set[str]] = {}  # the import statements that `apply` added for the suspects
        self._originals.mkdir()
        for hole_id in suspects:
            hole = journal.hole(hole_id)
            self._suspects.setdefault(hole.file, []).append(hole)
        for file_id in list(self._suspects):
            self._act_or_drop(file_id, self._save_original)
        fills = [(hole_id, journal.fill(journal.hole(hole_id))) for hole_id in self.suspects]
        variables = sorted(choose_variables(os.environ, command.variables).items())
        inputs = ascii((copy.mirror.digest(), fills, replace(command, is_cancelled=bool), variables))
        self._inputs_digest = digest(inputs.encode()).hex()  # of all that the outcomes of runs depend on
        self._is_resuming = True  # so far the journal had each run, from a verification that was killed

    def _save_original(self, file_id: int) -> None:
        """Saves the user's file as it is at the start, because the user may edit it while the command runs. Only holes
        whose text is found in it stay suspects: no run could tell anything about others.
        """
        file = self._journal.file(file_id)
        target = guards.find_target(self.copy.root, file.below(self.copy.root))
        data = read_content(target).data
        self._names[file_id] = target.relative_to(self.copy.root).as_posix()
        (self._originals / str(file_id)).write_bytes(data)
        regions = self._find_regions(file, data)
        testable: list[HoleRow] = []
        imports: set[str] = set()
        for hole in self._suspects[file_id]:
            fill = self._journal.fill(hole)
            assert fill is not None
            if regions.text(hole.id) == (fill.new if hole.is_written else fill.old):
                testable.append(hole)
                imports.update(fill.imports)
                continue
            message = f"hole {hole.id} of {file.path}: its text is not found, so it is not tested"
            self.troubles.append(Trouble(file.path, "hole_stale", message))
        self._suspects[file_id] = testable
        self._added[file_id] = choose_added(self._journal, file, imports)

    def _find_regions(self, file: FileRow, data: bytes) -> Regions:
        return Regions.find(self._journal, file, self._journal.holes(file.id), data)

    @property
    def suspects(self) -> list[int]:
        """The ids of the holes that are still suspects. The fills that are most likely right come first, because of
        fills that fail only together the search makes the last one guilty.
        """
        holes = chain.from_iterable(self._suspects.values())
        return [hole.id for hole in sorted(holes, key=self._rate, reverse=True)]

    def _rate(self, hole: HoleRow) -> tuple[bool, float]:
        """How likely a hole's fill is right: a verified one before all others, then by its certainty."""
        fill = self._journal.fill(hole)
        assert fill is not None, "a suspect has a fill"
        return hole.state is State.VERIFIED, 0.5 if fill.certainty is None else fill.certainty

    def check_baseline(self, first_s: float | None) -> None:
        """Raises `verify_baseline` if the command fails without any fill, because then failures blame no fill, and
        `verify_flaky` if it fails only sometimes. With `first_s` it gets that time, and later a multiple of its time.
        """
        self.runner.command = replace(self.command, timeout_s=first_s or self.command.timeout_s)
        baseline = [self.run_once([]) for _ in range(self.command.flake_runs)]
        self.runner.command = self.command
        self.is_slow = any(ran.code is None for ran in baseline)
        failed = [ran for ran in baseline if not ran.is_good]
        self._failed_before = failed[0].failed if failed else frozenset()
        if not failed:
            if first_s is not None:
                longest_s = max(_LEAST_S, _SLOWER * max(ran.seconds for ran in baseline))
                self.runner.command = replace(self.command, timeout_s=min(self.command.timeout_s, longest_s))
            return
        if len(failed) < len(baseline):
            how_often = f"{len(failed)} of {len(baseline)} times"
            raise MidfillError("verify_flaky", f"the command fails {how_often} without fills")
        for line in self.copy.explain(self.command, failed[0].output):
            self.note(line)
        if self.is_slow:
            limit = f"{first_s or self.command.timeout_s:.4g} s"
            message = f"the command does not end in {limit} without any fill"
            raise MidfillError("verify_baseline", message, "give it a longer --timeout-s")
        output = failed[0].output.strip().splitlines() or ["it prints nothing"]
        reason = failed[0].reason or output[-1]
        raise MidfillError("verify_baseline", f"the command fails without any fill: {reason}")

    def run_once(self, chosen: Sequence[int]) -> Ran:
        """Runs the command with the fills of `chosen`, excusing tests. Raises `bad_request` if it cannot be started."""
        ran = self._execute(chosen)
        if self._stops:
            ran = excuse(ran, self._unrelated)
        ran = self._excuse_flaky(ran)
        state = f"fails: {ran.reason[:100]}".removesuffix(": ")
        if ran.is_good:
            state = "passes"
        elif ran.code is None:
            state = "does not end in time"
        self.note(f"{self._describe(chosen)}, {state}")
        return ran

    def _execute(self, chosen: Sequence[int]) -> Ran:
        """Makes and journals a run, or takes it from the journal if a verification that was killed has made it."""
        self.put(chosen)
        self.num_runs += 1
        key = [self._inputs_digest, sorted(chosen), self._is_tracing, bool(self._stops)]
        logged = self._journal.get_meta(f"run{self.num_runs}") if self._is_resuming else None
        if logged is not None and logged[0] == key:
            return _RAN_ADAPTER.validate_python(logged[1])
        self._is_resuming = False
        ran = self.runner.run({}, traced=self._is_tracing)
        entry = [key, _RAN_ADAPTER.dump_python(ran, mode="json")]
        # The next entry, if there is one, is of a verification that went on in another way.
        self._journal.set_meta(**{f"run{self.num_runs}": entry, f"run{self.num_runs + 1}": None})
        return ran

    def put(self, chosen: Sequence[int]) -> None:
        """Undoes in the copy what the last run did, and puts exactly the fills of `chosen` into it. Writes only files
        whose fills change. Raises `disk_full`, and the error of a file whose fills cannot be taken out again.
        """
        self._mirror.reset()
        chosen_ids = frozenset(chosen)
        for file_id, holes in list(self._suspects.items()):
            chosen_here = chosen_ids & {hole.id for hole in holes}
            if self._in_copy.get(file_id) != chosen_here:
                self._act_or_drop(file_id, partial(self._put_file, chosen=chosen_here))
        self._mirror.wait_for_tick()

    def _act_or_drop(self, file_id: int, act: Callable[[int], None]) -> None:
        """Calls `act` with the id of a file. If that fails, adds the error to `troubles` and drops the file's suspects.
        Raises it if the disk is full, or if the copy's file still has fills, which would spoil every further run.
        """
        try:
            act(file_id)
        except (MidfillError, OSError) as error:
            trouble = Trouble.of(self._journal.file(file_id).path, error, reading=True)
            if self._in_copy.get(file_id) or trouble.code == "disk_full":
                raise MidfillError(trouble.code, trouble.message, trouble.next_step) from None
            self.troubles.append(trouble)
            del self._suspects[file_id]

    def _put_file(self, file_id: int, chosen: frozenset[int]) -> None:
        """Writes a file into the copy, with the fills of `chosen`, and the old texts or stops of its other suspects."""
        file = self._journal.file(file_id)
        data = (self._originals / str(file_id)).read_bytes()
        regions = self._find_regions(file, data)
        stops = self._stops.get(file_id, {})
        texts = dict(stops)
        imports, unneeded_imports = set[str](), set[str]()
        for hole in self._suspects[file_id]:
            fill = self._journal.fill(hole)
            assert fill is not None
            if hole.id in chosen:
                texts[hole.id] = self._mark(hole, regions) if self._is_tracing else fill.new
                imports.update(fill.imports)
            else:
                texts[hole.id] = stops.get(hole.id, fill.old)
                unneeded_imports |= self._added[file_id].intersection(fill.imports)
        after = regions.replace(texts)
        if imports or unneeded_imports:
            document = Document(data, file.language, Path(file.path))
            after = weave(document, after, imports, unneeded_imports)
        self._mirror.write(self._names[file_id], after.data)
        self._in_copy[file_id] = chosen

    def _describe(self, chosen: Sequence[int]) -> str:
        """The start of the user's line about a run, which says whether it is from the journal."""
        before = " (before)" if self._is_resuming else ""
        return f"run {self.num_runs}{before}: {plural(len(chosen), 'fill')}"

    def run(self, chosen: Sequence[int]) -> Ran:
        """As `run_once`. If tests fail that execute no fill, runs again with the fills and without any: a test that now
        passes with them, or now fails without them, is flaky and does not count. Others may read the text of fills.
        """
        ran = self.run_once(chosen)
        if not ran.blamed or self.executed is None:
            return ran
        unexplained = ran.blamed - self.executed.keys() - self._steady
        if unexplained:
            again, without = self.run_once(chosen).blamed, self.run_once([]).blamed
            if again is None or without is None or self._failed_before is None:
                return ran
            steady = {test for test in unexplained & again if test not in without or test in self._failed_before}
            self._steady |= steady
            self._flaky |= unexplained - steady
            for test in sorted(unexplained - steady):
                self.note(f"{test} is flaky, and executes no fill: not counted")
        return self._excuse_flaky(ran)

    def _excuse_flaky(self, ran: Ran) -> Ran:
        """The run with the tests excused that are known to be flaky."""
        failures = tuple(failure for failure in ran.failures if failure.test not in self._flaky)
        return replace(ran, failures=failures, excused=ran.excused | self._flaky)

    @cached_property
    def executed(self) -> Mapping[str, frozenset[int]] | None:
        """The ids of the suspects that each test executes, by its id; only tests that execute some. None if unknown."""
        return self._read_executed(self._traced)

    @staticmethod
    def _read_executed(ran: Ran | None) -> Mapping[str, frozenset[int]] | None:
        """The words that a traced run left in the marker, as ids of holes, by the test."""
        if ran is None or ran.reached_by is None:
            return None
        return {test: frozenset(map(int, words)) for test, words in ran.reached_by.items()}

    @cached_property
    def _traced(self) -> Ran | None:
        """A run with all suspects that tells which tests execute them. None if no run can tell: the command must be a
        single pytest in the sandbox, and all suspects must be bodies of Python functions.
        """
        suspects = chain.from_iterable(self._suspects.values())
        is_traceable = all(
            self._journal.file(hole.file).language == "python" and hole.hole.is_body for hole in suspects
        )
        return self._trace(self.suspects) if is_traceable and not tell_why_cold(self.command) else None

    def _trace(self, chosen: Sequence[int]) -> Ran:
        """Runs with the fills of `chosen`, all marked, so that the run tells which of them each test executes."""
        self._is_tracing = True
        self._in_copy.clear()
        ran = self._execute(chosen)
        self._is_tracing = False
        self._in_copy.clear()
        self.note(f"{self._describe(chosen)}, to see which tests execute them")
        return ran

    def _mark(self, hole: HoleRow, regions: Regions) -> bytes:
        """The fill of a body with a statement before it that writes the hole's id into the marker file."""
        fill = self._journal.fill(hole)
        assert fill is not None
        body = fill.new.lstrip()
        before = regions.data[: regions.places[hole.id][0]] + fill.new[: len(fill.new) - len(body)]
        indent = before[before.rfind(b"\n") + 1 :]
        # Called by `exec`, because the body may stand on the line of its `def`, where no `with` can stand.
        code = f"with open({str(self.copy.root / MARKER)!r}, 'a') as file: file.write('{hole.id} ')"
        separator = b"; " if indent.strip() else b"\n" + indent
        return fill.new[: len(fill.new) - len(body)] + f"exec({code!a}, {{}})".encode() + separator + body

    def passes(self, chosen: Sequence[int]) -> bool:
        """The test of `find_guilty`: `run` as a boolean. Notes a failure in `reasons`."""
        ran = self.run(chosen)
        if chosen and not ran.is_good:  # the search puts a fill last before it finds it guilty
            self.reasons[chosen[-1]] = ran.verdict if ran.code is None else ran.reason
        return ran.is_good

    def stop_unfilled(self) -> bool:
        """From now on stubs without a fill stop tests. Tests that they stop do not count, nor those that fail without
        coming to a suspect. Returns False if that cannot be, because no run tells what each test executes.
        """
        for file in self._journal.files():
            with suppress(MidfillError, OSError):  # a file that cannot be read has no stubs
                self._find_stops(file)
        self._in_copy.clear()
        unrelated = None if self._traced is None else find_unrelated(self.run_once([]), self._traced)
        if unrelated is None:
            if any(self._journal.file(file_id).language == "python" for file_id in self._suspects):
                # Here all runs are cold, which `why_strict` must not take for the reason.
                why = why_strict(self.command, self._traced and replace(self._traced, is_warm=True))
                self.note(f"every test that fails counts, because {why}")
            return False
        self._unrelated = unrelated
        if unrelated:
            verb = "does" if len(unrelated) == 1 else "do"
            self.note(f"{plural(len(unrelated), 'test')} that {verb} not come to a fill: not counted")
        return True

    def _find_stops(self, file: FileRow) -> None:
        """Finds the stops of a file's stubs. Puts them into the copy; in a file with suspects `_put_file` does so."""
        target = guards.find_target(self.copy.root, file.below(self.copy.root))
        is_suspect = file.id in self._suspects
        data = (self._originals / str(file.id)).read_bytes() if is_suspect else read_content(target).data
        holes = self._journal.holes(file.id)
        planned = self._journal.snapshot(file.planned_hash)
        if planned is not None:
            regions = self._find_regions(file, data)
        elif digest(data) == file.planned_hash:
            planned = data
            regions = Regions(data, {hole.id: (hole.start_byte, hole.end_byte - hole.start_byte) for hole in holes})
        else:
            return
        suspects = {hole.id for hole in self._suspects.get(file.id, ())}
        stops: dict[int, bytes] = {}
        for hole_id, edit in find_stub_stops(Document(planned, file.language, Path(file.path)), holes).items():
            if hole_id in suspects or regions.text(hole_id) == planned[edit.start_byte : edit.end_byte]:
                stops[hole_id] = edit.replacement
        if is_suspect:
            self._stops[file.id] = stops
        elif stops:
            name = target.relative_to(self.copy.root).as_posix()
            self._without_stops[name] = data
            self._mirror.write(name, regions.replace(stops).data)

    def find_unproven(self, good: Sequence[int]) -> list[int]:
        """The ids of `good` whose fills no test executes that passes with all of them: beside stubs nothing shows that
        they are right. None are unproven if all tests that fail do so for other reasons than stubs.
        """
        traced = self._trace(good)
        failed = traced.failed or frozenset()
        if traced.failed is not None and failed - self._flaky <= self._unrelated.keys():
            return []
        executed = self._read_executed(traced) or {}
        proven = frozenset[int]().union(*(holes for test, holes in executed.items() if test not in failed))
        return [hole_id for hole_id in good if hole_id not in proven]

    def keeps_passing(self, chosen: Sequence[int]) -> bool:
        """True if all tests that pass without any fill pass with `chosen`, too. Removes stops: they may hide it."""
        self._stops.clear()
        self._in_copy.clear()
        for name, data in self._without_stops.items():
            self._mirror.write(name, data)
        blamed = self.run_once(chosen).blamed
        return blamed is not None and self._failed_before is not None and blamed <= self._failed_before

    def forget_runs(self) -> None:
        """Drops the journaled runs and their outputs, so that the next verification starts anew."""
        self._journal.set_meta(**{f"run{number}": None for number in range(1, self.num_runs + 1)})


def verify(
    repository: Repository,
    journal: Journal,
    writer: Writer,
    suspects: Sequence[int],
    command: Command,
    note: Note = lambda _: None,
    *,
    first_s: float | None = None,
) -> tuple[Verdict, Report]:
    """Finds the holes in `suspects` (ids) whose fills are guilty, and rolls them back. The caller holds the lock. With
    `first_s` the command gets that time without any fill, and then a multiple of what it took.

    Holes of files that cannot be read are neither good nor guilty. Raises `verify_baseline`, `verify_flaky` and
    `sandbox_missing` before anything has been changed.
    """
    with open_copy(repository, sandboxed=command.sandboxed) as copy:
        verifier = Verifier(copy, journal, suspects, command, note)
        try:
            verdict = _search(verifier, first_s)
        except MidfillError:
            verifier.forget_runs()
            raise
        verifier.forget_runs()
        verdict.num_runs = verifier.num_runs
        suspects_left = set(verifier.suspects)  # without those of files that failed in between
        verdict.good = [hole_id for hole_id in verdict.good if hole_id in suspects_left]
        verdict.guilty = [hole_id for hole_id in verdict.guilty if hole_id in suspects_left]
    report = _settle(journal, writer, verdict, verifier.reasons)
    report.troubles += verifier.troubles
    for hole in map(journal.hole, verdict.unproven):
        path = journal.file(hole.file).path
        message = f"hole {hole.id} of {path} is left out: no test that passes runs it"
        next_step = "its tests stop in functions that are not filled: fill those, too"
        report.troubles.append(Trouble(path, "holes_failed", message, next_step))
    return verdict, report


def _search(verifier: Verifier, first_s: float | None) -> Verdict:
    """Finds the guilty fills, and makes sure of the good ones. Raises as `verify` does."""
    try:
        verifier.check_baseline(first_s)
    except MidfillError as error:
        if error.code != "verify_baseline" or not verifier.suspects:
            raise
        if not verifier.run_once(verifier.suspects).is_good:
            if verifier.is_slow and first_s is not None:
                return _search(verifier, None)  # with the command's own time limit it may end
            return _search_beside_stubs(verifier, error)
        verdict = Verdict(good=list(verifier.suspects))  # only the fills make the command pass
    else:
        verdict = _find_guilty(verifier)
    _refuse_flaky(verifier, verdict, verifier.command.flake_runs - 1)
    return verdict


def _search_beside_stubs(verifier: Verifier, baseline: MidfillError) -> Verdict:
    """As `_search`, if the command fails both without any fill and with all: stubs may have no fill, and tests may fail
    for reasons of their own. Raises the error of the `baseline` if no fill is proven.
    """
    if not verifier.stop_unfilled():
        raise baseline
    verdict = _find_guilty(verifier)
    verdict.unproven = verifier.find_unproven(verdict.good)
    verdict.good = [hole_id for hole_id in verdict.good if hole_id not in verdict.unproven]
    _refuse_flaky(verifier, verdict, max(1, verifier.command.flake_runs - 1))
    if not verdict.good or not verifier.keeps_passing(verdict.good):
        raise baseline
    return verdict


def _find_guilty(verifier: Verifier) -> Verdict:
    """Finds the guilty suspects: by searches for the failing tests, all at once, or by one search if that cannot be."""
    suspects = verifier.suspects
    full = verifier.run(suspects) if suspects else Ran(0, "", 0.0)
    if full.is_good:
        return Verdict(good=suspects)
    executed = verifier.executed or {}
    if full.blamed and full.failed is not None and full.blamed <= executed.keys():
        suspected = frozenset[int]().union(*(executed[test] for test in full.blamed))
        passing = frozenset[int]().union(*(executed[test] for test in executed.keys() - full.failed))
        # First spares the fills that passing tests execute, too. If the other fills do not explain it, spares none.
        for spared in dict.fromkeys((suspected & passing, frozenset[int]())):
            verdict = _search_apart(verifier, suspects, {test: executed[test] - spared for test in sorted(full.blamed)})
            if verdict is not None:
                return verdict
    return find_guilty(suspects, verifier.passes, known_to_fail=True)


def _search_apart(verifier: Verifier, suspects: Sequence[int], blamed: Mapping[str, Set[int]]) -> Verdict | None:
    """As `find_guilty_apart`. `blamed`: which suspects each failing test may blame. None, too, if a test has none."""
    if not all(blamed.values()):
        return None
    parts = [[hole_id for hole_id in suspects if hole_id in part] for part in split(blamed.values())]
    part_of = {hole_id: index for index, part in enumerate(parts) for hole_id in part}

    def test_parts(chosen: Sequence[int]) -> set[int] | None:
        ran = verifier.run(chosen)
        if ran.blamed is None or not ran.blamed <= blamed.keys():
            return None
        last_of_part = {part_of[hole_id]: hole_id for hole_id in chosen if hole_id in part_of}
        part_of_test = {test: part_of[min(blamed[test])] for test in ran.blamed}
        for failure in reversed(ran.failures):  # the first failure of a part is its reason
            if part_of_test.get(failure.test) in last_of_part:
                verifier.reasons[last_of_part[part_of_test[failure.test]]] = failure.sentence
        return set(part_of_test.values())

    good = [hole_id for hole_id in suspects if hole_id not in part_of]
    return find_guilty_apart(good, parts, test_parts)


def _refuse_flaky(verifier: Verifier, verdict: Verdict, num_repeats: int) -> None:
    """Raises `verify_flaky` if a fill is doubtful, or if the command fails in one of more runs with the good ones."""
    if verdict.doubtful:
        ids = ", ".join(map(str, verdict.doubtful))
        raise MidfillError("verify_flaky", f"with the same fills the command fails and passes (hole {ids})")
    repeats = [verifier.passes(verdict.good) for _ in range(num_repeats)]
    if not all(repeats):
        how_often = f"{repeats.count(False)} of {len(repeats)} times"
        raise MidfillError("verify_flaky", f"the command fails {how_often} at the end")


def _settle(journal: Journal, writer: Writer, verdict: Verdict, reasons: Mapping[int, str]) -> Report:
    """Takes the guilty fills out of the tree, and marks the good ones that are in it as verified. `reasons` has why the
    command fails with each guilty one, by the id of its hole.
    """
    why = {hole_id: f"the command fails with it: {reasons[hole_id]}".removesuffix(": ") for hole_id in verdict.guilty}
    guilty = [journal.hole(hole_id) for hole_id in verdict.guilty]
    good = [journal.hole(hole_id) for hole_id in verdict.good]
    kept = [StateChange(hole.id, State.VERIFIED) for hole in good if hole.is_written]
    report = writer.undo(guilty, State.ROLLED_BACK, why)
    changes = [StateChange(hole.id, State.ROLLED_BACK, why[hole.id]) for hole in guilty if not hole.is_written] + kept
    journal.set_states(changes)
    report.holes += changes
    written.forget(journal.texts_of((change.hole for change in kept), State.VERIFIED))
    return report
