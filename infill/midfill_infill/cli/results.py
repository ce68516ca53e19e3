"""What `midfill fill` prints of its candidates: diffs, a filled text, remarks. Starts no fill, writes no file."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from midfill_infill.candidates import LIKELY, Alternative, describe_fill
from midfill_infill.errors import MidfillError
from midfill_infill.fill import Filled
from midfill_infill.syntax.size import measure
from midfill_infill.text.diffs import unified_diff
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Patch
from midfill_infill.text.visible import plural, visible

if TYPE_CHECKING:
    from midfill_infill.until.trying import Tried

DEMONSTRATOR: Final = "midfill-embedded"


@dataclass(frozen=True)
class Results:
    """The candidates of one fill beside the document that they are for; `path` is its name in diffs.

    `held_back` are the holes of the best, by number, that are shown and not put in place; `tried` what a command said.
    """

    path: Path
    document: Document
    filled: Filled
    held_back: frozenset[int] = frozenset()
    number: int = 1
    """Which of all candidates the best was before it was taken."""
    tried: "Tried | None" = None

    @property
    def candidates(self) -> tuple[Alternative, ...]:
        return (self.filled.best, *self.filled.alternatives)

    @property
    def is_held_back(self) -> bool:
        """Whether nothing of the best is put in place."""
        return len(self.held_back) == len(self.filled.fills)

    def after(self) -> bytes:
        edits = [edit for at, edit in enumerate(self.filled.patch.edits) if at not in self.held_back]
        return self.document.apply(Patch.of(edits))

    def take(self, number: int) -> "Results":
        """The same with another candidate as the best. Raises MidfillError where there are not so many."""
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
        """Lines that say which candidate it is and how much it replaces; `patch` skips them."""
        candidate, several = self.candidates[number - 1], len(self.candidates) > 1
        shown = self.number if number == 1 else number
        titles = [f"alternative {shown} of {len(self.candidates)}, {errors_of(candidate)}"] if several else []
        if self.tried is not None:
            titles = [self.tried.describe(candidate)]
        return "".join(f"# {visible(title)}\n" for title in [*titles, *self._sizes(candidate)])

    def _sizes(self, candidate: Alternative) -> list[str]:
        sizes = []
        for fill in candidate.fills:
            taken = measure(self.document, fill.hole)
            name = f" {fill.hole.name}" if fill.hole.name else ""
            replaced = f"{taken.num_lines} of {plural(taken.of_lines, 'line')} replaced by {_num_lines(fill.text)}"
            sizes.append(f"{self.document.where(fill.hole.start_byte)}{name}: {replaced}")
            sizes[-1] += f", {known}" if (known := describe_fill(fill)) else ""
        return sizes


def _num_lines(text: str) -> int:
    return text.count("\n") + 1 if text else 0


def errors_of(candidate: Alternative) -> str:
    return f"adds {plural(candidate.new_errors, 'syntax error')}" if candidate.new_errors else "adds no syntax error"


def print_diffs(results: Results, *, all_of_them: bool) -> None:
    for number in range(1, 1 + (len(results.candidates) if all_of_them else 1)):
        show_diff(results, number)


def show_diff(results: Results, number: int) -> None:
    """In colours on a terminal, elsewhere as `patch` reads it."""
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
    """Shows alternatives until their reader decides: the number of the one last shown, and whether to write it."""
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


def is_guess_of_demonstrator(filled: Filled) -> bool:
    """Whether the model that ships, which is there to show what fills are, says itself that it only guesses."""
    certainty = filled.best.certainty
    return filled.model == DEMONSTRATOR and certainty is not None and certainty < LIKELY


def print_remarks(results: Results, *, written: bool, is_refused: bool, wall_ms: float, for_person: bool) -> None:
    """What is not the result itself, on stderr: a warning always, the rest for a person only."""
    best = results.filled.best
    if best.new_errors and not is_refused:
        print(f"midfill: the fill {errors_of(best)}; try another --seed or -n 4", file=sys.stderr)
    if best.is_empty:
        print("midfill: the model left a body empty; try another --seed or -n 4", file=sys.stderr)
    if best.is_idle:
        print("midfill: the fill does nothing; try another --seed or -n 4", file=sys.stderr)
    if is_guess_of_demonstrator(results.filled):
        print(
            "midfill: the built-in model is unsure of this fill: read it as a guess, or name another --model",
            file=sys.stderr,
        )
    if for_person:
        done = f"wrote {visible(str(results.path))}" if written else "nothing written, add --write to write it"
        stats = results.filled.stats
        print(f"{done} ({stats.tokens} tokens in {stats.steps} steps, {wall_ms / 1000:.2f} s)", file=sys.stderr)
