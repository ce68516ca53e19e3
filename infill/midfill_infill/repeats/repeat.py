"""Finds where the last edit can be repeated. Text gives the candidates, trees their certainty, the parser a check."""

import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.repeats.change import Change, Span, Tokens, find_change, find_kinds, is_word
from midfill_infill.repeats.check import Check
from midfill_infill.repeats.insertions import is_inserted
from midfill_infill.repeats.judge import Role, Trees, find_role, judge
from midfill_infill.repeats.places import EditPlace, find_places
from midfill_infill.syntax.problems import parse_again
from midfill_infill.syntax.rules import list_inert
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import UNDECODED
from midfill_infill.text.spans import Edit

MAX_BYTES: Final = 400_000
MAX_CHECKED: Final = 30
POSSIBLE: Final = 0.1  # the lowest certainty of a repeat, which must also have half of the best one's
LIKELY: Final = 0.7  # the lowest certainty of a repeat that is shown unasked, after an edit that was made twice
MIN_PART: Final = 3  # characters of a part that relates two names
_NAME_PART: Final = re.compile(rb"[A-Z]?[a-z\x80-\xff]+|[A-Z]+(?![a-z])|\d+")

Versions = tuple[bytes, bytes]


@dataclass(frozen=True)
class Repeat:
    """An edit of the current document that repeats the last one. `unmatched` are character spans of its text that have
    no counterpart here, so that a model should fill them.
    """

    edit: Edit
    certainty: float
    is_likely: bool
    """True if it is worth showing to somebody who did not ask."""
    unmatched: tuple[Span, ...] = ()

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
    is_made_twice = earlier is not None and find_kinds(*earlier) == find_kinds(before.source, after.source)
    if unasked and not is_made_twice:
        return ()
    change_and_trees = read_change(language, before.source, after.source)
    if change_and_trees is None:
        return ()
    change, trees = change_and_trees
    # Without those whose text has a byte that could not be decoded.
    places = [place for place in find_places(change) if UNDECODED.encode() not in place.text]
    if not places:
        return ()
    certainties = [judge(change, place, places, trees, is_made_twice=is_made_twice) for place in places]
    min_certainty = max(POSSIBLE, max(certainties) / 2)
    check = Check(language, change, trees)
    change_end = change.new.gap(change.new_span.end).start
    repeats: list[Repeat] = []
    for place, certainty in zip(places, certainties, strict=True):
        if certainty < min_certainty:
            continue
        adapted = _adapt(change, place)
        if _fits(check, adapted):
            is_next = is_made_twice and adapted.span.start >= change_end
            repeats.append(_make_repeat(adapted, certainty, is_next=is_next))
    return tuple(_drop_errors(check, repeats))


def read_change(language: Language, before: bytes, after: bytes) -> tuple[Change, Trees] | None:
    """The change between two versions and their trees; None if there is no change that can be repeated."""
    change = find_change(before, after)
    if change is None:
        return None
    old_bytes = change.old.around(change.old_span)
    new_bytes = change.new.around(change.new_span)
    old_tree = language.parse(before)
    new_tree = parse_again(language, after, old_tree, before, [(old_bytes, new_bytes)])
    old = change.old.with_inert(*list_inert(language, old_tree))
    new = change.new.with_inert(*list_inert(language, new_tree))
    return replace(change, old=old, new=new), Trees(old_tree, new_tree)


def _fits(check: Check, place: EditPlace) -> bool:
    """True if the edit of an adapted place may be made there. It must not be made already, break a statement apart or
    give a JSX tag an attribute twice. If the change only drops single tokens, its first token and the place's must have
    the same role; if it begins in a string or the like and changes more than words, nodes of the same kind.
    """
    change, trees = check.change, check.trees
    place_token = place.tokens.start
    if place.tokens.is_empty:
        added = Tokens(place.text).texts
        if is_inserted(change, place_token, added):
            return False
        if added[0] in _list_attributes(trees.new, place.span.start):
            return False

    first_changed = change.old_span.start
    changed_role = _find_role_at(change.old, trees.old, first_changed)
    place_role = _find_role_at(change.new, trees.new, place_token)
    drops_tokens = all(part.old.size == 1 and part.new.is_empty for part in change.parts)
    if drops_tokens and changed_role != place_role:
        return False
    is_inert = first_changed in change.old.inert
    if is_inert and not change.is_of_words and changed_role.kind != place_role.kind:
        return False
    return check.keeps_line_ends(Edit(*place.span, place.text))


def _find_role_at(tokens: Tokens, tree: tree_sitter.Tree, number: int) -> Role:
    """The role of token `number`; at the end of a text, that of the last token."""
    token = tokens.spans[min(number, len(tokens) - 1)]
    return find_role(tree, token.start)


def _list_attributes(tree: tree_sitter.Tree, offset: int) -> set[bytes]:
    """The names of the attributes of the JSX element whose tag is around a byte; empty outside of tags."""
    node = tree.root_node.descendant_for_byte_range(max(0, offset - 1), offset + 1)
    while node is not None and node.type not in ("jsx_opening_element", "jsx_self_closing_element"):
        node = node.parent
    if node is None:
        return set()
    return {child.children[0].text or b"" for child in node.children if child.type == "jsx_attribute"}


def _make_repeat(place: EditPlace, certainty: float, *, is_next: bool) -> Repeat:
    """The repeat at an adapted place. `is_next`: the edit was made twice, and the place is behind it."""
    edit = Edit(*place.span, place.text)
    unmatched = tuple(_in_characters(span, place.text) for span in place.unmatched)
    is_likely = is_next and certainty >= LIKELY and not unmatched
    return Repeat(edit, certainty, is_likely, unmatched)


def _in_characters(span: Span, text: bytes) -> Span:
    """A span of bytes of UTF-8 `text` as a span of its characters."""
    start = len(text[: span.start].decode("utf-8", "replace"))
    end = len(text[: span.end].decode("utf-8", "replace"))
    return Span(start, end)


def _drop_errors(check: Check, repeats: list[Repeat]) -> list[Repeat]:
    """The repeats whose edits together add no error; the most likely ones are kept if they do not all fit together. Up
    to `MAX_CHECKED` repeats are also checked one by one, since a user may take one alone.
    """
    sound = repeats
    if len(repeats) <= MAX_CHECKED:
        sound = [repeat for repeat in repeats if check.adds_no_error([repeat.edit])]
        if len(sound) < 2:
            return sound
    if check.adds_no_error([repeat.edit for repeat in sound]):
        return sound
    kept: list[Repeat] = []
    groups = [sorted(sound, key=lambda repeat: -repeat.certainty)[:MAX_CHECKED]]
    while groups:
        group = groups.pop()
        together = sorted([*kept, *group], key=lambda repeat: repeat.edit.start_byte)
        if check.adds_no_error([repeat.edit for repeat in together]):
            kept = together
        elif len(group) > 1:
            middle = len(group) // 2
            groups += [group[middle:], group[:middle]]
    return kept


def _adapt(change: Change, place: EditPlace) -> EditPlace:
    """The place with its text adapted to its line. An added word that was made from a word of the changed line gets
    that word's counterpart here, unless this line has either already. It is `unmatched` if there is no word as
    counterpart, or if the word that it was made from is no part of it.
    """
    changed_line, place_line = place.line_texts(change)
    counterparts = _match_tokens(changed_line, place_line)
    text = place.text
    unmatched: list[bytes] = []
    for word in _list_added_words(change):
        source = _find_source(word, changed_line)
        if source is None or source in place_line or word in place_line:
            continue
        counterpart = counterparts.get(source)
        if counterpart is not None and is_word(counterpart) and source in word:
            adapted = word.replace(source, counterpart)
            text = adapted.join(_match_whole(word).split(text))
        else:
            unmatched.append(word)
    spans: list[Span] = []
    for word in unmatched:
        spans += [Span(*match.span()) for match in _match_whole(word).finditer(text)]
    return replace(place, text=text, unmatched=tuple(spans))


def _list_added_words(change: Change) -> list[bytes]:
    """The different words among the new tokens of a change, in order."""
    words: dict[bytes, None] = {}
    for part in change.parts:
        words |= dict.fromkeys(filter(is_word, change.new_texts(part)))
    return list(words)


def _match_tokens(changed_line: list[bytes], place_line: list[bytes]) -> dict[bytes, bytes]:
    """The counterpart on `place_line` of each token of `changed_line` that has another one there: the lines differ in
    runs of tokens, and those of equal length are paired.
    """
    matcher = SequenceMatcher(None, changed_line, place_line, autojunk=False)
    counterparts: dict[bytes, bytes] = {}
    for tag, start, end, place_start, place_end in matcher.get_opcodes():
        if tag != "replace" or end - start != place_end - place_start:
            continue
        for token, counterpart in zip(changed_line[start:end], place_line[place_start:place_end], strict=True):
            counterparts[token] = counterpart
    return counterparts


def _find_source(word: bytes, line: list[bytes]) -> bytes | None:
    """The word of `line` that a new word was made from: itself; otherwise, of the words that share a part of `MIN_PART`
    characters with it, the longest that it contains, else the longest.
    """
    if word in line:
        return word
    parts = {part for part in _split_words(word) if len(part) >= MIN_PART}
    related = [other for other in line if is_word(other) and parts & _split_words(other)]
    return max(related, key=lambda other: (other in word, len(other)), default=None)


def _split_words(word: bytes) -> set[bytes]:
    """The words in lower case that a name is made of, such as `snake` and `case`."""
    return {part.lower() for part in _NAME_PART.findall(word)}


def _match_whole(word: bytes) -> re.Pattern[bytes]:
    """A pattern that matches `word` only as a whole word."""
    return re.compile(rb"(?<![\w$])%b(?![\w$])" % re.escape(word))
