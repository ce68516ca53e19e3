"""Repeats a change of a bracketed list, such as an added argument, in lists of the same name. Knows tokens, no tree."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from midfill_infill.repeats.change import Change, Span, Tokens, is_word
from midfill_infill.repeats.insertions import indent_as, is_inserted

Texts = list[list[bytes]]

MAX_LIST_TOKENS: Final = 1000

_CONSTANTS: Final = frozenset(
    (b"True", b"False", b"None", b"true", b"false", b"null", b"nil", b"nullptr", b"undefined")
)
_SPREADS: Final = (b"*", b"**", b"..", b"...")
_REST_SIGNS: Final = (b"**", b"..")


@dataclass(frozen=True)
class ListEdit:
    """Bytes `span` of the new text become `text`."""

    span: Span
    text: bytes
    next_token: int  # the first token behind `span`
    opener: int  # the opening bracket of the edited list
    is_exact: bool  # the items before are those of the changed list


@dataclass(frozen=True)
class AddedItems:
    """The new items of a list: the index of the first, and the tokens of each."""

    index: int
    items: list[Span]


@dataclass(frozen=True)
class ListChange:
    """An insertion into the list that opens at `opener`, a token before the change and so the same in both texts. The
    list's name is the token before its bracket.
    """

    change: Change
    opener: int

    @classmethod
    def around(cls, change: Change) -> "ListChange | None":
        """The innermost list around the change; None if there is none, or it is not closed in both texts."""
        opener = change.old.openers[change.parts[0].old.start]
        if not opener or opener not in change.old.closers or opener not in change.new.closers:
            return None
        return cls(change, opener)

    @cached_property
    def old(self) -> Texts:
        """The items before the change."""
        return _texts(self.change.old, self.change.old.items(self.opener))

    @cached_property
    def added(self) -> AddedItems | None:
        """The new items; None if the change did anything else, or filled empty braces with no label, as in a block."""
        items = self.change.new.items(self.opener)
        new = _texts(self.change.new, items)
        num_added = len(new) - len(self.old)
        if num_added < 1:
            return None
        index = 0
        while index < len(self.old) and self.old[index] == new[index]:
            index += 1
        if self.old[index:] != new[index + num_added :]:
            return None
        is_block = self.change.old.texts[self.opener] == b"{" and not self.old
        if is_block and _label(new[0]) is None:
            return None
        return AddedItems(index, items[index : index + num_added])

    def edits(self) -> Iterator[ListEdit]:
        """The same change in other lists of the new text that have this list's name and kind of bracket."""
        tokens = self.change.new
        name = self._name
        if not is_word(name[0]):
            return
        for number in tokens.positions.get(name[0], ()):
            opener = number + 1
            if opener == self.opener or opener not in tokens.closers or tokens.texts[number : opener + 1] != name:
                continue
            edit = self._add(opener, self.added) if self.added else self._insert(opener)
            if edit is not None:
                yield edit

    @property
    def _name(self) -> list[bytes]:
        """The list's name and its opening bracket."""
        return self.change.old.texts[self.opener - 1 : self.opener + 1]

    def is_done_around(self, number: int) -> bool:
        """True if the list around a token of the new text has the new items, or is one that `edits` considers."""
        tokens = self.change.new
        opener = tokens.openers[number]
        if self.added is None or not opener:
            return False
        if tokens.closers.get(opener, sys.maxsize) - opener > MAX_LIST_TOKENS:
            return False
        if is_word(self._name[0]) and tokens.texts[opener - 1 : opener + 1] == self._name:
            return True
        items = tokens.items(opener)
        item_texts = _texts(tokens, items)
        added_texts = _texts(tokens, self.added.items)
        index = sum(item.end <= number for item in items)
        return _has_items(item_texts, added_texts, index)

    def _add(self, opener: int, added: AddedItems) -> ListEdit | None:
        """The edit that adds the new items to the list at `opener`; None if it has them, or no place for them."""
        tokens = self.change.new
        items = tokens.items(opener)
        item_texts = _texts(tokens, items)
        added_texts = _texts(tokens, added.items)
        is_labelled = _label(added_texts[0]) is not None
        index = self._find_index(item_texts, added.index, is_labelled=is_labelled)
        if index is None:
            return None
        if _has_items(item_texts, added_texts, index) and not _has_items(self.old, added_texts, added.index):
            return None
        span, text, next_token = self._put_before(index, added.items, opener, items)
        is_exact = item_texts[:index] == self.old[: added.index]
        return ListEdit(span=span, text=text, next_token=next_token, opener=opener, is_exact=is_exact)

    def _find_index(self, item_texts: Texts, index: int, *, is_labelled: bool) -> int | None:
        """The index in another list for items that the change added at `index`: at its end if they were added at the
        end. Items with labels go behind those without, but before `..rest` and `**rest`. None if the list is too short.
        """
        if index == len(self.old) or (index > len(item_texts) and is_labelled):
            has_rest = is_labelled and bool(item_texts) and item_texts[-1][0] in _REST_SIGNS
            return len(item_texts) - int(has_rest)
        if index > len(item_texts):
            return None
        place = index
        while is_labelled and place < len(item_texts):
            if _label(item_texts[place]) is not None or item_texts[place][0] in _SPREADS:
                break
            place += 1
        return place

    def _insert(self, opener: int) -> ListEdit | None:
        """The edit that inserts the new tokens at the same edge of the corresponding item of the list that opens at
        `opener`; None if the change is at no item's edge, there is no such item, or the tokens are there already.
        """
        old, tokens = self.change.old, self.change.new
        part = self.change.parts[0]
        if old.texts[self.opener] == b"{":
            return None
        items = old.items(self.opener)
        other_items = tokens.items(opener)
        edge = part.old.start
        index = next((number for number, item in enumerate(items) if edge in (item.start, item.end)), None)
        if index is None or not other_items:
            return None
        is_start = edge == items[index].start
        if index == len(items) - 1 and not is_start:
            index = len(other_items) - 1
        if index >= len(other_items):
            return None
        item = other_items[index]
        number = item.start if is_start else item.end
        if is_inserted(self.change, number, tokens.texts_of(part.new)):
            return None
        text = tokens.source_of(part.new)
        if is_start:
            offset = tokens.spans[number].start
            text += tokens.white(part.new.end)
        else:
            offset = tokens.spans[number - 1].end
            text = tokens.white(part.new.start) + text
        is_exact = _texts(tokens, other_items[:index]) == self.old[:index]
        return ListEdit(span=Span(offset, offset), text=text, next_token=number, opener=opener, is_exact=is_exact)

    def _put_before(self, index: int, added: list[Span], opener: int, items: list[Span]) -> tuple[Span, bytes, int]:
        """The edit that puts the `added` items before item `index` of a list: its span, its text, the token behind."""
        tokens = self.change.new
        if not items:
            return self._fill_empty(added, opener)
        neighbor = items[min(index, len(items) - 1)].start
        line_break: bytes | None = None
        for number in (added[0].start, tokens.closers[opener]):
            if tokens.line_break(number) is not None:
                line_break = tokens.line_break(neighbor)
        glue = line_break or b" "
        start = tokens.spans[neighbor].start
        text = _join_items(tokens, added, glue, tokens.indent(start))
        if index < len(items):
            return Span(start, start), text + b"," + glue, neighbor
        return _append(tokens, items[-1].end, text, glue, is_alone=line_break is not None)

    def _fill_empty(self, added: list[Span], opener: int) -> tuple[Span, bytes, int]:
        """As `_put_before`, for an empty list."""
        tokens = self.change.new
        start, end = tokens.spans[opener]
        text = _join_items(tokens, added, b" ", tokens.indent(start))
        white = tokens.white(added[0].start)
        if not self.old and not white.strip(b" "):
            text = white + text + white
        return Span(end, end), text, opener + 1


def _join_items(tokens: Tokens, items: list[Span], glue: bytes, indent: bytes) -> bytes:
    """The source of `items` with commas and `glue` between them, moved to the indentation `indent`."""
    texts: list[bytes] = []
    for item in items:
        own_indent = tokens.indent(tokens.spans[item.start].start)
        texts.append(indent_as(tokens.source_of(item), own_indent, indent))
    return (b"," + glue).join(texts)


def _texts(tokens: Tokens, items: Sequence[Span]) -> Texts:
    return [tokens.texts_of(item) for item in items]


def _label(item: Sequence[bytes]) -> list[bytes] | None:
    """The tokens before the sign of `name=value` or `name: value`, without a question mark right before the sign. None
    unless exactly one of them is a word, and if there are other question marks.
    """
    sign = next((number for number, text in enumerate(item[:-1]) if text in (b"=", b":")), 0)
    label = [text for text in item[:sign] if text != b"?"]
    if sum(map(is_word, label)) != 1:
        return None
    has_question_mark = item[sign - 1] == b"?"
    if len(label) < sign - int(has_question_mark):
        return None
    return label


def _has_items(items: Texts, added: Texts, index: int) -> bool:
    """True if a list has the label of an added item, all `added` items beside `index`, or one that holds a name."""
    labels = [label for label in map(_label, items) if label]
    if any(_label(item) in labels for item in added):
        return True
    size = len(added)
    before = items[max(0, index - size) : index]
    behind = items[index : index + size]
    if added in (before, behind):
        return True
    for item in added:
        if item in items and any(map(_is_name, item)):
            return True
    return False


def _is_name(text: bytes) -> bool:
    """True for a word that is no number and no constant."""
    return is_word(text) and not text[:1].isdigit() and text not in _CONSTANTS


def _append(tokens: Tokens, item_end: int, text: bytes, glue: bytes, *, is_alone: bool) -> tuple[Span, bytes, int]:
    """As `_put_before`, for the end of a list whose last item ends before `item_end`. If the text `is_alone` on a line,
    it goes behind a comment too.
    """
    start = tokens.spans[item_end - 1].end
    comma = item_end
    while comma in tokens.comments:
        comma += 1
    has_comma = tokens.marks[comma] == b","
    next_token = comma + 1 if has_comma else item_end
    comment_start = tokens.spans[next_token - 1].end
    if is_alone:
        while next_token in tokens.comments and tokens.same_line(next_token):
            next_token += 1
    end = tokens.spans[next_token - 1].end
    if has_comma:
        return Span(end, end), glue + text + b",", next_token
    comment = tokens.source[comment_start:end]
    if end <= comment_start:
        end = start
    return Span(start, end), b"," + comment + glue + text, next_token
