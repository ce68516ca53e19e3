"""Finds the filled lines around a gap, lines with neighbors like the gap's, and renames these to fit the gap.

Neighbors are compared verbatim and by shape, in which all names are equal. If a line's neighbors have the shapes of the
gap's, the renaming from its neighbors to the gap's is applied to the line: after `self.a = a` and above `self.c = c`
stands `self.b = b`. Knows lines and indents; no language.
"""

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

NAME: Final = re.compile(r"\w+")
REACH: Final = 4  # neighbors compared on either side
MAX_POSITIONS: Final = 1000  # positions examined per neighbor
MAX_SOURCES: Final = 40  # lines to rename
MAX_RENAMED: Final = 40
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
    """The lines that are not blank, stripped."""
    return filter(None, map(str.strip, text.split("\n")))


def join_filled(texts: Sequence[str]) -> Iterator[str]:
    """The filled lines of some texts, with "" before each text."""
    for text in texts:
        yield ""
        yield from filled_lines(text)


@dataclass(frozen=True)
class Site:
    """A gap in its line: the text `left` and `right` of it, and the filled lines `above` and `below`.

    If `is_line`, the gap is a whole line. `indents` are the indents it may have, `end` is the end of its text. `head`
    and `rest` are the text before and behind the gap's line.
    """

    left: str
    right: str
    above: str
    below: str
    is_line: bool
    indents: tuple[str, ...]
    end: str
    depth_below: int  # indent of the line below, in characters
    is_beside_blank: bool
    head: str
    rest: str

    @classmethod
    def of(cls, before: str, after: str) -> "Site":
        """The gap between two texts."""
        head, _, left = before.rpartition("\n")
        right, _, rest = after.partition("\n")
        takes_break = not left and bool(right.strip())
        is_line = not left.strip() and (not right.strip() or takes_break)
        if takes_break:
            right, rest = "", after
        above = _first_filled(reversed(head[-4096:].split("\n")))
        below = _first_filled(rest[:4096].split("\n"))
        indents = [""]
        if not left:
            indents = list(dict.fromkeys(_indents(above, below)))
        return cls(
            left=left,
            right=right,
            above=above.strip(),
            below=below.strip(),
            is_line=is_line,
            indents=tuple(indents),
            end="\n" if takes_break else "",
            depth_below=len(_indent_of(below)) if is_line else 0,
            is_beside_blank=head.endswith("\n") or rest.startswith("\n"),
            head=head,
            rest=rest,
        )

    def opens(self, indent: int = 0) -> bool:
        """True if the line below is indented deeper than the gap with the indent of that number."""
        return self.depth_below > len(self.left or self.indents[indent])


@dataclass(frozen=True)
class Runs:
    """By a line's number: how many consecutive lines before it (`up`) and behind it (`down`) equal those of the gap."""

    up: Mapping[int, int]
    down: Mapping[int, int]

    @property
    def both(self) -> Counter[int]:
        return Counter(self.up) + Counter(self.down)


@dataclass(frozen=True)
class Corpus:
    """Filled lines in order, with "" between texts. In the gap's document "" also stands at the number `gap`."""

    texts: Sequence[str]
    gap: int = -1

    @classmethod
    def around(cls, before: Sequence[str], after: Sequence[str]) -> "Corpus":
        """The lines of the texts before and behind a gap."""
        head = list(join_filled(before))
        tail = list(join_filled(after))
        return cls([*head, *tail, ""], len(head))

    @cached_property
    def shapes(self) -> "Corpus":
        return Corpus(list(map(shape_of, self.texts)), self.gap)

    @cached_property
    def times(self) -> Counter[str]:
        """How often each line stands."""
        return Counter(filter(None, self.texts))

    def common(self, most: int) -> list[str]:
        """The commonest lines that stand more than once."""
        return [text for text, times in self.times.most_common(most) if times > 1]

    @cached_property
    def numbers(self) -> Mapping[str, Sequence[int]]:
        """Where each line stands."""
        numbers = defaultdict[str, list[int]](list)
        for number, text in enumerate(self.texts):
            numbers[text].append(number)
        return numbers

    @cached_property
    def above(self) -> list[str]:
        """The lines above the gap, the nearest first."""
        lines = self.texts[max(0, self.gap - REACH) : self.gap]
        return _fill_up(lines[::-1])

    @cached_property
    def below(self) -> list[str]:
        """The lines below the gap, the nearest first."""
        first = self.gap + 1
        return _fill_up(self.texts[first : first + REACH])

    @cached_property
    def runs(self) -> Runs:
        return self.find_runs(self.above, self.below)

    def find_runs(self, above: Sequence[str], below: Sequence[str]) -> Runs:
        """The runs of lines like these."""
        up = self._find_run(above, -1)
        down = self._find_run(below, 1)
        return Runs(up, down)

    def _find_run(self, neighbours: Sequence[str], step: int) -> dict[int, int]:
        """By a line's number, how many of its neighbors in one direction are these."""
        runs: dict[int, int] = {}
        if not neighbours[0]:
            return runs
        for near in self.numbers.get(neighbours[0], ())[:MAX_POSITIONS]:
            number = near - step
            if not 0 <= number < len(self.texts) or number == self.gap or not self.texts[number]:
                continue
            size = 1
            while size < REACH and neighbours[size]:
                far = near + step * size
                if not 0 <= far < len(self.texts) or self.texts[far] != neighbours[size]:
                    break
                size += 1
            runs[number] = size
        return runs

    def aligned(self, most: int) -> list[int]:
        """Numbers of lines with neighbors like the gap's, verbatim or by shape; the best first."""
        scores = self.shapes.runs.both
        for number, size in self.runs.both.items():
            scores[number] += 2 * size
        return self.best(scores, most)

    def best(self, scores: Mapping[int, int], most: int) -> list[int]:
        """The numbers with the highest scores; of equal ones, those nearest to the gap."""
        return sorted(scores, key=lambda number: (-scores[number], abs(number - self.gap)))[:most]


def find_renamed(lines: Corpus, site: Site) -> dict[str, int]:
    """Lines renamed so that their neighbors become the gap's, each with the number of lines that give it."""
    runs = lines.shapes.runs
    scores = runs.both
    for number in runs.up.keys() & runs.down.keys():
        scores[number] += 2
    votes: Counter[str] = Counter()
    for number in lines.best(scores, MAX_SOURCES):
        source = lines.texts[number]
        text = rename(source, _find_renaming(lines, number, site))
        if text != source:
            votes[text] += 1
    return dict(votes.most_common(MAX_RENAMED))


def _find_renaming(lines: Corpus, number: int, site: Site) -> dict[str, str]:
    """The names that a line's neighbors have and others beside the gap, with these; empty if two disagree."""
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
    """The names of two lines that correspond by their order."""
    return zip(NAME.findall(line), NAME.findall(other), strict=False)


def rename(line: str, names: dict[str, str]) -> str:
    """Replaces whole names, otherwise a part of a longer name, such as test_NAME."""
    inner = [(old, new) for old, new in names.items() if len(old) >= MIN_INNER and not old.isdigit()]

    def one(name: str) -> str:
        if name in names:
            return names[name]
        for old, new in inner:
            if old in name:
                return name.replace(old, new)
        return name

    return NAME.sub(lambda match: one(match.group()), line)


def _indents(above: str, below: str) -> Iterator[str]:
    """Possible indents of the line, the likeliest first."""
    first = _indent_of(above)
    second = _indent_of(below)
    if above.rstrip().endswith(OPENERS):
        unit = "    "
        if first.startswith("\t") or second.startswith("\t"):
            unit = "\t"
        if len(second) > len(first):
            yield second
        if len(second) <= len(first) or len(second) >= len(first) + 2 * len(unit):  # the line may open a block
            yield first + unit
    else:
        yield first
    yield second


def _indent_of(line: str) -> str:
    """The white space that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def _first_filled(lines: Iterable[str]) -> str:
    """The first line that is not blank; "" if there is none."""
    return next((line for line in lines if line.strip()), "")


def _fill_up(neighbours: Sequence[str]) -> list[str]:
    """As many as are compared: behind the last "" at the end of the file."""
    missing = REACH - len(neighbours)
    return [*neighbours, *([""] * missing)]
