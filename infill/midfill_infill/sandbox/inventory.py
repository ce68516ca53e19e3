"""Lists what the copy of a tree contains: all but caches, untracked secrets and ignored files that are too large.

Environments (`node_modules`, virtual environments) are not copied but shown. Copies nothing itself.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from midfill_infill.repository import walk
from midfill_infill.repository.exclusions import is_secret
from midfill_infill.repository.git import list_files
from midfill_infill.repository.roots import Repository

# For all ignored files: built modules and generated sources are small, data sets and build trees are not.
MAX_IGNORED_BYTES: Final = 512 << 20
_ENVIRONMENTS: Final = frozenset(("node_modules", ".tox", ".nox"))
_ENVIRONMENT_MARKS: Final = ("pyvenv.cfg", "conda-meta")
_CACHES: Final = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"))


@dataclass
class Inventory:
    """What a copy has, as paths relative to the root: `folders`, an outer one before those inside it, and `files`,
    which include links.

    `shown` are not copied but seen by the command: environments and the `.git` of nested repositories. `targets` are
    the absolute targets of links to environments. `left_out` has lines that name what is not copied, and why.
    """

    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    targets: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def take_inventory(repository: Repository, max_ignored_bytes: int = MAX_IGNORED_BYTES) -> Inventory:
    """Walks the tree once. At most `max_ignored_bytes` of ignored files are listed. Raises `git_failed`."""
    inventory = Inventory()
    tracked = set(list_files(repository.root, "--cached", "--recurse-submodules")) if repository.git_dir else set()
    not_ignored = set(walk.list_files(repository))
    ignored: list[tuple[int, str]] = []
    for name, entry in _walk(repository.root, inventory):
        if entry.is_symlink():
            inventory.files.append(name)
            if os.path.isdir(entry.path) and _is_environment(entry):
                inventory.targets.append(Path(os.path.realpath(entry.path)))
        elif name in tracked:
            inventory.files.append(name)
        elif is_secret(name):
            inventory.left_out.append(f"{name} (named like a secret, and not git's)")
        elif name in not_ignored:
            inventory.files.append(name)
        else:
            with suppress(FileNotFoundError):  # deleted since it was listed
                ignored.append((entry.stat(follow_symlinks=False).st_size, name))
    _take_ignored(inventory, ignored, max_ignored_bytes)
    return inventory


def _walk(root: Path, inventory: Inventory) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yields every file and link. Adds folders, and what is shown or unreadable, to the inventory."""
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(root / folder))
        except OSError as error:
            inventory.left_out.append(f"{folder} ({error.strerror})")
            continue
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name in _CACHES or name == ".git":
                    continue
                inventory.folders.append(name)
                if entry.name == ".git" or _is_environment(entry):
                    inventory.shown.append(name)
                else:
                    pending.append(name)
            elif entry.is_symlink() or entry.is_file():
                yield name, entry


def _is_environment(entry: os.DirEntry[str]) -> bool:
    """True for a folder of installed packages, or a link to one."""
    marks = (os.path.join(entry.path, mark) for mark in _ENVIRONMENT_MARKS)
    return entry.name in _ENVIRONMENTS or any(map(os.path.lexists, marks))


def _take_ignored(inventory: Inventory, ignored: list[tuple[int, str]], max_bytes: int) -> None:
    """Adds ignored files, given as pairs of size and name, the smallest first, while their sum is at most `max_bytes`.
    The others are left out; one line names all of them that share the first two parts of their paths.
    """
    total_bytes, left_out_bytes = 0, dict[str, int]()
    for size, name in sorted(ignored):
        total_bytes += size
        if total_bytes <= max_bytes:
            inventory.files.append(name)
        else:
            top = "/".join(name.split("/")[:2])
            left_out_bytes[top] = left_out_bytes.get(top, 0) + size
    inventory.left_out += [f"{name} (ignored by git, {size >> 20} MiB)" for name, size in left_out_bytes.items()]
