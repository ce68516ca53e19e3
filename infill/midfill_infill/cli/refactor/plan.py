"""`midfill refactor plan`: from options to a run that waits to be generated."""

import json
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from midfill_infill.cli.options import ChangedCommand, flag, option
from midfill_infill.cli.refactor.common import plural, reported, say
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.runs import delete_run
from midfill_infill.refactor.planning.plan import Planning, Request, find_holes, make_run
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.repository.git import split_names
from midfill_infill.repository.roots import Repository, find_repository
from midfill_infill.text.visible import encodable

QueryOption = Annotated[
    Path | None, option("FILE.scm", "A tree-sitter query: fill @fill, show the model @context.", "--query")
]
RecipeOption = Annotated[
    str | None, option("NAME[=WORD]", "A ready-made selection; see `midfill refactor recipes`.", "--recipe")
]


SETTINGS: Final = {"cls": ChangedCommand}  # of typer's command, read by `cli/lazy.py`


def plan_command(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder to search.")] = Path("."),
    query: QueryOption = None,
    name: Annotated[
        list[str] | None, option("MODULE:FUNCTION", "Function bodies by name; * and ? are wildcards.")
    ] = None,
    stubs: Annotated[bool, flag("--stubs", "Every function that is only a placeholder.")] = False,
    recipe: RecipeOption = None,
    where: Annotated[
        list[str] | None, option("CONDITION", "Functions by condition: calls NAME, has TODO, no docstring, lines > N.")
    ] = None,
    glob: Annotated[list[str] | None, option("PATTERN", "Only these paths; ! excludes.")] = None,
    changed: Annotated[
        str | None, option("[=REF]", "Only holes on lines changed since a commit (default HEAD).")
    ] = None,
    stdin0: Annotated[bool, flag("--stdin0", "Only files named on stdin, NUL-terminated.")] = False,
    include_generated: Annotated[bool, flag("--include-generated", "Include generated and vendored files.")] = False,
    intent: Annotated[
        str, option("TEXT", "An instruction to the model, shown as a comment above each hole and never written.")
    ] = "",
    seed: Annotated[int, option("N", "0 is the likeliest fill of every hole.", min=0)] = 0,
    dry_run: Annotated[bool, flag("--dry-run", "Print the plan as JSON lines; create no run.")] = False,
) -> None:
    """Find the holes of a repository and make a run of them. Nothing is filled or written yet."""
    with reported():
        repository = find_repository(folder)
        request = Request(
            selection=read_selection(query, name, stubs, recipe, where),
            folder=folder,
            globs=tuple(glob or ()),
            names=tuple(split_names(sys.stdin.buffer.read())) if stdin0 else None,
            changed_since=changed,
            include_generated=include_generated,
            intent=intent.strip(),
        )
        planning = Planning()  # counts while the plan is made
        if dry_run:
            _print_plan(repository, request, planning)
        else:
            journal = make_run(repository, request, planning, seed)
            if planning.num_holes:
                print(journal.parent.name)  # the run's id
            else:
                delete_run(journal)
        holes, files = plural(planning.num_holes, "hole"), plural(planning.num_files, "file")
        say(f"{holes} in {files}; {plural(planning.num_seen, 'file')} looked at")
        print_left_out(planning)
        if not planning.num_holes and not dry_run:
            raise MidfillError("nothing_planned", "no hole is found, so there is no new run")


def read_selection(
    query: Path | None, names: list[str] | None, stubs: bool, recipe: str | None, where: list[str] | None = None
) -> Selection:
    """The selection that the options describe. Raises MidfillError."""
    text = None
    if query is not None:
        try:
            text = query.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MidfillError("bad_query", f"{query} cannot be read ({error})") from None
    return Selection(stubs=stubs, names=tuple(names or ()), query=text, recipe=recipe, where=tuple(where or ()))


def _print_plan(repository: Repository, request: Request, planning: Planning) -> None:
    for planned in find_holes(repository, request, planning):
        for hole in planned.holes:
            facts = {name: getattr(hole, name) for name in ("name", "kind", "start_byte", "end_byte")}
            print(json.dumps({"file": encodable(planned.path), "language": planned.language, **facts}))


def print_left_out(planning: Planning) -> None:
    """Prints what a plan does not cover: each place that its recipe cannot rewrite, then files by reason."""
    for path, line, reason in planning.unfollowed:
        say(f"not followed, {path}:{line}: {reason}")
    for reason, number in planning.skipped.most_common():
        examples = list(planning.examples[reason])
        if number > len(examples):
            examples.append("...")
        names = ", ".join(examples)
        say(f"left out, {reason}: {number} ({names})")
