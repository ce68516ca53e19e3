"""Presents and guards the candidates of a fill: diffs, JSON, questions, refusals. Starts no fill, writes no file."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import LIKELY, Alternative, PlacedFill, describe_certainty, describe_fill
from midfill_infill.filling.fill import Filled
from midfill_infill.syntax.holes import find_large, measure
from midfill_infill.text.diffs import unified_diff
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch
from midfill_infill.text.visible import encodable, plural, visible

if TYPE_CHECKING:
    from midfill_infill.until.trying import Tried, Try

DEMONSTRATOR: Final = "midfill-embedded"


@dataclass(frozen=True)
class Results:
    """The candidates of one fill and their document; `path` is its name in diffs.

    `held_back` are the indexes of holes whose best fill is shown but not written; `tried` holds the runs of --until.
    """

    path: Path
    document: Document
    filled: Filled
    held_back: frozenset[int] = frozenset()
    number: int = 1
    """The rank of the best among all candidates before `take` moved it first."""
    tried: "Tried | None" = None

    @property
    def candidates(self) -> tuple[Alternative, ...]:
        return (self.filled.best, *self.filled.alternatives)

    @property
    def is_held_back(self) -> bool:
        """True if no hole of the best candidate is written."""
        return len(self.held_back) == len(self.filled.fills)

    def after(self) -> bytes:
        edits = [edit for at, edit in enumerate(self.filled.patch.edits) if at not in self.held_back]
        return self.document.apply(Patch.of(edits))

    def take(self, number: int) -> "Results":
        """The results with another candidate as the best. Raises MidfillError if there are fewer candidates."""
        candidates = list(self.candidates)
        if number > len(candidates):
            message = f"the fill has {plural(len(candidates), 'alternative')}, not {number}"
            raise MidfillError("bad_request", message, "give a larger -n or a smaller --take")
        best = candidates.pop(number - 1)
        filled = replace(self.filled, best=best, alternatives=tuple(candidates))
        return replace(self, filled=filled, number=number)

    def diff(self, candidate: Alternative) -> bytes:
        after = self.document.apply(candidate.patch)
        return unified_diff(self.document.original, after, os.fsencode(self.path))

    def titles(self, number: int) -> str:
        """Comment lines for a diff: which candidate it is and how much it replaces. `patch` skips them."""
        candidate = self.candidates[number - 1]
        titles = self._sizes(candidate)
        if self.tried is not None:
            titles.insert(0, self.tried.describe(candidate))
        elif len(self.candidates) > 1:
            shown = self.number if number == 1 else number
            titles.insert(0, f"alternative {shown} of {len(self.candidates)}, {errors_of(candidate)}")
        return "".join(f"# {visible(title)}\n" for title in titles)

    def _sizes(self, candidate: Alternative) -> list[str]:
        sizes: list[str] = []
        for fill in candidate.fills:
            taken = measure(self.document, fill.hole)
            num_new = fill.text.count("\n") + bool(fill.text)
            replaced = f"{taken.num_lines} of {plural(taken.of_lines, 'line')} replaced by {num_new}"
            size = f"{_place_of(self.document, fill.hole)}: {replaced}"
            known = describe_fill(fill)
            if known:
                size += f", {known}"
            sizes.append(size)
        return sizes


def _place_of(document: Document, hole: Hole) -> str:
    """File, line and name of a hole."""
    place = document.where(hole.start_byte)
    if hole.name:
        place += f" {hole.name}"
    return place


def errors_of(candidate: Alternative) -> str:
    if candidate.new_errors:
        return f"adds {plural(candidate.new_errors, 'syntax error')}"
    return "adds no syntax error"


def ask_before(document: Document, holes: Sequence[Hole], *, replaces: bool, yes: bool) -> None:
    """Warns on stderr of large holes; before writing it asks, unless `yes` was given.

    Raises MidfillError `large_hole` if the answer is no, or nobody can be asked.
    """
    large = find_large(document, holes)
    if not large or yes:
        return
    what = f"this replaces {', and '.join(_size_of(document, hole) for hole in large)} "
    if not replaces or not (sys.stdin.isatty() and sys.stderr.isatty()):
        if replaces:
            raise MidfillError("large_hole", what)
        print(f"midfill: {visible(what)}", file=sys.stderr)
    elif not typer.confirm(f"{visible(what)}. Go on?", err=True):
        raise MidfillError("large_hole", "not confirmed, nothing was written")


def _size_of(document: Document, hole: Hole) -> str:
    taken = measure(document, hole)
    last, _ = document.position_at(max(hole.start_byte, hole.end_byte - 1))
    place = f"{document.where(hole.start_byte)} to {last}"
    if hole.name:
        place += f", {hole.name}"
    return f"{taken.num_lines} of {taken.of_lines} lines ({place})"


def hold_back(results: Results, *, allow_errors: bool, least: float | None) -> tuple[Results, MidfillError | None]:
    """Holds back all fills if they add syntax errors, otherwise those less certain than `least`, by default the
    suggestions.

    Fills without a certainty pass. The error says what was held back.
    """
    best = results.filled.best
    if best.new_errors and not allow_errors:
        message = f"the fill {errors_of(best)}, {visible(str(results.path))} is not written"
        return replace(results, held_back=frozenset(range(len(best.fills)))), MidfillError("fill_broken", message)
    doubted = {index: fill for index, fill in enumerate(best.fills) if _is_below(fill, least)}
    if not doubted:
        return results, None
    where = results.document.where
    known = ", ".join(
        f"{where(fill.hole.start_byte)} {describe_certainty(fill.certainty, is_suggestion=fill.is_suggestion)}"
        for fill in doubted.values()
    )
    message = f"{len(doubted)} of {plural(len(best.fills), 'fill')} not written: {visible(known)}"
    return replace(results, held_back=frozenset(doubted)), MidfillError("fill_doubtful", message)


def _is_below(fill: PlacedFill, least: float | None) -> bool:
    """True if a fill is not certain enough to be written: without a limit if it is a suggestion."""
    if least is None:
        return fill.is_suggestion
    return fill.certainty is not None and fill.certainty < least


def show_diff(results: Results, number: int) -> None:
    """Prints a diff: in color on a terminal, otherwise as `patch` reads it."""
    titles, diff = results.titles(number), results.diff(results.candidates[number - 1])
    if not sys.stdout.isatty():
        return write_bytes(titles.encode("utf-8", "replace") + diff)
    from rich.console import Console

    from midfill_infill.cli.live import color_diff

    text = color_diff(titles + diff.decode(results.document.encoding, "replace"))
    Console().print(text, soft_wrap=True, end="")


def write_bytes(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def choose(results: Results, read_key: Callable[[], str] = typer.getchar) -> tuple[int, bool]:
    """Shows alternatives until the user decides; returns the number of the last one shown, and whether to write it."""
    last, number = len(results.candidates), 1
    while True:
        show_diff(results, number)
        print(f"1-{last} show another, w write {number}, q leave: ", end="", flush=True)
        while True:
            key = read_key()
            if key in ("\x03", "\x04"):
                raise KeyboardInterrupt
            if key in ("w", "q", "\r", "\n", "\x1b"):
                print("w" if key == "w" else "q")
                return number, key == "w"
            if key.isdecimal() and 1 <= int(key) <= last:
                break
        number = int(key)
        print(number)


def print_remarks(results: Results, *, written: bool, is_refused: bool, wall_ms: float, for_person: bool) -> None:
    """Prints warnings on stderr, and for a person also what was done."""
    best = results.filled.best
    if best.new_errors and not is_refused:
        print(f"midfill: the fill {errors_of(best)}; try another --seed or -n 4", file=sys.stderr)
    if best.is_empty:
        print("midfill: the model left a body empty; try another --seed or -n 4", file=sys.stderr)
    if best.is_idle:
        print("midfill: the fill does nothing; try another --seed or -n 4", file=sys.stderr)
    if results.filled.model == DEMONSTRATOR and best.certainty is not None and best.certainty < LIKELY:
        remark = "the built-in model is unsure of this fill: read it as a suggestion, or name another --model"
        print(f"midfill: {remark}", file=sys.stderr)
    if for_person:
        done = "nothing written, add --write to write it"
        if written:
            done = f"wrote {visible(str(results.path))}"
        stats = results.filled.stats
        print(f"{done} ({stats.tokens} tokens in {stats.steps} steps, {wall_ms / 1000:.2f} s)", file=sys.stderr)


def print_json(results: Results, *, wall_ms: float, written: bool) -> None:
    """`new_errors` counts the syntax errors that the patch adds; `alternatives` are the other fills, best first.

    `written` says that a hole is in the file now. `ms` is the engine's time, `wall_ms` the command's. With `--until`,
    `tries` are all runs of the command in their order, and `passes` says whether the fill passed.
    """
    best, *others = (_candidate(results, candidate) for candidate in results.candidates)
    for at, hole in enumerate(best["holes"]):
        hole["written"] = written and at not in results.held_back
    stats, tried = results.filled.stats, results.tried
    report = {
        "file": encodable(str(results.path)),
        "model": results.filled.model,
        **best,
        "alternatives": others,
        "stats": stats.model_dump(exclude={"context_tokens"})
        | {"ms": round(stats.ms, 1), "wall_ms": round(wall_ms, 1)},
        "written": any(hole["written"] for hole in best["holes"]),
        "passes": None if tried is None else tried.passed,
        "tries": None if tried is None else [_try(one) for one in tried.tries],
    }
    write_bytes(json.dumps(report, ensure_ascii=False).encode() + b"\n")


def _candidate(results: Results, candidate: Alternative) -> dict[str, Any]:
    return {
        "new_errors": candidate.new_errors,
        "holes": [_hole(results.document, fill) for fill in candidate.fills],
        "diff": results.diff(candidate).decode(results.document.encoding, "replace"),
    }


def _hole(document: Document, filled: PlacedFill) -> dict[str, Any]:
    """`line` and `column` from 1; `confidence[i]` is of `text[slice(*tokens[i])]`; `certainty` is the probability that
    the whole text is right, null where the engine does not say. `origin` says in words where the text comes from. In a
    notebook all places count in the source of `cell`, by its number from 1.
    """
    line, column = document.position_at(filled.hole.start_byte)
    cell, first = document.cell_at(filled.hole.start_byte)
    return {
        "name": encodable(filled.hole.name) if filled.hole.name else None,
        "kind": filled.hole.kind,
        "start_byte": filled.hole.start_byte - first,
        "end_byte": filled.hole.end_byte - first,
        "line": line,
        "column": column,
        "text": filled.text,
        "tokens": filled.tokens,
        "confidence": [round(score, 4) for score in filled.confidence],
        "certainty": None if filled.certainty is None else round(filled.certainty, 4),
        "origin": filled.origin,
        "cell": cell,
        "written": False,
    }


def _try(one: "Try") -> dict[str, Any]:
    """`texts` has one entry a hole; `code` is null where its time was over; `tests_passed` and `reason` are null where
    the command did not say. `is_warm`: the command was not started anew.
    """
    ran, certainty = one.ran, one.candidate.certainty
    return {
        "number": one.number,
        "verdict": ran.verdict,
        "code": ran.code,
        "seconds": round(ran.seconds, 3),
        "is_warm": ran.is_warm,
        "certainty": None if certainty is None else round(certainty, 4),
        "texts": [fill.text for fill in one.candidate.fills],
        "tests_passed": ran.passed,
        "reason": encodable(ran.failures[0].sentence) if ran.failures else None,
    }
