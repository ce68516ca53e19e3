"""`midfill refactor apply`, `verify` and `undo`: the commands that write files of the user. Shells around refactor/."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from midfill_infill.cli import options
from midfill_infill.cli.options import flag, option
from midfill_infill.cli.refactor.common import RootOption, RunOption, open_run, plural, reported, say, tell
from midfill_infill.cli.until import warn_of
from midfill_infill.errors import MidfillError
from midfill_infill.filling import written
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import HoleRow, State, Trouble
from midfill_infill.refactor.journal.runs import hold_lock, state_folder
from midfill_infill.refactor.verifying.verify import Verdict, verify
from midfill_infill.refactor.writing.apply import Writer, written_holes
from midfill_infill.repository.places import Repository
from midfill_infill.sandbox.command import Command, read_command

FlakeOption = Annotated[
    int, option("N", "Run the command this often at start and end.", "--flake-check", min=1, max=100)
]


@contextmanager
def _writing(root: Path, run: str | None, doing: str, **guards: bool) -> Iterator[tuple[Repository, Journal, Writer]]:
    """Holds the locks of the run and the repository, after completing the writes that a crash left open."""
    with open_run(root, run, doing) as (place, journal), hold_lock(state_folder(place) / "lock", doing):
        yield place, journal, Writer(journal, place.root, **guards)


def apply_command(
    root: RootOption = Path("."),
    run: RunOption = None,
    take_all: Annotated[bool, flag("--all", "Include unreviewed or undone fills that add no syntax error.")] = False,
    min_certainty: options.MinCertaintyOption = None,
    hole: Annotated[list[int] | None, option("N", "Only this hole, by number. Repeatable.")] = None,
    command: Annotated[str | None, option("COMMAND", "Test first, and write only what passes.", "--verify")] = None,
    timeout_s: options.TimeoutOption = 600.0,
    flake_check: FlakeOption = 1,
    sandbox: options.SandboxOption = True,
    allow: options.AllowOption = None,
    env: options.EnvOption = None,
    allow_dirty: Annotated[bool, flag("--allow-dirty", "Include files with uncommitted changes.")] = False,
    include_generated: Annotated[bool, flag("--include-generated", "Include generated files.")] = False,
) -> None:
    """Write accepted fills into their files, each file as a whole or not at all. `undo` takes them out again."""
    with reported():
        test = None
        if command is not None:
            test = read_command(command, timeout_s, flake_runs=flake_check, sandboxed=sandbox, allow=allow, env=env)
        guards = {"allow_dirty": allow_dirty, "include_generated": include_generated}
        with _writing(root, run, "apply", **guards) as (place, journal, writer):
            chosen = _choose(journal, take_all, hole or (), min_certainty)
            writer.guard(chosen, is_git=place.git_dir is not None)
            guilty = False
            troubles: list[Trouble] = []
            if test is not None:
                suspects = [*journal.holes_in(State.APPLIED), *chosen]
                verdict, troubles = _verify(place, journal, writer, suspects, test)
                chosen = [row for row in chosen if row.id in set(verdict.good)]
                guilty = bool(verdict.guilty)
            unseen = [row.id for row in chosen if row.state is not State.ACCEPTED and test is None]
            journal.accept(chosen)
            report = writer.apply([journal.hole(row.id) for row in chosen], is_git=place.git_dir is not None)
            written.add(journal.texts_of(unseen, State.APPLIED))
            counts = journal.counts()
            left, undone = counts.get(State.GENERATED, 0), counts.get(State.UNDONE, 0)
            sound = len(journal.acceptable())
            broken, doubted = left - sound, sound - len(journal.acceptable(min_certainty=min_certainty))
        done = f"{plural(report.count(State.APPLIED), 'hole')} written in {plural(report.num_files, 'file')}"
        if report.num_files:
            done += "; `midfill refactor undo` takes them back"
        say(done)
        if broken and take_all:
            say(f"{plural(broken, 'fill')} left out, with syntax errors of their own: see `midfill refactor review`")
        if doubted and take_all:
            say(f"{plural(doubted, 'fill')} left out, suggestions: review them, or give --min-certainty 0 to take all")
        elif left and not take_all and not report.holes:
            say(f"{plural(left, 'fill')} not reviewed yet: run `midfill refactor review`, or `apply --all`")
        if undone and not take_all and not report.holes:
            say(f"{plural(undone, 'fill')} undone: `apply --all` writes them again")
        tell([*troubles, *report.troubles], verify_failed=guilty)


def _choose(journal: Journal, take_all: bool, numbers: Sequence[int], least: float | None) -> list[HoleRow]:
    """The holes that `apply` is asked for and has not written; of those that nobody has seen, of certainty `least` on,
    by default all but the suggestions.

    Naming one accepts it. Raises `no_such_hole`.
    """
    if not numbers:
        chosen = list(journal.holes_in(State.ACCEPTED))
        if take_all:
            chosen += journal.acceptable(State.GENERATED, State.UNDONE, min_certainty=least)
        return chosen
    rows = [row for number in dict.fromkeys(numbers) if not (row := journal.hole(number)).is_written]
    for row in rows:
        if row.state not in (State.GENERATED, State.ACCEPTED, State.UNDONE):
            raise MidfillError("no_such_hole", f"hole {row.id} is {row.state}, not generated or accepted")
    return rows


def verify_command(
    command: Annotated[str, option("COMMAND", "The command that must pass, such as `pytest -q`.", "--command", "-c")],
    root: RootOption = Path("."),
    run: RunOption = None,
    timeout_s: options.TimeoutOption = 600.0,
    flake_check: FlakeOption = 1,
    sandbox: options.SandboxOption = True,
    allow: options.AllowOption = None,
    env: options.EnvOption = None,
) -> None:
    """Run a command over a copy of the tree, and roll back only the fills it fails with."""
    with reported():
        test = read_command(command, timeout_s, flake_runs=flake_check, sandboxed=sandbox, allow=allow, env=env)
        with _writing(root, run, "verify") as (place, journal, writer):
            suspects = list(journal.holes_in(State.ACCEPTED, State.APPLIED))
            verdict, troubles = _verify(place, journal, writer, suspects, test)
        tell(troubles, verify_failed=bool(verdict.guilty))


def _verify(
    place: Repository, journal: Journal, writer: Writer, suspects: Sequence[HoleRow], test: Command
) -> tuple[Verdict, list[Trouble]]:
    warn_of(test)
    verdict, report = verify(place, journal, writer, [row.id for row in suspects], test, say)
    kept, guilty = len(verdict.good), len(verdict.guilty)
    say(f"{kept} kept, {guilty} rolled back, {plural(verdict.num_runs, 'run')} of the command")
    for number in verdict.guilty[:20]:
        hole = journal.hole(number)
        say(f"rolled back: {journal.file(hole.file).path}: {hole.name or hole.kind} (hole {hole.id})")
    return verdict, report.troubles


def undo_command(
    root: RootOption = Path("."),
    run: RunOption = None,
    file: Annotated[str | None, option("PATH", "Only this file or folder.")] = None,
    hole: Annotated[list[int] | None, option("N", "Only this hole, by number. Repeatable.")] = None,
) -> None:
    """Put back what stood there before `apply`: of a run, a file or a hole. Needs no git."""
    with reported():
        with _writing(root, run, "undo") as (place, journal, writer):
            path = None if file is None else os.path.relpath(Path(os.path.realpath(root)) / file, place.root)
            report = writer.undo(written_holes(journal, path, hole or ()))
        say(f"{plural(report.count(State.UNDONE), 'hole')} undone in {plural(report.num_files, 'file')}")
        tell(report.troubles)
