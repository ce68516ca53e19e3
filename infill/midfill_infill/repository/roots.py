"""Finds a repository's root and git's folders for it."""

import os
from dataclasses import dataclass
from pathlib import Path

from midfill_infill.errors import MidfillError


@dataclass(frozen=True)
class Repository:
    """A tree of files: a git working tree with git's folder for it (for a worktree its own one, not the shared one), or
    a folder outside of any, with None.
    """

    root: Path
    git_dir: Path | None

    @property
    def git_folders(self) -> tuple[Path, ...]:
        """Git's folders for this tree: its own and, for a worktree, the one that all worktrees share."""
        if self.git_dir is None:
            return ()
        commondir_file = self.git_dir / "commondir"  # a worktree alone has one
        if not commondir_file.exists():
            return (self.git_dir,)
        shared = Path(os.path.realpath(self.git_dir / commondir_file.read_text(errors="replace").strip()))
        return self.git_dir, shared


def find_repository(start: Path) -> Repository:
    """The repository around the folder `start`, or without git that folder. Raises `file_missing` if it is none."""
    folder = Path(os.path.realpath(start))
    if not folder.is_dir():
        next_step = "name the root of a repository; `refactor plan --glob` takes files"
        raise MidfillError("file_missing", f"{start} is not a folder", next_step)
    for candidate in (folder, *folder.parents):
        if (git := _git_dir(candidate / ".git")) is not None:
            return Repository(candidate, git)
    return Repository(folder, None)


def _git_dir(entry: Path) -> Path | None:
    """The git directory that `.git` is, or that it names as a file (worktree, submodule); None if it does neither."""
    if os.path.exists(entry / "HEAD"):  # `Path` would raise an error for what may not be read
        return entry
    if not os.path.isfile(entry) or not os.access(entry, os.R_OK):
        return None
    label, _, named = entry.read_text(errors="replace").partition(":")
    if label != "gitdir":
        return None
    folder = Path(os.path.realpath(entry.parent / named.strip()))
    return folder if os.path.exists(folder / "HEAD") else None
