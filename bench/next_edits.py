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
from typing import Any

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

Unit = tuple[int, int, int, int]
Row = dict[str, Any]


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
    units = find_units(old, new)
    marks = [signature(b"".join(old[a:b]), b"".join(new[c:d])) for a, b, c, d in units]
    within = [
        n for n, (a, b, c, d) in enumerate(units) if marks[n] and 0 < b - a <= MOST_LINES and 0 < d - c <= MOST_LINES
    ]
    if not within:
        return []
    first = within[0]
    like = [n for n in range(len(units)) if n != first and marks[n] == marks[first]]
    edits = Commit(old, new, units, path)
    try:
        return [edits.propose([first], len(like)), *(edits.propose([first, n], len(like) - 1) for n in like[:1])]
    except MidfillError:  # no text
        return []


def find_units(before: list[bytes], after: list[bytes]) -> list[Unit]:
    """Changed lines, `[a, b)` of the old and `[c, d)` of the new text; splits runs of equal length into lines."""
    opcodes = [
        code for code in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if code[0] != "equal"
    ]
    units: list[Unit] = []
    for _, a, b, c, d in opcodes:
        units += [(a + n, a + n + 1, c + n, c + n + 1) for n in range(b - a)] if b - a == d - c else [(a, b, c, d)]
    return units if len(opcodes) <= MOST_UNITS and len(units) <= 3 * MOST_UNITS else []


def differences(old: bytes, new: bytes) -> list[tuple[int, int, tuple[bytes, ...], tuple[bytes, ...]]]:
    one, other = Tokens(old).texts, Tokens(new).texts
    codes = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return [(a, b, tuple(one[a:b]), tuple(other[c:d])) for tag, a, b, c, d in codes if tag != "equal"]


def signature(old: bytes, new: bytes) -> tuple[Any, ...]:
    """The replaced and the new tokens of a change: equal for like changes, empty if none differ."""
    found = [difference[2:] for difference in differences(old, new)]
    return found[0] if len(set(found)) == 1 else tuple(found)


def is_step(was: bytes, proposed: bytes, wants: bytes) -> bool:
    """True if a proposal does what the commit did, or a part of it, and nothing else."""
    mine = differences(was, proposed)
    return proposed == wants or (bool(mine) and set(mine) <= set(differences(was, wants)))


class Commit:
    """The changes of one file, of which some have been made."""

    def __init__(self, old: list[bytes], new: list[bytes], units: list[Unit], path: Path) -> None:
        self.old, self.new, self.units, self.path = old, new, units, path

    def make(self, made: Sequence[int]) -> bytes:
        parts, position = [], 0
        for a, b, c, d in (self.units[number] for number in sorted(made)):
            parts += [*self.old[position:a], *self.new[c:d]]
            position = b
        return b"".join([*parts, *self.old[position:]])

    def place_of(self, number: int, made: Sequence[int]) -> tuple[int, int]:
        """The byte range of the old lines of a unit that was not made."""
        a, b = self.units[number][:2]
        before = self.make([other for other in made if other < number])
        start = len(before) - sum(map(len, self.old[a:]))
        return start, start + sum(map(len, self.old[a:b]))

    def propose(self, made: list[int], num_like: int) -> Row:
        before, state = self.make(made[:-1]), self.make(made)
        todo = {number: self.place_of(number, made) for number in range(len(self.units)) if number not in made}

        def is_right(span: tuple[int, int], text: bytes) -> bool:
            for number, (start, end) in todo.items():
                if start <= span[0] and span[1] <= end:
                    was, wants = state[start:end], b"".join(self.new[slice(*self.units[number][2:])])
                    return is_step(was, was[: span[0] - start] + text + was[span[1] - start :], wants)
            return False

        return {"like": num_like, "seen": len(made) - 1, "shown": self._show(before, state, made, is_right)} | {
            "places": self._list(before, state, len(made) - 1, is_right)
        }

    def _show(self, before: bytes, state: bytes, made: list[int], is_right: Callable[..., bool]) -> list[Row]:
        """The proposals that the product would show."""
        earlier: Versions | None = (self.make([]), before) if len(made) > 1 else None
        documents = (Document.from_bytes(text, self.path) for text in (before, state))
        return [
            {
                "right": is_right((repeat.edit.start_byte, repeat.edit.end_byte), repeat.edit.replacement),
                "certainty": round(repeat.certainty, 4),
                "unasked": repeat.is_likely,
                "open": bool(repeat.unmatched),
                "at": repeat.edit.start_byte,
            }  # fmt: skip
            for repeat in find_repeats(next(documents), next(documents), earlier)
        ]

    def _list(self, before: bytes, state: bytes, seen: int, is_right: Callable[..., bool]) -> list[Row]:
        """The rows that the weights are fitted on."""
        read = read_change(get_language(find_language(self.path, state) or ""), before, state)
        if read is None:
            return []
        change, trees = read
        places = find_places(change)
        return [
            {"right": is_right(place.span, place.text), "at": place.tokens[0] - change.new_span[0]}
            | {"features": describe(change, place, places, trees) | {"seen": float(seen)}}
            for place in places
        ]


def load(path: Path) -> list[Row]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def report(path: Path) -> None:
    rows = load(path)
    once, twice = [row for row in rows if not row["seen"]], [row for row in rows if row["seen"]]
    print(f"{len(once)} edits, {sum(bool(row['like']) for row in once)} of which repeat in their file")
    for name, some, key in (
        ("asked for, after an edit that repeats", [row for row in once if row["like"]], None),
        ("asked for, after any edit", once, None),
        ("unasked, after the same edit twice", twice, "unasked"),
        ("first of them", twice, "first"),
    ):
        counted = [count(row, key) for row in some]
        print(f"{name}: {len(some)} edits; " + "; ".join(f"{word} {ratio}" for word, ratio in rate(counted)))


def count(row: Row, key: str | None) -> tuple[int, int, int]:
    """The numbers of right proposals, of all proposals, and of edits to find."""
    shown = [each for each in row["shown"] if not each["open"] and (key is None or each["unasked"])]
    if key == "first":
        shown = sorted(shown, key=lambda each: each["at"])[:1]
    return sum(each["right"] for each in shown), len(shown), row["like"]


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
        shown = [likely for row in judged if (likely := [place for place, certainty in row if certainty >= least])]
        every, first = (
            [place for row in shown for place in row],
            [min(row, key=lambda each: each["at"]) for row in shown],
        )
        right = [f"{sum(place['right'] for place in some)} of {len(some)}" for some in (every, first)]
        print(f"{least}: right are {right[0]}, of the first ones {right[1]}")


def leave_out(rows: list[Row], names: list[str]) -> Iterator[list[tuple[Row, float]]]:
    """The places after the same edit twice, scored by weights fitted on other repositories."""
    repos = sorted({row["repo"] for row in rows})
    for left in (repos[number::FOLDS] for number in range(FOLDS)):
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
    places = [(place, len(row["places"]) ** -0.5) for row in rows for place in list_behind(row)]
    x = np.array([list_features(place, names) for place, _ in places])
    y, w = np.array([place["right"] for place, _ in places], float), np.array([weight for _, weight in places])
    weights = np.zeros(len(names) + 1)
    free = np.array([*[2.0] * len(names), 0])
    for _ in range(40):
        p = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (w * (p - y)) + free * weights
        weights -= np.linalg.solve((x * (w * p * (1 - p))[:, None]).T @ x + np.diag(free + 1e-9), slope)
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
    else:
        (report if arguments.what == "report" else fit)(arguments.file)
