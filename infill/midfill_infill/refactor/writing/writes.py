"""Writes many files so that a crash at any moment loses nothing. Knows the order of journal and disk writes, no holes.

For each group of files: (1) journal the names of temporary files; (2) stage the files: write the new bytes under these
names, and sync; (3) journal the intent with the old and the new bytes; (4) exchange each file with its staged one,
which then holds the old bytes; verify these, and delete it; (5) sync the folders, and journal the group as done.
`recover` looks at the files to complete or cancel what a crash interrupted.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import Report, Rewrite, Trouble, WriteRow
from midfill_infill.repository import replace
from midfill_infill.repository.content import read_content
from midfill_infill.repository.replace import Swap

GROUP: Final = 64
_MIN_FREE_BYTES: Final = 1 << 16


def write_group(journal: Journal, run_id: str, rewrites: Sequence[Rewrite], report: Report) -> list[int]:
    """Replaces the files of `rewrites`, each completely or not at all. Returns the ids of the files that somebody else
    wrote first. A problem with one file goes into `report` and does not stop the others. Raises MidfillError
    `journal_failed`, and `disk_full` before it changes any file.
    """
    _check_space(rewrites)
    rows = journal.reserve(rewrites, run_id)
    writes = list(zip(rows, rewrites, strict=True))
    staged_ids, troubles = _stage_all(writes)
    staged = [(row, rewrite) for row, rewrite in writes if row.id in staged_ids]
    dropped = [row.id for row, _ in writes if row.id not in staged_ids]
    contents = [(rewrite.before, rewrite.after) for _, rewrite in staged]
    journal.intend([row for row, _ in staged], contents, dropped)
    done: list[tuple[WriteRow, Rewrite]] = []
    changed: list[int] = []
    for row, rewrite in staged:
        outcome, trouble = _put(journal, row, rewrite)
        if outcome is Swap.DONE:
            done.append((row, rewrite))
        elif trouble is not None:
            troubles.append(trouble)
        else:
            changed.append(rewrite.file.id)
    troubles += _sync_folders(rewrite.target.parent for _, rewrite in done)
    report.holes += journal.finish([row.id for row, _ in done])
    report.num_files += len(done)
    report.troubles += troubles
    return changed


def _stage_all(writes: Sequence[tuple[WriteRow, Rewrite]]) -> tuple[set[int], list[Trouble]]:
    """Writes all temporary files, then syncs all: the first sync flushes most others. Returns the staged rows' ids."""
    open_files: list[tuple[WriteRow, Rewrite, int]] = []
    staged_ids, troubles = set[int](), list[Trouble]()
    for row, rewrite in writes:
        path = rewrite.target.with_name(row.temporary)
        try:
            descriptor = replace.stage(path, rewrite.target, rewrite.after, rewrite.status)
            open_files.append((row, rewrite, descriptor))
        except OSError as error:
            troubles.append(Trouble.of(rewrite.file.path, error))
    for row, rewrite, descriptor in open_files:
        try:
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            staged_ids.add(row.id)
        except OSError as error:
            with suppress(OSError):  # the next start deletes it, because the journal names it
                rewrite.target.with_name(row.temporary).unlink(missing_ok=True)
            troubles.append(Trouble.of(rewrite.file.path, error))
    return staged_ids, troubles


def _put(journal: Journal, row: WriteRow, rewrite: Rewrite) -> tuple[Swap | None, Trouble | None]:
    """Exchanges a file with its staged one. After an error the files tell the outcome; None leaves it to `recover`."""
    target = rewrite.target
    trouble = None
    try:
        outcome = replace.swap(target.with_name(row.temporary), target, row.old_hash, row.new_hash)
        if outcome is Swap.CHANGED:
            _retract(journal, row, target)
        return outcome, None
    except FileNotFoundError:
        pass
    except OSError as error:
        trouble = Trouble.of(rewrite.file.path, error)
    except MidfillError as error:
        return None, Trouble.of(rewrite.file.path, error)
    try:
        return _settle(journal, row, target), trouble
    except (OSError, MidfillError) as error:
        return None, trouble or Trouble.of(rewrite.file.path, error)


def _retract(journal: Journal, row: WriteRow, target: Path) -> Swap:
    """Cancels a write that is not in its file, and deletes the staged file.

    The journal is updated before the staged file is deleted, because an intent without a staged file means that the
    exchange happened. Raises `write_unclear`, with the journal updated, if somebody wrote into the staged file too.
    """
    journal.cancel(row.id, "retracted")
    kept = replace.dispose(target.with_name(row.temporary), target, row.new_hash)
    journal.cancel(row.id, "dropped")
    if kept is not None:
        raise MidfillError("write_unclear", f"{target} was edited during the exchange, an edit is in {kept.name}")
    return Swap.CHANGED


def _sync_folders(folders: Iterable[Path]) -> list[Trouble]:
    troubles = []
    for folder in dict.fromkeys(folders):
        try:
            replace.sync_folder(folder)
        except OSError as error:
            troubles.append(Trouble.of(str(folder), error))
    return troubles


def _check_space(rewrites: Sequence[Rewrite]) -> None:
    """Raises `disk_full` unless each disk has room for its files twice."""
    sizes: dict[int, tuple[Path, int]] = {}  # by disk: a folder on it, and the bytes to write
    for rewrite in rewrites:
        folder, size = sizes.get(rewrite.status.st_dev, (rewrite.target.parent, 0))
        sizes[rewrite.status.st_dev] = folder, size + len(rewrite.after)
    for folder, size in sizes.values():
        facts = os.statvfs(folder)
        free = facts.f_bavail * facts.f_frsize
        if free < max(2 * size, _MIN_FREE_BYTES):
            message = f"the disk of {folder} has {free // 1024} KiB free, {2 * size // 1024 + 1} KiB are wanted"
            raise MidfillError("disk_full", message)


def recover(journal: Journal, root: Path) -> Report:
    """Completes or cancels each write that a crash left open, and deletes its temporary file. Reports the completed.

    Reports a trouble for each write that it cannot settle: its files cannot be read, hold what Midfill did not write,
    or were both edited. It leaves the target of such a write unchanged.
    """
    report = Report()
    for row, target in journal.unsettled_writes():
        if not target.is_relative_to(root):  # the tree was moved or copied
            target = Path(os.path.realpath(journal.file(row.file).below(root)))
        try:
            if _settle(journal, row, target) is Swap.DONE:
                report.holes += journal.finish([row.id])
                report.num_files += 1
        except (OSError, MidfillError) as error:
            report.troubles.append(Trouble.of(str(target), error))
    return report


def _settle(journal: Journal, row: WriteRow, target: Path) -> Swap:
    """Finds out whether an open write reached its file, and retracts it if not. Leaves no temporary file."""
    temporary = target.with_name(row.temporary)
    if row.state == "reserved":
        return _settle_reserved(journal, row, target)
    if row.state == "retracted" or not os.path.lexists(target):
        return _retract(journal, row, target)
    target_hash = read_content(target).hash
    if not os.path.lexists(temporary):  # it is deleted last, so the exchange is done
        return Swap.DONE if target_hash != row.old_hash else _retract(journal, row, target)
    staged_hash = read_content(temporary).hash
    if target_hash == row.old_hash or staged_hash == row.new_hash:
        return _retract(journal, row, target)
    if target_hash == row.new_hash:
        outcome = replace.resolve(temporary, target, row.old_hash, row.new_hash)
        return outcome if outcome is Swap.DONE else _retract(journal, row, target)
    if staged_hash == row.old_hash:  # the files were exchanged, and the target was edited since
        temporary.unlink(missing_ok=True)
        return Swap.DONE
    raise MidfillError("write_unclear", f"{target} and {temporary.name} both hold what Midfill did not write")


def _settle_reserved(journal: Journal, row: WriteRow, target: Path) -> Swap:
    """Cancels a write whose intent is not journaled. If a disk lost the intent despite the syncs, the old bytes are
    only in the staged file; then restores them first.
    """
    temporary = target.with_name(row.temporary)
    if os.path.lexists(temporary) and read_content(temporary).hash == row.old_hash:
        target_hash = read_content(target).hash
        if target_hash not in (row.old_hash, row.new_hash):
            raise MidfillError("write_unclear", f"{target} was edited, what it held before is in {temporary.name}")
        if target_hash == row.new_hash:
            if not replace.exchange(temporary, target):
                os.replace(temporary, target)
            return _retract(journal, row, target)
    temporary.unlink(missing_ok=True)
    journal.cancel(row.id, "dropped")
    return Swap.CHANGED


def in_groups(rewrites: Iterable[Rewrite], size: int = GROUP) -> Iterable[list[Rewrite]]:
    """The rewrites in lists of `size`; the last one may be shorter."""
    stream = iter(rewrites)
    while group := list(islice(stream, size)):
        yield group
