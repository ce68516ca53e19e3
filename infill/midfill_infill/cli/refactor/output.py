"""`midfill refactor status`, `export`, `check` and `recipes`: print what runs and trees hold. Writes no tree."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from midfill_infill.cli.options import flag, option
from midfill_infill.cli.refactor.common import RootOption, RunOption, open_run, plural, reported
from midfill_infill.cli.refactor.plan import QueryOption, RecipeOption, print_left_out, read_selection
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.planning.plan import Planning, Request
from midfill_infill.refactor.planning.recipes import REGISTRY
from midfill_infill.refactor.reporting import export
from midfill_infill.repository.places import find_place
from midfill_infill.repository.replace import write_atomically
from midfill_infill.text.visible import visible


def status_command(
    root: RootOption = Path("."),
    run: RunOption = None,
    json_output: Annotated[bool, flag("--json", "Print one JSON object.")] = False,
) -> None:
    """Show where the holes of a run stand."""
    with reported():
        with open_run(root, run) as (place, journal):
            counts = {str(state): number for state, number in journal.counts().items()}
            run_id, planned_at = str(journal.get_meta("run")), journal.get_meta("planned_at")
            num_open = len(journal.unsettled_writes())
        if json_output:
            body = {"run": run_id, "root": str(place.root), "planned_at": planned_at, "holes": counts}
            print(json.dumps({**body, "unsettled_writes": num_open}))
            return
        print(visible(f"run {run_id} of {place.root}, planned {planned_at}"))
        for state in sorted(counts, key=lambda state: -counts[state]):
            print(f"{counts[state]:>9} {state}")
        if num_open:
            print(f"{plural(num_open, 'write')} interrupted; `midfill refactor apply` or `undo` completes it")


def export_command(
    root: RootOption = Path("."),
    run: RunOption = None,
    form: Annotated[str, option("FORM", "patch or jsonl.", "--format")] = "patch",
    out: Annotated[Path | None, option("FILE", "Write to this file, not to stdout.")] = None,
    take_all: Annotated[bool, flag("--all", "Include unreviewed fills that add no syntax error.")] = False,
) -> None:
    """Print what `apply` would write or has written. Either a patch for `git apply`, or every hole as data."""
    with reported():
        states = list(export.CHOSEN)
        if take_all:
            states.append(State.GENERATED)
        with open_run(root, run) as (_, journal):
            if form == "patch":
                _emit(out, (export.patch(one) for one in export.exported(journal, states, 0)))
            elif form == "jsonl":
                _emit(out, (line.encode() + b"\n" for line in export.json_lines(journal)))
            else:
                raise MidfillError("bad_request", f"there is no format {form!r}", "known are patch and jsonl")


def _emit(out: Path | None, pieces: Iterable[bytes]) -> None:
    """Writes bytes to the file `out`, or to standard output for None. Raises MidfillError."""
    if out is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        return
    try:
        if out.is_file():
            return write_atomically(out, out.read_bytes(), b"".join(pieces))
        with open(out, "wb") as file:
            file.writelines(pieces)
    except OSError as error:
        raise MidfillError("write_broken", f"{out} cannot be written ({error.strerror})") from None


def check_command(
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE]...", help="Only these files.")] = None,
    root: RootOption = Path("."),
    query: QueryOption = None,
    recipe: RecipeOption = None,
) -> None:
    """Say what waits to be filled and what a run has not written. Exits with 1 if anything does. Loads no model."""
    with reported():
        selection = read_selection(query, None, query is None and recipe is None, recipe)
        request = Request(selection, folder=root, names=tuple(files) if files else None)
        planning = Planning()
        findings = export.check(find_place(root), request, planning)
        for finding in findings:
            print(finding)
        print_left_out(planning)
        if findings:
            raise typer.Exit(1)


def recipes_command() -> None:
    """List the recipes that `plan --recipe` knows, each with an example."""
    with reported():
        for recipe in REGISTRY.values():
            languages = ", ".join(recipe.languages) or "every language"
            about = f"{recipe.title} ({languages})"
            if recipe.word:
                print(f"{recipe.name}=...: {about}; {recipe.word}")
            else:
                print(f"{recipe.name}: {about}")
