"""`python -m bench oracle DIR...`: gives the true text of every hole, in a form that models give, and compares files.

A place is drawn from the sources below DIR, which may be packages or folders of packages. An engine's stand-in answers
with the place's true text in one of the forms, through one of the doors. The fill is kept if the file is the original,
byte for byte.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from bench.oracle.corpus import LANGUAGES, list_sources, read_source
from bench.oracle.doors import DOORS, Answers
from bench.oracle.forms import FORMS, write
from bench.oracle.places import KINDS, Place, draw_places
from bench.oracle.through import WAYS, Fill, Outcome

PLACES_OF_FILE: Final = 2
DEFAULT_LIMIT: Final = 12
ALL: Final = "all"
Row = tuple[str, str, str]  # hole, door, form
Writing = tuple[Place, str, list[str]]  # and the form, and what is written in it


@dataclass(frozen=True)
class Wanted:
    """What is asked of the bench. `limit` places of each kind of hole are drawn for each language."""

    languages: Sequence[str]
    holes: Sequence[str]
    doors: Sequence[str]
    forms: Sequence[str]
    limit: int
    seed: int


@dataclass(frozen=True)
class Case:
    """One fill: what the engine wrote, what came of it, and why a server ended the answer early, if it did."""

    language: str
    hole: str
    door: str
    form: str
    place: Place
    texts: list[str]
    outcome: Outcome
    cuts: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return self.outcome.judge(self.place)


def draw(folders: Sequence[Path], wanted: Wanted) -> Iterator[Place]:
    """Places of all kinds and languages, those of one file together; at most two of a kind from one file."""
    counts: Counter[tuple[str, str]] = Counter()
    missing = {(language, kind) for language in wanted.languages for kind in wanted.holes}
    for path in list_sources(folders, wanted.languages, wanted.seed):
        if not missing:
            return
        file = read_source(path)
        if file is None:
            continue
        for kind in [kind for language, kind in sorted(missing) if language == file.language]:
            places = draw_places(
                file, kind, min(PLACES_OF_FILE, wanted.limit - counts[file.language, kind]), wanted.seed
            )
            counts[file.language, kind] += len(places)
            if counts[file.language, kind] >= wanted.limit:
                missing.discard((file.language, kind))
            yield from places


def list_writings(places: Iterable[Place], wanted: Wanted) -> Iterator[Writing]:
    for place in places:
        for form in wanted.forms:
            if (texts := write(form, place.gaps, wanted.seed)) is not None:
                yield place, form, texts


def ask_all(folders: Sequence[Path], wanted: Wanted) -> Iterator[Case]:
    """Every place in every form through every door, in this process."""
    with ExitStack() as stack:
        fills = {door: stack.enter_context(WAYS["fill"](door)) for door in wanted.doors}
        for writing in list_writings(draw(folders, wanted), wanted):
            for door, fill in fills.items():
                yield ask(fill, door, writing)


def ask_some(folders: Sequence[Path], wanted: Wanted, way: str) -> Iterator[Case]:
    """A few cases for each door, drawn by chance: through a command or a server a fill takes up to a second."""
    writings = list(list_writings(draw(folders, replace(wanted, limit=1)), wanted))
    for door in wanted.doors:
        sample = random.Random(f"{wanted.seed} {door}").sample(writings, min(wanted.limit, len(writings)))
        with WAYS[way](door) as fill:
            for writing in sample:
                yield ask(fill, door, writing)


def ask(fill: Fill, door: str, writing: Writing) -> Case:
    place, form, texts = writing
    answers = Answers(place, texts)
    outcome = fill(answers)
    cuts = tuple(dict.fromkeys(answers.cuts))
    return Case(place.file.language, place.kind, door, form, place, texts, outcome, cuts)


def show(case: Case) -> str:
    """A loss for people: where, what was written into the holes, and what stands there afterwards."""
    place = case.place
    words = f"{case.verdict}{''.join(f', {cut}' for cut in case.cuts)}"
    parts = [f"## {words}: {case.language} {case.hole} {case.door} {case.form} {place.name}"]
    for gap, text in zip(place.gaps, case.texts, strict=True):
        parts += ["--- true text", gap.truth]
        parts += ["--- written", text] if text != gap.truth else []
    start, end = place.gaps[0].span[0], len(place.file.data) - place.gaps[-1].span[1]
    came = case.outcome.data[start : len(case.outcome.data) - end].decode("utf-8", "replace")
    return "\n".join([*parts, "--- came", case.outcome.error or came, ""])


class Table:
    """Counts of kept fills and of all, by row and language. A row is a hole, door and form, or all of one of them."""

    def __init__(self) -> None:
        self._kept: Counter[tuple[Row, str]] = Counter()
        self._asked: Counter[tuple[Row, str]] = Counter()
        self._losses: Counter[str] = Counter()

    def add(self, case: Case) -> None:
        cell = case.hole, case.door, case.form
        hole, door, form = cell
        for row in (cell, (hole, ALL, ALL), (ALL, door, ALL), (ALL, ALL, form), (ALL, ALL, ALL)):
            for language in (case.language, ALL):
                self._asked[row, language] += 1
                self._kept[row, language] += case.verdict == "kept"
        self._losses.update([case.verdict] if case.verdict != "kept" else [])

    def lines(self) -> Iterator[str]:
        languages = [language for language in (*LANGUAGES, ALL) if ((ALL, ALL, ALL), language) in self._asked]
        yield f"| hole | door | form | {' | '.join(languages)} |"
        yield f"|---|---|---|{'---|' * len(languages)}"
        for row in sorted({row for row, _ in self._asked}, key=_order):
            yield f"| {' | '.join([*row, *(self._share(row, language) for language in languages)])} |"
        if self._losses:
            yield f"lost: {', '.join(f'{count} {verdict}' for verdict, count in self._losses.most_common())}"

    def _share(self, row: Row, language: str) -> str:
        cell = row, language
        return f"{self._kept[cell]}/{self._asked[cell]}" if cell in self._asked else ""

    def as_json(self) -> list[dict[str, object]]:
        names = ("hole", "door", "form", "language", "kept", "asked")
        cells = ((*row, language, self._kept[row, language], asked) for (row, language), asked in self._asked.items())
        return [dict(zip(names, cell, strict=True)) for cell in cells if ALL not in cell]


def _order(row: Row) -> tuple[int, ...]:
    """Single rows first, then the totals."""
    known = [[*names, ALL] for names in (KINDS, DOORS, FORMS)]
    return row.count(ALL), *(names.index(part) for names, part in zip(known, row, strict=True))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    for name, known in (("language", LANGUAGES), ("hole", KINDS), ("door", DOORS), ("form", FORMS)):
        parser.add_argument(f"--{name}", action="append", choices=list(known), help="repeatable; default: all")
    parser.add_argument("--through", action="append", choices=list(WAYS), help="repeatable; default: fill")
    limit = "places of each kind of hole and language; fills of each door through a command or server"
    parser.add_argument("--limit", type=int, default=DEFAULT_LIMIT, help=limit)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print every loss")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write cells and losses")
    return parser.parse_args()


def main() -> None:
    options = read_options()
    wanted = Wanted(
        options.language or LANGUAGES, options.hole or list(KINDS), options.door or DOORS, options.form or list(FORMS),
        options.limit, options.seed,
    )  # fmt: skip
    table, losses, started_s, count = Table(), list[dict[str, object]](), time.monotonic(), 0
    for way in options.through or ["fill"]:
        cases = ask_all(options.folders, wanted) if way == "fill" else ask_some(options.folders, wanted, way)
        for case in cases:
            table.add(case)
            count += 1
            if case.verdict != "kept":
                losses.append(record(case))
                if options.show:
                    print(show(case), flush=True)
    print("\n".join(table.lines()))
    print(f"{count} fills in {time.monotonic() - started_s:.0f} s", file=sys.stderr)
    if options.json:
        asked = {**asdict(wanted), "through": options.through or ["fill"]}
        options.json.write_text(json.dumps({"asked": asked, "cells": table.as_json(), "losses": losses}, indent=1))


def record(case: Case) -> dict[str, object]:
    known = {name: getattr(case, name) for name in ("language", "hole", "door", "form", "verdict", "cuts", "texts")}
    truths = [gap.truth for gap in case.place.gaps]
    return known | {"place": case.place.name, "truths": truths, "shown": show(case)}


if __name__ == "__main__":
    main()
