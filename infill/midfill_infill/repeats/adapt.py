"""Adapts an edit's new text to another place: replaces words taken from the edit's own line. Knows tokens only."""

import re
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Final

from midfill_infill.repeats.change import Change, Span, Tokens, is_word
from midfill_infill.repeats.places import EditPlace

MIN_PART: Final = 3
_PARTS: Final = re.compile(rb"[A-Z]?[a-z\x80-\xff]+|[A-Z]+(?![a-z])|\d+")


def adapt(change: Change, place: EditPlace) -> EditPlace:
    """The place with its own line's words in the text; `foreign` are words with no counterpart there."""
    added = [word for part in change.parts for word in change.new_texts(part) if is_word(word)]
    there, here = line_of(change.old, change.old_span), line_of(change.new, place.tokens)
    taken = {word: _find_source(word, there) for word in added}
    answers: dict[bytes, bytes] = {}
    for first, last, begin, end in _aligned(there, here):
        answers |= dict(zip(there[first:last], here[begin:end], strict=True))
    text, foreign = place.text, []
    for word, source in taken.items():
        if source is None or source in here or word in here:
            continue
        other = answers.get(source)
        if other is not None and is_word(other) and source in word:
            text = word.replace(source, other).join(_whole(word).split(text))
        else:
            foreign.append(word)
    return replace(
        place, text=text, foreign=tuple(match.span() for word in foreign for match in _whole(word).finditer(text))
    )


def _find_source(word: bytes, line: list[bytes]) -> bytes | None:
    """The word of `line` that a new word comes from: the same word, or the longest one that it contains or overlaps."""
    if word in line:
        return word
    parts = {part.lower() for part in _PARTS.findall(word) if len(part) >= MIN_PART}
    shared = [other for other in line if is_word(other) and parts & {part.lower() for part in _PARTS.findall(other)}]
    return max(shared, key=lambda other: (other in word, len(other)), default=None)


def _aligned(one: list[bytes], other: list[bytes]) -> list[tuple[int, int, int, int]]:
    codes = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return [(a, b, c, d) for tag, a, b, c, d in codes if tag == "replace" and b - a == d - c]


def _whole(word: bytes) -> re.Pattern[bytes]:
    """Matches `word` where it is no part of a longer one."""
    return re.compile(rb"(?<![\w$])%b(?![\w$])" % re.escape(word))


def line_of(tokens: Tokens, span: Span) -> list[bytes]:
    """Tokens of the lines that a token span is on."""
    return tokens.texts[slice(*tokens.line(*span))]
