"""What stands between a fill and a file: a question before a large body goes, a refusal of what does not parse."""

import sys
from collections.abc import Sequence

import typer

from midfill_infill.cli.results import Results, errors_of
from midfill_infill.errors import MidfillError
from midfill_infill.syntax.size import find_large, measure
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_infill.text.visible import visible


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


def find_refusal(results: Results) -> MidfillError | None:
    """Why the best candidate is not put in place: it brings in syntax errors."""
    if not results.filled.new_errors:
        return None
    return MidfillError("fill_broken", f"the fill {errors_of(results.filled.best)}, {results.path} is not written")
