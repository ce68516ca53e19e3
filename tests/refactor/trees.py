"""Trees of small files with holes and fills for tests: no engine, no git unless asked for."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FillRow, HoleRow, PlannedFile, State
from midfill_infill.refactor.journal.runs import journal_of, new_run_id, state_folder
from midfill_infill.repository.content import digest
from midfill_infill.repository.roots import Repository, find_repository
from midfill_infill.text.spans import Hole

HOLE = b"..."


@dataclass(frozen=True)
class Tree:
    """A tree with one run; `before` and `after` are what its files hold without and with all fills."""

    place: Repository
    journal_path: Path
    before: dict[str, bytes]
    after: dict[str, bytes]

    @property
    def root(self) -> Path:
        return self.place.root

    def open(self) -> Journal:
        return Journal(self.journal_path)

    def contents(self) -> dict[str, bytes]:
        """Every file of the tree but git's and the journal's, strays too."""
        state = state_folder(self.place)
        found = {}
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name != ".git" and Path(folder, name) != state]
            for name in names:
                path = Path(folder, name)
                found[str(path.relative_to(self.root))] = path.read_bytes()
        return found


def source(number: int, holes: int = 3, padding: int = 4) -> bytes:
    """A module with functions whose bodies are `...`."""
    parts = [b"# module %d\n" % number]
    for index in range(holes):
        parts.append(b"\ndef f_%d_%d(a, b):\n    ...\n" % (number, index))
        parts.append(b"".join(b"X_%d_%d_%d = %d\n" % (number, index, line, line) for line in range(padding)))
    return b"".join(parts)


def fill_of(number: int, index: int) -> bytes:
    return b"total = a + b  # %d.%d\n    return total" % (number, index)


def make_tree(root: Path, files: dict[str, bytes], *, git: bool = False, state: State = State.ACCEPTED) -> Tree:
    """Writes `files`; every `...` in them is a hole with a fill of its own."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if git:
        init_git(root)
    return plan_tree(root, files, state)


def init_git(root: Path) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "start"]):
        subprocess.run(["git", *GIT_USER, *words], cwd=root, check=True, capture_output=True)


GIT_USER = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


def plan_tree(root: Path, files: dict[str, bytes], state: State = State.ACCEPTED) -> Tree:
    """A run over the holes of `files`, which are below `root` already."""
    place = find_repository(root)
    run_id = new_run_id(place)
    path = journal_of(place, run_id)
    after = {}
    with Journal.create(path, {"run": run_id}) as journal:
        journal.add_plan(_planned(name, data) for name, data in files.items())
        fills = []
        for number, file in enumerate(list(journal.files())):
            data = files[file.path]
            new = data
            for index, hole in reversed(list(enumerate(journal.holes(file.id)))):
                text = fill_of(number, index)
                new = new[: hole.start_byte] + text + new[hole.end_byte :]
                fills.append((FillRow(hole.id, 0, 0, HOLE, text, 0, 0.9), data))
            after[file.path] = new
        journal.add_fills(fills)
        if state is State.ACCEPTED:
            journal.accept(journal.acceptable())
    return Tree(place, path, dict(files), after)


def _planned(name: str, data: bytes) -> PlannedFile:
    holes, start = [], data.find(HOLE)
    while start >= 0:
        holes.append(Hole(start, start + len(HOLE), kind="stub", indent="    "))
        start = data.find(HOLE, start + 1)
    return PlannedFile(name, digest(data), "python" if name.endswith(".py") else None, tuple(holes))


def is_sound(journal: Journal) -> bool:
    return [*journal._rows("PRAGMA integrity_check")] == [("ok",)]


def accepted(journal: Journal) -> list[HoleRow]:
    return list(journal.holes_in(State.ACCEPTED))
