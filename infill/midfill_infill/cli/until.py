"""`midfill fill --until`: candidates tried by a command of the user's, a line a try. A shell around until/."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from midfill_infill.cli.view import can_draw
from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import describe_certainty
from midfill_infill.filling.fill import Options, Preview, fill
from midfill_infill.filling.targets import Source
from midfill_infill.sandbox.command import Command, read_command, read_words
from midfill_infill.text.spans import Hole
from midfill_infill.text.visible import visible
from midfill_infill.until.choosing import place_tests
from midfill_infill.until.lab import FIRST_S, open_lab
from midfill_infill.until.trying import Goal, Tried, Try

WIDTH = 44  # of a candidate's first line


def read_goal(
    line: str,
    tries: int,
    timeout_s: float | None,
    sandboxed: bool,
    allow: Sequence[Path] | None,
    env: Sequence[str] | None,
) -> Goal:
    """Parses the options of --until. Raises MidfillError for an invalid command."""
    command = read_command(line, timeout_s or FIRST_S, sandboxed=sandboxed, allow=allow, env=env)
    return Goal(command, tries, timeout_s)


def warn_of(command: Command) -> None:
    if not command.sandboxed:
        print("without a sandbox: the command, and every fill it runs, can do whatever you can", file=sys.stderr)
    for name in command.variables:
        if "=" not in name and name not in os.environ:
            print(f"--env {name}: the variable is not set, so the command does not get it", file=sys.stderr)


def try_candidates(
    source: Source, holes: tuple[Hole, ...], goal: Goal, options: Options, client: EngineClient, *, quiet: bool
) -> Tried:
    """Prints the result of each try on stderr, unless `quiet`, and what is remarkable about the command. Raises
    MidfillError.
    """
    if source.is_stdin:
        raise MidfillError("bad_request", "a command cannot test standard input", "name a file of the tree")
    line = place_tests(goal.command.line, source.target.path, [hole.name for hole in holes], Path.cwd())
    command = replace(goal.command, words=read_words(line))
    if not quiet:
        warn_of(goal.command)
    with (
        open_lab(source.document, source.target.path, command, Path.cwd()) as lab,
        _meter(goal.num_tries, quiet=quiet) as say,
    ):
        make, holes = partial(fill, client=client), lab.find_examples(holes)
        with closing(lab.fill(holes, options, make, goal.num_tries, say, timeout_s=goal.timeout_s)) as events:
            for event in events:
                if isinstance(event, Tried):
                    return event
                say(event)
    raise AssertionError("it ends with Tried")


@contextmanager
def _meter(num_tries: int, *, quiet: bool) -> Iterator[Callable[[Preview | Try | str], None]]:
    """Prints one line per try or remark, and on a terminal a progress bar below, which tells whether candidates are
    drafted or tried. `quiet` leaves only the remarks.
    """
    if quiet or not can_draw(sys.stderr):

        def print_line(remark: Preview | Try | str) -> None:
            if isinstance(remark, str) or (isinstance(remark, Try) and not quiet):
                print(_show(remark), file=sys.stderr, flush=True)

        yield print_line
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
            task = progress.add_task("the tree as it is", total=num_tries)

            def say(remark: Preview | Try | str) -> None:
                if isinstance(remark, Preview):
                    progress.update(task, description="drafts")
                    return
                if isinstance(remark, str):
                    console.print(_show(remark), style="yellow", markup=False, soft_wrap=True)
                    return
                style = {"passed": "green", "failed": "red"}.get(remark.ran.verdict, "yellow")
                console.print(_show(remark), style=style, markup=False, soft_wrap=True)
                progress.update(task, completed=remark.number, description="tries")

            yield say


def _show(one: Try | str) -> str:
    """A remark, or a try as `try 3  failed  0.21 s  a suggestion (exact in 34%)  return price  # assert 10 == 90`."""
    if isinstance(one, str):
        return f"midfill: {one}"
    lines = "\n".join(fill.text for fill in one.candidate.fills).strip().split("\n")
    first = visible(lines[0])[:WIDTH]
    if len(lines) > 1 or len(lines[0]) > WIDTH:
        first += " ..."
    known = describe_certainty(one.candidate.certainty, is_suggestion=one.candidate.is_suggestion)
    row = f"try {one.number:<3} {one.ran.verdict:<11} {one.ran.seconds:6.2f} s  {known:<27} {first}"
    if one.ran.reason and not one.ran.is_good:
        row += f"  # {visible(one.ran.reason)[:100]}"
    return row
