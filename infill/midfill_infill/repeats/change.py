"""Finds the difference between two versions of a text, in tokens. Knows bytes, no language and no tree."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from midfill_infill.text.diffs import common_ends, common_prefix

MAX_CHANGED_TOKENS: Final = 40
MAX_PARTS: Final = 6
MAX_CONTEXT_TOKENS: Final = 200  # equal tokens on either side of the difference in its lines that are compared
_TOKEN: Final = re.compile(
    rb"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*|\d[\w.]*|//|/\*|\*+/|\*\*|[-+*/%&|^=!<>:]=+|&&|\|\||\+\+|--|[-=]>|::|\?[?.]|\.\.+|\S"
)
_WORD: Final = re.compile(rb"[\w$\x80-\xff]")
OPENERS: Final = (b"(", b"[", b"{")
CLOSERS: Final = (b")", b"]", b"}")
_DIVIDERS: Final = frozenset((b",", *OPENERS, *CLOSERS))


class Span(NamedTuple):
    """`[start, end)`, in bytes or in tokens."""

    start: int
    end: int

    @property
    def is_empty(self) -> bool:
        return self.start == self.end

    @property
    def size(self) -> int:
        return self.end - self.start


class Tokens:
    """Words, numbers and signs of a source, without white space; the same for all languages. Methods take the number of
    a token, counted from 0; the number behind the last token stands for the end.
    """

    _comments: Sequence[tuple[int, int]] = ()
    _inert: Sequence[tuple[int, int]] = ()

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.spans: list[Span] = []
        self.texts: list[bytes] = []
        for match in _TOKEN.finditer(source):
            self.spans.append(Span(*match.span()))
            self.texts.append(match.group())

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def positions(self) -> dict[bytes, list[int]]:
        """The numbers of the tokens with each text."""
        positions: dict[bytes, list[int]] = {}
        for number, text in enumerate(self.texts):
            positions.setdefault(text, []).append(number)
        return positions

    def with_inert(self, comments: Sequence[tuple[int, int]], inert: Sequence[tuple[int, int]]) -> "Tokens":
        """The same tokens with the spans of bytes of `comments`, and of `inert` text, such as the insides of strings.
        Commas and brackets in both do not divide the code.
        """
        tokens = copy(self)
        tokens._comments = comments
        tokens._inert = inert
        return tokens

    @cached_property
    def comments(self) -> set[int]:
        """The tokens of comments."""
        return self._within(self._comments)

    @cached_property
    def marks(self) -> list[bytes]:
        """For each token, its text if it is a comma or a bracket of the code; empty for others."""
        marks = [b""] * len(self)
        for number, text in enumerate(self.texts):
            if text in _DIVIDERS and self.is_code(number):
                marks[number] = text
        return marks

    @cached_property
    def inert(self) -> set[int]:
        """The tokens of strings and the like."""
        return self._within(self._inert)

    def is_code(self, number: int) -> bool:
        """True if a token is in no comment and no string."""
        return number not in self.comments and number not in self.inert

    def _within(self, spans: Sequence[tuple[int, int]]) -> set[int]:
        """The tokens that begin in one of the `spans` of bytes."""
        numbers: set[int] = set()
        for start, end in spans:
            numbers.update(range(self.at(start), self.at(end)))
        return numbers

    def at(self, offset: int) -> int:
        """The first token that starts at or behind a byte."""
        return bisect_left(self.spans, offset, key=itemgetter(0))

    def at_lines(self, start: int, end: int) -> Span:
        """The tokens of the lines that bytes `[start, end)` are on."""
        line_start = _line_start(self.source, start)
        line_end = _line_end(self.source, end)
        return Span(self.at(line_start), self.at(line_end))

    def gap(self, number: int) -> Span:
        """Where the white space before a token is, in bytes; before the end, that behind the last token."""
        start = self.spans[number - 1].end if number else 0
        end = self.spans[number].start if number < len(self) else len(self.source)
        return Span(start, end)

    def around(self, span: Span) -> Span:
        """The bytes of a span of tokens as a span, with the white space before and behind it."""
        start = self.gap(span.start).start
        end = self.gap(span.end).end
        return Span(start, end)

    def source_around(self, span: Span) -> bytes:
        """The bytes of a span of tokens, with the white space before and behind it."""
        start, end = self.around(span)
        return self.source[start:end]

    def texts_of(self, span: Span) -> list[bytes]:
        """The texts of a span of tokens."""
        return self.texts[span.start : span.end]

    def source_of(self, span: Span) -> bytes:
        """The bytes from the first token of a span to the last."""
        return self.source[self.spans[span.start].start : self.spans[span.end - 1].end]

    def white(self, number: int) -> bytes:
        """The white space before a token."""
        start, end = self.gap(number)
        return self.source[start:end]

    def same_line(self, number: int) -> bool:
        """True if a token stands on the line of the one before it."""
        return 0 < number < len(self) and b"\n" not in self.white(number)

    def line(self, span: Span) -> Span:
        """All tokens of the lines that a span of tokens is on."""
        first, last = span
        while first > 0 and self.same_line(first):
            first -= 1
        while last < len(self) and self.same_line(last):
            last += 1
        return Span(first, last)

    @cached_property
    def openers(self) -> list[int | None]:
        """For each token and for the end, the innermost bracket that is open before it; None if none is open."""
        openers: list[int | None] = [None]
        for number, mark in enumerate(self.marks):
            innermost = openers[-1]
            if mark in OPENERS:
                openers.append(number)
            elif mark in CLOSERS and innermost is not None:
                openers.append(openers[innermost])
            else:
                openers.append(innermost)
        return openers

    @cached_property
    def closers(self) -> dict[int, int]:
        """The closing bracket of each opening one that is closed."""
        closers: dict[int, int] = {}
        for number, mark in enumerate(self.marks):
            opener = self.openers[number]
            if mark in CLOSERS and opener is not None:
                closers[opener] = number
        return closers

    def items(self, opener: int) -> list[Span]:
        """The items of the closed list that opens at token `opener`, without the commas and comments around them."""
        closer = self.closers[opener]
        items: list[Span] = []
        first = number = opener + 1
        while number <= closer:
            if number == closer or self.marks[number] == b",":
                item = self._without_comments(first, number)
                if not item.is_empty:
                    items.append(item)
                first = number + 1
            number = self.closers.get(number, number) + 1
        return items

    def _without_comments(self, start: int, end: int) -> Span:
        """The tokens `[start, end)` without the comments at both ends."""
        inner_start, inner_end = start, end
        while inner_start < inner_end and inner_start in self.comments:
            inner_start += 1
        while inner_start < inner_end and inner_end - 1 in self.comments:
            inner_end -= 1
        return Span(inner_start, inner_end)

    def line_break(self, number: int) -> bytes | None:
        """The line break and the indentation before a token that begins its line; None for other tokens."""
        start = self.spans[number].start
        line_start = _line_start(self.source, start)
        if line_start == 0 or self.source[line_start:start].strip():
            return None
        break_start = line_start - 1
        if self.source[line_start - 2 : line_start] == b"\r\n":
            break_start -= 1
        return self.source[break_start:start]

    def indent(self, offset: int) -> bytes:
        """The white space that the line of a byte begins with, up to that byte."""
        before = self.source[_line_start(self.source, offset) : offset]
        return before[: _count_leading_white(before)]


def is_word(text: bytes) -> bool:
    """True for a name or a number."""
    return bool(_WORD.match(text))


@dataclass(frozen=True)
class ChangedTokens:
    """One difference: tokens `old` of the old text became tokens `new` of the new text. Either may be empty."""

    old: Span
    new: Span


@dataclass(frozen=True)
class Change:
    """All differing parts of two versions, in order; text between them is equal."""

    old: Tokens
    new: Tokens
    parts: tuple[ChangedTokens, ...]

    @property
    def old_span(self) -> Span:
        """The span from the first part to the last, in tokens of the old text."""
        return Span(self.parts[0].old.start, self.parts[-1].old.end)

    @property
    def new_span(self) -> Span:
        """The span from the first part to the last, in tokens of the new text."""
        return Span(self.parts[0].new.start, self.parts[-1].new.end)

    def old_texts(self, part: ChangedTokens) -> list[bytes]:
        """The tokens that a part replaced."""
        return self.old.texts_of(part.old)

    def new_texts(self, part: ChangedTokens) -> list[bytes]:
        """The tokens that a part became."""
        return self.new.texts_of(part.new)

    @cached_property
    def kept(self) -> list[Span]:
        """The unchanged spans between the parts, in tokens of the old text."""
        return [Span(part.old.end, following.old.start) for part, following in pairwise(self.parts)]

    @cached_property
    def kinds(self) -> set[tuple[bytes, ...]]:
        """The different parts wherever they are: the old tokens, a line feed and the new tokens of each."""
        return {(*self.old_texts(part), b"\n", *self.new_texts(part)) for part in self.parts}

    @property
    def is_uniform(self) -> bool:
        """True if all parts replace the same tokens by the same tokens."""
        return len(self.kinds) == 1

    @cached_property
    def is_of_words(self) -> bool:
        """True if the parts have only names and numbers, before and after."""
        for part in self.parts:
            if not all(map(is_word, (*self.old_texts(part), *self.new_texts(part)))):
                return False
        return True

    def bytes_changed(self, part: ChangedTokens) -> tuple[bytes, bytes]:
        """The old and the new bytes of a part, with the white space that changed with it."""
        before = self.old.source_around(part.old)
        after = self.new.source_around(part.new)
        head = _count_common_white(before, after)
        before = before[head:]
        after = after[head:]
        tail = _count_common_white(before[::-1], after[::-1])
        before = before[: len(before) - tail]
        after = after[: len(after) - tail]
        return before, after


def find_change(before: bytes, after: bytes) -> Change | None:
    """The change between two versions; None if no token differs or it is too large to repeat."""
    head, tail = common_ends(before, after)
    if max(len(before), len(after)) - head - tail > 100 * MAX_CHANGED_TOKENS:
        return None
    old = Tokens(before)
    new = Tokens(after)
    old_lines = old.at_lines(head, len(before) - tail)
    new_lines = new.at_lines(head, len(after) - tail)
    first = min(old_lines.start, new_lines.start)
    head, tail = common_ends(old.texts[first : old_lines.end], new.texts[first : new_lines.end])
    start = first + max(0, head - MAX_CONTEXT_TOKENS)
    num_dropped = max(0, tail - MAX_CONTEXT_TOKENS)  # else a line of a minified file takes minutes
    old_lines = Span(start, old_lines.end - num_dropped)
    new_lines = Span(start, new_lines.end - num_dropped)
    parts = tuple(_compare(old, old_lines, new, new_lines))
    if not parts or len(parts) > MAX_PARTS:
        return None
    num_changed = sum(part.old.size + part.new.size for part in parts)
    if num_changed > MAX_CHANGED_TOKENS:
        return None
    return Change(old, new, parts)


def _compare(old: Tokens, old_span: Span, new: Tokens, new_span: Span) -> Iterator[ChangedTokens]:
    """The differing parts between a span of old tokens and a span of new ones."""
    old_texts = old.texts_of(old_span)
    new_texts = new.texts_of(new_span)
    matcher = SequenceMatcher(None, old_texts, new_texts, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        yield ChangedTokens(
            old=Span(old_span.start + old_start, old_span.start + old_end),
            new=Span(new_span.start + new_start, new_span.start + new_end),
        )


def find_kinds(before: bytes, after: bytes) -> set[tuple[bytes, ...]]:
    """The `kinds` of the change between two versions, empty if none can be repeated; reads only lines that differ."""
    head, tail = common_ends(before, after)
    start = _line_start(before, head)
    before_end = _line_end(before, len(before) - tail)
    after_end = _line_end(after, len(after) - tail)
    change = find_change(before[start:before_end], after[start:after_end])
    if change is None:
        return set()
    return change.kinds


def _count_leading_white(text: bytes) -> int:
    """How many bytes of white space a text begins with."""
    return len(text) - len(text.lstrip())


def _count_common_white(text: bytes, other: bytes) -> int:
    """How many bytes of white space two texts have in common at their starts."""
    return min(common_prefix(text, other), _count_leading_white(text), _count_leading_white(other))


def _line_start(source: bytes, offset: int) -> int:
    """The start of the line that byte `offset` is on."""
    return source.rfind(b"\n", 0, offset) + 1


def _line_end(source: bytes, offset: int) -> int:
    """The end of the line that byte `offset` is on, before its line feed."""
    end = source.find(b"\n", offset)
    if end < 0:
        return len(source)
    return end
