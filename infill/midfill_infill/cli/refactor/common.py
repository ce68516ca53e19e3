"""What the commands of `midfill refactor` share: exit codes, opening a run, remarks. Prints no results."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from midfill_infill import errors
from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.options import option
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import Trouble
from midfill_infill.refactor.journal.runs import find_run, hold_lock, journal_of
from midfill_infill.repository.roots import Repository, find_repository
from midfill_infill.text.visible import plural as plural
from midfill_infill.text.visible import visible

RootOption = Annotated[Path, option("DIR", "A folder of the repository.", "--root")]
RunOption = Annotated[str | None, option("ID", "The run, by the start of its id.", "--run")]

_ASKED_WRONGLY: Final = ("file_missing", "file_is_directory")  # errors about what a command names
_WORST_FIRST: Final = (errors.DISK_TROUBLE, errors.REFUSED, errors.VERIFY_FAILED, errors.SOME_FAILED)
_MAX_TROUBLES: Final = 20  # that are printed


def exit_code(code: str) -> int:
    """The exit code of this group of commands for an error's code: 2 asked wrongly, 3 some holes failed, 4 verify
    failed, 5 refused, 6 disk trouble, 130 interrupted. A command without an error ends with 0, or 1 if something is
    pending.
    """
    usual = errors.TABLE[code].exit_code
    if code in errors.OF_REPOSITORIES:
        return usual
    if code in _ASKED_WRONGLY or usual == errors.MODEL_TROUBLE:
        return errors.ASKED_WRONGLY
    return {errors.FILE_TROUBLE: errors.DISK_TROUBLE, errors.ENGINE_TROUBLE: errors.SOME_FAILED}.get(usual, usual)


reported: Final = partial(report_failures, exit_code=exit_code, after_interrupt="run the command again to go on")
"""As `report_failures`, with the exit codes of this group."""


@contextmanager
def open_run(root: Path, run: str | None, doing: str = "") -> Iterator[tuple[Repository, Journal]]:
    """Opens a run of the repository around `root`: the one whose id begins with `run`, or the latest for None.

    With `doing`, the name of a command, the run is locked for this command and its journal can be written; otherwise
    the journal is read-only.
    """
    place = find_repository(root)
    with Journal(find_run(place, run), read_only=not doing) as journal:
        lock = journal_of(place, str(journal.get_meta("run"))).with_name("lock")
        with hold_lock(lock, doing) if doing else nullcontext():
            yield place, journal


def report_troubles(troubles: Sequence[Trouble], *, verify_failed: bool = False) -> None:
    """Prints troubles on stderr and ends the command with the worst of their exit codes. `verify_failed` counts as one
    more trouble; without any the command goes on.
    """
    for trouble in troubles[:_MAX_TROUBLES]:
        say(f"midfill: {MidfillError(trouble.code, trouble.message, trouble.next_step).sentence}")
    if len(troubles) > _MAX_TROUBLES:
        say(f"midfill: and {len(troubles) - _MAX_TROUBLES} more")
    codes = {exit_code(trouble.code) for trouble in troubles}
    if verify_failed:
        codes.add(errors.VERIFY_FAILED)
    if codes:
        raise typer.Exit(next((code for code in _WORST_FIRST if code in codes), max(codes)))


def say(text: str) -> None:
    """Prints a remark for a person on stderr."""
    print(visible(text), file=sys.stderr, flush=True)
