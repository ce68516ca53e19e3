"""Lists the files of a tree that git tracks or does not ignore; without git, those that no `.gitignore` excludes.

The walk without git skips links: their targets are either listed themselves or outside the root.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from midfill_infill.repository import git, guards
from midfill_infill.repository.exclusions import is_ignored
from midfill_infill.repository.patterns import Patterns, read_lines
from midfill_infill.repository.places import Repository


def list_files(repository: Repository, folder: Path | None = None) -> list[str]:
    """The files below `folder`, by default below the root, that are not ignored: sorted paths relative to the root."""
    below = Path(os.path.realpath(folder or repository.root)).relative_to(repository.root)
    if repository.git_dir is None:
        return sorted(_walk(repository.root, below))
    options = ("--cached", "--others", "--exclude-standard", "--deduplicate", "--", str(below))
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


def read_attributes(root: Path) -> Patterns | None:
    """Patterns that the root's .gitattributes marks as `linguist-generated` or `linguist-vendored`; None without."""
    try:
        lines = read_lines(root / ".gitattributes")
    except OSError:
        return None
    marked = []
    for line in lines:
        words = line.split()
        if any(word.split("=")[0] in ("linguist-generated", "linguist-vendored") for word in words[1:]):
            is_off = any(word.endswith("=false") for word in words[1:])
            marked.append(("!" if is_off else "") + words[0])
    return Patterns(marked) if marked else None


def choose(
    names: Iterable[str], globs: Sequence[str], marked: Patterns | None, *, include_generated: bool
) -> Iterator[str]:
    """The names that match one of `globs` (.gitignore syntax, `!` excludes), by default all. Leaves out generated and
    third-party files unless `include_generated`.
    """
    spec = None
    if globs:
        from pathspec import GitIgnoreSpec  # its import takes as long as checking twenty files

        only_negative = all(pattern.startswith("!") for pattern in globs)
        spec = GitIgnoreSpec.from_lines(["*", *globs] if only_negative else globs)
    for name in names:
        if spec is not None and not spec.match_file(name):
            continue
        if include_generated or not (guards.is_foreign(name) or (marked is not None and marked.says(name))):
            yield name
