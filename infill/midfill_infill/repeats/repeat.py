"""Finds where the last edit can be repeated: candidates by text, judged by tree, checked by the parser."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.repeats.change import Change, Span, find_change, find_kind, is_word
from midfill_infill.repeats.judge import Trees, judge
from midfill_infill.repeats.places import EditPlace, find_places
from midfill_infill.syntax.problems import find_problems, parse_again
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import UNDECODED
from midfill_infill.text.spans import Edit, Patch

MAX_BYTES: Final = 400_000
MAX_CHECKED: Final = 30
POSSIBLE: Final = 0.1  # the least probability on request, where half of the best one is needed, too
LIKELY: Final = 0.7  # the least one unasked, after an edit that was made twice

MIN_PART: Final = 3
_PARTS: Final = re.compile(rb"[A-Z]?[a-z\x80-\xff]+|[A-Z]+(?![a-z])|\d+")

Versions = tuple[bytes, bytes]


@dataclass(frozen=True)
class Repeat:
    """An edit of the current document. `foreign` are character spans of its text that a model should fill."""

    edit: Edit
    certainty: float
    is_likely: bool
    """True if it is worth showing to somebody who did not ask."""
    foreign: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        return self.edit.replacement.decode("utf-8", "replace")


def find_repeats(
    before: Document, after: Document, earlier: Versions | None = None, *, unasked: bool = False
) -> tuple[Repeat, ...]:
    """Places, in order, where the edit from `before` to `after` (in UTF-8) can be repeated without a new syntax error.

    `earlier` are the versions around the previous edit: an edit made twice is more likely intended. With `unasked` only
    such edits are considered. Empty without a grammar, or if the edit is too large.
    """
    language = after.syntax
    if language is None or max(len(before.source), len(after.source)) > MAX_BYTES:
        return ()
    is_seen = earlier is not None and find_kind(*earlier) == find_kind(before.source, after.source)
    if unasked and not is_seen:
        return ()
    change = find_change(before.source, after.source)
    places = [place for place in find_places(change) if UNDECODED.encode() not in place.text] if change else []
    if change is None or not places:
        return ()
    trees = _parse(language, change)
    judged = [(judge(change, place, places, trees, is_seen=is_seen), place) for place in places]
    least = max(POSSIBLE, max(certainty for certainty, _ in judged) / 2)
    likely = [(certainty, _adapt(change, place)) for certainty, place in judged if certainty >= least]
    behind = change.new.spans[change.new_span[1] - 1].end if change.new_span[1] else 0
    found = [_repeat(place, certainty, is_next=is_seen and place.span[0] >= behind) for certainty, place in likely]
    return tuple(_without_errors(language, after.source, trees.new, found))


def _parse(language: Language, change: Change) -> Trees:
    old, new = change.old, change.new
    spans = old.around(change.old_span), new.around(change.new_span)
    tree = language.parse(old.source)
    return Trees(tree, parse_again(language, new.source, tree, old.source, [spans]))


def _repeat(place: EditPlace, certainty: float, *, is_next: bool) -> Repeat:
    def char(byte: int) -> int:
        return len(place.text[:byte].decode("utf-8", "replace"))

    foreign = tuple((char(start), char(end)) for start, end in place.foreign)
    is_likely = is_next and certainty >= LIKELY and not foreign
    return Repeat(Edit(*place.span, place.text), certainty, is_likely, foreign)


def _without_errors(language: Language, source: bytes, tree: tree_sitter.Tree, found: Sequence[Repeat]) -> list[Repeat]:
    """All edits if together they add no error; otherwise the most likely ones that add none."""
    if not found or _adds_none(language, source, tree, found):
        return list(found)
    tried = sorted(found, key=lambda repeat: -repeat.certainty)[:MAX_CHECKED]
    good = [repeat for repeat in tried if _adds_none(language, source, tree, [repeat])]
    return sorted(good, key=lambda repeat: repeat.edit.start_byte)


def _adds_none(language: Language, source: bytes, tree: tree_sitter.Tree, repeats: Sequence[Repeat]) -> bool:
    changes, shift = [], 0
    for edit in (repeat.edit for repeat in repeats):
        start = edit.start_byte + shift
        changes.append(((edit.start_byte, edit.end_byte), (start, start + len(edit.replacement))))
        shift += len(edit.replacement) - (edit.end_byte - edit.start_byte)
    changed = Patch.of(repeat.edit for repeat in repeats).apply(source)
    after = parse_again(language, changed, tree, source, changes)
    old = tuple(span for span, _ in changes)
    new = tuple(span for _, span in changes)
    problems, known = find_problems(language, changed, new, after)[0], find_problems(language, source, old, tree)[0]
    return len(problems) <= len(known)


def _adapt(change: Change, place: EditPlace) -> EditPlace:
    """The place with its own line's words in the text; `foreign` are words with no counterpart there."""
    added = [word for part in change.parts for word in change.new_texts(part) if is_word(word)]
    there, here = change.old.line_texts(change.old_span), change.new.line_texts(place.tokens)
    taken = {word: _find_source(word, there) for word in added}
    answers: dict[bytes, bytes] = {}
    for tag, first, last, begin, end in SequenceMatcher(None, there, here, autojunk=False).get_opcodes():
        if tag == "replace" and last - first == end - begin:
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
    spans = tuple(match.span() for word in foreign for match in _whole(word).finditer(text))
    return replace(place, text=text, foreign=spans)


def _find_source(word: bytes, line: list[bytes]) -> bytes | None:
    """The word of `line` that a new word comes from: the same word, or the longest one that it contains or overlaps."""
    if word in line:
        return word
    parts = {part.lower() for part in _PARTS.findall(word) if len(part) >= MIN_PART}
    shared = [other for other in line if is_word(other) and parts & {part.lower() for part in _PARTS.findall(other)}]
    return max(shared, key=lambda other: (other in word, len(other)), default=None)


def _whole(word: bytes) -> re.Pattern[bytes]:
    """Matches `word` only as a whole word."""
    return re.compile(rb"(?<![\w$])%b(?![\w$])" % re.escape(word))
