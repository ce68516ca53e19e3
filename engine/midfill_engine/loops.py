"""Finds where a text begins to repeat itself. Knows lines, no language."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

ROUNDS: Final = 3  # a shorter group or run is a loop if it comes so often
LONG_GROUP: Final = 4  # lines; a group of so many or more is a loop if it comes twice
COUNTING_LINES: Final = 12  # a loop in which numbers count has at least so many lines
MIN_RUN: Final = 24  # characters
_AGAIN: Final = re.compile(r"(?i)([^\W\d_]\w{0,40}?[^\W_])(?:[_.]*\1)+|([^\W\d_])(?:[_.]+\2)+")  # itemItem, a.b.b
_NUMBER: Final = re.compile(r"0|[1-9]\d{0,8}")

Shape = tuple[str, tuple[int, ...]]  # see `shape`


def find_loop(lines: Sequence[str]) -> int | None:
    """How many lines to keep if the lines end in a loop: those up to the end of its first round. None without a loop.

    Rounds are groups of lines that differ at most in blank lines, in how often a name has a part (`path`, `path_path`),
    or in numbers that change by the same steps. Lines that end in commas may be a list, whose items often are equal or
    counted. Of 83,688 bodies of functions in eight languages 34 have a loop.
    """
    indices = [index for index, line in enumerate(lines) if line.strip()]
    texts = [lines[index].rstrip() for index in indices]
    shapes = list(map(shape, texts))
    for size in range(1, len(texts) // 2 + 1):
        if shapes[-1][0] != shapes[-1 - size][0]:  # the last lines of two groups
            continue
        groups = (shapes[end - size : end] for end in range(len(texts), size - 1, -size))  # the last one first
        rounds, is_counting = count_rounds(groups)
        is_list = all(text.endswith(",") for text in texts[-size:])
        if is_counting:
            is_loop = rounds >= ROUNDS and rounds * size >= COUNTING_LINES and not is_list
        elif size < LONG_GROUP:
            is_loop = rounds >= ROUNDS and not (is_list and texts[-size:] == texts[-2 * size : -size])
        else:
            is_loop = rounds > 1
        if is_loop:
            return indices[len(texts) - (rounds - 1) * size]
    return None


def is_endless(line: str) -> bool:
    """True if the line ends with the same run three times. Of one or two characters it may be a rule or white space."""
    sizes = range(MIN_RUN, len(line) // ROUNDS + 1)
    runs = (line[-size:] for size in sizes if line[-1] == line[-1 - size])
    return any(line.endswith(run * ROUNDS) and len(set(run)) > 2 for run in runs)


def count_rounds(groups: Iterable[Sequence[Shape]]) -> tuple[int, bool]:
    """How many first groups are equal, or differ by the same steps of their numbers; True if they differ."""
    rounds, steps = 1, list[int]()
    for group, earlier in pairwise(groups):
        if [text for text, _ in group] != [text for text, _ in earlier]:
            break
        numbers = [number for _, line_numbers in group for number in line_numbers]
        earlier_numbers = [number for _, line_numbers in earlier for number in line_numbers]
        differences = [number - before for number, before in zip(numbers, earlier_numbers, strict=True)]
        if rounds > 1 and differences != steps:
            break
        rounds, steps = rounds + 1, differences
    return rounds, any(steps)


@lru_cache(maxsize=1024)
def shape(line: str) -> Shape:
    """The line with repeated parts of names once and 0 for each number; and its numbers."""
    once = _AGAIN.sub(r"\1\2", _AGAIN.sub(r"\1\2", line))
    return _NUMBER.sub("0", once), tuple(map(int, _NUMBER.findall(once)))
