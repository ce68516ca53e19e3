"""What the commands of `midfill refactor` share: exit codes, the run they mean, remarks. Prints no results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from midfill_infill.cli.failures import report_failures
from midfill_infill.errors import (
    ASKED_WRONGLY,
    DISK_TROUBLE,
    ENGINE_TROUBLE,
    FILE_TROUBLE,
    MODEL_TROUBLE,
    OF_REPOSITORIES,
    REFUSED,
    SOME_FAILED,
    TABLE,
    VERIFY_FAILED,
    MidfillError,
)
from midfill_infill.text.visible import plural as plural
from midfill_infill.text.visible import visible

if TYPE_CHECKING:
    from midfill_infill.refactor.journal.journal import Journal
    from midfill_infill.refactor.journal.places import Repository
    from midfill_infill.refactor.journal.records import Trouble

RootOption = Annotated[Path, typer.Option("--root", metavar="DIR", help="A folder of the repository.")]
RunOption = Annotated[str | None, typer.Option("--run", metavar="ID", help="The run, by the start of its id.")]

_ASKED: Final = ("file_missing", "file_is_directory")
_WORST_FIRST: Final = (DISK_TROUBLE, REFUSED, VERIFY_FAILED, SOME_FAILED)


def exit_code(code: str) -> int:
    """0 done, 1 pending, 2 asked wrongly, 3 some holes failed, 4 verify failed, 5 refused, 6 disk, 130 interrupted."""
    found = TABLE[code].exit_code
    if code in OF_REPOSITORIES:
        return found
    if code in _ASKED or found == MODEL_TROUBLE:
        return ASKED_WRONGLY
    return {FILE_TROUBLE: DISK_TROUBLE, ENGINE_TROUBLE: SOME_FAILED}.get(found, found)


@contextmanager
def reported() -> Iterator[None]:
    """Ends a command with one sentence and this group's exit code."""
    with report_failures():
        try:
            yield
        except MidfillError as error:
            say(f"midfill: {error.sentence}")
            raise typer.Exit(exit_code(error.code)) from None
        except KeyboardInterrupt:
            say("midfill: interrupted; run the command again to go on.")
            raise typer.Exit(130) from None


def open_run(root: Path, run: str | None, *, read_only: bool = False) -> tuple[Repository, Journal]:
    """The place around `root` and the journal of its latest run, or the one named."""
    from midfill_infill.refactor.journal.journal import Journal
    from midfill_infill.refactor.journal.places import find_place

    place = find_place(root)
    return place, Journal(place.find_run(run), read_only=read_only)


def tell(troubles: Sequence[Trouble], *, verify_failed: bool = False, most: int = 20) -> None:
    """Prints troubles on stderr and ends the command with the worst code of all; does nothing without any."""
    for trouble in troubles[:most]:
        error = MidfillError(trouble.code, trouble.message)
        say(f"midfill: {error.sentence}")
    if len(troubles) > most:
        say(f"midfill: and {len(troubles) - most} more")
    codes = {exit_code(trouble.code) for trouble in troubles} | ({VERIFY_FAILED} if verify_failed else set())
    for code in _WORST_FIRST:
        if code in codes:
            raise typer.Exit(code)
    if codes:
        raise typer.Exit(max(codes))


def say(text: str) -> None:
    """A remark for a person, on stderr."""
    print(visible(text), file=sys.stderr, flush=True)
