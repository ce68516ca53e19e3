"""The difference between two versions of a text, in tokens. Knows bytes, no language and no tree."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from midfill_infill.text.diffs import common_ends, common_prefix

Span = tuple[int, int]

MAX_CHANGED_TOKENS: Final = 40
MAX_PARTS: Final = 6
_TOKEN: Final = re.compile(
    rb"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*|\d[\w.]*|//|/\*|\*+/|\*\*|[-+*/%&|^=!<>:]=+|&&|\|\||\+\+|--|[-=]>|::|\?[?.]|\.\.+|\S"
)
_WORD: Final = re.compile(rb"[\w$\x80-\xff]")
OPENERS: Final = (b"(", b"[", b"{")
CLOSERS: Final = (b")", b"]", b"}")


class Token(NamedTuple):
    start: int
    end: int


class Tokens:
    """Words, numbers and signs of a source, without white space; the same for all languages."""

    _comments: Sequence[Span] = ()
    _inert: Sequence[Span] = ()

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.spans = [Token(*match.span()) for match in _TOKEN.finditer(source)]
        self.texts = [source[start:end] for start, end in self.spans]

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def places(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for number, text in enumerate(self.texts):
            found.setdefault(text, []).append(number)
        return found

    def knowing(self, comments: Sequence[Span], inert: Sequence[Span]) -> "Tokens":
        """The same, but commas and brackets within these bytes, comments and strings, do not divide the code."""
        known = Tokens.__new__(Tokens)
        known.source, known.spans, known.texts = self.source, self.spans, self.texts
        known._comments, known._inert = comments, inert
        return known

    @cached_property
    def comments(self) -> set[int]:
        """The tokens of comments."""
        return self._within(self._comments)

    @cached_property
    def marks(self) -> list[bytes]:
        """Each token that is a comma or a bracket of the code; empty for others."""
        is_mark = frozenset((b",", *OPENERS, *CLOSERS)).__contains__
        return [text if is_mark(text) and self.is_code(number) else b"" for number, text in enumerate(self.texts)]

    @cached_property
    def inert(self) -> set[int]:
        """The tokens of strings and the like."""
        return self._within(self._inert)

    def is_code(self, number: int) -> bool:
        return number not in self.comments and number not in self.inert

    def _within(self, spans: Sequence[Span]) -> set[int]:
        return {number for start, end in spans for number in range(self.at(start), self.at(end))}

    def at(self, offset: int) -> int:
        """The first token that starts at or behind a byte."""
        return bisect_left(self.spans, offset, key=itemgetter(0))

    def gap(self, number: int) -> Span:
        """The white space before a token; at the end, that behind the last one."""
        start = self.spans[number - 1].end if number else 0
        return start, self.spans[number].start if number < len(self) else len(self.source)

    def around(self, span: Span) -> Span:
        """The bytes of a span of tokens, with the white space before and behind it."""
        return self.gap(span[0])[0], self.gap(span[1])[1]

    def white(self, number: int) -> bytes:
        return self.source[slice(*self.gap(number))]

    def same_line(self, number: int) -> bool:
        """True if a token stands on the line of the one before it."""
        return 0 < number < len(self) and b"\n" not in self.white(number)

    def line(self, first: int, last: int) -> Span:
        """All tokens of the lines that `[first, last)` is on."""
        while first > 0 and self.same_line(first):
            first -= 1
        while last < len(self) and self.same_line(last):
            last += 1
        return first, last

    def line_texts(self, span: Span) -> list[bytes]:
        """The tokens of the lines that a span of tokens is on."""
        return self.texts[slice(*self.line(*span))]

    @cached_property
    def openers(self) -> list[int | None]:
        """For each token and for the end, the innermost bracket that is open before it."""
        found: list[int | None] = [None]
        for number, text in enumerate(self.marks):
            last = found[-1]
            if text in CLOSERS and last is not None:
                found.append(found[last])
            else:
                found.append(number if text in OPENERS else last)
        return found

    @cached_property
    def closers(self) -> dict[int, int]:
        """The closing bracket of each opening one."""
        pairs = zip(self.openers, self.marks, strict=False)
        return {opener: number for number, (opener, text) in enumerate(pairs) if text in CLOSERS and opener is not None}

    def items(self, opener: int) -> list[Span]:
        """The items of a closed list, without the commas and comments around them."""
        closer, found = self.closers[opener], list[Span]()
        first = number = opener + 1
        while number <= closer:
            if number == closer or self.marks[number] == b",":
                last = number
                while first < last and first in self.comments:
                    first += 1
                while first < last and last - 1 in self.comments:
                    last -= 1
                found += [(first, last)] if first < last else []
                first = number + 1
            number = self.closers.get(number, number) + 1
        return found

    def line_break(self, number: int) -> bytes | None:
        """The line break and the indentation before a token that begins its line, or None."""
        start = self.spans[number].start
        line = self.source.rfind(b"\n", 0, start) + 1
        if not line or self.source[line:start].strip():
            return None
        return self.source[line - (2 if self.source[line - 2 : line] == b"\r\n" else 1) : start]

    def indent(self, offset: int) -> bytes:
        """The white space that a line begins with."""
        line = self.source[self.source.rfind(b"\n", 0, offset) + 1 : offset]
        return line[: len(line) - len(line.lstrip())]


def is_word(text: bytes) -> bool:
    return bool(_WORD.match(text))


@dataclass(frozen=True)
class ChangedTokens:
    """Tokens `[old[0], old[1])` of the old text became `[new[0], new[1])` of the new one; either may be empty."""

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
        return self.parts[0].old[0], self.parts[-1].old[1]

    @property
    def new_span(self) -> Span:
        """The span from the first part to the last, in tokens of the new text."""
        return self.parts[0].new[0], self.parts[-1].new[1]

    def old_texts(self, part: ChangedTokens) -> list[bytes]:
        return self.old.texts[slice(*part.old)]

    def new_texts(self, part: ChangedTokens) -> list[bytes]:
        return self.new.texts[slice(*part.new)]

    @cached_property
    def kept(self) -> list[Span]:
        """The unchanged spans between the parts, in tokens of the old text."""
        return [(first.old[1], second.old[0]) for first, second in pairwise(self.parts)]

    @cached_property
    def is_uniform(self) -> bool:
        """True if all parts are the same change."""
        return len({(*self.old_texts(part), b"\n", *self.new_texts(part)) for part in self.parts}) == 1

    @cached_property
    def is_of_words(self) -> bool:
        """True if only words became others."""
        texts = (text for part in self.parts for text in (*self.old_texts(part), *self.new_texts(part)))
        return all(map(is_word, texts))

    def bytes_changed(self, part: ChangedTokens) -> tuple[bytes, bytes]:
        """The old and the new bytes of a part, with the white space that changed with it."""
        before = self.old.source[slice(*self.old.around(part.old))]
        after = self.new.source[slice(*self.new.around(part.new))]
        head = min(common_prefix(before, after), *(len(text) - len(text.lstrip()) for text in (before, after)))
        before, after = before[head:], after[head:]
        tail = common_prefix(before[::-1], after[::-1])
        tail = min(tail, *(len(text) - len(text.rstrip()) for text in (before, after)))
        return before[: len(before) - tail], after[: len(after) - tail]


def find_change(before: bytes, after: bytes) -> Change | None:
    """The change between two versions; None if no token differs or it is too large to repeat."""
    head, tail = common_ends(before, after)
    if max(len(before), len(after)) - head - tail > 100 * MAX_CHANGED_TOKENS:
        return None
    old, new = Tokens(before), Tokens(after)
    first = min(old.at(_line_start(before, head)), new.at(_line_start(after, head)))
    last = [tokens.at(_line_end(tokens.source, len(tokens.source) - tail)) for tokens in (old, new)]
    matcher = SequenceMatcher(None, old.texts[first : last[0]], new.texts[first : last[1]], autojunk=False)
    parts = tuple(
        ChangedTokens((first + start, first + stop), (first + begin, first + end))
        for tag, start, stop, begin, end in matcher.get_opcodes()
        if tag != "equal"
    )
    sizes = [span[1] - span[0] for part in parts for span in (part.old, part.new)]
    if not parts or len(parts) > MAX_PARTS or sum(sizes) > MAX_CHANGED_TOKENS:
        return None
    return Change(old, new, parts)


def find_kind(before: bytes, after: bytes) -> set[tuple[bytes, ...]]:
    """The parts of a change independent of position; reads only lines that differ."""
    head, tail = common_ends(before, after)
    start = _line_start(before, head)
    change = find_change(*(source[start : _line_end(source, len(source) - tail)] for source in (before, after)))
    return {(*change.old_texts(part), b"\n", *change.new_texts(part)) for part in change.parts} if change else set()


def _line_start(source: bytes, offset: int) -> int:
    return source.rfind(b"\n", 0, offset) + 1


def _line_end(source: bytes, offset: int) -> int:
    end = source.find(b"\n", offset)
    return len(source) if end < 0 else end
