"""`midfill refactor apply`, `verify` and `undo`: write the user's files. Shells around refactor/."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

from midfill_infill.cli import options
from midfill_infill.cli.options import flag, option
from midfill_infill.cli.refactor.common import RootOption, RunOption, open_run, plural, report_troubles, reported, say
from midfill_infill.cli.until import warn_of
from midfill_infill.errors import MidfillError
from midfill_infill.filling import written
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import WRITTEN, HoleRow, State, Trouble
from midfill_infill.refactor.journal.runs import hold_lock, state_folder
from midfill_infill.refactor.verifying.verify import verify
from midfill_infill.refactor.writing.apply import Writer, written_holes
from midfill_infill.refactor.writing.bisecting import Verdict
from midfill_infill.refactor.writing.reopening import note_put_back, reopen_stale
from midfill_infill.repository.roots import Repository
from midfill_infill.sandbox.command import Command, read_command
from midfill_infill.until.lab import FIRST_S

_LONGEST_S: Final = 600.0  # the time limit of a run by default
FlakeOption = Annotated[
    int, option("N", "Run the command this often at start and end.", "--flake-check", min=1, max=100)
]


@contextmanager
def _writing(root: Path, run: str | None, doing: str, **guards: bool) -> Iterator[tuple[Repository, Journal, Writer]]:
    """Opens a run for the command `doing`, and holds the locks of the run and of the repository. Yields a writer, which
    has completed the writes that a crash left open; says so, and which fills are no longer in their files. `guards` are
    the options of `Writer`.
    """
    with open_run(root, run, doing) as (place, journal), hold_lock(state_folder(place) / "lock", doing):
        writer = Writer(journal, place.root, **guards)
        completed = writer.recovered
        if completed.num_files:
            holes, files = plural(len(completed.holes), "hole"), plural(completed.num_files, "file")
            say(f"completed what an interrupted command had begun: {holes} in {files}")
        num_put_back = note_put_back(journal, place.root)
        if num_put_back:
            fills = plural(num_put_back, "fill")
            say(f"{fills} undone by other means, as by `git stash`: the old text is back in the file")
        yield place, journal, writer


def apply_command(
    root: RootOption = Path("."),
    run: RunOption = None,
    take_all: Annotated[bool, flag("--all", "Include unreviewed or undone fills that add no syntax error.")] = False,
    min_certainty: options.MinCertaintyOption = None,
    hole: Annotated[list[int] | None, option("N", "Only this hole, by number. Repeatable.")] = None,
    command: Annotated[str | None, option("COMMAND", "Test first, and write only what passes.", "--verify")] = None,
    timeout_s: options.TimeoutOption = None,
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
            limit_s = timeout_s or _LONGEST_S
            test = read_command(command, limit_s, flake_runs=flake_check, sandboxed=sandbox, allow=allow, env=env)
        guards = {"allow_dirty": allow_dirty, "include_generated": include_generated}
        with _writing(root, run, "apply", **guards) as (place, journal, writer):
            reopen_stale(journal, place.root)
            rows = _choose(journal, take_all, hole or (), min_certainty)
            writer.guard(rows, is_git=place.git_dir is not None)
            has_guilty = False
            troubles: list[Trouble] = []
            if test is not None:
                suspects = [*journal.holes_in(*WRITTEN), *rows]
                verdict, troubles = _verify(place, journal, writer, suspects, test, is_timed=timeout_s is not None)
                good = set(verdict.good)
                rows = [row for row in rows if row.id in good]
                has_guilty = bool(verdict.guilty)
            unseen = [row.id for row in rows if row.state is not State.ACCEPTED and test is None]
            journal.accept(rows)
            report = writer.apply([journal.hole(row.id) for row in rows], is_git=place.git_dir is not None)
            written.remember(journal.texts_of(unseen, State.APPLIED))
            counts = journal.counts()
            num_left = counts.get(State.GENERATED, 0)
            num_undone = counts.get(State.UNDONE, 0)
            num_planned = counts.get(State.PLANNED, 0)
            num_sound = len(journal.acceptable())
            num_broken = num_left - num_sound
            num_doubtful = num_sound - len(journal.acceptable(min_certainty=min_certainty))
        done = f"{plural(report.count(State.APPLIED), 'hole')} written in {plural(report.num_files, 'file')}"
        if report.num_files:
            done += "; `midfill refactor undo` takes them back"
        say(done)
        if num_broken and take_all:
            broken = plural(num_broken, "fill")
            say(f"{broken} left out, with syntax errors of their own: see `midfill refactor review`")
        if num_doubtful and take_all:
            doubtful = plural(num_doubtful, "fill")
            say(f"{doubtful} left out, suggestions: review them, or give --min-certainty 0 to take all")
        elif num_left and not take_all and not report.holes:
            say(f"{plural(num_left, 'fill')} not reviewed yet: run `midfill refactor review`, or `apply --all`")
        if num_planned and not hole:
            say(f"{plural(num_planned, 'hole')} not filled yet: run `midfill refactor generate`")
        if num_undone and not take_all and not hole:
            say(f"{plural(num_undone, 'fill')} undone: `apply --all` writes them again")
        report_troubles([*troubles, *report.troubles], verify_failed=has_guilty)


def _choose(journal: Journal, take_all: bool, ids: Sequence[int], min_certainty: float | None) -> list[HoleRow]:
    """The holes that `apply` is to write: those with these ids that are not written yet, whose naming accepts them.
    Without ids the accepted ones; `take_all` adds those with a sound fill that are not reviewed or were undone, if it
    is at least as certain as `min_certainty`, for None if it is no suggestion; an undone one was wanted before.

    Raises MidfillError `no_such_hole`.
    """
    if not ids:
        rows = list(journal.holes_in(State.ACCEPTED))
        if take_all:
            rows += journal.acceptable(min_certainty=min_certainty)
            rows += journal.acceptable(State.UNDONE, min_certainty=min_certainty or 0.0)
        return rows
    rows = [row for row in map(journal.hole, dict.fromkeys(ids)) if not row.is_written]
    for row in rows:
        if row.state not in (State.GENERATED, State.ACCEPTED, State.UNDONE):
            raise MidfillError("no_such_hole", f"hole {row.id} is {row.state}, not generated or accepted")
    return rows


def verify_command(
    command: Annotated[str, option("COMMAND", "The command that must pass, such as `pytest -q`.", "--command", "-c")],
    root: RootOption = Path("."),
    run: RunOption = None,
    timeout_s: options.TimeoutOption = None,
    flake_check: FlakeOption = 1,
    sandbox: options.SandboxOption = True,
    allow: options.AllowOption = None,
    env: options.EnvOption = None,
) -> None:
    """Run a command over a copy of the tree, and roll back only the fills it fails with."""
    with reported():
        limit_s = timeout_s or _LONGEST_S
        test = read_command(command, limit_s, flake_runs=flake_check, sandboxed=sandbox, allow=allow, env=env)
        with _writing(root, run, "verify") as (place, journal, writer):
            suspects = list(journal.holes_in(State.ACCEPTED, *WRITTEN))
            verdict, troubles = _verify(place, journal, writer, suspects, test, is_timed=timeout_s is not None)
        report_troubles(troubles, verify_failed=bool(verdict.guilty))


def _verify(
    place: Repository, journal: Journal, writer: Writer, suspects: Sequence[HoleRow], test: Command, *, is_timed: bool
) -> tuple[Verdict, list[Trouble]]:
    """Verifies the fills of `suspects` by the command `test`, rolls back the guilty ones, and prints which. `is_timed`:
    the user has set the time limit.
    """
    warn_of(test)
    if not suspects:
        say("no fill is accepted or written: the command runs without any")
    ids = [row.id for row in suspects]
    verdict, report = verify(place, journal, writer, ids, test, say, first_s=None if is_timed else FIRST_S)
    num_kept, num_out = len(verdict.good), report.count(State.ROLLED_BACK)
    say(f"{num_kept} kept, {num_out} rolled back, {plural(verdict.num_runs, 'run')} of the command")
    guilty = [journal.hole(hole_id) for hole_id in verdict.guilty]
    for hole in sorted(guilty, key=lambda hole: not hole.is_written)[:20]:
        outcome = "still in its file, and the command fails with it" if hole.is_written else "rolled back"
        say(f"{outcome}: {journal.file(hole.file).path}: {hole.name or hole.kind} (hole {hole.id})")
    return verdict, report.troubles


def undo_command(
    root: RootOption = Path("."),
    run: RunOption = None,
    file: Annotated[str | None, option("PATH", "Only this file or folder.")] = None,
    hole: Annotated[list[int] | None, option("N", "Only this hole, by number. Repeatable.")] = None,
) -> None:
    """Put back what stood there before `apply`: of a run, a file or a hole. Needs no git.

    With both --file and --hole, the holes must be in the file.
    """
    with reported():
        with _writing(root, run, "undo") as (place, journal, writer):
            path = None
            if file is not None:
                named = Path(os.path.abspath(Path(os.path.realpath(root)) / file))
                path = os.path.relpath(Path(os.path.realpath(named.parent)) / named.name, place.root)
            report = writer.undo(written_holes(journal, path, hole or ()))
        say(f"{plural(report.count(State.UNDONE), 'hole')} undone in {plural(report.num_files, 'file')}")
        report_troubles(report.troubles)
