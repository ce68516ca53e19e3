"""Copies a tree, and restores the copy after each run by copying only what the run changed. Knows files, no fills.

A second, clean copy, which no command gets, is the source. No program can set an inode's change time, so a file is
unchanged if the facts of its inode equal those that were recorded when it was copied.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError, is_disk_full

Facts = tuple[int, ...]
_FICLONE: Final = 0x40049409
# The coarsest resolution of file timestamps.
_TICK_NS: Final = 10_000_000


class Mirror:
    """`work` is the copy of `root` for commands. A failed write raises MidfillError `disk_full` or `write_broken`."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.work, self._clean = root, folder / "tree", folder / "clean"
        self._facts: dict[str, Facts] = {}  # of every entry of `work`, by its path relative to `root`
        self._touched_ns = 0  # when the last entry was copied into `work`, by the monotonic clock
        self.work.mkdir()
        self._clean.mkdir()

    def copy_from_root(self, folders: Iterable[str], files: Iterable[str]) -> list[str]:
        """Makes `folders`, an outer one before those inside it, and copies `files`; returns the unreadable files."""
        unreadable = []
        for name in folders:
            self._make_folder(name)
        for name in files:
            try:
                clone(self.root / name, self._clean / name)
            except FileNotFoundError:
                continue  # deleted since it was listed
            except PermissionError:
                unreadable.append(name)
                continue
            except OSError as error:
                raise _midfill_error(error, self._clean / name) from None
            self._copy_to_work(name)
        return unreadable

    def link(self, name: str, target: Path) -> None:
        """Replaces `name`, which may be a folder, by a link to `target`."""
        for folder in (self._clean, self.work):
            remove(folder / name)
        (self._clean / name).symlink_to(target)
        self._copy_to_work(name)

    def write(self, name: str, data: bytes) -> None:
        """Writes a file that every later run finds, and the folders that it needs."""
        *folders, _ = Path(name).parents  # the last one is the root
        for folder in map(str, reversed(folders)):
            if folder not in self._facts:
                self._make_folder(folder)
        path = self._clean / name
        try:
            with suppress(FileNotFoundError):
                path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IWUSR)
            path.write_bytes(data)
        except OSError as error:
            raise _midfill_error(error, path) from None
        self._copy_to_work(name)

    def digest(self) -> str:
        """A digest of the names, modes and contents that every run finds."""
        total = hashlib.sha256()
        for name in sorted(self._facts):
            path = self._clean / name
            mode = path.lstat().st_mode
            content = os.fsencode(os.readlink(path)) if stat.S_ISLNK(mode) else b""
            if stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").digest()
            total.update(ascii((name, mode, content)).encode())
        return total.hexdigest()

    def reset(self) -> list[str]:
        """Restores the copy to its state before the last run. Returns the sorted names that it restored or removed."""
        changed = set(self._sweep())
        changed.update(name for name in self._facts if not os.path.lexists(self.work / name))
        for name in sorted(changed & self._facts.keys()):
            self._copy_to_work(name)
        return sorted(changed)

    def wait_for_tick(self) -> None:
        """Waits for the next tick of the file system's clock: a write in the same tick may leave the facts equal."""
        remaining_ns = self._touched_ns + _TICK_NS - time.monotonic_ns()
        time.sleep(max(0, min(_TICK_NS, remaining_ns)) / 1e9)

    def _sweep(self) -> Iterable[str]:
        """Removes entries that the clean copy lacks. Yields their names, and the names of entries that were changed."""
        pending = [""]
        while pending:
            folder = pending.pop()
            for entry in _scan(self.work / folder):
                name = f"{folder}/{entry.name}" if folder else entry.name
                expected, is_folder = self._facts.get(name), entry.is_dir(follow_symlinks=False)
                if expected is None or is_folder != stat.S_ISDIR(expected[0]):
                    remove(Path(entry.path))
                    yield name
                    continue
                if _read_facts(entry.stat(follow_symlinks=False)) != expected:
                    yield name
                if is_folder:
                    pending.append(name)

    def _make_folder(self, name: str) -> None:
        """Makes a folder in both copies, with the mode that it has in the tree; its owner may always write there."""
        try:
            (self._clean / name).mkdir(exist_ok=True)
            with suppress(OSError):
                mode = stat.S_IMODE(os.stat(self.root / name).st_mode)
                (self._clean / name).chmod(mode | stat.S_IRWXU)
        except OSError as error:
            raise _midfill_error(error, self._clean / name) from None
        self._copy_to_work(name)

    def _copy_to_work(self, name: str) -> None:
        """Copies an entry, but not the content of a folder, from the clean copy to `work`, and records its facts."""
        source, target = self._clean / name, self.work / name
        try:
            if source.is_dir() and not source.is_symlink():
                target.mkdir(exist_ok=True)
                shutil.copymode(source, target)
            else:
                remove(target)
                clone(source, target)
        except OSError as error:
            raise _midfill_error(error, target) from None
        self._facts[name] = _read_facts(os.lstat(target))
        self._touched_ns = time.monotonic_ns()


def clone(source: Path, target: Path) -> None:
    """Copies a file with its mode, times and attributes, or a link. Files share blocks where the file system can."""
    if not source.is_symlink():
        with open(source, "rb") as source_file, open(target, "wb") as target_file:
            with suppress(OSError):
                fcntl.ioctl(target_file, _FICLONE, source_file.fileno())
                shutil.copystat(source, target)
                return
    shutil.copy2(source, target, follow_symlinks=False)


def remove(path: Path) -> None:
    """Removes a file, a link or a whole folder, if it exists, whatever modes a command gave to folders inside."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for entry in _scan(path):
        remove(Path(entry.path))
    path.rmdir()


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    """Lists the entries of a folder, and first gives its owner all rights to it."""
    mode = os.lstat(folder).st_mode
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        folder.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)
    return list(os.scandir(folder))


def _read_facts(status: os.stat_result) -> Facts:
    """The facts by which an unchanged file is known; for a folder its mode alone, because its entries are compared."""
    if stat.S_ISDIR(status.st_mode):
        return (status.st_mode,)
    return status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _midfill_error(error: OSError, path: Path) -> MidfillError:
    if is_disk_full(error):
        message = f"the copy of the tree does not fit where {path.parent} is"
        return MidfillError("disk_full", message, "set TMPDIR to a folder with more space")
    return MidfillError("write_broken", f"{path} cannot be written ({error.strerror or error})")
