"""Presents and guards the candidates of a fill: diffs, JSON, questions, refusals. Starts no fill, writes no file."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from midfill_infill.cli.view import describe_place, read_key
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import (
    LIKELY,
    SUGGESTION,
    Alternative,
    PlacedFill,
    advise_on_cut,
    describe_certainty,
    describe_fill,
)
from midfill_infill.filling.fill import Filled
from midfill_infill.syntax.holes import find_large, measure
from midfill_infill.text.diffs import unified_diff
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit, Hole, Patch
from midfill_infill.text.visible import encodable, plural, visible

if TYPE_CHECKING:
    from midfill_infill.until.trying import Tried, Try

DEMONSTRATOR: Final = "midfill-embedded"


@dataclass(frozen=True)
class Results:
    """The candidates of one fill and their document; `path` is the document's name in diffs.

    `held_back` are the indices of holes whose best fill is shown but not written. `tried` holds the runs of --until,
    None without it.
    """

    path: Path
    document: Document
    filled: Filled
    held_back: frozenset[int] = frozenset()
    number: int = 1
    """The rank that the best candidate had before `take` moved it to the front, counted from 1."""
    tried: "Tried | None" = None

    @property
    def candidates(self) -> tuple[Alternative, ...]:
        """All candidates, the best first."""
        return (self.filled.best, *self.filled.alternatives)

    @property
    def is_held_back(self) -> bool:
        """True if no fill of the best candidate is written."""
        return len(self.held_back) == len(self.filled.fills)

    def after(self) -> bytes:
        """The file with the best candidate, without the fills that are held back."""
        edits = [edit for index, edit in enumerate(self.filled.patch.edits) if index not in self.held_back]
        return self.document.apply(Patch.of(edits))

    def take(self, number: int) -> "Results":
        """The results with candidate `number`, from 1, as the best one. Raises MidfillError if there are fewer."""
        candidates = list(self.candidates)
        if number > len(candidates):
            message = f"the fill has {plural(len(candidates), 'alternative')}, not {number}"
            raise MidfillError("bad_request", message, "give a larger -n or a smaller --take")
        best = candidates.pop(number - 1)
        filled = replace(self.filled, best=best, alternatives=tuple(candidates))
        return replace(self, filled=filled, number=number)

    def diff(self, candidate: Alternative) -> bytes:
        """The unified diff of a candidate."""
        after = self.document.apply(candidate.patch)
        return unified_diff(self.document.original, after, os.fsencode(self.path))

    def titles(self, number: int) -> str:
        """Lines above the diff of candidate `number`, which `patch` skips: its rank, how much each fill replaces."""
        candidate = self.candidates[number - 1]
        titles = self._describe_fills(candidate)
        if self.tried is not None:
            titles.insert(0, self.tried.describe(candidate))
        elif len(self.candidates) > 1:
            rank = self.number if number == 1 else number
            titles.insert(0, f"alternative {rank} of {len(self.candidates)}, {errors_of(candidate)}")
        return "".join(f"# {visible(title)}\n" for title in titles)

    def _describe_fills(self, candidate: Alternative) -> list[str]:
        """For each fill its place, the number of lines that it replaces, and how certain it is."""
        descriptions: list[str] = []
        for fill, edit in zip(candidate.fills, candidate.patch.edits, strict=True):
            size = measure(self.document, fill.hole)
            num_new = fill.text.count("\n") + bool(fill.text)
            replaced = f"{size.num_lines} of {plural(size.of_lines, 'line')} replaced by {num_new}"
            if edit.replacement == self.document.data[edit.start_byte : edit.end_byte]:
                replaced = "unchanged"
            description = f"{describe_place(self.document, fill.hole)}: {replaced}"
            label = describe_fill(fill)
            if label:
                description += f", {label}"
            descriptions.append(description)
        return descriptions


def errors_of(candidate: Alternative) -> str:
    """What a message says about the syntax errors that a candidate adds."""
    if candidate.new_errors:
        return f"adds {plural(candidate.new_errors, 'syntax error')}"
    return "adds no syntax error"


def ask_before(document: Document, holes: Sequence[Hole], *, replaces: bool, yes: bool) -> None:
    """Warns on stderr of large holes. If the fill `replaces` them unseen, asks the user instead, unless `yes`.

    Raises MidfillError `large_hole` if the answer is no, or nobody can be asked.
    """
    large = find_large(document, holes)
    if not large or yes:
        return
    warning = f"this replaces {', and '.join(_describe_size(document, hole) for hole in large)}"
    if not replaces:
        print(f"midfill: {visible(warning)}", file=sys.stderr)
    elif not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise MidfillError("large_hole", warning)
    elif not typer.confirm(f"{visible(warning)}. Go on?", err=True):
        raise MidfillError("large_hole", "not confirmed, nothing was written")


def _describe_size(document: Document, hole: Hole) -> str:
    """How many lines of what a hole takes, and where."""
    size = measure(document, hole)
    last_line, _ = document.position_at(max(hole.start_byte, hole.end_byte - 1))
    place = f"{document.where(hole.start_byte)} to {last_line}"
    if hole.name:
        place += f", {hole.name}"
    return f"{size.num_lines} of {size.of_lines} lines ({place})"


def hold_back(
    results: Results, *, allow_errors: bool, min_certainty: float | None
) -> tuple[Results, MidfillError | None]:
    """The results with the fills that must not be written held back, and an error that says which; None if none is.

    These are all fills if they add syntax errors, unless `allow_errors`; otherwise the fills that are less certain than
    `min_certainty`, for None the suggestions. A whole fill without a certainty is never held back for that.
    """
    best = results.filled.best
    if best.new_errors and not allow_errors:
        message = f"the fill {errors_of(best)}, {visible(str(results.path))} is not written"
        advice = next(filter(None, map(advise_on_cut, best.fills)), None)
        return replace(results, held_back=frozenset(range(len(best.fills)))), MidfillError(
            "fill_broken", message, advice
        )
    doubtful = {index: fill for index, fill in enumerate(best.fills) if _is_doubtful(fill, min_certainty)}
    if not doubtful:
        return results, None
    descriptions: list[str] = []
    for fill in doubtful.values():
        label = describe_certainty(fill.certainty, is_suggestion=fill.is_suggestion) or SUGGESTION
        descriptions.append(f"{results.document.where(fill.hole.start_byte)} {label}")
    message = f"{len(doubtful)} of {plural(len(best.fills), 'fill')} not written: {visible(', '.join(descriptions))}"
    advice = next(filter(None, map(advise_on_cut, doubtful.values())), None)
    if advice:
        advice += ", or --min-certainty 0 to write it anyway"
    return replace(results, held_back=frozenset(doubtful)), MidfillError("fill_doubtful", message, advice)


def _is_doubtful(fill: PlacedFill, min_certainty: float | None) -> bool:
    """True if a fill is not certain enough to be written; without a limit, if it is a suggestion."""
    if min_certainty is None:
        return fill.is_suggestion
    if fill.certainty is None:
        return fill.cut_at is not None and min_certainty > 0
    return fill.certainty < min_certainty


def show_diff(results: Results, number: int) -> None:
    """Prints the diff of candidate `number`, in color on a terminal, otherwise as `patch` reads it."""
    titles, diff = results.titles(number), results.diff(results.candidates[number - 1])
    if not sys.stdout.isatty():
        return write_bytes(titles.encode("utf-8", "replace") + diff)
    from rich.console import Console

    from midfill_infill.cli.live import color_diff

    text = color_diff(titles + diff.decode(results.document.encoding, "replace"))
    Console().print(text, soft_wrap=True, end="")


def write_bytes(data: bytes) -> None:
    """Writes bytes to standard output."""
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def choose(results: Results, read_char: Callable[[], str] = typer.getchar) -> tuple[int, bool]:
    """Shows candidates until the user decides. Returns the number of the last one, and True if it is to be written."""
    num_candidates, number = len(results.candidates), 1
    while True:
        show_diff(results, number)
        print(f"1-{num_candidates} show another, w write {number}, q leave: ", end="", flush=True)
        while True:
            key = read_key(read_char)
            if key in ("w", "q", "\r", "\n", "\x1b"):
                print("w" if key == "w" else "q")
                return number, key == "w"
            if key.isdecimal() and 1 <= int(key) <= num_candidates:
                break
        number = int(key)
        print(number)


def print_remarks(results: Results, *, written: bool, is_refused: bool, wall_ms: float, for_person: bool) -> None:
    """Prints warnings about the best candidate on stderr, and for a person also what was done."""
    best = results.filled.best
    if best.new_errors and not is_refused:
        print(f"midfill: the fill {errors_of(best)}; try another --seed or -n 4", file=sys.stderr)
    if best.is_empty:
        print("midfill: the model left a body empty; try another --seed or -n 4", file=sys.stderr)
    if best.is_idle:
        print("midfill: the fill does nothing; try another --seed or -n 4", file=sys.stderr)
    if not is_refused:
        for advice in dict.fromkeys(filter(None, map(advise_on_cut, best.fills))):
            print(f"midfill: {advice}", file=sys.stderr)
    if results.filled.model == DEMONSTRATOR and best.certainty is not None and best.certainty < LIKELY:
        remark = "the built-in model is unsure of this fill: read it as a suggestion, or name another --model"
        print(f"midfill: {remark}", file=sys.stderr)
    if for_person:
        done = "nothing written" if is_refused else "nothing written, add --write to write it"
        if written:
            done = f"wrote {visible(str(results.path))}"
        stats = results.filled.stats
        print(f"{done} ({stats.tokens} tokens in {stats.steps} steps, {wall_ms / 1000:.2f} s)", file=sys.stderr)


def print_json(results: Results, *, wall_ms: float, written: bool) -> None:
    """Prints the results as one JSON object.

    `new_errors` counts the syntax errors that the patch adds; `alternatives` are the other candidates, best first.
    `written` says that a fill is in the file now. `ms` is the engine's time, `wall_ms` the command's. With `--until`,
    `tries` are all runs of the command in their order, and `passes` says whether the best candidate passed.
    """
    best, *others = (_candidate_json(results, candidate) for candidate in results.candidates)
    for index, hole in enumerate(best["holes"]):
        hole["written"] = written and index not in results.held_back
    stats, tried = results.filled.stats, results.tried
    report = {
        "file": encodable(str(results.path)),
        "encoding": results.document.encoding,
        "model": results.filled.model,
        **best,
        "alternatives": others,
        "stats": stats.model_dump(exclude={"context_tokens"})
        | {"ms": round(stats.ms, 1), "wall_ms": round(wall_ms, 1)},
        "written": any(hole["written"] for hole in best["holes"]),
        "passes": None if tried is None else tried.passed,
        "tries": None if tried is None else [_try_json(attempt) for attempt in tried.tries],
    }
    # Lone surrogates, which stand for undecodable bytes, become escapes of JSON.
    write_bytes(json.dumps(report, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")


def _candidate_json(results: Results, candidate: Alternative) -> dict[str, Any]:
    """A candidate as JSON: its new errors, its holes and its diff."""
    return {
        "new_errors": candidate.new_errors,
        "holes": [
            _hole_json(results.document, fill, edit)
            for fill, edit in zip(candidate.fills, candidate.patch.edits, strict=True)
        ],
        "diff": results.diff(candidate).decode(results.document.encoding, "replace"),
    }


def _hole_json(document: Document, filled: PlacedFill, edit: Edit) -> dict[str, Any]:
    """A filled hole as JSON. `replacement` takes the place of the file's bytes from `start_byte` to `end_byte`; it is
    `text` in the file's line ends, with the white space that the hole needs around it. `line` and `column` count from
    1. `confidence[i]` belongs to `text[slice(*tokens[i])]`. `certainty` is the probability that the whole text is
    right, null if it is unknown. `origin` says in words where the text comes from. In a notebook all positions count
    in the source of `cell`, whose number counts from 1.
    """
    line, column = document.position_at(filled.hole.start_byte)
    cell, cell_start = document.cell_at(filled.hole.start_byte)
    return {
        "name": encodable(filled.hole.name) if filled.hole.name else None,
        "kind": filled.hole.kind,
        "start_byte": filled.hole.start_byte - cell_start,
        "end_byte": filled.hole.end_byte - cell_start,
        "line": line,
        "column": column,
        "text": filled.text,
        "replacement": edit.replacement.decode(document.encoding, "surrogateescape"),
        "tokens": filled.tokens,
        "confidence": [round(score, 4) for score in filled.confidence],
        "certainty": None if filled.certainty is None else round(filled.certainty, 4),
        "origin": filled.origin,
        "cell": cell,
        "written": False,
    }


def _try_json(attempt: "Try") -> dict[str, Any]:
    """A try of --until as JSON. `texts` has an entry for each hole. `code` is null if the run took too long.
    `tests_passed` and `reason` are null if the command does not tell. `is_warm`: the command was not started anew.
    """
    ran, certainty = attempt.ran, attempt.candidate.certainty
    return {
        "number": attempt.number,
        "verdict": ran.verdict,
        "code": ran.code,
        "seconds": round(ran.seconds, 3),
        "is_warm": ran.is_warm,
        "certainty": None if certainty is None else round(certainty, 4),
        "texts": [fill.text for fill in attempt.candidate.fills],
        "tests_passed": ran.passed,
        "reason": encodable(ran.reason) if ran.reason else None,
    }
