"""Fills come from workers, are journaled one by one, and are the same whatever happens beside them."""

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.refactor.trees import is_sound
from tests.refactor.workers import ScriptedWorkers

from midfill_engine.wire import MAX_EXCERPTS, InfillRequest, InfillResponse, TextSegment
from midfill_infill.context.references import Reference
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.generating.generate import Progress, generate, hole_seed, reroll
from midfill_infill.refactor.generating.shards import Shard, merge, open_part
from midfill_infill.refactor.journal import journal as journals
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.planning.plan import Planning, Request, make_run
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.refactor.reporting.export import exported, patch
from midfill_infill.refactor.writing.apply import Writer
from midfill_infill.repository.roots import Repository, find_repository

NUM_FILES, NUM_HOLES = 6, 18


@pytest.fixture
def place(quick_path: Path) -> Repository:
    root = quick_path / "repo"
    root.mkdir()
    for number in range(NUM_FILES):
        functions = (f"def f_{number}_{index}(a, b):\n    ...\n" for index in range(3))
        (root / f"m{number}.py").write_text(f"# module {number}\n\n\n" + "\n\n".join(functions))
    return find_repository(root)


def new_run(place: Repository, seed: int = 0) -> Path:
    return make_run(place, Request(Selection(stubs=True)), Planning(), seed)


def fill_run(place: Repository, run: Path, workers: ScriptedWorkers, jobs: int = 2) -> Progress:
    with Journal(run) as journal:
        return generate(journal, place.root, workers, jobs=jobs)


def patch_of(run: Path) -> bytes:
    with Journal(run) as journal:
        return b"".join(patch(one) for one in exported(journal, (State.GENERATED,)))


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_the_patch_does_not_depend_on_what_is_in_flight(place: Repository, jobs: int) -> None:
    first, second = new_run(place, seed=5), new_run(place, seed=5)
    progress = fill_run(place, first, ScriptedWorkers(), jobs=1)
    assert (progress.done, progress.accepted, progress.failed) == (NUM_HOLES, NUM_HOLES, 0)
    fill_run(place, second, ScriptedWorkers(delay_s=0.002), jobs=jobs)
    assert patch_of(first) == patch_of(second) != b""
    other = new_run(place, seed=6)
    fill_run(place, other, ScriptedWorkers(), jobs=jobs)
    assert patch_of(other) != patch_of(first)


def test_seed_zero_asks_for_the_likeliest_fill_of_every_hole(place: Repository) -> None:
    run, workers = new_run(place), ScriptedWorkers()
    fill_run(place, run, workers)
    assert {(request.seed, request.temperature) for request in workers.asked} == {(0, 0.0)}
    with Journal(run) as journal:
        seeds = {hole_seed(3, b"x", hole) for hole in journal.holes_in(State.GENERATED)}
    assert len(seeds) == NUM_HOLES // NUM_FILES and 0 not in seeds


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole is tried again at once."""
    monkeypatch.setattr("midfill_infill.refactor.generating.generate._FIRST_WAIT_S", 0.0)


@pytest.mark.usefixtures("no_wait")
def test_an_engine_that_dies_is_revived_and_nothing_is_lost(place: Repository) -> None:
    run, workers = new_run(place), ScriptedWorkers(die_at=(3, 4, 11))
    assert fill_run(place, run, workers).accepted == NUM_HOLES
    assert workers.num_revived == 3


@pytest.mark.usefixtures("no_wait")
@pytest.mark.parametrize("code", ["engine_unreachable", "engine_silent"])
def test_a_connection_that_is_lost_now_and_then_ends_no_run(place: Repository, code: str) -> None:
    class Losing(ScriptedWorkers):
        def answer_one(self, request: InfillRequest) -> InfillResponse:
            answer = super().answer_one(request)
            if len(self.asked) % 3 == 0:
                raise MidfillError(code, "the connection was lost")
            return answer

    assert fill_run(place, new_run(place), Losing(), jobs=1).accepted == NUM_HOLES


@pytest.mark.usefixtures("no_wait")
def test_what_was_made_before_an_engine_fails_for_good_is_kept(place: Repository) -> None:
    run = new_run(place)
    with pytest.raises(MidfillError) as raised:
        fill_run(place, run, ScriptedWorkers(die_at=tuple(range(7, 100))), jobs=1)
    assert raised.value.code == "engine_died"
    with Journal(run) as journal:
        assert journal.counts()[State.GENERATED] == 6
    again = ScriptedWorkers()
    fill_run(place, run, again)
    assert len(again.asked) == NUM_HOLES - 6


class FailingWorkers(ScriptedWorkers):
    """Fails with `code` at every request that holds one of `texts`."""

    def __init__(self, code: str, *texts: str) -> None:
        super().__init__()
        self.code, self.texts = code, texts

    def answer_one(self, request: InfillRequest) -> InfillResponse:
        before = request.segments[0]
        assert isinstance(before, TextSegment)
        if any(before.text.rstrip().endswith(text) for text in self.texts):
            raise MidfillError(self.code, "it fails at this one")
        return super().answer_one(request)


@pytest.mark.usefixtures("no_wait")
@pytest.mark.parametrize("code", ["engine_error", "out_of_memory", "bad_request"])
@pytest.mark.parametrize("jobs", [1, 4])
def test_one_hole_that_the_engine_fails_at_stops_no_other(place: Repository, code: str, jobs: int) -> None:
    run = new_run(place)
    workers = FailingWorkers(code, "def f_2_2(a, b):", "def f_5_2(a, b):")
    progress = fill_run(place, run, workers, jobs)
    assert (progress.done, progress.accepted, progress.failed) == (NUM_HOLES, NUM_HOLES - 2, 2)
    with Journal(run) as journal:
        assert {hole.reason for hole in journal.holes_in(State.FAILED)} == {"it fails at this one"}
        assert {hole.name for hole in journal.holes_in(State.FAILED)} == {"f_2_2", "f_5_2"}


@pytest.mark.usefixtures("no_wait")
def test_an_engine_that_fails_at_every_hole_ends_the_run_and_no_hole(place: Repository) -> None:
    run = new_run(place)
    with pytest.raises(MidfillError) as raised:
        fill_run(place, run, FailingWorkers("engine_error", "(a, b):"))
    assert raised.value.code == "engine_error"
    with Journal(run) as journal:
        assert journal.counts() == {State.PLANNED: NUM_HOLES}
    fill_run(place, run, ScriptedWorkers())
    with Journal(run) as journal:
        assert journal.counts() == {State.GENERATED: NUM_HOLES}


class FullWorkers(ScriptedWorkers):
    """Takes two requests at a time, and answers none before it has refused `refusals` others."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.places = threading.Semaphore(2)
        self.left = itertools.count(refusals - 1, -1)
        self.is_enough = threading.Event()

    def answer_one(self, request: InfillRequest) -> InfillResponse:
        if not self.places.acquire(blocking=False):
            if next(self.left) == 0:
                self.is_enough.set()
            raise MidfillError("engine_busy", "2 requests are open already")
        try:
            assert self.is_enough.wait(60)
            return super().answer_one(request)
        finally:
            self.places.release()


@pytest.mark.usefixtures("no_wait")
def test_a_busy_engine_is_waited_for(place: Repository) -> None:
    run = new_run(place)
    assert fill_run(place, run, FullWorkers(refusals=60), jobs=4).accepted == NUM_HOLES


def test_a_run_goes_on_after_a_part_of_it_was_applied(place: Repository) -> None:
    run, whole = new_run(place), new_run(place)
    fill_run(place, whole, ScriptedWorkers())

    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    with Journal(run) as journal:
        with pytest.raises(KeyboardInterrupt):
            generate(journal, place.root, ScriptedWorkers(), jobs=1, show=stop)
        journal.accept(journal.acceptable())
        writer = Writer(journal, place.root)
        applied = writer.apply(list(journal.holes_in(State.ACCEPTED)), is_git=False).count(State.APPLIED)
        assert 0 < applied < NUM_HOLES, "one, or what was filled at the same moment too"
        assert generate(journal, place.root, ScriptedWorkers()).accepted == NUM_HOLES - applied
        journal.accept(journal.acceptable())
        assert writer.apply(list(journal.holes_in(State.ACCEPTED)), is_git=False).troubles == []
        assert patch_of(whole) == b"".join(patch(one) for one in exported(journal))
        assert journal.counts() == {State.APPLIED: NUM_HOLES}


def test_a_kill_loses_no_journaled_hole_and_none_is_asked_again(place: Repository) -> None:
    run, num_answers = new_run(place), 7
    code = (
        "import itertools, sys, threading; sys.path.insert(0, sys.argv[3])\n"
        "from pathlib import Path\n"
        "from tests.refactor.workers import ScriptedWorkers, by_content\n"
        "from midfill_infill.refactor.generating.generate import generate\n"
        "from midfill_infill.refactor.journal.journal import Journal\n"
        "journal, asked = Journal(Path(sys.argv[1])), itertools.count()\n"
        "def answer(request):\n"
        f"    next(asked) < {num_answers} or threading.Event().wait()\n"
        "    return by_content(request)\n"
        "show = lambda progress: print(progress.done, flush=True)\n"
        "generate(journal, Path(sys.argv[2]), ScriptedWorkers(answer), jobs=2, show=show)\n"
    )
    root = str(Path(__file__).parent.parent.parent)
    words = [sys.executable, "-c", code, str(run), str(place.root), root]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert any(int(line) == num_answers for line in process.stdout)
        os.killpg(process.pid, signal.SIGKILL)
    with Journal(run) as journal:
        assert is_sound(journal)
        assert journal.counts() == {State.GENERATED: num_answers, State.PLANNED: NUM_HOLES - num_answers}
    workers = ScriptedWorkers()
    assert fill_run(place, run, workers).done == NUM_HOLES - num_answers == len(workers.asked)
    whole = new_run(place)
    fill_run(place, whole, ScriptedWorkers())
    assert patch_of(run) == patch_of(whole)


def test_a_file_that_changed_after_the_plan_is_stale(place: Repository) -> None:
    run = new_run(place)
    (place.root / "m0.py").write_text("x = 1\n")
    (place.root / "m1.py").unlink()
    progress = fill_run(place, run, ScriptedWorkers())
    with Journal(run) as journal:
        counts = journal.counts()
        reasons = {hole.reason.split(" (")[0] for hole in journal.holes_in(State.STALE)}
    assert progress.failed == 6 and counts == {State.STALE: 6, State.GENERATED: 12}
    assert reasons == {"its file changed after it was planned", "its file cannot be read"}


@pytest.mark.parametrize(("answer", "state"), [("", State.FAILED), ("...", State.FAILED)])
def test_a_fill_that_changes_nothing_fails(place: Repository, answer: str, state: State) -> None:
    run = new_run(place)
    progress = fill_run(place, run, ScriptedWorkers(lambda _: answer))
    with Journal(run) as journal:
        assert journal.counts() == {state: NUM_HOLES} and journal.acceptable() == []
    assert progress.accepted == 0


def test_syntax_errors_are_counted_and_not_accepted(place: Repository) -> None:
    run = new_run(place)
    assert fill_run(place, run, ScriptedWorkers(lambda _: "return (")).accepted == 0
    with Journal(run) as journal:
        assert journal.counts() == {State.GENERATED: NUM_HOLES} and journal.acceptable() == []


def test_shards_put_together_are_the_whole(place: Repository, tmp_path: Path) -> None:
    whole, parted = new_run(place, seed=2), new_run(place, seed=2)
    (place.root / "m0.py").write_text("x = 1\n")
    fill_run(place, whole, ScriptedWorkers())
    parts = [tmp_path / f"part-{number}" for number in (1, 2, 3)]
    with Journal(parted, read_only=True) as journal:
        for number, path in enumerate(parts, start=1):
            fill_part(place, journal, path, f"{number}/3", stop_after=1)
            fill_part(place, journal, path, f"{number}/3")
            assert fill_part(place, journal, path, f"{number}/3") == 0
    with Journal(parted) as journal:
        assert merge(journal, parts) == NUM_HOLES and merge(journal, parts) == 0
        assert journal.counts() == {State.GENERATED: NUM_HOLES - 3, State.STALE: 3}
    assert patch_of(parted) == patch_of(whole) != b""


def fill_part(place: Repository, journal: Journal, path: Path, shard: str, stop_after: int = NUM_HOLES) -> int:
    """How many holes the part had left."""
    left = 0

    def show(progress: Progress) -> None:
        nonlocal left
        left = progress.total
        if progress.done >= stop_after:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), open_part(journal, path) as part:
        engine = ScriptedWorkers()
        generate(part, place.root, engine, jobs=1, show=show, only=Shard.parse(shard).takes)
    return left


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/b", "-1/2", "1/2/3"])
def test_a_shard_that_is_not_understood(text: str) -> None:
    with pytest.raises(MidfillError) as raised:
        Shard.parse(text)
    assert raised.value.code == "bad_shard"


def test_parts_are_private_and_those_of_another_run_are_refused(place: Repository, tmp_path: Path) -> None:
    one, other = new_run(place), new_run(place)
    with Journal(one) as journal:
        open_part(journal, tmp_path / "part").close()
    assert (one.stat().st_mode & 0o777, (tmp_path / "part").stat().st_mode & 0o777) == (0o600, 0o600)
    with Journal(other) as journal, pytest.raises(MidfillError) as raised:
        merge(journal, [tmp_path / "part"])
    assert raised.value.code == "run_damaged"


def test_a_journal_that_a_stopped_process_writes_is_locked(place: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(place)
    monkeypatch.setattr(journals, "BUSY_TIMEOUT_S", 0.01)
    with closing(sqlite3.connect(run, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(MidfillError) as raised, Journal(run, read_only=True) as journal:
            journal.counts()
    assert raised.value.code == "tree_locked" and "wait" in raised.value.sentence


def test_reroll_draws_another_fill_as_the_next_attempt(place: Repository) -> None:
    run, engine = new_run(place), ScriptedWorkers()
    fill_run(place, run, ScriptedWorkers())
    with Journal(run) as journal:
        first = journal.fill(journal.hole(1))
        again = journal.fill(reroll(journal, place.root, journal.hole(1), engine))
    assert first is not None and again is not None
    assert (first.attempt, again.attempt) == (0, 1) and first.seed == 0 != again.seed and first.new != again.new


def test_the_repository_is_read_as_it_was_planned(place: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Sequence[Reference]] = []
    monkeypatch.setattr(
        "midfill_infill.filling.fill.propose", lambda names, around, index: seen.append(around.references) or []
    )
    (place.root / ".env").write_text("hunter2 = 1\n")
    (place.root / "secret.py").symlink_to(place.root / ".env")
    (place.root / "m0.py").write_text(f"import m3, secret\n{(place.root / 'm0.py').read_text()}")
    run, workers = new_run(place), ScriptedWorkers()
    fill_run(place, run, workers)
    assert sorted(map(kinds_of, seen)) == sorted([["imported", *["neighbor"] * 4], *[["neighbor"] * 5] * 5] * 3)
    assert "hunter2" not in str(seen)
    with Journal(run) as journal:
        Writer(journal, place.root).apply(list(journal.holes_in(State.GENERATED))[3:], is_git=False)
        assert "..." not in (place.root / "m3.py").read_text()
        reroll(journal, place.root, journal.hole(1), workers)
    first = next(references for references in seen if "imported" in kinds_of(references))
    assert seen[-1] == first


def kinds_of(references: Sequence[Reference]) -> list[str]:
    return [reference.kind for reference in references]


def test_progress_says_how_long_is_left() -> None:
    progress = Progress(done=20, total=100, accepted=10, failed=1, elapsed_s=10.0)
    assert progress.per_minute == 120 and progress.left_s == 40
    assert Progress(5).left_s is None


def test_a_run_ends_early_when_it_is_interrupted(place: Repository) -> None:
    run, workers = new_run(place), ScriptedWorkers()
    seen: list[int] = []

    def stop(progress: Progress) -> None:
        seen.append(progress.done)
        raise KeyboardInterrupt

    with Journal(run) as journal:
        with pytest.raises(KeyboardInterrupt):
            generate(journal, place.root, workers, jobs=2, show=stop)
        assert len(workers.asked) <= 4, "what was in flight, and no other"
        assert journal.counts()[State.GENERATED] == seen[0] < NUM_HOLES


def test_more_similar_files_than_a_request_holds(place: Repository) -> None:
    for number in range(17):
        (place.root / f"part{number}.py").write_text(f"def part{number}(n): return sum(n)\n")
    (place.root / "total.py").write_text("from parts import sum\n\n\ndef total(n): pass\n")
    run, workers = new_run(place), ScriptedWorkers()
    progress = fill_run(place, run, workers)
    assert (progress.done, progress.failed) == (NUM_HOLES + 1, 0)
    assert max(len(request.excerpts) for request in workers.asked) == MAX_EXCERPTS


def test_a_project_shows_the_model_the_open_file_alone(place: Repository) -> None:
    (place.root / "parts.py").write_text("def sum_of_parts(n): return sum(n)\n")
    (place.root / "total.py").write_text("from parts import sum_of_parts\n\n\ndef total(n): pass\n")
    (place.root / ".midfill.toml").write_text('context = "off"\n')
    workers = ScriptedWorkers()
    fill_run(place, new_run(place), workers)
    assert workers.asked and not any(request.excerpts for request in workers.asked)
    (place.root / ".midfill.toml").unlink()
    fill_run(place, new_run(place), workers)
    assert any("sum_of_parts" in str(request.excerpts) for request in workers.asked)
