"""Shared by the commands of `midfill refactor`: exit codes, opening a run, remarks. Prints no results."""

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
from midfill_infill.repository.places import Repository, find_place
from midfill_infill.text.visible import plural as plural
from midfill_infill.text.visible import visible

RootOption = Annotated[Path, option("DIR", "A folder of the repository.", "--root")]
RunOption = Annotated[str | None, option("ID", "The run, by the start of its id.", "--run")]

_ASKED: Final = ("file_missing", "file_is_directory")
_WORST_FIRST: Final = (errors.DISK_TROUBLE, errors.REFUSED, errors.VERIFY_FAILED, errors.SOME_FAILED)
_MOST_TROUBLES: Final = 20


def exit_code(code: str) -> int:
    """0 done, 1 pending, 2 asked wrongly, 3 some holes failed, 4 verify failed, 5 refused, 6 disk, 130 interrupted."""
    found = errors.TABLE[code].exit_code
    if code in errors.OF_REPOSITORIES:
        return found
    if code in _ASKED or found == errors.MODEL_TROUBLE:
        return errors.ASKED_WRONGLY
    return {errors.FILE_TROUBLE: errors.DISK_TROUBLE, errors.ENGINE_TROUBLE: errors.SOME_FAILED}.get(found, found)


reported: Final = partial(report_failures, exit_code=exit_code, after_interrupt="run the command again to go on")
"""Ends a command of this group with one sentence and an exit code."""


@contextmanager
def open_run(root: Path, run: str | None, doing: str = "") -> Iterator[tuple[Repository, Journal]]:
    """Opens the latest run of the repository around `root`, or the run that `run` names.

    `doing` names the command that writes the journal and locks the run; without it the journal is read-only.
    """
    place = find_place(root)
    with Journal(find_run(place, run), read_only=not doing) as journal:
        lock = journal_of(place, str(journal.get_meta("run"))).with_name("lock")
        with hold_lock(lock, doing) if doing else nullcontext():
            yield place, journal


def tell(troubles: Sequence[Trouble], *, verify_failed: bool = False) -> None:
    """Prints troubles on stderr and ends the command with the worst code of all; does nothing without any."""
    for trouble in troubles[:_MOST_TROUBLES]:
        say(f"midfill: {MidfillError(trouble.code, trouble.message).sentence}")
    if len(troubles) > _MOST_TROUBLES:
        say(f"midfill: and {len(troubles) - _MOST_TROUBLES} more")
    codes = {exit_code(trouble.code) for trouble in troubles}
    if verify_failed:
        codes.add(errors.VERIFY_FAILED)
    if codes:
        raise typer.Exit(next((code for code in _WORST_FIRST if code in codes), max(codes)))


def say(text: str) -> None:
    """Prints a remark for a person on stderr."""
    print(visible(text), file=sys.stderr, flush=True)
