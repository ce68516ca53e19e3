"""Finds a repository's root and git's folders for it."""

import os
from dataclasses import dataclass
from pathlib import Path

from midfill_infill.errors import MidfillError


@dataclass(frozen=True)
class Repository:
    """A tree of files: its root, and git's folder for it; None if it is in no git repository."""

    root: Path
    git_dir: Path | None

    @property
    def git_folders(self) -> tuple[Path, ...]:
        """Git's folders for this tree: its own and, for a worktree, the one that all worktrees share."""
        if self.git_dir is None:
            return ()
        shared_name = self.git_dir / "commondir"
        if not shared_name.exists():
            return (self.git_dir,)
        shared = Path(os.path.realpath(self.git_dir / shared_name.read_text().strip()))
        return tuple(dict.fromkeys((self.git_dir, shared)))


def find_place(start: Path) -> Repository:
    """The repository around the folder `start`, or without git that folder. Raises `file_missing` if it is none."""
    folder = Path(os.path.realpath(start))
    if not folder.is_dir():
        raise MidfillError("file_missing", f"{start} is not a folder", "name the root of a repository")
    for candidate in (folder, *folder.parents):
        if (git := _git_dir(candidate / ".git")) is not None:
            return Repository(candidate, git)
    return Repository(folder, None)


def _git_dir(entry: Path) -> Path | None:
    """The git directory that `.git` is, or that it names as a file (worktree, submodule); None if there is none."""
    if entry.is_dir() and (entry / "HEAD").exists():
        return entry
    if not entry.is_file():
        return None
    named = entry.read_text(errors="replace").removeprefix("gitdir:").strip()
    folder = Path(os.path.realpath(entry.parent / named))
    return folder if (folder / "HEAD").exists() else None
