"""Repeats a change of a bracketed list, such as an added argument, in lists of the same name. Knows tokens, no tree."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from midfill_infill.repeats.change import Change, Span, Tokens, is_word
from midfill_infill.repeats.insertions import indent_as, is_made

Texts = list[list[bytes]]

MAX_LIST_TOKENS: Final = 1000

_CONSTANTS: Final = frozenset(
    (b"True", b"False", b"None", b"true", b"false", b"null", b"nil", b"nullptr", b"undefined")
)
_SPREADS: Final = (b"*", b"**", b"..", b"...")
_RESTS: Final = (b"**", b"..")


@dataclass(frozen=True)
class ListEdit:
    """Bytes `span` of the new text become `text`, in the list that opens at `opener`; `number` is the token behind."""

    span: Span
    text: bytes
    number: int
    opener: int
    is_exact: bool


@dataclass(frozen=True)
class AddedItems:
    """The new items of a list: the index of the first, and the tokens of each."""

    index: int
    items: list[Span]


@dataclass(frozen=True)
class ListChange:
    """An insertion into the list that opens at `opener`, a token before the change and so the same in both texts."""

    change: Change
    opener: int

    @classmethod
    def around(cls, change: Change) -> "ListChange | None":
        """The innermost list around the change."""
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
        """The new items; None if the change is within an item or no list."""
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
        """The same change in other lists with the name that stands before this one."""
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
        """The token before the list, and the bracket."""
        return self.change.old.texts[self.opener - 1 : self.opener + 1]

    def is_made_around(self, number: int) -> bool:
        """True if the list around a token of the new text has the new items, or has the name of the changed one."""
        tokens = self.change.new
        opener = tokens.openers[number]
        if self.added is None or not opener:
            return False
        if tokens.closers.get(opener, sys.maxsize) - opener > MAX_LIST_TOKENS:
            return False
        if is_word(self._name[0]) and tokens.texts[opener - 1 : opener + 1] == self._name:
            return True
        items = tokens.items(opener)
        texts = _texts(tokens, items)
        wanted = _texts(tokens, self.added.items)
        index = sum(item.end <= number for item in items)
        return _holds(texts, wanted, index)

    def _add(self, opener: int, added: AddedItems) -> ListEdit | None:
        """Adds the new items to another list; None if it has them already, or no place for them."""
        tokens = self.change.new
        items = tokens.items(opener)
        texts = _texts(tokens, items)
        wanted = _texts(tokens, added.items)
        is_labelled = _label(wanted[0]) is not None
        index = self._find_index(texts, added.index, is_labelled)
        if index is None:
            return None
        if _holds(texts, wanted, index) and not _holds(self.old, wanted, added.index):
            return None
        span, text, number = self._render(added.items, opener, items, index)
        is_exact = texts[:index] == self.old[: added.index]
        return ListEdit(span=span, text=text, number=number, opener=opener, is_exact=is_exact)

    def _find_index(self, texts: Texts, index: int, is_labelled: bool) -> int | None:
        """Where new items go: a labelled one behind those without a label, but before `..rest` and `**rest`."""
        if index == len(self.old) or (index > len(texts) and is_labelled):
            has_rest = is_labelled and bool(texts) and texts[-1][0] in _RESTS
            return len(texts) - int(has_rest)
        if index > len(texts):
            return None
        while is_labelled and index < len(texts):
            if _label(texts[index]) is not None or texts[index][0] in _SPREADS:
                break
            index += 1
        return index

    def _insert(self, opener: int) -> ListEdit | None:
        """Inserts at the start or the end of the item that corresponds to the changed one."""
        old, tokens = self.change.old, self.change.new
        part = self.change.parts[0]
        if old.texts[self.opener] == b"{":
            return None
        items = old.items(self.opener)
        others = tokens.items(opener)
        edge = part.old.start
        index = next((number for number, item in enumerate(items) if edge in (item.start, item.end)), None)
        if index is None or not others:
            return None
        is_start = edge == items[index].start
        if index == len(items) - 1 and not is_start:
            index = len(others) - 1
        if index >= len(others):
            return None
        item = others[index]
        number = item.start if is_start else item.end
        if is_made(self.change, number, tokens.texts_of(part.new)):
            return None
        text = tokens.source_of(part.new)
        if is_start:
            at = tokens.spans[number].start
            text += tokens.white(part.new.end)
        else:
            at = tokens.spans[number - 1].end
            text = tokens.white(part.new.start) + text
        is_exact = _texts(tokens, others[:index]) == self.old[:index]
        return ListEdit(span=Span(at, at), text=text, number=number, opener=opener, is_exact=is_exact)

    def _render(self, added: list[Span], opener: int, items: list[Span], index: int) -> tuple[Span, bytes, int]:
        """The edit that puts the added items before an item of a list, and the token behind it."""
        tokens = self.change.new
        if not items:
            return self._fill_empty(added, opener)
        neighbour = items[min(index, len(items) - 1)].start
        line_break: bytes | None = None
        for number in (added[0].start, tokens.closers[opener]):
            if tokens.line_break(number) is not None:
                line_break = tokens.line_break(neighbour)
        glue = line_break or b" "
        start = tokens.spans[neighbour].start
        text = _join_items(tokens, added, glue, tokens.indent(start))
        if index < len(items):
            return Span(start, start), text + b"," + glue, neighbour
        return _append(tokens, items[-1].end, text, glue, is_alone=line_break is not None)

    def _fill_empty(self, added: list[Span], opener: int) -> tuple[Span, bytes, int]:
        """The edit that puts the added items into an empty list, and the token behind it."""
        tokens = self.change.new
        start, end = tokens.spans[opener]
        text = _join_items(tokens, added, b" ", tokens.indent(start))
        white = tokens.white(added[0].start)
        if not self.old and not white.strip(b" "):
            text = white + text + white
        return Span(end, end), text, opener + 1


def _join_items(tokens: Tokens, items: list[Span], glue: bytes, indent: bytes) -> bytes:
    """The source of some items, with commas between them, as deep as a line with this indentation."""
    texts: list[bytes] = []
    for item in items:
        own_indent = tokens.indent(tokens.spans[item.start].start)
        texts.append(indent_as(tokens.source_of(item), own_indent, indent))
    return (b"," + glue).join(texts)


def _texts(tokens: Tokens, items: Sequence[Span]) -> Texts:
    return [tokens.texts_of(item) for item in items]


def _label(item: Sequence[bytes]) -> list[bytes] | None:
    """The tokens before the sign of `name=value` or `name: value`."""
    sign = next((number for number, text in enumerate(item[:-1]) if text in (b"=", b":")), 0)
    label = [text for text in item[:sign] if text != b"?"]
    if sum(map(is_word, label)) != 1:
        return None
    has_question_mark = item[sign - 1] == b"?"
    if len(label) < sign - int(has_question_mark):
        return None
    return label


def _holds(items: Texts, added: Texts, index: int) -> bool:
    """True if a list has the added items: under their label, at their index, or anywhere if they have a name."""
    labels = list(filter(None, map(_label, items)))
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
    """True for a word that may be a name of its own: no number, no constant."""
    return is_word(text) and not text[:1].isdigit() and text not in _CONSTANTS


def _append(tokens: Tokens, number: int, text: bytes, glue: bytes, *, is_alone: bool) -> tuple[Span, bytes, int]:
    """Puts `text` behind the last item, which ends before a token. On a line of its own also behind its comment."""
    start = tokens.spans[number - 1].end
    comma = number
    while comma in tokens.comments:
        comma += 1
    has_comma = tokens.marks[comma] == b","
    if has_comma:
        number = comma + 1
    at = tokens.spans[number - 1].end
    if is_alone:
        while number in tokens.comments and tokens.same_line(number):
            number += 1
    end = tokens.spans[number - 1].end
    if has_comma:
        return Span(end, end), glue + text + b",", number
    comment = tokens.source[at:end]
    if end <= at:
        end = start
    return Span(start, end), b"," + comment + glue + text, number
