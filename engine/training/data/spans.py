"""Chooses which stretches of a text become gaps, in the mix of a person's edits. Knows text only; no tokens.

Every chooser takes the text and a random generator and returns a (start, end) in characters, or None if the text has
no such place. Structure is read from line breaks, indentation and brackets, so these choosers serve every language.
"""

from collections.abc import Callable

import numpy as np

Span = tuple[int, int]
Chooser = Callable[[str, np.random.Generator], Span | None]


def line_spans(text: str) -> list[Span]:
    """Start and end (before the line break) of every line."""
    spans, start = [], 0
    for line in text.split("\n"):
        spans.append((start, start + len(line)))
        start += len(line) + 1
    return spans


def indent_of(text: str, line: Span) -> int:
    """The number of white-space characters at the start of a line."""
    content = text[line[0] : line[1]]
    return len(content) - len(content.lstrip())


def one_line(text: str, rng: np.random.Generator) -> Span | None:
    return _as_lines(text, rng, lambda lines, first: first)


def consecutive_lines(text: str, rng: np.random.Generator) -> Span | None:
    """Two to eight lines, none less indented than the first."""
    most = int(rng.integers(2, 9))
    return _as_lines(text, rng, lambda lines, first: _last_of_block(text, lines, first, first + most - 1))


def body(text: str, rng: np.random.Generator) -> Span | None:
    """The whole block below a line that opens one (its next line is indented deeper)."""
    lines = line_spans(text)
    openers = [
        index
        for index in range(len(lines) - 2)
        if text[lines[index][0] : lines[index][1]].rstrip().endswith((":", "{"))
        and indent_of(text, lines[index + 1]) > indent_of(text, lines[index])
    ]
    if not openers:
        return None
    first = int(rng.choice(openers)) + 1
    last = _last_of_block(text, lines, first, len(lines) - 1)
    return lines[first][0] + indent_of(text, lines[first]), lines[last][1]


def rest_of_line(text: str, rng: np.random.Generator) -> Span | None:
    """From somewhere inside a line to its end."""
    lines = [line for line in line_spans(text) if text[slice(*line)].strip()]
    if not lines:
        return None
    start, end = lines[int(rng.integers(len(lines)))]
    start += indent_of(text, (start, end))
    return int(rng.integers(start, end)), end


def _as_lines(text: str, rng: np.random.Generator, last_of: Callable[[list[Span], int], int]) -> Span | None:
    """Lines, starting at a random one, in one of three forms: content only, with its indent, with its line break."""
    lines = line_spans(text)
    filled = [index for index, line in enumerate(lines) if text[slice(*line)].strip()]
    if not filled:
        return None
    first = filled[int(rng.integers(len(filled)))]
    start, end = lines[first][0], lines[last_of(lines, first)][1]
    form = rng.random()
    if form < 0.4:
        return start + indent_of(text, lines[first]), end
    return (start, end) if form < 0.7 or end == len(text) else (start, end + 1)


def _last_of_block(text: str, lines: list[Span], first: int, most: int) -> int:
    """The last line from `first` to `most` before one indented less than `first`; a blank tail does not count."""
    indent, last = indent_of(text, lines[first]), first
    for index in range(first + 1, min(most, len(lines) - 1) + 1):
        if not text[slice(*lines[index])].strip():
            continue
        if indent_of(text, lines[index]) < indent:
            break
        last = index
    return last
