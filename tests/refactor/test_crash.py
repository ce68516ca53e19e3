"""A kill or an error at any moment: no file is torn, no byte is lost, no file is left behind, and the run goes on."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.refactor.trees import Tree, make_tree, source

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
    process.wait(timeout=10)
    process.stdout.close()


def fresh(folder: Path, num_files: int = 2) -> Tree:
    return make_tree(folder, {f"m{number}.py": source(number) for number in range(num_files)})


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
def test_a_kill_at_every_call_on_a_file(tmp_path: Path, driver: Job, action: str, after: bool) -> None:
    at = 0
    while True:
        at += 1
        tree = fresh(tmp_path / str(at), num_files=1 if after else 2)
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
            assert journal.open_writes() == []
            assert journal.check_integrity() == "ok"
    assert at > 12, "the calls on files were not seen"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_an_error_at_every_call_on_a_file(tmp_path: Path, driver: Job, number: int) -> None:
    at = 0
    while True:
        at += 1
        tree = fresh(tmp_path / str(at))
        answer = driver(tree, "apply", at=at, errno=number, short=bool(at % 2))
        assert not answer["killed"] and answer["exit"] == 0
        if answer["calls"] < at:
            break
        assert_whole(tree)
        failed = {Path(path).name for path, _ in answer["troubles"]}
        changed = {name for name, data in tree.contents().items() if data == tree.after.get(name)}
        assert failed | changed >= set(tree.before), "a file that was not written is named"
        driver(tree, "apply")
        assert tree.contents() == tree.after
    assert at > 20


def test_random_kills(tmp_path: Path, driver: Job) -> None:
    kill_at_random(tmp_path, num_kills=6, num_files=25, seed=7)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_two_thousand_random_kills(tmp_path: Path) -> None:
    kill_at_random(tmp_path, num_kills=2000, num_files=100, seed=11)


CODE = (
    "import sys, json; sys.path.insert(0, sys.argv[2]); import crash_driver as d; print('go', flush=True);"
    "d.work(json.loads(sys.argv[1]))"
)


def start(tree: Tree, action: str) -> subprocess.Popen[bytes]:
    """A process of its own that is about to write when this returns."""
    job = json.dumps({"journal": str(tree.journal_path), "root": str(tree.root), "action": action})
    words = [sys.executable, "-c", CODE, job, str(HERE)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def time_whole_run(folder: Path, num_files: int) -> float:
    tree = fresh(folder, num_files)
    with start(tree, "apply") as process:
        began = time.perf_counter()
        process.wait()
    assert tree.contents() == tree.after
    return time.perf_counter() - began


def kill_at_random(folder: Path, *, num_kills: int, num_files: int, seed: int) -> None:
    """Kills a process of its own at a random moment, then resumes, or undoes, and looks at every byte."""
    chance = random.Random(seed)
    duration = time_whole_run(folder / "timed", num_files)
    halfway = 0
    for number in range(num_kills):
        tree = fresh(folder / str(number), num_files)
        with start(tree, "apply") as process:
            time.sleep(chance.uniform(0, 1.05 * duration))
            os.killpg(process.pid, signal.SIGKILL)
        assert_whole(tree)
        states = {data == tree.after[name] for name, data in tree.contents().items() if name in tree.before}
        halfway += len(states) == 2
        if chance.random() < 0.5:
            with start(tree, "apply") as process:
                assert process.wait() == 0
            assert tree.contents() == tree.after
        with start(tree, "undo") as process:
            assert process.wait() == 0
        assert tree.contents() == tree.before
        with tree.open() as journal:
            assert journal.open_writes() == [] and journal.check_integrity() == "ok"
        shutil.rmtree(tree.root)
    print(f"{num_kills} kills, {halfway} of them with some files written: 0 torn, 0 lost, 0 stray")
