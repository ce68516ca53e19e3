"""Finds the filled lines around a gap, lines with neighbors like the gap's, and renames these to fit the gap.

Neighbors are compared verbatim and by shape, in which all names are equal. If a line's neighbors have the shapes of the
gap's, the renaming from its neighbors to the gap's is applied to the line: after `self.a = a` and above `self.c = c`
stands `self.b = b`. Knows lines and indents; no language.
"""

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

NAME: Final = re.compile(r"\w+")
REACH: Final = 4  # neighbors compared on either side
MAX_PLACES: Final = 1000  # positions examined per neighbor
MAX_SOURCES: Final = 40  # lines to rename
MAX_RENAMED: Final = 40
MIN_INNER: Final = 3  # minimum length of a name that is also replaced inside longer names
OPENERS: Final = (":", "{", "(", "[")
_ALIKE: Final = str.maketrans(dict.fromkeys(string.ascii_letters + string.digits + "_", "w"))
_LONG: Final = re.compile("ww+")


@lru_cache(maxsize=2**15)
def shape_of(text: str) -> str:
    """The text with every name and number replaced by `w`."""
    return "w".join(_LONG.split(text.translate(_ALIKE)) if text.isascii() else NAME.split(text))


def filled_lines(text: str) -> Iterator[str]:
    """The lines that are not blank, stripped."""
    return filter(None, map(str.strip, text.split("\n")))


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
        head, _, left = before.rpartition("\n")
        right, _, rest = after.partition("\n")
        takes_break = not left and bool(right.strip())
        is_line = not left.strip() and (not right.strip() or takes_break)
        if takes_break:
            right, rest = "", after
        above = next((line for line in reversed(head[-4096:].split("\n")) if line.strip()), "")
        below = next((line for line in rest[:4096].split("\n") if line.strip()), "")
        indents = ("",) if left else tuple(dict.fromkeys(_indents(above, below)))
        is_beside_blank = head.endswith("\n") or rest.startswith("\n")
        end = "\n" if takes_break else ""
        depth = len(_indent_of(below)) if is_line else 0
        above, below = above.strip(), below.strip()
        return cls(left, right, above, below, is_line, indents, end, depth, is_beside_blank, head, rest)

    def opens(self, indent: int = 0) -> bool:
        """True if the line below is indented deeper than the gap with the indent of that number."""
        return self.depth_below > len(self.left or self.indents[indent])


@dataclass(frozen=True)
class Runs:
    """By a line's place: how many consecutive lines before it (`up`) and behind it (`down`) equal those of the gap."""

    up: Mapping[int, int]
    down: Mapping[int, int]

    @property
    def both(self) -> Counter[int]:
        return Counter(self.up) + Counter(self.down)


@dataclass(frozen=True)
class Corpus:
    """Filled lines in order, with "" between texts. In the gap's document "" also stands at `place`, the gap."""

    texts: Sequence[str]
    place: int = -1

    @classmethod
    def around(cls, before: Sequence[str], after: Sequence[str]) -> "Corpus":
        head = [line for text in before for line in ("", *filled_lines(text))]
        return cls([*head, *(line for text in after for line in ("", *filled_lines(text))), ""], len(head))

    @cached_property
    def shapes(self) -> "Corpus":
        return Corpus(list(map(shape_of, self.texts)), self.place)

    @cached_property
    def times(self) -> Counter[str]:
        return Counter(filter(None, self.texts))

    @cached_property
    def places(self) -> Mapping[str, Sequence[int]]:
        found = defaultdict[str, list[int]](list)
        for place, text in enumerate(self.texts):
            found[text].append(place)
        return found

    @cached_property
    def above(self) -> list[str]:
        """The lines above the gap, the nearest first."""
        return [*reversed(self.texts[max(0, self.place - REACH) : self.place]), *([""] * REACH)][:REACH]

    @cached_property
    def below(self) -> list[str]:
        return [*self.texts[self.place + 1 : self.place + 1 + REACH], *([""] * REACH)][:REACH]

    @cached_property
    def runs(self) -> Runs:
        return self.find_runs(self.above, self.below)

    def find_runs(self, above: Sequence[str], below: Sequence[str]) -> Runs:
        return Runs(self._find_run(above, -1), self._find_run(below, 1))

    def _find_run(self, neighbours: Sequence[str], step: int) -> dict[int, int]:
        found = {}
        for near in self.places.get(neighbours[0], ())[:MAX_PLACES] if neighbours[0] else ():
            place, size = near - step, 1
            while size < REACH and 0 <= (far := near + step * size) < len(self.texts):
                if not neighbours[size] or self.texts[far] != neighbours[size]:
                    break
                size += 1
            if 0 <= place < len(self.texts) and place != self.place and self.texts[place]:
                found[place] = size
        return found

    def aligned(self, most: int) -> list[int]:
        """Places of lines with neighbors like the gap's, verbatim or by shape; the best first."""
        score = self.shapes.runs.both
        for place, size in self.runs.both.items():
            score[place] += 2 * size
        return sorted(score, key=lambda place: (-score[place], abs(place - self.place)))[:most]


def find_renamed(lines: Corpus, site: Site) -> dict[str, int]:
    """Lines renamed so that their neighbors become the gap's, each with the number of lines that give it."""
    runs = lines.shapes.runs
    score = {place: size + 2 * (place in runs.up and place in runs.down) for place, size in runs.both.items()}
    votes: Counter[str] = Counter()
    for place in sorted(score, key=lambda place: (-score[place], abs(place - lines.place)))[:MAX_SOURCES]:
        names: dict[str, str] | None = {}
        for has_run, step, ours in ((place in runs.up, -1, site.above), (place in runs.down, 1, site.below)):
            if has_run and names is not None:
                names = _names(lines.texts[place + step], ours, names)
        source = lines.texts[place]
        text = rename(source, {old: new for old, new in names.items() if old != new}) if names else source
        if text != source:
            votes[text] += 1
    return dict(votes.most_common(MAX_RENAMED))


def _names(line: str, ours: str, names: dict[str, str]) -> dict[str, str] | None:
    """`names` plus the name in `ours` for each name of `line`; None if two of these disagree."""
    found = dict(names)
    for old, new in zip(NAME.findall(line), NAME.findall(ours), strict=False):
        if found.setdefault(old, new) != new:
            return None
    return found


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
    first, second = _indent_of(above), _indent_of(below)
    if above.rstrip().endswith(OPENERS):
        unit = "\t" if first.startswith("\t") or second.startswith("\t") else "    "
        if len(second) > len(first):
            yield second
        if len(second) <= len(first) or len(second) >= len(first) + 2 * len(unit):  # the line may open a block
            yield first + unit
    else:
        yield first
    yield second


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
