r"""Finds lines and their indentation in bytes. A line ends at `\n`, `\r\n` or `\r` only. Knows no language."""

import re
from bisect import bisect_right
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from operator import add

_LINE_END = re.compile(rb"\r\n|\n|\r")
_LEADING = re.compile(rb"[ \t\f]*")
_ENDED = re.compile(rb"(?:[{};:]|\*/|//.*)\s*$")
_OPENING = re.compile(rb"(?:[(\[{:<]|=>)\s*$")

TAB_COLUMNS = 8
"""Width of a tab when indentations are compared, as in Python."""


@dataclass(frozen=True)
class Lines:
    """The lines of `data`, numbered from 0. There is at least one line; a final line ending starts another, empty one.
    A byte order mark belongs to no line.

    `find_inert` returns the lines that begin inside a string or a comment, whose indentation is not that of code.
    """

    data: bytes
    find_inert: Callable[[], frozenset[int]] = field(default=frozenset, compare=False)

    @cached_property
    def inert(self) -> frozenset[int]:
        """What `find_inert` returns."""
        return self.find_inert()

    @cached_property
    def _bounds(self) -> tuple[list[int], list[int]]:
        """The offsets where the lines start, and where they end before their line ends."""
        if b"\r" not in self.data:  # the usual case, five times as fast
            sizes = list(map(len, self.data.split(b"\n")))
            starts = list(accumulate(map((1).__add__, sizes[:-1]), initial=0))
            ends = list(map(add, starts, sizes))
        else:
            line_ends = [match.span() for match in _LINE_END.finditer(self.data)]
            starts = [0, *(end for _, end in line_ends)]
            ends = [*(start for start, _ in line_ends), len(self.data)]
        if self.data.startswith(BOM_UTF8):
            starts[0] = len(BOM_UTF8)
        return starts, ends

    def __len__(self) -> int:
        return len(self._bounds[0])

    def start(self, line: int) -> int:
        """Offset of the first byte of `line`, counted from 0."""
        return self._bounds[0][line]

    def end(self, line: int) -> int:
        """Offset behind the last byte of `line`, its line end not counted."""
        return self._bounds[1][line]

    def at(self, offset: int) -> int:
        """The line that holds `offset`; a line end belongs to the line that it ends."""
        return max(0, bisect_right(self._bounds[0], offset) - 1)

    def content(self, line: int) -> bytes:
        return self.data[self.start(line) : self.end(line)]

    def indent(self, line: int) -> bytes:
        """The white space that `line` begins with."""
        match = _LEADING.match(self.data, self.start(line), self.end(line))
        assert match is not None
        return match.group()

    def first_char(self, line: int) -> int:
        """Offset of the first character of `line` that is not white; its end when it is blank."""
        return self.start(line) + len(self.indent(line))

    def is_blank(self, line: int) -> bool:
        return not self.content(line).strip()

    def columns(self, line: int) -> int:
        """Width of the indentation of `line`, in columns."""
        return count_columns(self.indent(line))

    @cached_property
    def _shallower(self) -> list[int]:
        """For each line the nearest filled line above that is indented less, for a blank line the nearest filled one;
        -1 if there is none.
        """
        shallower: list[int] = []
        pending = [(-1, -1)]  # the columns and numbers of filled lines above, each deeper than the one before
        for line in range(len(self)):
            is_blank = self.is_blank(line)
            columns = self.columns(line)
            while not is_blank and pending[-1][0] >= columns:
                pending.pop()
            shallower.append(pending[-1][1])
            if not is_blank:
                pending.append((columns, line))
        return shallower

    def list_openers(self, line: int, columns: int) -> Iterator[int]:
        """The numbers of the lines above `line` that open the blocks around it, innermost first, if it is indented by
        `columns`.
        """
        above = line - 1
        while above >= 0 and columns > 0:
            if not self.is_blank(above) and self.columns(above) < columns:
                columns = self.columns(above)
                yield above
            above = self._shallower[above]

    @cached_property
    def _indents(self) -> list[bytes]:
        """The white space that each line of code begins with. Blank lines do not count, nor do lines that begin with a
        star, as in a comment.
        """
        indents: list[bytes] = []
        for number in range(len(self)):
            text = self.content(number).strip()
            if text and number not in self.inert and not text.startswith(b"*"):
                indents.append(self.indent(number))
        return indents

    @cached_property
    def indent_unit(self) -> str | None:
        """The white space of one level: a tab, or the most frequent step inwards; None if no line tells it. Blank lines
        count in a file without another indented line: an editor leaves white space there.
        """
        return _find_unit(self._indents) or _find_unit(self._blank_indents)

    @property
    def _blank_indents(self) -> list[bytes]:
        """The white space of each line of code that has nothing else."""
        blank = (number for number in range(len(self)) if self.is_blank(number) and number not in self.inert)
        return [self.indent(number) for number in blank]

    @cached_property
    def mixes_indents(self) -> bool:
        """True if tabs and spaces both indent lines, the rarer over 2 % as many. A single space does not count."""
        kinds = Counter(indent[:2].replace(b"\t", b"\t\t")[:2] for indent in self._indents)
        num_tabbed = kinds[b"\t\t"]
        num_spaced = kinds[b"  "]
        return min(num_tabbed, num_spaced) * 50 > max(num_tabbed, num_spaced)

    def _list_pairs(self) -> Iterator[tuple[int, int]]:
        """The numbers of each two successive lines of code that are not blank."""
        code = (line for line in range(len(self)) if not self.is_blank(line) and line not in self.inert)
        return pairwise(code)

    @cached_property
    def _hanging(self) -> tuple[Counter[bytes], Counter[int]]:
        """How many lines are deeper than an unfinished line before them: by the first character of the white space that
        they add, and by the columns.
        """
        characters: Counter[bytes] = Counter()
        steps: Counter[int] = Counter()
        for outer, inner in self._list_pairs():
            outer_indent = self.indent(outer)
            inner_indent = self.indent(inner)
            is_deeper = inner_indent.startswith(outer_indent) and len(inner_indent) > len(outer_indent)
            if is_deeper and not is_finished(self.content(outer)):
                added = inner_indent.removeprefix(outer_indent)
                characters[added[:1]] += 1
                steps[self.columns(inner) - self.columns(outer)] += 1
        return characters, steps

    @property
    def aligns_with_spaces(self) -> bool:
        """True if more lines that go on behind an unfinished line add spaces to its indentation than add tabs."""
        characters, _ = self._hanging
        return characters[b" "] > characters[b"\t"]

    @property
    def hanging_steps(self) -> frozenset[int]:
        """The usual columns by which lines behind an unfinished line are deeper; empty if there are few such lines."""
        _, steps = self._hanging
        near = {step: count for step, count in steps.items() if step <= TAB_COLUMNS}
        total = sum(near.values())
        return frozenset(step for step, count in near.items() if count * 5 > total >= 5)

    @cached_property
    def steps(self) -> frozenset[int]:
        """The usual columns by which a line is deeper than the line before it that opens a bracket or a block."""
        steps: Counter[int] = Counter()
        for outer, inner in self._list_pairs():
            step = self.columns(inner) - self.columns(outer)
            if step > 0 and _OPENING.search(self.content(outer)):
                steps[step] += 1
        return frozenset(step for step, count in steps.items() if count * 10 > steps.total())


def _find_unit(indents: Sequence[bytes]) -> str | None:
    """The white space of one level in lines that begin with `indents`; None if they do not tell it. A single space is
    no level: ` public:` may have one.
    """
    num_tabbed = sum(indent.startswith(b"\t") for indent in indents)
    spaced = [indent for indent in indents if indent.startswith(b" ")]
    if num_tabbed and num_tabbed >= len(spaced):
        return "\t"
    widths = [len(indent) for indent in indents if b"\t" not in indent and indent != b" "]
    steps = Counter(inner - outer for outer, inner in pairwise(widths))
    inward = {step: count for step, count in steps.items() if 2 <= step <= 8}
    if inward:
        return " " * max(inward, key=lambda step: (inward[step], -step))
    shallowest = min(filter(None, widths), default=0)
    if 2 <= shallowest <= 8:
        return " " * shallowest
    return None


def count_columns(white: bytes) -> int:
    """Width of leading white space: tabs advance to multiples of 8, a form feed resets, as in Python."""
    return len(white.rpartition(b"\f")[2].expandtabs(TAB_COLUMNS))


def find_newline(data: bytes) -> str:
    r"""The most frequent line end, the first one of those that are equally frequent; `\n` if there is none."""
    if b"\r" not in data:
        return "\n"
    counts = Counter(match.group() for match in _LINE_END.finditer(data))
    return max(counts, key=lambda end: counts[end]).decode("ascii") if counts else "\n"


def is_finished(line: bytes) -> bool:
    """True for a blank line, and for one that seems to end a statement, open a block or end with a comment."""
    return not line.strip() or _ENDED.search(line) is not None
