"""Commits what a run has written, or puts all its fills on a branch. Pushes nothing, writes no file.

A commit takes only the named files, whatever else is staged; a branch is made without touching tree and index.
"""

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal import guards
from midfill_infill.refactor.journal.digests import digest
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import WRITTEN, FileRow
from midfill_infill.refactor.reporting.export import Exported

BY: Final = ("file", "directory", "recipe")
MESSAGE: Final = "Fill {names} in {path}"
_FIELDS: Final = ("names", "path", "holes", "files", "recipe", "run")
_NAMED: Final = 3


@dataclass(frozen=True)
class Commit:
    """A planned commit: its files, relative to the root, and its message."""

    paths: tuple[str, ...]
    message: str


def plan_commits(journal: Journal, root: Path, by: str, template: str = MESSAGE) -> list[Commit]:
    """Commits for everything the run has written that git does not have, so that a second call resumes.

    `by` is one of `BY`; `template` may use the fields of `_FIELDS`. Files with other changes are left out. Raises
    `bad_request` for an invalid `by` or template, and `git_failed`.
    """
    check(by, template)
    dirty = guards.dirty_paths(root)
    files = [file for file in journal.files(*WRITTEN) if file.path in dirty and _is_ours(journal, root, file)]
    groups: dict[str, list[FileRow]] = {}
    for file in files:
        key = file.path if by == "file" else os.path.dirname(file.path) or "." if by == "directory" else ""
        groups.setdefault(key, []).append(file)
    return [
        Commit(tuple(file.path for file in group), _message(journal, template, key or ".", group))
        for key, group in groups.items()
    ]


def check(by: str, template: str) -> None:
    """Raises `bad_request` for an invalid `by` or template."""
    if by not in BY:
        raise MidfillError("bad_request", f"there is no commit by {by!r}", next_step=f"known are {', '.join(BY)}")
    try:
        template.format(**dict.fromkeys(_FIELDS, ""))
    except (KeyError, IndexError, ValueError, AttributeError):
        known = ", ".join("{" + field + "}" for field in _FIELDS)
        raise MidfillError("bad_request", f"{template!r} is no message", next_step=f"known are {known}") from None


def commit(root: Path, commits: Iterable[Commit]) -> int:
    """Makes the commits, with hooks; returns how many. Raises `git_failed` at the first that git refuses."""
    count = 0
    for one in commits:
        guards.run_git(root, "commit", "--quiet", "--message", one.message, "--", *one.paths)
        count += 1
    return count


def make_branch(root: Path, name: str, files: Iterable[Exported], message: str) -> int:
    """A new branch, one commit ahead of HEAD, with the fills of `files`; returns the number of changed files.

    Raises `target_refused` for a file whose planned bytes differ from HEAD, and `git_failed`, also if the branch
    exists.
    """
    guards.run_git(root, "check-ref-format", "--branch", name)
    head = _said(guards.run_git(root, "rev-parse", "--verify", "HEAD"))
    with tempfile.TemporaryDirectory(prefix="midfill-index-") as folder:
        apart = {"GIT_INDEX_FILE": f"{folder}/index"}
        guards.run_git(root, "read-tree", head, extra=apart)
        entries = [_entry(root, head, one) for one in files]
        listed = b"".join(entry + b"\0" for entry in entries)
        guards.run_git(root, "update-index", "-z", "--index-info", stdin=listed, extra=apart)
        tree = _said(guards.run_git(root, "write-tree", extra=apart))
    made = _said(guards.run_git(root, "commit-tree", tree, "-p", head, "-m", message))
    guards.run_git(root, "update-ref", f"refs/heads/{name}", made, "0" * len(head))
    return len(entries)


def _entry(root: Path, head: str, one: Exported) -> bytes:
    """Input for `update-index`: mode, blob and path. Line endings are stored as git would store them."""
    path = os.fsencode(one.file.path)
    known = guards.run_git(root, "ls-tree", "-z", head, "--", one.file.path).rstrip(b"\0")
    mode, _, blob = known.partition(b"\t")[0].split(b" ") if known else (b"100644", b"", b"")
    if _store(root, one.file.path, one.before) != blob:
        message = f"{one.file.path} is not as it is in the last commit"
        raise MidfillError("target_refused", message, next_step="commit it, and plan again")
    return mode + b" " + _store(root, one.file.path, one.after) + b"\t" + path


def _store(root: Path, path: str, data: bytes) -> bytes:
    return guards.run_git(root, "hash-object", "-w", "--stdin", "--path", path, stdin=data).strip()


def _said(output: bytes) -> str:
    return output.decode().strip()


def _is_ours(journal: Journal, root: Path, file: FileRow) -> bool:
    try:
        return journal.has_written(file.id, digest(file.below(root).read_bytes()))
    except OSError:
        return False


def _message(journal: Journal, template: str, path: str, files: Sequence[FileRow]) -> str:
    holes = [hole for file in files for hole in journal.holes(file.id) if hole.is_written]
    names = [hole.name or hole.kind for hole in holes]
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    selection = journal.get_meta("selection") or {}
    return template.format(
        names=", ".join(names[:_NAMED]) + rest,
        path=path,
        holes=len(holes),
        files=len(files),
        recipe=selection.get("recipe") or "bodies",
        run=journal.get_meta("run"),
    )
