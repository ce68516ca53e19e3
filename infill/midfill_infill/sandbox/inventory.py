"""Lists what the copy of a tree contains: all but caches, untracked secrets and ignored files that are too large.

Environments (`node_modules`, virtual environments) are mounted instead of copied. Copies nothing itself.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from midfill_infill.repository import walk
from midfill_infill.repository.exclusions import is_secret
from midfill_infill.repository.git import list_files
from midfill_infill.repository.places import Repository

# For ignored files: built modules and generated sources are small, data sets and build trees are not.
MAX_IGNORED_BYTES: Final = 512 << 20
_ENVIRONMENTS: Final = frozenset(("node_modules", ".tox", ".nox"))
_MARKS: Final = ("pyvenv.cfg", "conda-meta")
_CACHES: Final = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"))


@dataclass
class Inventory:
    """Paths relative to the root: `folders` from the outermost, `files` with links among them.

    `shown` are environments and the `.git` of nested repositories; `targets` are the absolute targets of links to
    environments; `left_out` names what is not copied, and why.
    """

    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    targets: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def take_inventory(place: Repository, max_ignored_bytes: int = MAX_IGNORED_BYTES) -> Inventory:
    """Walks the tree once. Raises `git_failed`."""
    inventory = Inventory()
    tracked = set(list_files(place.root, "--cached", "--recurse-submodules")) if place.git_dir else set()
    own = set(walk.list_files(place))
    ignored: list[tuple[int, str]] = []
    for name, entry in _walk(place.root, inventory):
        if entry.is_symlink():
            inventory.files.append(name)
            if os.path.isdir(entry.path) and _is_environment(entry):
                inventory.targets.append(Path(os.path.realpath(entry.path)))
        elif name in tracked:
            inventory.files.append(name)
        elif is_secret(name):
            inventory.left_out.append(f"{name} (named like a secret, and not git's)")
        elif name in own:
            inventory.files.append(name)
        else:
            ignored.append((entry.stat(follow_symlinks=False).st_size, name))
    _take_ignored(inventory, ignored, max_ignored_bytes)
    return inventory


def _walk(root: Path, inventory: Inventory) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every file and link; folders go into the inventory, the outer one first."""
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
                is_shown = entry.name == ".git" or _is_environment(entry)
                (inventory.shown if is_shown else pending).append(name)
            elif entry.is_symlink() or stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                yield name, entry


def _is_environment(entry: os.DirEntry[str]) -> bool:
    return entry.name in _ENVIRONMENTS or any(os.path.lexists(os.path.join(entry.path, mark)) for mark in _MARKS)


def _take_ignored(inventory: Inventory, ignored: list[tuple[int, str]], most: int) -> None:
    """Takes the smallest files first, as far as they fit; names each folder of the rest once."""
    total, large = 0, dict[str, int]()
    for size, name in sorted(ignored):
        total += size
        if total <= most:
            inventory.files.append(name)
        else:
            top = "/".join(name.split("/")[:2])
            large[top] = large.get(top, 0) + size
    inventory.left_out += [f"{name} (ignored by git, {size >> 20} MiB)" for name, size in large.items()]
