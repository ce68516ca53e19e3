"""Finds candidate places for an edit by text alone. Knows tokens, no tree and no probability."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from midfill_infill.repeats.change import CLOSERS, OPENERS, Change, ChangedTokens, Span, Tokens, is_word
from midfill_infill.repeats.insertions import insert, is_made
from midfill_infill.repeats.lists import ListChange

MAX_PLACES: Final = 200
MAX_FOUND: Final = 2000
MAX_KEPT_TOKENS: Final = 60


@dataclass(frozen=True)
class EditPlace:
    """Bytes `[span[0], span[1])` of the new text would become `text`; `tokens` are the touched tokens there.

    `old` are tokens of the old text and `new` those of the new one whose neighbors correspond; so do the two tokens of
    `anchors`, whose syntax nodes describe the change and the place.
    """

    span: Span
    text: bytes
    tokens: Span
    old: Span
    new: Span
    anchors: tuple[int, int]
    way: str
    """How it was found: the same tokens, a list of the same name, the same neighbours, or part by part."""
    is_exact: bool = True
    """True if what the change kept is the same here."""
    foreign: tuple[Span, ...] = ()
    """Spans of words in `text` that come from the change's own line and have no counterpart here."""

    def around(self, change: Change) -> tuple[tuple[Tokens, Span], tuple[Tokens, Span]]:
        """What corresponds in the old and the new text: from the name of a list to the change and the place."""
        old, new = (
            (min(one[0], other[0]), max(one[1], other[1]))
            for one, other in ((change.old_span, self.old), (self.tokens, self.new))
        )
        return (change.old, old), (change.new, new)


def find_places(change: Change) -> list[EditPlace]:
    """Candidate places in text order; none on a line of the edit or at its edges, and none that touches another."""
    found = sorted(
        islice(_find(change), MAX_FOUND), key=lambda place: (place.tokens, place.way == "between", not place.is_exact)
    )
    places: list[EditPlace] = []
    first, last = change.new.line(*change.new_span)
    for place in found:
        is_elsewhere = place.tokens[1] <= first or place.tokens[0] >= last
        is_edge = place.tokens[0] == place.tokens[1] and place.tokens[0] in change.new_span
        is_apart = not places or (place.span[0] >= places[-1].span[1] and place.span != places[-1].span)
        if is_elsewhere and not is_edge and is_apart and _is_alike(change, place):
            places.append(place)
    return places if len(places) <= MAX_PLACES else []


def _is_alike(change: Change, place: EditPlace) -> bool:
    """False if one is code and the other is none, for more than words, or if the change empties brackets only there."""
    old, new, part = change.old, change.new, change.parts[0]
    at, there = part.old[0], place.tokens[0]
    is_same = (at in old.comments, at in old.inert) == (there in new.comments, there in new.inert)
    if not is_same and (at in old.comments or not change.is_of_words):
        return False
    if part.old[0] == part.old[1] or part.new[0] < part.new[1] or not 0 < part.old[0] < part.old[1] < len(old):
        return True
    was, here = (
        (texts[first - 1], texts[last : last + 1])
        for texts, (first, last) in ((old.texts, part.old), (new.texts, place.tokens))
    )
    return was[0] not in OPENERS or was[1][0] not in CLOSERS or was == here


def _find(change: Change) -> Iterator[EditPlace]:
    first = change.parts[0]
    if change.is_uniform and first.old[0] < first.old[1]:
        for number in _occurrences(change, first):
            end = number + first.old[1] - first.old[0]
            if (edit := _edit(change, first, change.new, number, end)) is not None:
                yield EditPlace(*edit, (number, end), first.old, (number, end), (first.old[0], number), "same")
    elif change.is_uniform or len(change.parts) == 1:
        yield from _insert(change, first)
    elif first.old[0] < first.old[1]:
        for number in _occurrences(change, first):
            yield from _follow(change, number)


def _occurrences(change: Change, part: ChangedTokens) -> list[int]:
    """Positions in the new text of the tokens that a part replaced."""
    wanted, tokens = change.old_texts(part), change.new
    rarest = min(range(len(wanted)), key=lambda index: len(tokens.places.get(wanted[index], ())))
    starts = [number - rarest for number in tokens.places.get(wanted[rarest], ())]
    return [start for start in starts if start >= 0 and tokens.texts[start : start + len(wanted)] == wanted]


def _edit(change: Change, part: ChangedTokens, tokens: Tokens, first: int, last: int) -> tuple[Span, bytes] | None:
    """The replacement for the part's old tokens at `[first, last)`; None if the white space differs."""
    if part.old[0] == part.old[1]:
        return insert(change, part, tokens, first)
    old, new = change.bytes_changed(part)
    start, end = tokens.around((first, last))
    chunk = tokens.source[start:end]
    offset = chunk.find(old)
    if offset < 0:
        if old.strip() != chunk.strip() or b"\n" in chunk:
            return None
        old, new = old.strip(), new.strip()
        offset = chunk.find(old)
    return (start + offset, start + offset + len(old)), new


def _insert(change: Change, part: ChangedTokens) -> Iterator[EditPlace]:
    """Inserts tokens into another list of the same name, otherwise between the same neighbors."""
    if (around := ListChange.around(change)) is not None:
        for edit in around.edits():
            names = (around.opener - 1, around.opener - 1), (edit.opener - 1, edit.opener - 1)
            here, anchors = (edit.number, edit.number), (around.opener, edit.opener)
            yield EditPlace(edit.span, edit.text, here, *names, anchors, "list", edit.is_exact)
    old, tokens, at = change.old, change.new, part.old[0]
    if not 0 < at < len(old):
        return
    before, after = old.texts[at - 1], old.texts[at]
    for number in tokens.places.get(after, ()):
        is_like = number and tokens.texts[number - 1] == before and tokens.same_line(number) == old.same_line(at)
        is_done = is_made(change, number, change.new_texts(part)) or (
            around is not None and around.is_made_around(number)
        )
        if is_like and not is_done:
            if spot := insert(change, part, tokens, number):
                here = number, number
                yield EditPlace(*spot, here, change.old_span, here, (at - 1, number - 1), "between")


def _follow(change: Change, number: int) -> Iterator[EditPlace]:
    """Matches all parts in sequence from token `number` on, with any tokens between them."""
    tokens = change.new
    at, is_exact = number, True
    pieces: list[bytes] = []
    start: int | None = None
    position = 0
    for part, kept in zip(change.parts, [*change.kept, None], strict=True):
        wanted = change.old_texts(part)
        if tokens.texts[at : at + len(wanted)] != wanted:
            return
        if (edit := _edit(change, part, tokens, at, at + len(wanted))) is None:
            return
        (first, last), text = edit
        start = first if start is None else start
        pieces += [tokens.source[position:first] if position else b"", text]
        position = last
        at += len(wanted)
        if kept is not None:
            if (found := _match_kept(change, kept, at)) is None:
                return
            is_exact &= tokens.texts[at:found] == change.old.texts[slice(*kept)]
            at = found
    assert start is not None
    span, place, anchors = (start, position), (number, at), (change.old_span[0], number)
    yield EditPlace(span, b"".join(pieces), place, change.old_span, place, anchors, "parts", is_exact)


def _match_kept(change: Change, kept: Span, at: int) -> int | None:
    """End of the text that corresponds to the kept tokens: the same tokens, otherwise the shortest balanced run."""
    tokens, texts = change.new, change.old.texts[slice(*kept)]
    if tokens.texts[at : at + len(texts)] == texts:
        return at + len(texts)
    follower = next(part for part in change.parts if part.old[0] == kept[1])
    wanted = change.old_texts(follower)
    if not wanted or not any(map(is_word, texts)):
        return None
    depth = 0
    for number in range(at, min(at + MAX_KEPT_TOKENS, len(tokens))):
        text = tokens.marks[number]
        if number > at and not depth and tokens.texts[number : number + len(wanted)] == wanted:
            return number
        depth += (text in OPENERS) - (text in CLOSERS)
        if depth < 0:
            return None
    return None
