"""Collects the files related to a document, from which excerpts and proposals are taken. Reads no excluded file; knows
no engine.
"""

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Final, Literal

from midfill_infill.context.imports import find_imports
from midfill_infill.context.neighbors import find_neighbors
from midfill_infill.errors import MidfillError
from midfill_infill.languages import find_language
from midfill_infill.repository import exclusions
from midfill_infill.text.document import Document, read_bytes
from midfill_infill.text.notebook import SUFFIX, Notebook

MAX_REFERENCES: Final = 32
MAX_CHARS: Final = 256 * 1024  # of all related files together
MAX_FILE_CHARS: Final = 64 * 1024
# Two files that share so many of all their different lines are copies. In ten packages these were 127 of 32,478 pairs,
# all of them generated variants.
COPY_SHARE: Final = 0.8
MIN_LINES: Final = 8  # different lines of a file that may be left out as a copy

Kind = Literal["open", "recent", "imported", "neighbor"]
Read = Callable[[Path], str | None]  # the text of a file
LeavesOut = Callable[[Sequence[Path]], Container[Path]]  # returns those of the files that must not be read


@dataclass(frozen=True)
class Reference:
    r"""A related file: how it is related, and its text with line feeds, in which undecodable bytes are lone surrogates.
    A text that is stored nowhere has no `path`.
    """

    kind: Kind
    text: str
    path: Path | None = field(default=None, compare=False)


def find_root(path: Path) -> Path:
    """The root of the file's repository, or the file's folder if it is in none; nothing above the root is read."""
    folder = path.absolute().parent
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def read_text(path: Path) -> str | None:
    r"""The text of a file with line feeds, at most 65,536 characters of it; None if it cannot be read as text, is too
    large or is no regular file. Undecodable bytes are lone surrogates.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return _read_text(path, status.st_ctime_ns, status.st_size)


@lru_cache(maxsize=128)
def _read_text(path: Path, changed_ns: int, size: int) -> str | None:
    """As `read_text`, cached. Time and size, which it ignores, make a file with a new content or mode miss it."""
    try:
        return show_text(read_bytes(path), path)
    except MidfillError:
        return None


def show_text(data: bytes, path: Path) -> str | None:
    """As `read_text`, for a file that holds `data`."""
    kind: type[Document] = Notebook if path.suffix == SUFFIX else Document
    try:
        document = kind.from_bytes(data, path, find_language(path))  # its language tells its encoding alone
    except MidfillError:
        return None
    return document.normalized_text(0, len(document.data))[:MAX_FILE_CHARS]


def find_references(
    document: Document,
    path: Path | None,
    held: Sequence[Reference] = (),
    *,
    root: Path | None = None,
    leaves_out: LeavesOut | None = None,
    read: Read = read_text,
) -> tuple[Reference, ...]:
    """The files related to `document`, which is stored at `path`: `held` files, then imported files, then neighbors; no
    near copies, within the bounds of `bound`. Without a `path`, only `held` files.

    `held` files, such as those that an editor has open, are used as given. Files outside `root` (by default the
    repository) are not read, not even through links, and neither are files that `leaves_out` returns (by default those
    that the `exclusions` name).
    """
    read_files: Iterable[Reference] = ()
    if path is not None:
        file = path.absolute()
        folder = find_root(file) if root is None else root.absolute()
        held_paths = [reference.path for reference in held if reference.path is not None]
        seen = {Path(os.path.realpath(known)) for known in (file, *held_paths)}
        files: list[tuple[Kind, Path]] = []
        files += [("imported", imported) for imported in find_imports(document, file, folder)]
        files += [("neighbor", neighbor) for neighbor in find_neighbors(file, folder)]
        find_excluded = leaves_out or exclusions.find_exclusions
        read_files = _read_files(files, Path(os.path.realpath(folder)), seen, find_excluded, read)
    different = _drop_copies(document.normalized_text(0, len(document.data)), chain(held, read_files))
    return bound(reference for reference in different if reference.text.strip())


def _drop_copies(text: str, references: Iterable[Reference]) -> Iterator[Reference]:
    """Yields the references that are no near copies of `text` or of an earlier one. A copy, such as a backup, adds no
    information, and a fill that was accepted in one copy would make the same fill look certain in the next.
    """
    earlier = [_lines_of(text)]
    for reference in references:
        lines = _lines_of(reference.text)
        shares_most = (len(lines & others) >= COPY_SHARE * len(lines | others) for others in earlier)
        if len(lines) >= MIN_LINES and any(shares_most):
            continue
        earlier.append(lines)
        yield reference


def _lines_of(text: str) -> frozenset[str]:
    """The different lines of a text that are not blank, without indentation."""
    return frozenset(line.strip() for line in text.splitlines() if line.strip())


def _read_files(
    files: Iterable[tuple[Kind, Path]], root: Path, seen: set[Path], leaves_out: LeavesOut, read: Read
) -> Iterator[Reference]:
    """Yields the files below the resolved `root` whose resolved paths are not in `seen`, each one once. A file is read
    only when the caller asks for it, which bounds how many are read.
    """
    inside: list[tuple[Kind, Path, Path]] = []
    for kind, file in files:
        real = Path(os.path.realpath(file))
        if real.is_relative_to(root) and real not in seen:
            inside.append((kind, file, real))
    left_out = leaves_out([file for _, file, _ in inside])
    for kind, file, real in inside:
        if real in seen or file in left_out:
            continue
        seen.add(real)
        text = read(real)
        if text:
            yield Reference(kind, text, file)


def bound(references: Iterable[Reference]) -> tuple[Reference, ...]:
    """The first 32 references with at most 262,144 characters together; the one that exceeds this is truncated."""
    bounded: list[Reference] = []
    room = MAX_CHARS
    for reference in islice(references, MAX_REFERENCES):
        text = reference.text[:room]
        bounded.append(replace(reference, text=text))
        room -= len(text)
        if not room:
            break
    return tuple(bounded)
