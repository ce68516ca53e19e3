"""Finds lines whose neighbors are like the neighbors of a gap, and replaces names in them so that they fit the gap.

Neighbors are compared verbatim and by shape; in a shape, all names are equal. If the neighbors of a line and of the gap
have equal shapes, the names in which these differ are replaced in the line: where `read(a)` stands below `open(a)`, a
gap below `open(b)` gets `read(b)`. Knows lines and indents; no language.
"""

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from midfill_infill.text.document import DEFAULT_INDENT

NAME: Final = re.compile(r"\w+")
REACH: Final = 4  # neighbors compared on either side
MAX_POSITIONS: Final = 1000  # positions examined per neighbor
MAX_SOURCES: Final = 40  # lines in which names are replaced
MAX_RENAMED: Final = 40  # different lines that result
MAX_SEARCHED: Final = 4096  # characters, in whole lines, that are searched for the filled line above and below a gap
MIN_INNER: Final = 3  # minimum length of a name that is also replaced inside longer names
OPENERS: Final = (":", "{", "(", "[")
_ALIKE: Final = str.maketrans(dict.fromkeys(string.ascii_letters + string.digits + "_", "w"))
_LONG: Final = re.compile("ww+")


@lru_cache(maxsize=2**15)
def shape_of(text: str) -> str:
    """The text with every name and number replaced by `w`."""
    if text.isascii():
        return "w".join(_LONG.split(text.translate(_ALIKE)))
    return "w".join(NAME.split(text))


def filled_lines(text: str) -> Iterator[str]:
    """The lines that are not blank, without white space at both ends."""
    stripped = (line.strip() for line in text.split("\n"))
    return (line for line in stripped if line)


def join_filled(texts: Sequence[str]) -> Iterator[str]:
    """The filled lines of all texts, with "" before those of each text."""
    for text in texts:
        yield ""
        yield from filled_lines(text)


@dataclass(frozen=True)
class Site:
    """A gap in its line: the text `left` and `right` of it, and the stripped filled lines `above` and `below`.

    If `is_line`, the gap is a whole line. Its text begins with one of `indents`, the likeliest first; there is only ""
    if an indent or text stands left of the gap. It ends with `line_break`, which is "" unless the gap is at the
    beginning of a line with text. `before_line` and `behind_line` are all text before and behind the gap's line.
    """

    left: str
    right: str
    above: str
    below: str
    is_line: bool
    indents: tuple[str, ...]
    line_break: str
    depth_below: int  # characters of indent of the line below; 0 for a gap inside a line
    is_beside_blank: bool
    before_line: str
    behind_line: str

    @classmethod
    def of(cls, before: str, after: str, unit: str = DEFAULT_INDENT) -> "Site":
        """The gap between two texts, whose blocks are indented by `unit`."""
        before_line, _, left = before.rpartition("\n")
        right, _, behind_line = after.partition("\n")
        needs_line_break = not left and bool(right.strip())
        is_line = not left.strip() and (not right.strip() or needs_line_break)
        if needs_line_break:
            right, behind_line = "", after
        start = before_line.rfind("\n", 0, -MAX_SEARCHED) + 1
        above = _first_filled(reversed(before_line[start:].split("\n")))
        last_line, _, _ = behind_line[MAX_SEARCHED:].partition("\n")
        below = _first_filled((behind_line[:MAX_SEARCHED] + last_line).split("\n"))
        indents = [""]
        if not left:
            indents = list(dict.fromkeys(_indents(above, below, unit)))
        return cls(
            left=left,
            right=right,
            above=above.strip(),
            below=below.strip(),
            is_line=is_line,
            indents=tuple(indents),
            line_break="\n" if needs_line_break else "",
            depth_below=len(_indent_of(below)) if is_line else 0,
            is_beside_blank=before_line.endswith("\n") or behind_line.startswith("\n"),
            before_line=before_line,
            behind_line=behind_line,
        )

    def has_block_below(self, indent_index: int = 0) -> bool:
        """True if the line below is indented deeper than the gap's line with that one of its indents."""
        return self.depth_below > len(self.left or self.indents[indent_index])


@dataclass(frozen=True)
class Runs:
    """By a line's number: how many lines in a row above (`up`) and below (`down`) it equal the gap's; 0 is left out."""

    up: Mapping[int, int]
    down: Mapping[int, int]

    @property
    def both(self) -> Counter[int]:
        """The sums of the runs in both directions."""
        return Counter(self.up) + Counter(self.down)


@dataclass(frozen=True)
class Corpus:
    """Filled lines in order, with "" between texts and for the gap, `texts[gap]`; without a gap, `gap` is -1."""

    texts: Sequence[str]
    gap: int = -1

    @classmethod
    def around(cls, before: Sequence[str], after: Sequence[str]) -> "Corpus":
        """The lines of the texts before and behind a gap."""
        head = list(join_filled(before))
        tail = list(join_filled(after))  # its first "" stands for the gap
        return cls([*head, *tail, ""], len(head))

    @cached_property
    def shapes(self) -> "Corpus":
        """The shapes of all lines, with the same numbers."""
        return Corpus(list(map(shape_of, self.texts)), self.gap)

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each line occurs."""
        return Counter(text for text in self.texts if text)

    def find_common(self, limit: int) -> list[str]:
        """The commonest lines, at most `limit`; all of them occur more than once."""
        return [text for text, count in self.counts.most_common(limit) if count > 1]

    @cached_property
    def numbers(self) -> Mapping[str, Sequence[int]]:
        """The numbers of each line, in order: its indexes in `texts`."""
        numbers = defaultdict[str, list[int]](list)
        for number, text in enumerate(self.texts):
            numbers[text].append(number)
        return numbers

    @cached_property
    def above(self) -> list[str]:
        """The REACH lines above the gap, the nearest first; "" for what is missing at the beginning of the document."""
        lines = self.texts[max(0, self.gap - REACH) : self.gap]
        return _pad(lines[::-1])

    @cached_property
    def below(self) -> list[str]:
        """The REACH lines below the gap, the nearest first; "" for what is missing at the end of the document."""
        first = self.gap + 1
        return _pad(self.texts[first : first + REACH])

    @cached_property
    def runs(self) -> Runs:
        """The runs of the document's own lines."""
        return self.find_runs(self.above, self.below)

    def find_runs(self, above: Sequence[str], below: Sequence[str]) -> Runs:
        """The runs of all lines, compared with the lines `above` and `below` a gap, both the nearest first."""
        up = self._find_runs(above, -1)
        down = self._find_runs(below, 1)
        return Runs(up, down)

    def _find_runs(self, neighbors: Sequence[str], step: int) -> dict[int, int]:
        """The runs in one direction, by a line's number: upward if `step` is -1, downward if it is 1."""
        runs: dict[int, int] = {}
        if not neighbors[0]:
            return runs
        for nearest in self.numbers.get(neighbors[0], ())[:MAX_POSITIONS]:
            number = nearest - step
            if not 0 <= number < len(self.texts) or number == self.gap or not self.texts[number]:
                continue
            size = 1
            while size < REACH and neighbors[size]:
                next_number = nearest + step * size
                if not 0 <= next_number < len(self.texts) or self.texts[next_number] != neighbors[size]:
                    break
                size += 1
            runs[number] = size
        return runs

    def find_aligned(self, limit: int) -> list[int]:
        """Numbers of at most `limit` lines with neighbors like the gap's, verbatim or by shape; the best first."""
        scores = self.shapes.runs.both
        for number, size in self.runs.both.items():
            scores[number] += 2 * size
        return self.find_best(scores, limit)

    def find_best(self, scores: Mapping[int, int], limit: int) -> list[int]:
        """The numbers with the highest scores, at most `limit`; of equal scores, the nearest to the gap first."""
        return sorted(scores, key=lambda number: (-scores[number], abs(number - self.gap)))[:limit]


def find_renamed(lines: Corpus, site: Site) -> dict[str, int]:
    """Replaces names in lines so that their neighbors become the gap's. Returns the resulting lines, each with how many
    lines it resulted from; lines in which nothing is replaced are left out.
    """
    runs = lines.shapes.runs
    scores = runs.both
    for number in runs.up.keys() & runs.down.keys():
        scores[number] += 2
    votes: Counter[str] = Counter()
    for number in lines.find_best(scores, MAX_SOURCES):
        source = lines.texts[number]
        text = rename(source, _find_renaming(lines, number, site))
        if text != source:
            votes[text] += 1
    return dict(votes.most_common(MAX_RENAMED))


def _find_renaming(lines: Corpus, number: int, site: Site) -> dict[str, str]:
    """Maps names of a line's neighbors to the different names in their places beside the gap; empty if one has two."""
    runs = lines.shapes.runs
    pairs: list[tuple[str, str]] = []
    if number in runs.up:
        pairs += _pair_names(lines.texts[number - 1], site.above)
    if number in runs.down:
        pairs += _pair_names(lines.texts[number + 1], site.below)
    names: dict[str, str] = {}
    for old, new in pairs:
        if names.setdefault(old, new) != new:
            return {}
    return {old: new for old, new in names.items() if old != new}


def _pair_names(line: str, other: str) -> Iterator[tuple[str, str]]:
    """Pairs of the names of two lines that correspond by their order."""
    return zip(NAME.findall(line), NAME.findall(other), strict=False)


def rename(line: str, names: dict[str, str]) -> str:
    """Replaces whole names of a line, or a part of a longer name, such as the NAME of test_NAME."""
    inner = [(old, new) for old, new in names.items() if len(old) >= MIN_INNER and not old.isdigit()]

    def find_new_name(name: str) -> str:
        if name in names:
            return names[name]
        for old, new in inner:
            if old in name:
                return name.replace(old, new)
        return name

    return NAME.sub(lambda match: find_new_name(match.group()), line)


def _indents(above: str, below: str, unit: str) -> Iterator[str]:
    """Possible indents of a line between two filled lines, the likeliest first; one may be repeated."""
    indent_above = _indent_of(above)
    indent_below = _indent_of(below)
    if above.rstrip().endswith(OPENERS):
        if indent_above.startswith("\t") or indent_below.startswith("\t"):
            unit = "\t"
        if len(indent_below) > len(indent_above):
            yield indent_below
        may_open_block = len(indent_below) >= len(indent_above) + 2 * len(unit)
        if len(indent_below) <= len(indent_above) or may_open_block:
            yield indent_above + unit
    else:
        yield indent_above
    yield indent_below


def _indent_of(line: str) -> str:
    """The white space that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def _first_filled(lines: Iterable[str]) -> str:
    """The first line that is not blank; "" if there is none."""
    return next((line for line in lines if line.strip()), "")


def _pad(neighbors: Sequence[str]) -> list[str]:
    """REACH neighbors: those that are given, then "", which ends every run."""
    num_missing = REACH - len(neighbors)
    return [*neighbors, *([""] * num_missing)]
