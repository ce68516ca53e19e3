"""Runs the user's command in a copy of a tree, and explains why it failed. Knows no fill."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.places import Repository
from midfill_infill.sandbox import environment, run
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.inventory import take_inventory
from midfill_infill.sandbox.leftovers import scratch_folder
from midfill_infill.sandbox.mirror import Mirror
from midfill_infill.sandbox.run import Outcome
from midfill_infill.sandbox.view import Access

# Of a command that fails without fills: lines of its output, and names of what it did not get.
_LINES: Final = 12
_NAMED: Final = 12


class Copy:
    """Every run finds the tree as it was when the copy was made, with what was written into the copy since."""

    def __init__(self, place: Repository, folder: Path, *, sandboxed: bool = True) -> None:
        """Copies the tree into `folder`, where callers may keep files of their own. See `open_copy` for errors."""
        self.place, self.root, self.folder, self.sandboxed = place, place.root, folder, sandboxed
        inventory = take_inventory(place)
        self.left_out = inventory.left_out
        self._shown = tuple(place.root / name for name in inventory.shown) + tuple(inventory.targets)
        self.mirror = Mirror(place.root, folder)
        if sandboxed and place.git_dir is not None and (place.root / ".git").is_dir():
            inventory.folders.insert(0, ".git")
        unreadable = self.mirror.take(inventory.folders, inventory.files)
        self.left_out += [f"{name} (not readable)" for name in unreadable]
        if not sandboxed:
            for name in inventory.shown:
                if Path(name).name != ".git":
                    self.mirror.link(name, place.root / name)

    def access(self, command: Command) -> Access:
        return Access(self._shown, command.allowed, self.place.git_folders, command.variables, command.folder)

    def put(self, files: Mapping[str, bytes]) -> None:
        """Undoes what the last run did; the next one finds `files`, by their names below the root."""
        self.mirror.reset()
        for name, data in files.items():
            self.mirror.write(name, data)
        self.mirror.settle()

    def run(self, command: Command) -> Outcome:
        """Raises `bad_request` where the command cannot be started."""
        try:
            return run.run(
                command.words,
                self.mirror.work,
                command.limits,
                sandboxed=self.sandboxed,
                copy_of=self.root,
                access=self.access(command),
            )
        except OSError as error:
            said = f"{command.words[0]} cannot be run ({error.strerror})"
            raise MidfillError("bad_request", said, "give another command") from None

    def explain(self, command: Command, failed: Outcome) -> list[str]:
        """The end of what was printed, and what the command did not get."""
        said = [f"  {line}" for line in failed.output.rstrip().splitlines()[-_LINES:]]
        if self.left_out:
            said.append(f"not in its copy: {_some(self.left_out)}")
        if self.sandboxed:
            names = environment.withheld(os.environ, command.variables)
            said.append("it has no network, and no files of yours but the copy: --allow PATH shows it one")
            said.append(f"variables it does not get without --env NAME: {_some(names)}")
        return said


@contextmanager
def open_copy(place: Repository, *, sandboxed: bool) -> Iterator[Copy]:
    """A copy in the temporary folder, removed at the end. Raises `sandbox_missing`, `disk_full` and `git_failed`."""
    if sandboxed and run.find_bubblewrap() is None:
        raise MidfillError("sandbox_missing", "bubblewrap is not installed or does not work here")
    with scratch_folder() as folder:
        yield Copy(place, folder, sandboxed=sandboxed)


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) or "none") + rest
