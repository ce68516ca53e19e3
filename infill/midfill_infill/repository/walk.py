"""Lists the files of a tree that git tracks or does not ignore; without git, those that no `.gitignore` excludes.

The walk without git skips links: their targets are either listed themselves or outside the root.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.repository import git, guards
from midfill_infill.repository.exclusions import is_ignored
from midfill_infill.repository.patterns import Patterns, read_lines
from midfill_infill.repository.roots import Repository

# What .gitattributes says of files that nobody writes here.
FOREIGN: Final = ("linguist-generated", "linguist-vendored")


def list_files(repository: Repository, folder: Path | None = None) -> list[str]:
    """The files below `folder`, by default below the root, that are not ignored: sorted paths relative to the root."""
    below = Path(os.path.realpath(folder or repository.root)).relative_to(repository.root)
    if repository.git_dir is None:
        return sorted(_walk(repository.root, below))
    options = ("--cached", "--others", "--exclude-standard", "--deduplicate", "--", f":(literal){below}")
    return sorted(git.list_files(repository.root, *options))


def find_ignored(repository: Repository, names: Sequence[str]) -> set[str]:
    """Those of the paths `names` (relative to the root) that are ignored."""
    if repository.git_dir:
        return git.find_ignored(repository.root, names)
    return {name for name in names if is_ignored(repository.root / name, repository.root)}


def _walk(root: Path, below: Path) -> Iterator[str]:
    """The paths of files that no `.gitignore` excludes, without other repositories below the root."""
    for folder_name, folders, files in os.walk(root / below):
        folder = Path(folder_name)
        folders[:] = [
            name
            for name in folders
            if name != ".git"
            and not os.path.lexists(folder / name / ".git")
            and not is_ignored(folder / name, root, is_folder=True)
        ]
        for file_name in files:
            path = folder / file_name
            if path.is_file() and not path.is_symlink() and not is_ignored(path, root):
                yield path.relative_to(root).as_posix()


def read_attributes(root: Path) -> list[Patterns]:
    """For each attribute of FOREIGN, the patterns of the root's .gitattributes that set it; with `!`, that unset it."""
    try:
        lines = read_lines(root / ".gitattributes")
    except OSError:
        return []
    marked: dict[str, list[str]] = {attribute: [] for attribute in FOREIGN}
    for line in lines:
        pattern, *words = line.split() or [""]
        for word in words:
            attribute, _, value = word.lstrip("-!").partition("=")
            if attribute in marked:
                is_off = word.startswith(("-", "!")) or value == "false"
                marked[attribute].append(("!" if is_off else "") + pattern)
    return [Patterns(patterns) for patterns in marked.values()]


def is_foreign(name: str, marked: Iterable[Patterns]) -> bool:
    """True for a generated or third-party file, by its path or by the attributes that `read_attributes` reads."""
    return guards.is_foreign(name) or any(patterns.says(name) for patterns in marked)


def choose(names: Iterable[str], globs: Sequence[str]) -> Iterator[str]:
    """The names that match one of `globs` (.gitignore syntax, `!` excludes), by default all. Raises `bad_selector`."""
    for pattern in globs:
        if not Patterns([pattern]):
            raise MidfillError("bad_selector", f"{pattern!r} is no pattern of paths", "write it as in a .gitignore")
    only_negative = all(pattern.startswith("!") for pattern in globs)
    wanted = Patterns(["*", *globs] if only_negative else globs) if globs else None
    return (name for name in names if wanted is None or wanted.says(name))
