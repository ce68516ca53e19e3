"""Sixteen files that tools damage: each comes out with its fill and nothing else changed, and undone as it was."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.refactor.workers import ScriptedWorkers

from midfill_infill.refactor.generating.generate import generate
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.journal.runs import find_run
from midfill_infill.refactor.planning.plan import Planning, Request, make_run
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.refactor.writing.apply import Writer, written_holes
from midfill_infill.repository.roots import find_repository
from midfill_infill.text.document import Document

PLAIN = b"def f(a):\n    ...\n\n\nX = 1\n"
FILL = b"y = a\n    return y"


@dataclass(frozen=True)
class Case:
    """`data` and what is done to the file. Where `is_kept`, the declared answer is to leave the file and say so."""

    data: bytes = PLAIN
    prepare: Callable[[Path], None] = lambda _: None
    is_kept: bool = False
    fill: bytes = FILL


def mode(path: Path) -> None:
    path.chmod(0o755)


def link(path: Path) -> None:
    real = path.with_name("real") / path.name
    real.parent.mkdir()
    path.rename(real)
    path.symlink_to(real.relative_to(path.parent))


def twin(path: Path) -> None:
    os.link(path, path.with_name("twin.bin"))


def attribute(path: Path) -> None:
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("no extended attributes here")


def ignored(path: Path) -> None:
    path.with_name(".gitignore").write_text(path.name + "\n")


CRLF_FILL = FILL.replace(b"\n", b"\r\n")
CASES = {
    "plain": Case(),
    "crlf": Case(PLAIN.replace(b"\n", b"\r\n"), fill=CRLF_FILL),
    "byte order mark": Case(b"\xef\xbb\xbf" + PLAIN),
    "byte order mark and crlf": Case(b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\r\n"), fill=CRLF_FILL),
    "mixed line ends": Case(b"A = 1\r\nB = 2\r\nC = 3\r\n\r\n\r\nZ = 1\r\n" + PLAIN, fill=CRLF_FILL),
    "no final line end": Case(b"def f(a):\n    ..."),
    "form feed": Case(b"A = 1\n\x0c\n" + PLAIN),
    "line separator and emoji": Case("A = '\u2028\U0001f600'\n".encode() + PLAIN),
    "latin-1 with cookie": Case(b"# -*- coding: latin-1 -*-\nA = '\xe9\xff'\n" + PLAIN),
    "invalid utf-8": Case(b"A = '\xff\xfe\x80'\n" + PLAIN),
    "mode 755": Case(prepare=mode),
    "symbolic link": Case(prepare=link),
    "hard link": Case(prepare=twin, is_kept=True),
    "extended attribute": Case(prepare=attribute),
    "ignored by git": Case(prepare=ignored, is_kept=True),
    "generated": Case(b"# @" + b"generated\n" + PLAIN, is_kept=True),
}


def facts(path: Path) -> tuple[object, ...]:
    status = path.stat()
    names = sorted(os.listxattr(path))
    attributes = [(name, os.getxattr(path, name)) for name in names]
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, path.is_symlink(), status.st_nlink, attributes


def change(root: Path) -> tuple[int, bool]:
    """Plans, generates, applies; returns how many holes were written and whether anything was said of the others."""
    place, planning = find_repository(root), Planning()
    with Journal(make_run(place, Request(Selection(stubs=True)), planning)) as journal:
        generate(journal, place.root, ScriptedWorkers(lambda _: "y = a\nreturn y"), jobs=1)
        journal.accept(journal.acceptable())
        holes = list(journal.holes_in(State.ACCEPTED))
        report = Writer(journal, place.root).apply(holes, is_git=False)
        return report.count(State.APPLIED), bool(report.troubles or planning.skipped)


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_written_and_restored_byte_for_byte_or_left_alone(tmp_path: Path, name: str) -> None:
    case, root = CASES[name], tmp_path / "repo"
    root.mkdir()
    path = root / "m.py"
    path.write_bytes(case.data)
    case.prepare(path)
    if name == "symbolic link":
        (root / "m.py").unlink()
        path = root / "real/m.py"
    before = facts(path)
    written, was_told = change(root)
    if case.is_kept:
        assert written == 0 and path.read_bytes() == case.data and facts(path) == before
        assert was_told or name == "ignored by git"
        return
    assert written == 1
    head, _, tail = case.data.partition(b"...")
    assert path.read_bytes() == head + case.fill + tail and facts(path) == before
    Document.read(path)
    place = find_repository(root)
    with Journal(find_run(place)) as journal:
        assert Writer(journal, root).undo(written_holes(journal)).troubles == []
    assert path.read_bytes() == case.data and facts(path) == before


def test_sixteen_kinds_of_files_are_tried() -> None:
    assert len(CASES) == 16
