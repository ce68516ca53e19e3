"""Measures next edits on commits: makes the first change within lines of each file, and compares the proposals with the
rest of the commit; if a like change follows, once more after that one.

    python -m bench next_edits record OUT.jsonl.gz REPOSITORY... [--most N]    git directories, N commits each
    python -m bench next_edits report OUT.jsonl.gz
    python -m bench next_edits fit OUT.jsonl.gz                                the weights of repeats/judge.py

Two changes are alike if the same tokens became the same. A proposal is right if the commit did that to these lines,
alone or with more. Edits that repeat nowhere count as well: whatever is proposed after them is wrong.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from midfill_infill.errors import MidfillError
from midfill_infill.languages import find_language, get_language
from midfill_infill.measuring.table import wilson
from midfill_infill.repeats.change import Tokens
from midfill_infill.repeats.judge import describe
from midfill_infill.repeats.places import find_places
from midfill_infill.repeats.repeat import Versions, find_repeats, read_change
from midfill_infill.text.document import Document

LARGEST_BYTES = 200_000
MOST_UNITS = 60
MOST_LINES = 3
ROUNDS = 1000
FOLDS = 5

Row = dict[str, Any]


class Unit(NamedTuple):
    """Changed lines: `[old_start, old_end)` of the old text became `[new_start, new_end)` of the new one."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int

    @property
    def is_within_lines(self) -> bool:
        """True if a few lines became others."""
        old, new = self.old_end - self.old_start, self.new_end - self.new_start
        return 0 < old <= MOST_LINES and 0 < new <= MOST_LINES


def record(out: Path, repos: Sequence[Path], most: int) -> None:
    with gzip.open(out, "wt") as lines:
        for repo in repos:
            num_files = num_rows = 0
            for commit, path, before, after in list_files(repo, most):
                num_files += 1
                for row in measure(before, after, Path(path)):
                    num_rows += 1
                    lines.write(json.dumps({"repo": str(repo), "commit": commit, "path": path, **row}) + "\n")
            print(repo, num_files, num_rows, file=sys.stderr, flush=True)


def git(repo: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(repo), *words], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def list_files(repo: Path, most: int) -> Iterator[tuple[str, str, bytes, bytes]]:
    """Commit, path and both contents of modified source files, from random commits without merges."""
    commits = git(repo, "rev-list", "--all", "--no-merges", "--min-parents=1").split()
    random.Random(1).shuffle(commits)
    with subprocess.Popen(
        ["git", "-C", str(repo), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        for commit in commits[:most]:
            for line in git(repo, "diff-tree", "-r", "--diff-filter=M", "--no-renames", commit).splitlines():
                meta, _, path = line.partition("\t")
                if path and find_language(Path(path)):
                    before, after = (read_blob(reader, blob) for blob in meta.split()[2:4])
                    if max(len(before), len(after)) <= LARGEST_BYTES:
                        yield commit, path, before, after


def read_blob(reader: subprocess.Popen[bytes], blob: str) -> bytes:
    assert reader.stdin and reader.stdout
    reader.stdin.write(blob.encode() + b"\n")
    reader.stdin.flush()
    head = reader.stdout.readline().split()
    return reader.stdout.read(int(head[2]) + 1)[:-1] if len(head) == 3 else b""


def measure(before: bytes, after: bytes, path: Path) -> list[Row]:
    """The proposals after the first change and, if a like one follows, after that one: at most two rows."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    commit = Commit(old, new, find_units(old, new), path)
    marks = [signature(commit.old_text(unit), commit.new_text(unit)) for unit in commit.units]
    numbers = range(len(marks))
    first = next((number for number in numbers if marks[number] and commit.units[number].is_within_lines), None)
    if first is None:
        return []
    like = [number for number in numbers if number != first and marks[number] == marks[first]]
    try:
        rows = [commit.propose([first], len(like))]
        if like:
            rows.append(commit.propose([first, like[0]], len(like) - 1))
    except MidfillError:  # no text
        return []
    return rows


def find_units(before: list[bytes], after: list[bytes]) -> list[Unit]:
    """All changes, none if they are many; splits runs of equal length into lines."""
    units: list[Unit] = []
    num_runs = 0
    for tag, *bounds in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        num_runs += 1
        run = Unit(*bounds)
        num_lines = run.old_end - run.old_start
        if num_lines != run.new_end - run.new_start:
            units.append(run)
            continue
        for number in range(num_lines):
            old, new = run.old_start + number, run.new_start + number
            units.append(Unit(old, old + 1, new, new + 1))
    is_small = num_runs <= MOST_UNITS and len(units) <= 3 * MOST_UNITS
    return units if is_small else []


def differences(old: bytes, new: bytes) -> list[tuple[int, int, tuple[bytes, ...], tuple[bytes, ...]]]:
    """The changed runs of tokens: first and last number in the old text, the tokens there, and those instead."""
    old_tokens, new_tokens = Tokens(old).texts, Tokens(new).texts
    runs = []
    for tag, *bounds in SequenceMatcher(None, old_tokens, new_tokens, autojunk=False).get_opcodes():
        if tag != "equal":
            run = Unit(*bounds)
            was = tuple(old_tokens[run.old_start : run.old_end])
            became = tuple(new_tokens[run.new_start : run.new_end])
            runs.append((run.old_start, run.old_end, was, became))
    return runs


def signature(old: bytes, new: bytes) -> tuple[Any, ...]:
    """The replaced and the new tokens of a change: equal for like changes, empty if none differ."""
    pairs = [difference[2:] for difference in differences(old, new)]
    return pairs[0] if len(set(pairs)) == 1 else tuple(pairs)


def is_step(was: bytes, proposed: bytes, wants: bytes) -> bool:
    """True if a proposal does what the commit did, or a part of it, and nothing else."""
    if proposed == wants:
        return True
    own = set(differences(was, proposed))
    return bool(own) and own <= set(differences(was, wants))


class Commit:
    """The changes of one file, of which some have been made."""

    def __init__(self, old: list[bytes], new: list[bytes], units: list[Unit], path: Path) -> None:
        self.old, self.new, self.units, self.path = old, new, units, path

    def old_text(self, unit: Unit) -> bytes:
        return b"".join(self.old[unit.old_start : unit.old_end])

    def new_text(self, unit: Unit) -> bytes:
        return b"".join(self.new[unit.new_start : unit.new_end])

    def make(self, made: Sequence[int]) -> bytes:
        """The file once the units of these numbers are made."""
        text, position = b"", 0
        for number in sorted(made):
            unit = self.units[number]
            text += b"".join(self.old[position : unit.old_start]) + self.new_text(unit)
            position = unit.old_end
        return text + b"".join(self.old[position:])

    def place_of(self, number: int, made: Sequence[int]) -> tuple[int, int]:
        """The byte range of the old lines of a unit that was not made."""
        unit = self.units[number]
        before = self.make([other for other in made if other < number])
        start = len(before) - sum(map(len, self.old[unit.old_start :]))
        return start, start + len(self.old_text(unit))

    def propose(self, made: list[int], num_like: int) -> Row:
        before, state = self.make(made[:-1]), self.make(made)
        todo = [(unit, self.place_of(number, made)) for number, unit in enumerate(self.units) if number not in made]

        def is_right(span: tuple[int, int], text: bytes) -> bool:
            for unit, (start, end) in todo:
                if start <= span[0] and span[1] <= end:
                    was = state[start:end]
                    proposed = was[: span[0] - start] + text + was[span[1] - start :]
                    return is_step(was, proposed, self.new_text(unit))
            return False

        return {
            "like": num_like,
            "seen": len(made) - 1,
            "shown": self._show(before, state, made, is_right),
            "places": self._list(before, state, len(made) - 1, is_right),
        }

    def _show(self, before: bytes, state: bytes, made: list[int], is_right: Callable[..., bool]) -> list[Row]:
        """The proposals that the product would show."""
        earlier: Versions | None = (self.make([]), before) if len(made) > 1 else None
        documents = [Document.from_bytes(text, self.path) for text in (before, state)]
        shown = []
        for repeat in find_repeats(documents[0], documents[1], earlier):
            edit = repeat.edit
            shown.append(
                {
                    "right": is_right((edit.start_byte, edit.end_byte), edit.replacement),
                    "certainty": round(repeat.certainty, 4),
                    "unasked": repeat.is_likely,
                    "open": bool(repeat.unmatched),
                    "at": edit.start_byte,
                }
            )
        return shown

    def _list(self, before: bytes, state: bytes, seen: int, is_right: Callable[..., bool]) -> list[Row]:
        """The rows that the weights are fitted on."""
        read = read_change(get_language(find_language(self.path, state) or ""), before, state)
        if read is None:
            return []
        change, trees = read
        places = find_places(change)
        rows = []
        for place in places:
            features = {**describe(change, place, places, trees), "seen": float(seen)}
            offset = place.tokens[0] - change.new_span[0]
            rows.append({"right": is_right(place.span, place.text), "at": offset, "features": features})
        return rows


def load(path: Path) -> list[Row]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def report(path: Path) -> None:
    rows = load(path)
    once = [row for row in rows if not row["seen"]]
    twice = [row for row in rows if row["seen"]]
    repeated = [row for row in once if row["like"]]
    print(f"{len(once)} edits, {len(repeated)} of which repeat in their file")
    for name, chosen, key in (
        ("asked for, after an edit that repeats", repeated, None),
        ("asked for, after any edit", once, None),
        ("unasked, after the same edit twice", twice, "unasked"),
        ("first of them", twice, "first"),
    ):
        rates = [f"{word} {ratio}" for word, ratio in rate([count(row, key) for row in chosen])]
        print(f"{name}: {len(chosen)} edits; {'; '.join(rates)}")


def count(row: Row, key: str | None) -> tuple[int, int, int]:
    """The numbers of right proposals, of all proposals, and of edits to find."""
    shown = [proposal for proposal in row["shown"] if not proposal["open"]]
    if key is not None:
        shown = [proposal for proposal in shown if proposal["unasked"]]
    if key == "first":
        shown = sorted(shown, key=lambda proposal: proposal["at"])[:1]
    return sum(proposal["right"] for proposal in shown), len(shown), row["like"]


def rate(counted: list[tuple[int, int, int]]) -> Iterator[tuple[str, str]]:
    """Precision and recall with 95 % intervals, bootstrapped over edits; Wilson's where all or none are right."""
    values = np.array(counted).reshape(-1, 3)
    if not len(values):
        return
    draws = np.random.default_rng(1).integers(0, len(values), (ROUNDS, len(values)))
    sums = values[draws].sum(axis=1)
    for word, column in (("precision", 1), ("recall", 2)):
        right, of = values[:, 0].sum(), values[:, column].sum()
        if right in (0, of):
            low, high = wilson(right, of) if of else (0.0, 1.0)
        else:
            low, high = np.percentile(sums[:, 0] / np.maximum(sums[:, column], 1), (2.5, 97.5))
        yield word, f"{right}/{of} = {100 * right / max(of, 1):.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def fit(path: Path) -> None:
    """Prints the weights, and their precision after the same edit twice in repositories that were left out."""
    rows = load(path)
    names = sorted({name for row in rows for place in row["places"] for name in place["features"]})
    weights = solve(rows, names)
    print({name: round(float(weight), 2) for name, weight in zip([*names, "bias"], weights, strict=True)})
    judged = list(leave_out(rows, names))
    for least in (0.6, 0.65, 0.7, 0.75, 0.8):
        every: list[Row] = []
        first: list[Row] = []
        for row in judged:
            likely = [place for place, certainty in row if certainty >= least]
            if likely:
                every += likely
                first.append(min(likely, key=lambda place: place["at"]))
        print(f"{least}: right are {tell_right(every)}, of the first ones {tell_right(first)}")


def tell_right(places: list[Row]) -> str:
    return f"{sum(place['right'] for place in places)} of {len(places)}"


def leave_out(rows: list[Row], names: list[str]) -> Iterator[list[tuple[Row, float]]]:
    """The places after the same edit twice, scored by weights fitted on other repositories."""
    repos = sorted({row["repo"] for row in rows})
    for number in range(FOLDS):
        left = repos[number::FOLDS]
        weights = solve([row for row in rows if row["repo"] not in left], names)
        for row in rows:
            if row["repo"] in left and row["seen"]:
                places = list_behind(row)
                x = np.array([list_features(place, names) for place in places]).reshape(-1, len(weights))
                yield list(zip(places, 1 / (1 + np.exp(-x @ weights)), strict=True))


def list_behind(row: Row) -> list[Row]:
    return [place for place in row["places"] if place["at"] > 0]


def list_features(place: Row, names: list[str]) -> list[float]:
    return [*(place["features"].get(name, 0) for name in names), 1]


def solve(rows: list[Row], names: list[str]) -> np.ndarray[Any, Any]:
    """Logistic regression over the places after the change; those of a file with many places count less."""
    features, right, counts = [], [], []
    for row in rows:
        for place in list_behind(row):
            features.append(list_features(place, names))
            right.append(place["right"])
            counts.append(len(row["places"]) ** -0.5)
    x, y, w = np.array(features), np.array(right, float), np.array(counts)
    weights = np.zeros(len(names) + 1)
    free = np.array([*[2.0] * len(names), 0])
    for _ in range(40):
        p = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (w * (p - y)) + free * weights
        curvature = (x * (w * p * (1 - p))[:, None]).T @ x + np.diag(free + 1e-9)
        weights -= np.linalg.solve(curvature, slope)
    return weights


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "report", "fit"))
    parser.add_argument("file", type=Path)
    parser.add_argument("repositories", nargs="*", type=Path)
    parser.add_argument("--most", type=int, default=120)
    arguments = parser.parse_args()
    if arguments.what == "record":
        record(arguments.file, arguments.repositories, arguments.most)
    elif arguments.what == "report":
        report(arguments.file)
    else:
        fit(arguments.file)
