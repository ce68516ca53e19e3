"""Lines of the texts that may stand in a gap: those nearby, those between neighbours like ours, and those renamed.

Neighbours are compared as they are and by their shapes, where all names are alike. Renamed is a line whose neighbours
have the shapes of ours: what the names became there, they become in the line (after `self.a = a` and above
`self.c = c` stands `self.b = b`). Knows lines and indents; no language, no words.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from midfill_infill.proposals.gap import Gap
from midfill_infill.proposals.words import NAME, Chunk, Lexicon

NEAR: Final = 25  # filled lines on either side
REACH: Final = 4  # neighbours that are compared on either side
MAX_ALIGNED: Final = 60
MAX_COMMON: Final = 30
MAX_SOURCES: Final = 40  # lines to rename
MAX_RENAMED: Final = 40
MIN_INNER: Final = 3  # characters of a name that is replaced inside others too
OPENERS: Final = (":", "{", "(", "[")
BRACED: Final = ("{", "}", ";")
MIN_BRACED: Final = 0.15  # of the lines

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Runs:
    """Of every line: how many lines before it, and behind it, are those around the gap, without a break."""

    up: Ints
    down: Ints

    @classmethod
    def of(cls, numbers: Ints, above: Ints, below: Ints) -> "Runs":
        """`numbers` of the lines, 0 between texts; `above` and `below` the gap stand REACH lines, nearest first."""
        ups, downs = (np.zeros(len(numbers), np.int64) for _ in range(2))
        is_up, is_down = (np.ones(len(numbers), bool) for _ in range(2))
        edge = np.zeros(REACH, np.int64)
        padded = np.concatenate((edge, numbers, edge))
        for step in range(1, REACH + 1):
            first, second = above[step - 1], below[step - 1]
            is_up &= (padded[REACH - step : REACH - step + len(numbers)] == first) & (first != 0)
            is_down &= (padded[REACH + step : REACH + step + len(numbers)] == second) & (second != 0)
            ups, downs = ups + is_up, downs + is_down
        return cls(ups, downs)


@dataclass
class Lines:
    """All filled lines of the texts by number, and their shapes'; 0 stands between texts and at the gap."""

    lexicon: Lexicon
    numbers: Ints
    shapes: Ints
    place: int  # of the first line behind the gap

    @classmethod
    def of(cls, lexicon: Lexicon, before: list[list[Chunk]], after: list[list[Chunk]]) -> "Lines":
        """`before` are the texts up to the gap, `after` those from it on."""
        edge = np.zeros(1, np.int64)
        parts: tuple[list[Ints], list[Ints]] = ([edge], [edge])
        place = 0
        for group in (before, after):
            for text in group:
                for part, chosen in zip(parts, ("lines", "shapes"), strict=True):
                    part += [*(getattr(chunk, chosen) for chunk in text), edge]
            place = place or sum(map(len, parts[0]))
        return cls(lexicon, np.concatenate(parts[0]), np.concatenate(parts[1]), place)

    @cached_property
    def exact(self) -> Runs:
        return self._runs(self.numbers)

    @cached_property
    def alike(self) -> Runs:
        return self._runs(self.shapes)

    def _runs(self, numbers: Ints) -> Runs:
        runs = Runs.of(numbers, *self._around(numbers))
        runs.up[self.place - 1] = runs.down[self.place - 1] = 0  # the gap itself
        return runs

    def _around(self, numbers: Ints) -> tuple[Ints, Ints]:
        edge = np.zeros(REACH, np.int64)
        padded, place = np.concatenate((edge, numbers, edge)), self.place - 1 + REACH
        return padded[place - REACH : place][::-1], padded[place + 1 : place + 1 + REACH]

    def find_like(self, others: Ints) -> Runs:
        """Of the lines of other texts, 0 between them: how far what stands around is what stands around the gap."""
        return Runs.of(others, *self._around(self.numbers))

    @property
    def is_braced(self) -> bool:
        """Whether lines end as they do where blocks are in braces."""
        texts = list(map(self.lexicon.lines.__getitem__, self.numbers.tolist()))
        return sum(text.endswith(BRACED) for text in texts) > MIN_BRACED * len(texts)

    @cached_property
    def distance(self) -> Ints:
        """In filled lines; the gap's own place, and what stands between texts, is no line."""
        return np.abs(np.arange(len(self.numbers)) - (self.place - 1))


@dataclass(frozen=True)
class Site:
    """The gap in its line: what stands `left` and `right` of it there, the filled lines `above` and `below`.

    A gap that `is_line` takes a whole one; `indents` are those it may have, `end` what its text ends with.
    """

    left: str
    right: str
    above: str
    below: str
    is_line: bool
    indents: tuple[str, ...]
    end: str
    opens: bool  # the line below is deeper than the gap's own
    is_beside_blank: bool
    place: int  # as `place_of` numbers it

    @classmethod
    def of(cls, gap: Gap) -> "Site":
        before, after = gap.before + gap.lead, gap.after[len(gap.tail) :]
        head, _, left = before.rpartition("\n")
        right, _, rest = after.partition("\n")
        takes_break = not left and bool(right.strip())
        is_line = not left.strip() and (not right.strip() or takes_break)
        if takes_break:
            right, rest = "", after
        above, below = _last_filled(head), _first_filled(rest)
        indents = ("",) if left else tuple(dict.fromkeys(_indents(above, below)))
        opens = is_line and len(_indent_of(below)) > len(left or indents[0])
        blank = head.endswith("\n") or rest.startswith("\n")
        end = "\n" if takes_break else ""
        place = place_of(above, left or indents[0], below, blank)
        return cls(left, right, above.strip(), below.strip(), is_line, indents, end, opens, blank, place)


def find_lines(lines: Lines, site: Site) -> list[str]:
    """Lines of the texts, every one once."""
    if not site.is_line:
        return list(dict.fromkeys(_rests(lines, site)))
    low, high = max(0, lines.place - 1 - NEAR), lines.place + NEAR
    runs = 2 * (lines.exact.up + lines.exact.down) + lines.alike.up + lines.alike.down
    order = np.lexsort((lines.distance, -runs))[:MAX_ALIGNED]
    numbers = [
        *lines.numbers[low:high].tolist(),
        *lines.numbers[order[runs[order] > 0]].tolist(),
        *find_common(lines.numbers, MAX_COMMON),
    ]
    return [lines.lexicon.lines[number] for number in dict.fromkeys(numbers) if number]


def find_common(numbers: Ints, most: int) -> list[int]:
    """Those that stand there more than once, the commonest first, of equals the first there: what a number is depends
    on earlier requests.
    """
    found, firsts, counts = np.unique(numbers[numbers > 0], return_index=True, return_counts=True)
    order = np.lexsort((firsts, -counts))[:most]
    common: list[int] = found[order[counts[order] > 1]].tolist()
    return common


def find_renamed(lines: Lines, site: Site) -> dict[str, int]:
    """Lines whose neighbours are ours but for names, renamed so that the neighbours are ours; how many say so."""
    votes: Counter[str] = Counter()
    if not site.is_line:
        return votes
    alike = lines.alike
    runs = alike.up + alike.down + 2 * ((alike.up > 0) & (alike.down > 0))
    order = np.lexsort((lines.distance, -runs))[:MAX_SOURCES]
    for index in order[(runs[order] > 0) & (lines.numbers[order] > 0)].tolist():
        names: dict[str, str] | None = {}
        for has_run, step, ours in ((alike.up[index], -1, site.above), (alike.down[index], 1, site.below)):
            if has_run and names is not None:
                names = _names(lines.lexicon.lines[lines.numbers[index + step]], ours, names)
        source = lines.lexicon.lines[lines.numbers[index]]
        text = rename(source, {old: new for old, new in names.items() if old != new}) if names else source
        if text != source:
            votes[text] += 1
    return dict(votes.most_common(MAX_RENAMED))


def _names(line: str, ours: str, names: dict[str, str]) -> dict[str, str] | None:
    """`names` and what each name of `line` is called in ours; None where two answers clash."""
    found = dict(names)
    for old, new in zip(NAME.findall(line), NAME.findall(ours), strict=False):
        if found.setdefault(old, new) != new:
            return None
    return found


def rename(line: str, names: dict[str, str]) -> str:
    """Whole names first; a longer name that holds another, such as test_NAME, follows it."""
    inner = [(old, new) for old, new in names.items() if len(old) >= MIN_INNER and not old.isdigit()]

    def one(name: str) -> str:
        if name in names:
            return names[name]
        for old, new in inner:
            if old in name:
                return name.replace(old, new)
        return name

    return NAME.sub(lambda match: one(match.group()), line)


def _rests(lines: Lines, site: Site) -> Iterator[str]:
    """What lines have between the same beginning and the same end."""
    left, right = site.left.lstrip(), site.right.rstrip()
    for line in map(lines.lexicon.lines.__getitem__, dict.fromkeys(lines.numbers.tolist())):
        if line.startswith(left) and line.endswith(right) and len(line) > len(left) + len(right):
            yield line[len(left) : len(line) - len(right)]


def _last_filled(text: str) -> str:
    while text:
        text, _, line = text.rpartition("\n")
        if line.strip():
            return line
    return ""


def _first_filled(text: str) -> str:
    while text:
        line, _, text = text.partition("\n")
        if line.strip():
            return line
    return ""


def _indents(above: str, below: str) -> Iterator[str]:
    """What the line may begin with, the likeliest first."""
    first, second = _indent_of(above), _indent_of(below)
    if above.rstrip().endswith(OPENERS):
        unit = "\t" if first.startswith("\t") or second.startswith("\t") else "    "
        if len(second) > len(first):
            yield second
        if len(second) <= len(first) or len(second) >= len(first) + 2 * len(unit):  # then the line itself may open
            yield first + unit
    else:
        yield first
    yield second


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def place_of(above: str, indent: str, below: str, is_beside_blank: bool) -> int:
    """Where a line with `indent` stands, between whole lines; empty for none."""
    first = _compare(indent, above) if above else 0
    second = -_compare(indent, below) if below else 0
    return 6 * (first + 1) + 2 * (second + 1) + is_beside_blank


def _compare(indent: str, other: str) -> int:
    """1 if `indent` is deeper than that of the line `other`, -1 if it is shallower."""
    depth = len(other) - len(other.lstrip())
    return (len(indent) > depth) - (len(indent) < depth)
