"""`midfill refactor status`, `runs`, `export`, `check`, `recipes`: print what runs and trees hold. Write no tree."""

import json
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from midfill_infill.cli.options import flag, option
from midfill_infill.cli.refactor.common import RootOption, RunOption, open_run, plural, reported, say
from midfill_infill.cli.refactor.plan import QueryOption, RecipeOption, print_left_out, read_selection
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import WRITTEN, State
from midfill_infill.refactor.journal.runs import delete_run, find_run, journal_of, list_runs
from midfill_infill.refactor.planning.plan import Planning, Request
from midfill_infill.refactor.planning.recipes import REGISTRY
from midfill_infill.refactor.reporting import export
from midfill_infill.repository.replace import write_atomically
from midfill_infill.repository.roots import find_repository
from midfill_infill.text.visible import encodable, visible


def status_command(
    root: RootOption = Path("."),
    run: RunOption = None,
    json_output: Annotated[bool, flag("--json", "Print one JSON object.")] = False,
) -> None:
    """Show where the holes of a run stand."""
    with reported():
        with open_run(root, run) as (place, journal):
            facts = {"root": encodable(str(place.root)), **_describe_run(journal)}
        if json_output:
            print(json.dumps(facts))
            return
        print(visible(f"run {facts['run']} of {facts['root']}, planned {facts['planned_at']}: {facts['selected']}"))
        for state, number in facts["holes"].items():
            print(f"{number:>9} {state}")
        if facts["unsettled_writes"]:
            writes = plural(facts["unsettled_writes"], "write")
            print(f"{writes} interrupted; `midfill refactor apply` or `undo` completes it")


def _describe_run(journal: Journal) -> dict[str, Any]:
    """A run for JSON: id, date, the options of `plan` that selected its holes, how many are in each state."""
    counts = journal.counts()
    options: list[str] = []
    selection = {**(journal.get_meta("selection") or {}), "intent": journal.get_meta("intent")}
    for name, value in selection.items():
        for word in value if isinstance(value, list) else [value] if value else []:
            flag = f"--{name.removesuffix('s') if name == 'names' else name}"
            options.append(flag if word is True else f"{flag} {shlex.quote('...' if name == 'query' else word)}")
    return {
        "run": journal.get_meta("run"),
        "planned_at": journal.get_meta("planned_at"),
        "selected": " ".join(options),
        "holes": {str(state): counts[state] for state in sorted(counts, key=lambda state: -counts[state])},
        "unsettled_writes": len(journal.unsettled_writes()),
    }


def runs_command(
    root: RootOption = Path("."),
    delete: Annotated[list[str] | None, option("ID", "Delete this run, by the start of its id. Repeatable.")] = None,
    keep: Annotated[
        int | None, option("N", "Keep the latest N runs and those with fills in their files; delete the others.", min=0)
    ] = None,
    json_output: Annotated[bool, flag("--json", "Print one JSON object per run.")] = False,
) -> None:
    """List the runs, the oldest first, or delete some. What a deleted run has written stays, and cannot be undone."""
    with reported():
        place = find_repository(root)
        runs = [journal_of(place, run_id) for run_id in list_runs(place)]
        if not runs:
            say("there is no run: `midfill refactor plan` makes one")
        is_deleting = delete is not None or keep is not None
        named = [find_run(place, run_id) for run_id in delete or ()]
        if is_deleting:
            old = runs[: len(runs) - keep] if keep is not None and keep < len(runs) else []
            runs = list(dict.fromkeys([*old, *named]))
        for path in runs:
            try:
                with Journal(path, read_only=True) as journal:
                    facts = _describe_run(journal)
            except MidfillError as error:
                if error.code not in ("run_damaged", "run_version"):
                    raise
                facts = {"run": path.parent.name, "error": error.message}
                why = error.message if error.code == "run_version" else ""
            else:
                num_written = sum(facts["holes"].get(str(state), 0) for state in WRITTEN)
                why = f"`undo` needs it for {plural(num_written, 'fill')}" if num_written else ""
            if is_deleting and why and path not in named:
                say(f"kept {path.parent.name}, because {why}; --delete ID deletes it all the same")
                continue
            if is_deleting and facts.get("unsettled_writes"):
                message = f"run {path.parent.name} was interrupted while it wrote"
                raise MidfillError("tree_locked", message, "run `midfill refactor apply` or `undo` for it first")
            if is_deleting:
                delete_run(path)
            print(json.dumps(facts) if json_output else visible(_word_run(facts, "deleted " if is_deleting else "")))


def _word_run(facts: dict[str, Any], before: str) -> str:
    if "error" in facts:
        return f"{before}{facts['run']}: {facts['error']}"
    holes = ", ".join(f"{number} {state}" for state, number in facts["holes"].items())
    interrupted = f", {plural(facts['unsettled_writes'], 'write')} interrupted" if facts["unsettled_writes"] else ""
    return f"{before}{facts['run']}, planned {facts['planned_at']}, {facts['selected']}: {holes}{interrupted}"


def export_command(
    root: RootOption = Path("."),
    run: RunOption = None,
    form: Annotated[str, option("FORM", "patch or jsonl.", "--format")] = "patch",
    out: Annotated[Path | None, option("FILE", "Write to this file, not to stdout.")] = None,
    take_all: Annotated[bool, flag("--all", "Include unreviewed fills without errors, also suggestions.")] = False,
) -> None:
    """Print what `apply` would write or has written. Either a patch for `git apply`, or every hole as data."""
    with reported():
        states = list(export.CHOSEN)
        if take_all:
            states.append(State.GENERATED)
        with open_run(root, run) as (_, journal):
            if form == "patch":
                if not any(journal.counts().get(state) for state in states):
                    say("no fill is accepted or written, so the patch is empty; --all takes unreviewed ones, too")
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
        for file in files or ():
            if not os.path.lexists(file):
                raise MidfillError("file_missing", f"{file} does not exist")
        findings = export.check(find_repository(root), request, planning)
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
