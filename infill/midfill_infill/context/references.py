"""Collects related files, from which excerpts and proposals are taken. Reads no excluded file; knows no engine."""

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Final, Literal

from midfill_infill.context.imports import find_imports
from midfill_infill.context.neighbours import find_neighbours
from midfill_infill.errors import MidfillError
from midfill_infill.languages import find_language
from midfill_infill.repository import exclusions
from midfill_infill.text.document import Document

MAX_REFERENCES: Final = 32
MAX_CHARS: Final = 256 * 1024
MAX_FILE_CHARS: Final = 64 * 1024
# Share of equal lines that makes two files copies: 127 of 32,478 pairs in ten packages, all generated variants.
COPY_SHARE: Final = 0.8
MIN_LINES: Final = 8

Kind = Literal["open", "recent", "imported", "neighbour"]
Read = Callable[[Path], str | None]
LeavesOut = Callable[[Sequence[Path]], Container[Path]]  # those of some files that are not to be read


@dataclass(frozen=True)
class Reference:
    r"""The text of a related file with line feeds, and how it is related; a text that is stored nowhere has no `path`.
    Undecodable bytes are lone surrogates.
    """

    kind: Kind
    text: str
    path: Path | None = field(default=None, compare=False)


def find_root(path: Path) -> Path:
    """The file's repository, otherwise its folder; nothing above it is read."""
    folder = path.absolute().parent
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def read_text(path: Path) -> str | None:
    r"""A regular file with line feeds; None if it is not text, too large or not a regular file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return _read_text(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=128)
def _read_text(path: Path, mtime_ns: int, size: int) -> str | None:
    """The text of a file as it was at that time; the last ones are kept."""
    try:
        return show_text(Document.read(path).data, path)
    except MidfillError:
        return None


def show_text(data: bytes, path: Path) -> str | None:
    """The text of a file's bytes with line feeds, at most 65,536 characters; undecodable bytes are lone surrogates."""
    try:
        document = Document(data, find_language(path, data), path)
    except MidfillError:
        return None
    return document.tell(0, len(data))[:MAX_FILE_CHARS]


def find_references(
    document: Document,
    path: Path | None,
    held: Sequence[Reference] = (),
    *,
    root: Path | None = None,
    leaves_out: LeavesOut | None = None,
    read: Read = read_text,
) -> tuple[Reference, ...]:
    """Related files of `document`, stored at `path`: open files, imports, neighbors; bounded.

    Files outside `root` (default: the repository) are not read, not even through links, and neither are files that
    `leaves_out` names (default: `exclusions`). `held` files are used as given.
    """
    read_files: Iterable[Reference] = ()
    if path is not None:
        path = path.absolute()
        root = find_root(path) if root is None else root.absolute()
        known = [path, *(reference.path for reference in held)]
        taken = {Path(os.path.realpath(file)) for file in known if file is not None}
        files: list[tuple[Kind, Path]] = []
        files += [("imported", file) for file in find_imports(document, path, root)]
        files += [("neighbour", file) for file in find_neighbours(path, root)]
        leaves_out = leaves_out or exclusions.find_exclusions
        read_files = _read_files(files, Path(os.path.realpath(root)), taken, leaves_out, read)
    different = _drop_copies(document.tell(0, len(document.data)), chain(held, read_files))
    return bound(reference for reference in different if reference.text.strip())


def _drop_copies(text: str, references: Iterable[Reference]) -> Iterator[Reference]:
    """Drops near copies of `text` and of earlier files. A copy, such as a backup, adds no information, and a fill that
    was accepted in one copy would make the same fill look certain in the next.
    """
    known = [_lines_of(text)]
    for reference in references:
        lines = _lines_of(reference.text)
        if len(lines) >= MIN_LINES and any(_are_copies(lines, others) for others in known):
            continue
        known.append(lines)
        yield reference


def _are_copies(lines: frozenset[str], others: frozenset[str]) -> bool:
    """True if most lines of two files are equal."""
    return len(lines & others) >= COPY_SHARE * len(lines | others)


def _lines_of(text: str) -> frozenset[str]:
    """The different lines of a text that are not blank."""
    return frozenset(line.strip() for line in text.splitlines() if line.strip())


def _read_files(
    files: Iterable[tuple[Kind, Path]], root: Path, taken: set[Path], leaves_out: LeavesOut, read: Read
) -> Iterator[Reference]:
    """Reads files below the resolved `root` that are not `taken`, one whenever the next is wanted."""
    inside: list[tuple[Kind, Path, Path]] = []
    for kind, file in files:
        real = Path(os.path.realpath(file))
        if real.is_relative_to(root) and real not in taken:
            inside.append((kind, file, real))
    left_out = leaves_out([file for _, file, _ in inside])
    for kind, file, real in inside:
        if real in taken or file in left_out:
            continue
        taken.add(real)
        text = read(real)
        if text:
            yield Reference(kind, text, file)


def bound(references: Iterable[Reference]) -> tuple[Reference, ...]:
    """The first 32 references, with at most 262,144 characters together; truncates the last one."""
    taken: list[Reference] = []
    left = MAX_CHARS
    for reference in islice(references, MAX_REFERENCES):
        text = reference.text[:left]
        taken.append(replace(reference, text=text))
        left -= len(text)
        if not left:
            break
    return tuple(taken)
