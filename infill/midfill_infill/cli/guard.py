"""What stands between a fill and a file: a question before a large body goes, a refusal of what does not parse."""

import sys
from collections.abc import Sequence
from dataclasses import replace

import typer

from midfill_infill.candidates import LIKELY, describe_certainty
from midfill_infill.cli.results import Results, errors_of
from midfill_infill.errors import MidfillError
from midfill_infill.syntax.size import find_large, measure
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_infill.text.visible import plural, visible


def ask_before(document: Document, holes: Sequence[Hole], *, replaces: bool, yes: bool) -> None:
    """Says on stderr how much goes where it is much; asks where that is to be written and `yes` was not given.

    Raises MidfillError `large_hole` where the answer is no, or nobody can be asked.
    """
    large = find_large(document, holes)
    if not large or yes:
        return
    what = f"this replaces {', and '.join(_describe(document, hole) for hole in large)} "
    if not replaces or not (sys.stdin.isatty() and sys.stderr.isatty()):
        if replaces:
            raise MidfillError("large_hole", what)
        print(f"midfill: {visible(what)}", file=sys.stderr)
    elif not typer.confirm(f"{visible(what)}. Go on?", err=True):
        raise MidfillError("large_hole", "not confirmed, nothing was written")


def _describe(document: Document, hole: Hole) -> str:
    taken = measure(document, hole)
    last, _ = document.position_at(max(hole.start_byte, hole.end_byte - 1))
    place = f"{document.where(hole.start_byte)} to {last}"
    return f"{taken.num_lines} of {taken.of_lines} lines ({place}{f', {hole.name}' if hole.name else ''})"


def hold_back(results: Results, *, allow_errors: bool, least: float | None) -> tuple[Results, MidfillError | None]:
    """Takes fills out of what is put in place, and says why: all that come with syntax errors, and those less certain
    than `least`, which is by default what is called likely. An engine that does not say how certain it is is believed.
    """
    best, least = results.filled.best, LIKELY if least is None else least
    if best.new_errors and not allow_errors:
        message = f"the fill {errors_of(best)}, {visible(str(results.path))} is not written"
        return replace(results, held_back=frozenset(range(len(best.fills)))), MidfillError("fill_broken", message)
    doubted = {at: each for at, each in enumerate(best.fills) if each.certainty is not None and each.certainty < least}
    if not doubted:
        return results, None
    known = ", ".join(
        f"{results.document.where(fill.hole.start_byte)} {describe_certainty(fill.certainty)}"
        for fill in doubted.values()
    )
    message = f"{len(doubted)} of {plural(len(best.fills), 'fill')} not written: {visible(known)}"
    return replace(results, held_back=frozenset(doubted)), MidfillError("fill_doubtful", message)
