"""Related files: proposers read them, the model does not attend to them.

Knows files and their order, no engine. Files that `exclusions` names are never read.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Literal

from midfill_infill.context import exclusions
from midfill_infill.context.imports import find_imports
from midfill_infill.context.neighbours import find_neighbours
from midfill_infill.errors import MidfillError
from midfill_infill.languages import find_language
from midfill_infill.text.document import Document

MAX_REFERENCES: Final = 32
MAX_CHARS: Final = 256 * 1024
MAX_FILE_CHARS: Final = 64 * 1024
# Of all lines of two files so many are the same in copies: in 127 of 32,478 pairs of files of one folder in ten
# packages (2026-11-24), which are generated variants of each other.
COPY_SHARE: Final = 0.8
MIN_LINES: Final = 8

Kind = Literal["open", "recent", "imported", "neighbour"]
Read = Callable[[Path], str | None]
LeavesOut = Callable[[Path], bool]


@dataclass(frozen=True)
class Reference:
    """The text of a related file, and how it is related."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class HeldFile:
    r"""Another file as an editor holds it, with line feeds; `path` is None for unsaved text."""

    kind: Literal["open", "recent"]
    path: Path | None
    text: str


def find_root(path: Path) -> Path:
    """The file's repository, otherwise its folder; nothing above it is read."""
    folder = path.absolute().parent
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def read_text(path: Path) -> str | None:
    r"""A regular file with line feeds; None if it is not text, too large or not a regular file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return _read_text(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=128)
def _read_text(path: Path, mtime_ns: int, size: int) -> str | None:
    try:
        return show_text(Document.read(path).data, path)
    except MidfillError:
        return None


def show_text(data: bytes, path: Path) -> str | None:
    """Bytes of a file as a model reads them, at most 65,536 characters."""
    try:
        document = Document(data, find_language(path, data), path)
    except MidfillError:
        return None
    return document.show(0, len(data))[:MAX_FILE_CHARS]


def find_references(
    document: Document,
    path: Path | None,
    held: Sequence[HeldFile] = (),
    *,
    root: Path | None = None,
    leaves_out: LeavesOut | None = None,
    read: Read = read_text,
) -> tuple[Reference, ...]:
    """Related files of `document`, stored at `path`: open files, imports, neighbors; bounded.

    Files outside `root` (default: the repository) are not read, not even through links, and neither are files that
    `leaves_out` names (default: `exclusions`). `held` files are used as given.
    """
    found: list[tuple[Kind, str]] = [(other.kind, other.text) for other in held]
    if path is not None:
        path = path.absolute()
        root = find_root(path) if root is None else root.absolute()
        real = cache(lambda path: Path(os.path.realpath(path)))
        taken = {real(path), *(real(other.path) for other in held if other.path is not None)}
        allowed = _Allowed(real(root), leaves_out or _left_out(), real)
        found += _read_found(_find_files(document, path, root), taken, allowed, read)
    distinct = _drop_copies(document.show(0, len(document.data)), found)
    return bound(Reference(kind, text) for kind, text in distinct if text.strip())


def _drop_copies(text: str, found: Iterable[tuple[Kind, str]]) -> Iterator[tuple[Kind, str]]:
    """What is no near copy of `text` or of one before: a backup says nothing that its original does not, and a fill
    that was accepted in one would make the same fill sure in the next.
    """
    known = [_lines_of(text)]
    for kind, other in found:
        lines = _lines_of(other)
        if len(lines) < MIN_LINES or not any(len(lines & each) >= COPY_SHARE * len(lines | each) for each in known):
            known.append(lines)
            yield kind, other


def _lines_of(text: str) -> frozenset[str]:
    return frozenset(line.strip() for line in text.splitlines() if line.strip())


def _left_out() -> LeavesOut:
    stamps = exclusions.Stamps()
    return lambda path: exclusions.find_exclusion(path, (), stamps) is not None


@dataclass(frozen=True)
class _Allowed:
    """Checks that a file may be read: `root` is the resolved root, `real` resolves a path."""

    root: Path
    leaves_out: LeavesOut
    real: Callable[[Path], Path]

    def find(self, path: Path, taken: set[Path]) -> Path | None:
        """Where the file really is, if it may be read and is not taken."""
        real = self.real(path)
        if real in taken or not real.is_relative_to(self.root):
            return None
        return None if any(map(self.leaves_out, {path, real})) else real


def _find_files(document: Document, path: Path, root: Path) -> Iterator[tuple[Kind, Path]]:
    yield from (("imported", place) for place in find_imports(document, path, root))
    yield from (("neighbour", place) for place in find_neighbours(path, root))


def _read_found(
    files: Iterable[tuple[Kind, Path]], taken: set[Path], allowed: _Allowed, read: Read
) -> Iterator[tuple[Kind, str]]:
    """Reads files until a request's limit is reached."""
    left = MAX_CHARS
    for kind, place in files:
        real = allowed.find(place, taken)
        if real is None:
            continue
        taken.add(real)
        text = read(real)
        if text and text.strip():
            yield kind, text
            left -= len(text)
        if left <= 0:
            return


def bound(references: Iterable[Reference]) -> tuple[Reference, ...]:
    """As many references as a request may hold: at most 32 with 262,144 characters together; the last one is
    truncated.
    """
    taken: list[Reference] = []
    left = MAX_CHARS
    for reference in references:
        if len(taken) == MAX_REFERENCES or not left:
            break
        text = reference.text[:left]
        taken.append(reference if len(text) == len(reference.text) else replace(reference, text=text))
        left -= len(text)
    return tuple(taken)
