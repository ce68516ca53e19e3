"""Recognizes files that must not be written: uncommitted, generated, third-party, linked. Knows no holes."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.repository.git import run_git, split_names

_MARKER: Final = re.compile(rb"@" + rb"generated\b|\bDO NOT EDIT\b|<auto-" + rb"generated", re.IGNORECASE)
_MARKED_BYTES: Final = 2048
_VENDORED: Final = frozenset(
    ("node_modules", "vendor", "vendored", "_vendor", "third_party", "third-party", "site-packages", "bower_components",
     ".venv", "venv", ".tox", ".nox", ".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".ruff_cache")
)  # fmt: skip
_GENERATED_NAMES: Final = re.compile(
    r".*(?:_pb2(?:_grpc)?\.pyi?|\.pb\.(?:go|cc|h)|\.g\.(?:cs|dart)|\.min\.js|[-.]lock(?:\.(?:json|ya?ml|toml|hcl))?)"
)


def is_foreign(path: str) -> bool:
    """True if a path relative to the root is inside a folder of third-party code, or named as generated files are."""
    return not _VENDORED.isdisjoint(path.split("/")[:-1]) or _GENERATED_NAMES.fullmatch(path) is not None


def is_generated(data: bytes) -> bool:
    """True if the first 2 KiB of a file mark it as generated."""
    return _MARKER.search(data, 0, _MARKED_BYTES) is not None


def find_target(root: Path, path: Path) -> Path:
    """The file that `path` leads to, without links. Raises `target_refused` if that is outside of the root or in
    another repository below it, OSError if it does not exist.
    """
    target = Path(os.path.realpath(path, strict=True))
    if not target.is_relative_to(root):
        raise MidfillError("target_refused", f"{path} leads to {target}, which is outside of {root}")
    for folder in target.parents:
        if folder == root:
            break
        if os.path.lexists(folder / ".git"):
            message = f"{path} belongs to another repository, {folder}"
            raise MidfillError("target_refused", message, f"run `midfill refactor` in {folder}")
    return target


def refuse_linked_folder(root: Path, path: str) -> None:
    """Raises `target_refused` if a folder of `path`, relative to the root, is a symbolic link."""
    for folder in list(PurePosixPath(path).parents)[-2::-1]:
        if (root / folder).is_symlink():
            message = f"{path} is behind a symbolic link, {folder}"
            raise MidfillError("target_refused", message, "plan it again where it is now")


def check_writable(path: Path, status: os.stat_result) -> None:
    """Raises `target_refused` for a file with several hard links, and for a read-only one."""
    if status.st_nlink > 1:
        message = f"{path} has {status.st_nlink} hard links, which a replacement would split"
        raise MidfillError("target_refused", message, "replace it with a copy")
    if not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(path, os.W_OK):
        raise MidfillError("target_refused", f"{path} is read-only", "make it writable")


def refuse_dirty(root: Path, planned: Iterable[str]) -> None:
    """Raises `tree_dirty` if files of `planned` have uncommitted changes; names three of them."""
    output = run_git(root, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", ".")
    dirty = {entry[3:] for entry in split_names(output)}
    dirty_planned = [path for path in planned if path in dirty]
    if dirty_planned:
        names = ", ".join(dirty_planned[:3]) + (", ..." if len(dirty_planned) > 3 else "")
        files = "1 planned file has" if len(dirty_planned) == 1 else f"{len(dirty_planned)} planned files have"
        raise MidfillError("tree_dirty", f"{files} uncommitted changes: {names}")
