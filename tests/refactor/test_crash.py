"""A kill or an error at any moment: no file is torn, no byte is lost, no file is left behind, and the run goes on."""

import errno
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.refactor.trees import Tree, accepted, is_sound, make_tree, source

from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State, StateChange
from midfill_infill.refactor.writing.apply import Writer
from midfill_infill.repository import replace

HERE = Path(__file__).parent
Job = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def driver() -> Iterator[Job]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "crash_driver.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None

    def run(tree: Tree, action: str, **options: Any) -> dict[str, Any]:
        job = {"journal": str(tree.journal_path), "root": str(tree.root), "action": action, **options}
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer

    yield run
    process.stdin.close()
    process.wait(timeout=60)
    process.stdout.close()


def fresh(folder: Path, num_files: int = 2, holes: int = 3) -> Tree:
    return make_tree(folder, {f"m{number}.py": source(number, holes) for number in range(num_files)})


def assert_whole(tree: Tree, *, strays: bool = True) -> None:
    """Every file holds its old or its new bytes, all of them; there is nothing else but, until the next start, ours."""
    for name, data in tree.contents().items():
        if name in tree.before:
            assert data in (tree.before[name], tree.after[name]), name
        else:
            assert strays and name.startswith(".midfill-"), name


@pytest.mark.parametrize(
    ("action", "after"), [("apply", False), ("apply", True), ("undo", False)], ids=["before", "after", "undo"]
)
def test_a_kill_at_every_call_on_a_file(quick_path: Path, driver: Job, action: str, after: bool) -> None:
    at = 0
    while True:
        at += 1
        tree = fresh(quick_path / str(at), num_files=1 if after else 2)
        if action == "undo":
            driver(tree, "apply")
        answer = driver(tree, action, at=at, after=after)
        if not answer["killed"]:
            break
        assert_whole(tree)
        if action == "apply" and at % 2:
            driver(tree, "apply")
            assert tree.contents() == tree.after
        driver(tree, "undo")
        assert tree.contents() == tree.before
        with tree.open() as journal:
            assert journal.unsettled_writes() == []
            assert is_sound(journal)
    assert at > 12, "the calls on files were not seen"


@pytest.mark.parametrize("name", ["EIO", "ENOSPC"])
def test_an_error_at_every_call_on_a_file(quick_path: Path, driver: Job, name: str) -> None:
    assert fail_at_every_call(quick_path, driver, getattr(errno, name)) > 20


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_error_at_every_call_on_a_file(quick_path: Path, driver: Job) -> None:
    names = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EINTR")
    counts = [fail_at_every_call(quick_path / name, driver, getattr(errno, name)) for name in names]
    print(f"{sum(counts)} errors ({', '.join(names)}): 0 files damaged, every one that was not written named")


def fail_at_every_call(folder: Path, driver: Job, number: int) -> int:
    """`apply` with an error at its n-th call on a file, for every n; every second write is cut short. Says how many."""
    at = 0
    while True:
        at += 1
        tree = fresh(folder / str(at))
        answer = driver(tree, "apply", at=at, errno=number, short=bool(at % 2))
        assert not answer["killed"] and answer["exit"] == 0
        if answer["calls"] < at:
            return at - 1
        assert_whole(tree)
        failed = {Path(path).name for path, _ in answer["troubles"]}
        changed = {name for name, data in tree.contents().items() if data == tree.after.get(name)}
        assert failed | changed >= set(tree.before), "a file that was not written is named"
        driver(tree, "apply")
        assert tree.contents() == tree.after


class PowerCut(BaseException):
    """Ends everything between an exchange and the removal of the file that was exchanged."""


def test_an_intent_that_a_power_cut_takes_back_loses_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = fresh(tmp_path / "repo", num_files=1)
    mine = b"import os\n" + tree.before["m0.py"]
    (tree.root / "m0.py").write_bytes(mine)
    earlier = tree.journal_path.with_name("earlier")
    intend = Journal.intend

    def remember(journal: Journal, *words: Any) -> None:
        earlier.write_bytes(tree.journal_path.read_bytes())
        intend(journal, *words)

    def cut(*_: object) -> bool:
        raise PowerCut

    with monkeypatch.context() as patch, tree.open() as journal, pytest.raises(PowerCut):
        patch.setattr(Journal, "intend", remember)
        patch.setattr(replace, "_is_quiet", cut)
        Writer(journal, tree.root).apply(accepted(journal), is_git=False)
    assert (tree.root / "m0.py").read_bytes() != mine, "the exchange took place"
    earlier.replace(tree.journal_path)
    with tree.open() as journal:
        writer = Writer(journal, tree.root)
        assert writer.unsettled == [] and journal.unsettled_writes() == []
        assert tree.contents() == {"m0.py": mine}
        assert writer.apply(accepted(journal), is_git=False).troubles == []
    assert tree.contents() == {"m0.py": b"import os\n" + tree.after["m0.py"]}


def test_a_commit_is_synced_with_the_folder_of_the_journal(tmp_path: Path) -> None:
    with fresh(tmp_path / "repo").open() as journal:
        assert next(journal._rows("PRAGMA synchronous"))[0] == 3, "EXTRA"


def test_random_kills(quick_path: Path, driver: Job) -> None:
    """At random calls, not times: so every one is a kill, and the same ones are half-way."""
    num_calls = driver(fresh(quick_path / "counted", 20, holes=1), "apply", group=8, at=10**6)["calls"]
    chance = random.Random(7)

    def moment() -> dict[str, Any]:
        return {"at": chance.randint(1, num_calls), "after": chance.random() < 0.5}

    tree = fresh(quick_path / "repo", 20, holes=1)
    assert kill_at_random(tree, driver, moment, num_kills=12, group=8, seed=7) >= 4


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_two_thousand_random_kills(quick_path: Path, driver: Job) -> None:
    tree = fresh(quick_path / "repo", 20, holes=1)
    driver(tree, "apply", group=8)
    assert tree.contents() == tree.after
    durations = [_undo_and_apply(tree, driver, 8) for _ in range(3)]
    chance = random.Random(11)

    def moment() -> dict[str, Any]:
        return {"kill_after_s": chance.uniform(0, min(durations))}

    assert kill_at_random(tree, driver, moment, num_kills=2000, group=8, seed=11) > 100


def kill_at_random(
    tree: Tree, driver: Job, moment: Callable[[], dict[str, Any]], *, num_kills: int, group: int, seed: int
) -> int:
    """Kills `apply` at a moment, then resumes, or undoes, and looks at every byte. Returns how many were half-way."""
    chance = random.Random(seed)
    halfway = killed = 0
    while killed < num_kills:
        _undo(tree, driver, group)
        answer = driver(tree, "apply", group=group, **moment())
        killed += answer["killed"]
        assert_whole(tree)
        states = {data == tree.after[name] for name, data in tree.contents().items() if name in tree.before}
        halfway += len(states) == 2
        if chance.random() < 0.5:
            assert driver(tree, "apply", group=group)["troubles"] == []
            assert tree.contents() == tree.after
        if answer["killed"] and killed % 100 == 0:
            print(f"{killed} kills, {halfway} of them with some files written: 0 torn, 0 lost, 0 stray", flush=True)
    return halfway


def _undo(tree: Tree, driver: Job, group: int) -> None:
    assert driver(tree, "undo", group=group)["troubles"] == []
    assert tree.contents() == tree.before
    with tree.open() as journal:
        assert journal.unsettled_writes() == [] and is_sound(journal)
        journal.set_states([StateChange(hole.id, State.ACCEPTED) for hole in journal.holes_in(State.UNDONE)])


def _undo_and_apply(tree: Tree, driver: Job, group: int) -> float:
    """Seconds of an `apply` that is not killed."""
    _undo(tree, driver, group)
    began = time.perf_counter()
    driver(tree, "apply", group=group)
    return time.perf_counter() - began
