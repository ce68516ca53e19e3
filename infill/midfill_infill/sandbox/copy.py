"""Runs the user's command in a copy of a tree, and explains why it failed. Knows no fill."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from midfill_infill.engines.records import locked
from midfill_infill.errors import MidfillError
from midfill_infill.repository.roots import Repository
from midfill_infill.sandbox import run
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.inventory import take_inventory
from midfill_infill.sandbox.mirror import Mirror, remove
from midfill_infill.sandbox.run import Outcome
from midfill_infill.sandbox.view import CopiedTree, withheld

# Limits of an explanation: lines of output, and names of missing files or variables.
_MAX_LINES: Final = 12
_MAX_NAMES: Final = 12
_PREFIX: Final = "midfill-verify-"
_LOCK: Final = "lock"
# A folder that is younger may belong to another process that has not locked it yet.
_YOUNG_S: Final = 2.0


class Copy:
    """A copy of the tree. Every run starts from the tree as it was copied, with the files that `put` has written."""

    def __init__(self, repository: Repository, folder: Path, *, sandboxed: bool = True) -> None:
        """Copies the tree into `folder`, where callers may keep files of their own. See `open_copy` for errors."""
        self.repository, self.root, self.folder = repository, repository.root, folder
        inventory = take_inventory(repository)
        self.left_out = inventory.left_out
        self.mirror = Mirror(self.root, folder)
        shown = (*(self.root / name for name in inventory.shown), *inventory.targets)
        has_go = sandboxed and any(name.endswith(".go") for name in inventory.files)
        go_cache = _link_go_cache(folder) if has_go else None
        self.tree = CopiedTree(self.mirror.work, self.root, shown, repository.git_folders, go_cache)
        if sandboxed and repository.git_dir is not None and (self.root / ".git").is_dir():
            inventory.folders.insert(0, ".git")  # where the sandbox mounts git's own folder
        unreadable = self.mirror.copy_from_root(inventory.folders, inventory.files)
        self.left_out += [f"{name} (not readable)" for name in unreadable]
        if not sandboxed:  # nothing is mounted: links lead to the environments
            for name in inventory.shown:
                if Path(name).name != ".git":
                    self.mirror.link(name, self.root / name)

    def put(self, files: Mapping[str, bytes]) -> None:
        """Undoes what the last run did and writes `files`, whose names are relative to the root."""
        self.mirror.reset()
        for name, data in files.items():
            self.mirror.write(name, data)
        self.mirror.wait_for_tick()

    def run(self, command: Command) -> Outcome:
        """Runs the command once over the copy. Raises `bad_request` if it cannot be started."""
        try:
            return run.run(command, self.tree)
        except OSError as error:
            message = f"{command.words[0]} cannot be run ({error.strerror})"
            raise MidfillError("bad_request", message, "give another command") from None

    def explain(self, command: Command, output: str) -> list[str]:
        """Lines for the user: the end of the output of a command that failed, and what the command did not get."""
        lines = [f"  {line}" for line in output.rstrip().splitlines()[-_MAX_LINES:]]
        if self.left_out:
            lines.append(f"not in its copy: {_enumerate(self.left_out)}")
        if command.sandboxed:
            lines += [
                "it has no network, and sees only the copy, tools and their caches: --allow PATH shows it more",
                f"variables it does not get without --env NAME: {_enumerate(withheld(os.environ, command.variables))}",
            ]
        return lines


def _link_go_cache(folder: Path) -> Path:
    """A new folder with links to what the user's cache of Go has, where every command sees it."""
    go_cache = folder / "go-build"
    go_cache.mkdir()
    with suppress(OSError):  # what has no link is compiled again
        for source in (Path.home() / ".cache/go-build").glob("??"):
            (go_cache / source.name).mkdir()
            for entry in os.scandir(source):
                os.symlink(entry.path, go_cache / source.name / entry.name)
    return go_cache


def _enumerate(names: Sequence[str]) -> str:
    """The first names, and how many more there are; "none" if there are no names."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return (", ".join(names[:_MAX_NAMES]) or "none") + more


OpenCopy = Callable[..., AbstractContextManager[Copy]]  # `open_copy`, or what gives one copy to several callers


@contextmanager
def open_copy(repository: Repository, *, sandboxed: bool) -> Iterator[Copy]:
    """A copy in the temporary folder, removed at the end. Raises `sandbox_missing`, `git_failed`, `disk_full` and, for
    other failed writes, `write_broken`.
    """
    if sandboxed and run.find_bubblewrap() is None:
        raise MidfillError("sandbox_missing", "bubblewrap is not installed or does not work here")
    with scratch_folder() as folder:
        yield Copy(repository, folder, sandboxed=sandboxed)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, removed at the end, with a lock that the kernel frees however its process ends."""
    remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    (folder / _LOCK).touch(0o600)
    with locked(folder / _LOCK):
        try:
            yield folder
        finally:
            with suppress(OSError):
                remove(folder)


def remove_leftovers() -> None:
    """Removes scratch folders that killed processes of this user left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # includes the BlockingIOError of `locked` while the owner lives
            status = folder.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > _YOUNG_S:
                with suppress(FileNotFoundError), locked(folder / _LOCK):
                    pass
                remove(folder)
