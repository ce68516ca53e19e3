"""Finds where the last edit can be repeated: candidates by text, judged by tree, checked by the parser."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.repeats.change import Change, Span, Tokens, find_change, find_kind, is_word
from midfill_infill.repeats.check import Check
from midfill_infill.repeats.insertions import is_made
from midfill_infill.repeats.judge import Role, Trees, find_role, judge
from midfill_infill.repeats.places import EditPlace, find_places
from midfill_infill.syntax.problems import parse_again
from midfill_infill.syntax.rules import list_inert
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import UNDECODED
from midfill_infill.text.spans import Edit

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
    read = read_change(language, before.source, after.source)
    places = [place for place in find_places(read[0]) if UNDECODED.encode() not in place.text] if read else []
    if read is None or not places:
        return ()
    change, trees = read
    judged = [(judge(change, place, places, trees, is_seen=is_seen), place) for place in places]
    least = max(POSSIBLE, max(certainty for certainty, _ in judged) / 2)
    check = Check(language, change, trees)
    adapted = ((certainty, _adapt(change, place)) for certainty, place in judged if certainty >= least)
    likely = [(certainty, place) for certainty, place in adapted if _fits(check, place)]
    behind = change.new.spans[change.new_span[1] - 1].end if change.new_span[1] else 0
    found = [_repeat(place, certainty, is_next=is_seen and place.span[0] >= behind) for certainty, place in likely]
    return tuple(_without_errors(check, found))


def read_change(language: Language, before: bytes, after: bytes) -> tuple[Change, Trees] | None:
    """The change between two versions and their trees; None without a change to repeat."""
    change = find_change(before, after)
    if change is None:
        return None
    spans = change.old.around(change.old_span), change.new.around(change.new_span)
    tree = language.parse(before)
    trees = Trees(tree, parse_again(language, after, tree, before, [spans]))
    old, new = (
        tokens.knowing(*list_inert(language, tree))
        for tokens, tree in ((change.old, trees.old), (change.new, trees.new))
    )
    return replace(change, old=old, new=new), trees


def _fits(check: Check, place: EditPlace) -> bool:
    """True if an adapted place is not made yet, drops a word of the same role and breaks no statement apart."""
    change, trees, is_insertion = check.change, check.trees, place.tokens[0] == place.tokens[1]
    if is_insertion and is_made(change, place.tokens[0], added := Tokens(place.text).texts):
        return False
    if is_insertion and added[0] in _list_attributes(trees.new, place.span[0]):
        return False
    was, here = (
        _find_first_role(change.old, trees.old, change.old_span[0]),
        _find_first_role(change.new, trees.new, place.tokens[0]),
    )
    is_dropped = all(part.old[1] - part.old[0] == 1 and part.new[0] == part.new[1] for part in change.parts)
    is_inert = change.old_span[0] in change.old.inert
    if (is_dropped and was != here) or (is_inert and not change.is_of_words and was.kind != here.kind):
        return False
    return check.keeps_line_ends(Edit(*place.span, place.text))


def _find_first_role(tokens: Tokens, tree: tree_sitter.Tree, number: int) -> Role:
    return find_role(tree, tokens.spans[min(number, len(tokens) - 1)].start)


def _list_attributes(tree: tree_sitter.Tree, at: int) -> set[bytes]:
    """The names of the attributes of the JSX element whose tag is around a byte."""
    node = tree.root_node.descendant_for_byte_range(max(0, at - 1), at + 1)
    while node is not None and node.type not in ("jsx_opening_element", "jsx_self_closing_element"):
        node = node.parent
    attributes = [child for child in node.children if child.type == "jsx_attribute"] if node else []
    return {child.children[0].text or b"" for child in attributes}


def _repeat(place: EditPlace, certainty: float, *, is_next: bool) -> Repeat:
    def char(byte: int) -> int:
        return len(place.text[:byte].decode("utf-8", "replace"))

    foreign = tuple((char(start), char(end)) for start, end in place.foreign)
    is_likely = is_next and certainty >= LIKELY and not foreign
    return Repeat(Edit(*place.span, place.text), certainty, is_likely, foreign)


def _without_errors(check: Check, found: Sequence[Repeat]) -> list[Repeat]:
    """All edits if together they add no error, otherwise those that add none, the most likely ones first. Of a few
    also each alone, since each may be taken alone.
    """
    if len(found) <= MAX_CHECKED:
        found = [repeat for repeat in found if check.adds_none([repeat.edit])]
        if len(found) < 2:
            return list(found)
    if check.adds_none([repeat.edit for repeat in found]):
        return list(found)
    good: list[Repeat] = []
    groups = [sorted(found, key=lambda repeat: -repeat.certainty)[:MAX_CHECKED]]
    while groups:
        group = groups.pop()
        both = sorted([*good, *group], key=lambda repeat: repeat.edit.start_byte)
        if check.adds_none([repeat.edit for repeat in both]):
            good = both
        elif (middle := len(group) // 2) > 0:
            groups += [group[middle:], group[:middle]]
    return good


def _adapt(change: Change, place: EditPlace) -> EditPlace:
    """The place with its own line's words in the text; `foreign` are words with no counterpart there."""
    added = [word for part in change.parts for word in change.new_texts(part) if is_word(word)]
    there, here = (tokens.line_texts(span) for tokens, span in place.around(change))
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
