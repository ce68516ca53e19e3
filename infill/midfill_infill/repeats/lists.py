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
class ListChange:
    """An insertion into the list that opens at `opener`, a token before the change and so the same in both texts."""

    change: Change
    opener: int

    @classmethod
    def around(cls, change: Change) -> "ListChange | None":
        """The innermost list around the change."""
        opener = change.old.openers[change.parts[0].old[0]]
        is_closed = opener and opener in change.old.closers and opener in change.new.closers
        return cls(change, opener) if is_closed and opener else None

    @cached_property
    def old(self) -> Texts:
        return _texts(self.change.old, self.change.old.items(self.opener))

    @cached_property
    def added(self) -> tuple[int, list[Span]] | None:
        """The index and the tokens of the items that are new; None if the change is within an item or no list."""
        items = self.change.new.items(self.opener)
        new, grown = _texts(self.change.new, items), len(items) - len(self.old)
        pairs = zip(self.old, new, strict=False)
        index = next((number for number, (old, other) in enumerate(pairs) if old != other), len(self.old))
        if grown < 1 or self.old[index:] != new[index + grown :]:
            return None
        is_block = self.change.old.texts[self.opener] == b"{" and not self.old and _label(new[0]) is None
        return None if is_block else (index, items[index : index + grown])

    def edits(self) -> Iterator[ListEdit]:
        """The same change in other lists with the name that stands before this one."""
        tokens, name = self.change.new, self._name
        for number in tokens.places.get(name[0], ()) if is_word(name[0]) else ():
            opener = number + 1
            if opener != self.opener and opener in tokens.closers and tokens.texts[number : opener + 1] == name:
                if (edit := self._add(opener) if self.added else self._insert(opener)) is not None:
                    yield edit

    @property
    def _name(self) -> list[bytes]:
        return self.change.old.texts[self.opener - 1 : self.opener + 1]

    def is_made_around(self, number: int) -> bool:
        """True if the list around a token of the new text has the new items, or has the name of the changed one."""
        tokens, opener = self.change.new, self.change.new.openers[number]
        if self.added is None or not opener or tokens.closers.get(opener, sys.maxsize) - opener > MAX_LIST_TOKENS:
            return False
        if is_word(self._name[0]) and tokens.texts[opener - 1 : opener + 1] == self._name:
            return True
        items = tokens.items(opener)
        index = sum(item[1] <= number for item in items)
        return _holds(_texts(tokens, items), _texts(tokens, self.added[1]), index)

    def _add(self, opener: int) -> ListEdit | None:
        assert self.added is not None
        tokens, (index, added) = self.change.new, self.added
        items, wanted = tokens.items(opener), _texts(tokens, added)
        texts = _texts(tokens, items)
        to = self._find_index(texts, index, _label(wanted[0]) is not None)
        if to is None or (_holds(texts, wanted, to) and not _holds(self.old, wanted, index)):
            return None
        span, text, number = _render(self, opener, items, to)
        return ListEdit(span, text, number, opener, texts[:to] == self.old[:index])

    def _find_index(self, texts: Texts, index: int, is_labelled: bool) -> int | None:
        """Where new items go: a labelled one behind those without a label, but before `..rest` and `**rest`."""
        if index == len(self.old) or (index > len(texts) and is_labelled):
            return len(texts) - sum(is_labelled and text[0] in _RESTS for text in texts[-1:])
        if index > len(texts):
            return None
        while is_labelled and index < len(texts) and _label(texts[index]) is None and texts[index][0] not in _SPREADS:
            index += 1
        return index

    def _insert(self, opener: int) -> ListEdit | None:
        """Inserts at the start or the end of the item that corresponds to the changed one."""
        old, tokens, part = self.change.old, self.change.new, self.change.parts[0]
        items, others, at = old.items(self.opener), tokens.items(opener), part.old[0]
        place = next((number for number, item in enumerate(items) if at in item), None)
        if place is None or old.texts[self.opener] == b"{" or not others:
            return None
        is_start, is_last = at == items[place][0], place == len(items) - 1
        place = len(others) - 1 if is_last and not is_start else place
        if place >= len(others):
            return None
        first, last = part.new
        number = others[place][0 if is_start else 1]
        if is_made(self.change, number, tokens.texts[first:last]):
            return None
        at = tokens.spans[number].start if is_start else tokens.spans[number - 1].end
        edge = (
            (tokens.spans[first].start, tokens.gap(last)[1])
            if is_start
            else (tokens.gap(first)[0], tokens.spans[last - 1].end)
        )
        is_exact = _texts(tokens, others)[:place] == self.old[:place]
        return ListEdit((at, at), tokens.source[slice(*edge)], number, opener, is_exact)


def _texts(tokens: Tokens, items: Sequence[Span]) -> Texts:
    return [tokens.texts[slice(*item)] for item in items]


def _label(item: Sequence[bytes]) -> list[bytes] | None:
    """The tokens before the sign of `name=value` or `name: value`."""
    place = next((number for number, text in enumerate(item[:-1]) if text in (b"=", b":")), 0)
    label = [text for text in item[:place] if text != b"?"]
    is_name = sum(map(is_word, label)) == 1 and len(label) >= place - (item[place - 1] == b"?")
    return label if is_name else None


def _holds(items: Texts, added: Texts, index: int) -> bool:
    """True if a list has the added items: under their label, at their index, or anywhere if they have a name."""
    labels = [label for item in items if (label := _label(item)) is not None]
    if any(_label(item) in labels for item in added):
        return True
    size = len(added)
    if added in (items[index : index + size], items[max(0, index - size) : index]):
        return True
    return any(item in items for item in added if any(map(_is_name, item)))


def _is_name(text: bytes) -> bool:
    return is_word(text) and not text[:1].isdigit() and text not in _CONSTANTS


def _render(made: ListChange, opener: int, items: list[Span], to: int) -> tuple[Span, bytes, int]:
    """The edit that puts the added items before item `to` of a list, and the token behind it."""
    tokens, added = made.change.new, made.added[1] if made.added else []
    is_apart = any(tokens.line_break(number) is not None for number in (added[0][0], tokens.closers[opener]))
    begin = items[min(to, len(items) - 1)][0] if items else opener
    line_break = tokens.line_break(begin) if items and is_apart else None
    indent = tokens.indent(tokens.spans[begin].start)
    glue = b" " if line_break is None else line_break
    texts = []
    for first, last in added:
        start = tokens.spans[first].start
        texts.append(indent_as(tokens.source[start : tokens.spans[last - 1].end], tokens.indent(start), indent))
    text = (b"," + glue).join(texts)
    if not items:
        at, lead = tokens.spans[opener].end, tokens.white(added[0][0])
        lead = lead if lead.strip(b" ") == b"" and not made.old else b""
        return (at, at), lead + text + lead, opener + 1
    if to < len(items):
        at = tokens.spans[begin].start
        return (at, at), text + b"," + glue, begin
    return _append(tokens, items[-1][1], text, glue, is_alone=line_break is not None)


def _append(tokens: Tokens, number: int, text: bytes, glue: bytes, *, is_alone: bool) -> tuple[Span, bytes, int]:
    """Puts `text` behind the last item, which ends before a token. On a line of its own also behind its comment."""
    start = tokens.spans[number - 1].end
    comma = number
    while comma in tokens.comments:
        comma += 1
    if has_comma := tokens.marks[comma] == b",":
        number = comma + 1
    at = tokens.spans[number - 1].end
    while is_alone and number in tokens.comments and tokens.same_line(number):
        number += 1
    end = tokens.spans[number - 1].end
    if has_comma:
        return (end, end), glue + text + b",", number
    return (start, end) if end > at else (start, start), b"," + tokens.source[at:end] + glue + text, number
