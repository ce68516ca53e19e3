"""Runs `midfill fill`: finds the holes, fills them, shows a diff or JSON, writes the file. A shell around fill.py."""

import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from midfill_infill.cli import results as show
from midfill_infill.cli.results import Results, ask_before, choose, hold_back
from midfill_infill.cli.view import FillView, can_draw
from midfill_infill.engines import offer
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.supervise import EngineSettings
from midfill_infill.errors import MidfillError
from midfill_infill.filling import written
from midfill_infill.filling.fill import Filled, Options, Preview, fill, propose_fill
from midfill_infill.filling.opening import open_engine
from midfill_infill.filling.targets import HoleOptions, Source, choose_holes
from midfill_infill.filling.wishes import tell_left_out
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

if TYPE_CHECKING:
    from midfill_infill.until.trying import Goal


@dataclass(frozen=True)
class Output:
    """The options that say where the fill goes, and whether it may go there. `take` is the rank of the candidate to
    show or write. `frame_s` is the least time for which a step is shown.
    """

    write: bool = False
    json: bool = False
    frame_s: float = 0.0
    diff: bool = False
    take: int | None = None
    yes: bool = False
    allow_errors: bool = False
    min_certainty: float | None = None

    def replaces(self, source: Source) -> bool:
        """True if the fill replaces the user's text without being shown first."""
        return self.write or self.is_filter(source)

    def is_filter(self, source: Source) -> bool:
        """True if the command reads a text from standard input and prints the filled text."""
        return source.is_stdin and not self.diff and not self.json


def run_fill(
    source: Source,
    choice: HoleOptions,
    settings: EngineSettings,
    options: Options,
    output: Output,
    goal: "Goal | None" = None,
) -> None:
    """Runs the command. Raises MidfillError, and typer.Exit if a fill was made but is not written."""
    started_s = time.perf_counter()
    if output.write and source.is_stdin:
        raise MidfillError("bad_request", "standard input cannot be written", "leave out --write")
    if output.write:  # better refused now than after the fill
        from midfill_infill.repository.replace import check_replaceable

        with suppress(OSError):  # it is reported when the file is written
            check_replaceable(source.target.path)
    holes = choose_holes(source.document, source.target, choice)
    ask_before(source.document, holes, replaces=output.replaces(source), yes=output.yes)
    tried = None
    is_live = not output.json and goal is None
    with (
        open_view(source.document, holes, options, live=is_live, frame_s=output.frame_s) as view,
        open_engine(source.document, settings, options, view.note) as (client, completed),
    ):
        if goal is None:
            filled = _fill(source.document, holes, completed, client, view)
        else:
            from midfill_infill.cli.until import try_candidates

            tried = try_candidates(source, holes, goal, completed, client, quiet=output.json)
            filled = tried.filled
    wall_ms = (time.perf_counter() - started_s) * 1000
    remark = tell_left_out(filled.model, filled.left_out)
    if remark is not None:
        print(f"midfill: {remark}", file=sys.stderr)
    results = Results(source.target.path, source.document, filled, tried=tried).take(output.take or 1)
    final = output  # with what a test or a person has decided
    if tried is not None:
        final = replace(output, take=1, min_certainty=0.0, write=output.write and tried.passed)
    num_made = len(results.candidates)
    if tried is None and num_made < options.n:
        remark = f"only {num_made} of {options.n} fills differ and do something; --seed draws others"
        print(f"midfill: {remark}", file=sys.stderr)
    is_shown = _can_choose(results, source, final)
    if is_shown:
        number, write = choose(results)
        results = results.take(number)
        final = replace(final, write=write, min_certainty=0.0)
    refusal = None
    if final.replaces(source):
        results, refusal = hold_back(results, allow_errors=final.allow_errors, min_certainty=final.min_certainty)
    is_refused = refusal is not None and results.is_held_back
    try:
        if not is_refused:
            _write(results, source, final, is_accepted=is_shown or tried is not None)
        _print(results, source, final, wall_ms, is_shown=is_shown, is_refused=is_refused)
    except BrokenPipeError:  # the reader has seen enough
        raise
    except (KeyboardInterrupt, OSError) as error:
        if not final.write or source.target.path.read_bytes() != results.after():
            raise
        written = f"{source.target.path} is written"
        if isinstance(error, KeyboardInterrupt):
            raise MidfillError("cancelled", "interrupted", written) from None
        raise MidfillError("output_failed", f"the output cannot be written ({error.strerror})", written) from None
    if tried is not None and not tried.passed and goal is not None:
        refusal = MidfillError("until_failed", f"{tried.sentence}: `{goal.command.line}`", tried.next_step)
    if refusal is not None:
        print(f"midfill: {refusal.sentence}", file=sys.stderr)
        raise typer.Exit(refusal.exit_code)


def open_view(
    document: Document, holes: Sequence[Hole], options: Options, *, live: bool, frame_s: float = 0.0
) -> FillView:
    """The view that shows the fill while it runs: redrawn at every step if it is `live` on a terminal. Otherwise it
    only names slow work on stderr.

    Every step stays for at least `frame_s`. If that is set, a `live` view without a terminal prints every step.
    """
    is_drawn = live and can_draw(sys.stdout)
    if not is_drawn and not (live and frame_s):
        return FillView()
    from midfill_infill.cli.live import LiveView, PrintedView  # rich takes a sixth of a warm fill's CPU time

    if not is_drawn:
        return PrintedView(document, holes)
    return LiveView(document, holes, frame_s=frame_s, propose=partial(propose_fill, document, holes, options))


def _fill(
    document: Document, holes: tuple[Hole, ...], options: Options, client: EngineClient, view: FillView
) -> Filled:
    """The result of the fill, whose steps `view` shows."""
    with closing(fill(document, holes, options, client)) as events:
        for event in events:
            if not isinstance(event, Preview):
                return event
            view.show(event)
    raise AssertionError("a fill ends with Filled")


def _can_choose(results: Results, source: Source, output: Output) -> bool:
    """True if there are several candidates, and a person at a terminal who can choose."""
    is_asked = output.take is None and not output.json and not source.is_stdin
    is_person = sys.stdin.isatty() and sys.stdout.isatty()
    return is_asked and is_person and len(results.candidates) > 1


def _write(results: Results, source: Source, output: Output, *, is_accepted: bool) -> None:
    """Writes the file if that is asked for. `is_accepted`: a person chose the fill, or a command passed with it;
    otherwise its lines are remembered as written by Midfill alone.
    """
    if output.write:
        from midfill_infill.repository.replace import write_atomically  # most fills are not written

        write_atomically(source.target.path, source.document.original, results.after())
        texts = [fill.text for fill in results.filled.fills]
        if is_accepted:
            written.forget(texts)
        else:
            written.remember(texts)


def _print(
    results: Results, source: Source, output: Output, wall_ms: float, *, is_shown: bool, is_refused: bool
) -> None:
    """Prints the results as the options want: JSON, diffs, or the filled text; then the remarks. `is_shown`: a person
    has seen the diffs already.
    """
    is_written = output.write and not is_refused
    if output.json:
        show.print_json(results, wall_ms=wall_ms, written=is_written)
    elif not output.is_filter(source):
        if not is_shown:
            show.show_diff(results, 1)
            if output.take is None and not output.write:
                for number in range(2, len(results.candidates) + 1):
                    show.show_diff(results, number)
    elif not is_refused:
        show.write_bytes(results.after())
    is_for_person = sys.stderr.isatty() and not output.json and not output.is_filter(source)
    show.print_remarks(results, written=is_written, is_refused=is_refused, wall_ms=wall_ms, for_person=is_for_person)
    if is_for_person and (sentence := offer.offer(results.filled.model)) is not None:
        print(f"midfill: {sentence}", file=sys.stderr)
