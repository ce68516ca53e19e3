"""Writes many files so that a crash at any moment loses nothing. Knows the order of journal and disk writes, no holes.

For a group of files: journal the names of temporary files; stage and sync the files; journal the intent with old and
new bytes; exchange each file with its staged one, which then holds the old bytes and is deleted once they are verified;
sync folders; journal the group as done. `recover` completes what a crash interrupted by looking at the files.
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
    """Replaces the files of `rewrites`, each completely or not at all. Returns the files that others wrote first.
    Raises MidfillError `disk_full` before it changes any file, and `journal_failed`. A problem with one file goes into
    `report` and does not stop the others.
    """
    _check_space(rewrites)
    rows = journal.reserve(rewrites, run_id)
    work = list(zip(rows, rewrites, strict=True))
    staged, troubles = _stage_all(work)
    kept = [(row, rewrite) for row, rewrite in work if row.id in staged]
    dropped = [row.id for row, _ in work if row.id not in staged]
    journal.intend([row for row, _ in kept], [(r.before, r.after) for _, r in kept], dropped)
    done: list[tuple[WriteRow, Rewrite]] = []
    changed: list[int] = []
    for row, rewrite in kept:
        outcome, trouble = _put(journal, row, rewrite)
        if outcome is Swap.DONE:
            done.append((row, rewrite))
        elif trouble is not None:
            troubles.append(trouble)
        else:
            changed.append(rewrite.file.id)
    troubles += _sync_folders(rewrite.target.parent for _, rewrite in done)
    journal.finish([row.id for row, _ in done])
    report.num_files += len(done)
    report.troubles += troubles
    report.holes += [change for _, rewrite in done for change in rewrite.changes]
    return changed


def _stage_all(work: Sequence[tuple[WriteRow, Rewrite]]) -> tuple[set[int], list[Trouble]]:
    """Writes all temporary files, then syncs all: the first sync flushes most of the others."""
    open_files: list[tuple[WriteRow, Rewrite, int]] = []
    staged, troubles = set[int](), []
    for row, rewrite in work:
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
            staged.add(row.id)
        except OSError as error:
            with suppress(OSError):  # the next start deletes it, because the journal names it
                rewrite.target.with_name(row.temporary).unlink(missing_ok=True)
            troubles.append(Trouble.of(rewrite.file.path, error))
    return staged, troubles


def _put(journal: Journal, row: WriteRow, rewrite: Rewrite) -> tuple[Swap | None, Trouble | None]:
    """Writes one file. After an error the file is checked: None leaves the write open for `recover`."""
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
    """Cancels a write that is not in its file.

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
    """Raises `disk_full` unless the disks have room for all files twice."""
    wanted: dict[int, tuple[Path, int]] = {}
    for rewrite in rewrites:
        folder, size = wanted.get(rewrite.status.st_dev, (rewrite.target.parent, 0))
        wanted[rewrite.status.st_dev] = folder, size + len(rewrite.after)
    for folder, size in wanted.values():
        facts = os.statvfs(folder)
        free = facts.f_bavail * facts.f_frsize
        if free < max(2 * size, _MIN_FREE_BYTES):
            message = f"the disk of {folder} has {free // 1024} KiB free, {2 * size // 1024 + 1} KiB are wanted"
            raise MidfillError("disk_full", message)


def recover(journal: Journal, root: Path) -> list[Trouble]:
    """Completes or cancels every write that a crash left open, and deletes its temporary file.

    Returns the files that cannot be resolved. These contain neither the old bytes nor the new ones nor an edit of them,
    and stay unchanged. Raises OSError only for problems that a later start can resolve.
    """
    troubles = []
    for row in journal.unsettled_writes():
        target = Path(os.path.realpath(journal.file(row.file).below(root)))
        try:
            if _settle(journal, row, target) is Swap.DONE:
                journal.finish([row.id])
        except (OSError, MidfillError) as error:
            troubles.append(Trouble.of(str(target), error))
    return troubles


def _settle(journal: Journal, row: WriteRow, target: Path) -> Swap:
    """Finds out whether a write reached its file, and retracts it if not. Leaves no temporary file."""
    temporary = target.with_name(row.temporary)
    if row.state == "reserved":
        return _settle_reserved(journal, row, target)
    if row.state == "retracted" or not os.path.lexists(target):
        return _retract(journal, row, target)
    now = read_content(target).hash
    if not os.path.lexists(temporary):  # it is deleted last, so the exchange is done
        return Swap.DONE if now != row.old_hash else _retract(journal, row, target)
    staged = read_content(temporary).hash
    if now == row.old_hash or staged == row.new_hash:
        return _retract(journal, row, target)
    if now == row.new_hash:
        outcome = replace.resolve(temporary, target, row.old_hash, row.new_hash)
        return outcome if outcome is Swap.DONE else _retract(journal, row, target)
    if staged == row.old_hash:  # exchanged and edited since
        temporary.unlink(missing_ok=True)
        return Swap.DONE
    raise MidfillError("write_unclear", f"{target} and {temporary.name} both hold what Midfill did not write")


def _settle_reserved(journal: Journal, row: WriteRow, target: Path) -> Swap:
    """If the disk lost the intent despite syncs, the old bytes are only in the staged file, and are restored."""
    temporary = target.with_name(row.temporary)
    if os.path.lexists(temporary) and read_content(temporary).hash == row.old_hash:
        now = read_content(target).hash
        if now not in (row.old_hash, row.new_hash):
            raise MidfillError("write_unclear", f"{target} was edited, what it held before is in {temporary.name}")
        if now == row.new_hash:
            if not replace.exchange(temporary, target):
                os.replace(temporary, target)
            return _retract(journal, row, target)
    temporary.unlink(missing_ok=True)
    journal.cancel(row.id, "dropped")
    return Swap.CHANGED


def in_groups(rewrites: Iterable[Rewrite], size: int = GROUP) -> Iterable[list[Rewrite]]:
    stream = iter(rewrites)
    while group := list(islice(stream, size)):
        yield group
