"""Finds where the last edit can be repeated: candidates by text, judged by tree, checked by the parser."""

import re
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
    if read is None:
        return ()
    change, trees = read
    places = [place for place in find_places(change) if UNDECODED.encode() not in place.text]
    if not places:
        return ()
    certainties = [judge(change, place, places, trees, is_seen=is_seen) for place in places]
    least = max(POSSIBLE, max(certainties) / 2)
    check = Check(language, change, trees)
    change_end = change.new.spans[change.new_span.end - 1].end if change.new_span.end else 0
    repeats: list[Repeat] = []
    for place, certainty in zip(places, certainties, strict=True):
        if certainty < least:
            continue
        adapted = _adapt(change, place)
        if _fits(check, adapted):
            is_next = is_seen and adapted.span.start >= change_end
            repeats.append(_repeat(adapted, certainty, is_next=is_next))
    return tuple(_without_errors(check, repeats))


def read_change(language: Language, before: bytes, after: bytes) -> tuple[Change, Trees] | None:
    """The change between two versions and their trees; None without a change to repeat."""
    change = find_change(before, after)
    if change is None:
        return None
    old_bytes = change.old.around(change.old_span)
    new_bytes = change.new.around(change.new_span)
    old_tree = language.parse(before)
    new_tree = parse_again(language, after, old_tree, before, [(old_bytes, new_bytes)])
    old = change.old.knowing(*list_inert(language, old_tree))
    new = change.new.knowing(*list_inert(language, new_tree))
    return replace(change, old=old, new=new), Trees(old_tree, new_tree)


def _fits(check: Check, place: EditPlace) -> bool:
    """True if an adapted place is not made yet, drops a word of the same role and breaks no statement apart."""
    change, trees = check.change, check.trees
    number = place.tokens.start
    if place.tokens.is_empty:
        added = Tokens(place.text).texts
        if is_made(change, number, added):
            return False
        if added[0] in _list_attributes(trees.new, place.span.start):
            return False

    changed = change.old_span.start
    was = _find_first_role(change.old, trees.old, changed)
    here = _find_first_role(change.new, trees.new, number)
    is_dropped = all(part.old.size == 1 and part.new.is_empty for part in change.parts)
    if is_dropped and was != here:
        return False
    is_inert = changed in change.old.inert
    if is_inert and not change.is_of_words and was.kind != here.kind:
        return False
    return check.keeps_line_ends(Edit(*place.span, place.text))


def _find_first_role(tokens: Tokens, tree: tree_sitter.Tree, number: int) -> Role:
    """The role of a token; at the end of a text, that of the last one."""
    token = tokens.spans[min(number, len(tokens) - 1)]
    return find_role(tree, token.start)


def _list_attributes(tree: tree_sitter.Tree, at: int) -> set[bytes]:
    """The names of the attributes of the JSX element whose tag is around a byte."""
    node = tree.root_node.descendant_for_byte_range(max(0, at - 1), at + 1)
    while node is not None and node.type not in ("jsx_opening_element", "jsx_self_closing_element"):
        node = node.parent
    if node is None:
        return set()
    return {child.children[0].text or b"" for child in node.children if child.type == "jsx_attribute"}


def _repeat(place: EditPlace, certainty: float, *, is_next: bool) -> Repeat:
    """The edit at a place, with what a user is told of it."""
    edit = Edit(*place.span, place.text)
    foreign = tuple(_in_characters(span, place.text) for span in place.foreign)
    is_likely = is_next and certainty >= LIKELY and not foreign
    return Repeat(edit, certainty, is_likely, foreign)


def _in_characters(span: Span, text: bytes) -> Span:
    """A span of bytes of a text, in characters."""
    start = len(text[: span.start].decode("utf-8", "replace"))
    end = len(text[: span.end].decode("utf-8", "replace"))
    return Span(start, end)


def _without_errors(check: Check, repeats: list[Repeat]) -> list[Repeat]:
    """All edits if together they add no error, otherwise those that add none, the most likely ones first. Of a few
    also each alone, since each may be taken alone.
    """
    if len(repeats) <= MAX_CHECKED:
        repeats = [repeat for repeat in repeats if check.adds_none([repeat.edit])]
        if len(repeats) < 2:
            return repeats
    if check.adds_none([repeat.edit for repeat in repeats]):
        return repeats
    good: list[Repeat] = []
    groups = [sorted(repeats, key=lambda repeat: -repeat.certainty)[:MAX_CHECKED]]
    while groups:
        group = groups.pop()
        both = sorted([*good, *group], key=lambda repeat: repeat.edit.start_byte)
        if check.adds_none([repeat.edit for repeat in both]):
            good = both
        elif len(group) > 1:
            middle = len(group) // 2
            groups += [group[middle:], group[:middle]]
    return good


def _adapt(change: Change, place: EditPlace) -> EditPlace:
    """The place with its own line's words in the text; `foreign` are words with no counterpart there."""
    there, here = place.line_texts(change)
    counterparts = _match_tokens(there, here)
    text = place.text
    foreign: list[bytes] = []
    for word in _list_added_words(change):
        source = _find_source(word, there)
        if source is None or source in here or word in here:
            continue
        other = counterparts.get(source)
        if other is not None and is_word(other) and source in word:
            text = word.replace(source, other).join(_whole(word).split(text))
        else:
            foreign.append(word)
    spans: list[Span] = []
    for word in foreign:
        spans += [Span(*match.span()) for match in _whole(word).finditer(text)]
    return replace(place, text=text, foreign=tuple(spans))


def _list_added_words(change: Change) -> list[bytes]:
    """The different words of the new text, in order."""
    words: dict[bytes, None] = {}
    for part in change.parts:
        words |= dict.fromkeys(filter(is_word, change.new_texts(part)))
    return list(words)


def _match_tokens(there: list[bytes], here: list[bytes]) -> dict[bytes, bytes]:
    """For each token of a line that another line has another token for, this one."""
    matcher = SequenceMatcher(None, there, here, autojunk=False)
    counterparts: dict[bytes, bytes] = {}
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag != "replace" or last - first != end - begin:
            continue
        for token, counterpart in zip(there[first:last], here[begin:end], strict=True):
            counterparts[token] = counterpart
    return counterparts


def _find_source(word: bytes, line: list[bytes]) -> bytes | None:
    """The word of `line` that a new word comes from: the same word, or the longest one that it contains or overlaps."""
    if word in line:
        return word
    parts = {part for part in _split_words(word) if len(part) >= MIN_PART}
    related = [other for other in line if is_word(other) and parts & _split_words(other)]
    return max(related, key=lambda other: (other in word, len(other)), default=None)


def _split_words(word: bytes) -> set[bytes]:
    """The words in lower case that a name is made of, such as `snake` and `case`."""
    return {part.lower() for part in _PARTS.findall(word)}


def _whole(word: bytes) -> re.Pattern[bytes]:
    """Matches `word` only as a whole word."""
    return re.compile(rb"(?<![\w$])%b(?![\w$])" % re.escape(word))
