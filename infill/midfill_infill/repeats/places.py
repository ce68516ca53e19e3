"""Finds candidate places for an edit by text alone. Knows tokens, no tree and no probability."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from midfill_infill.repeats.change import CLOSERS, OPENERS, Change, ChangedTokens, Span, Tokens, is_word

MAX_PLACES: Final = 200
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


def find_places(change: Change) -> list[EditPlace]:
    """Candidate places in text order; none on a line of the edit itself, and none that touches another."""
    found = sorted(_find(change), key=lambda place: (place.tokens, not place.is_exact))
    places: list[EditPlace] = []
    first, last = change.new.line(*change.new_span)
    for place in found:
        is_elsewhere = place.tokens[1] <= first or place.tokens[0] >= last
        if is_elsewhere and (not places or place.span[0] >= places[-1].span[1] and place.span != places[-1].span):
            places.append(place)
    return places if len(places) <= MAX_PLACES else []


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
    old, new = change.bytes_changed(part)
    start, end = tokens.around((first, last))
    chunk = tokens.source[start:end]
    if not old:
        lead = len(chunk) - len(chunk.lstrip()) if chunk.strip() else 0
        before, _ = change.old.gap(part.old[0])
        has_gap = before < change.old.gap(part.old[0])[1] and new[:1] not in (b",", b";")
        at = start + (lead or (len(chunk) if has_gap else 0))
        return (at, at), new
    offset = chunk.find(old)
    if offset < 0:
        if old.strip() != chunk.strip() or b"\n" in chunk:
            return None
        old, new = old.strip(), new.strip()
        offset = chunk.find(old)
    return (start + offset, start + offset + len(old)), new


def _insert(change: Change, part: ChangedTokens) -> Iterator[EditPlace]:
    """Inserts tokens into another call of the same name, otherwise between the same neighbors."""
    opener = change.old.openers[part.old[0]]
    if opener and opener in change.old.closers and is_word(change.old.texts[opener - 1]):
        yield from _insert_in_lists(change, part, opener)
    yield from _insert_between(change, part)


def _insert_in_lists(change: Change, part: ChangedTokens, opener: int) -> Iterator[EditPlace]:
    texts = change.old.texts[opener - 1 : opener + 1]
    for number in change.new.places.get(texts[0], ()):
        end = change.new.closers.get(number + 1)
        if end is not None and change.new.texts[number : number + 2] == texts:
            if (place := _argument_place(change, part, opener, number + 1, end)) is not None:
                yield place


def _commas(tokens: Tokens, opener: int, end: int) -> list[int]:
    """Commas between the arguments before `end`."""
    between = range(opener + 1, end)
    return [number for number in between if tokens.texts[number] == b"," and tokens.openers[number] == opener]


def _argument_place(change: Change, part: ChangedTokens, opener: int, start: int, end: int) -> EditPlace | None:
    """The same argument in the list `[start, end]` of the new text; `opener` is the bracket of the changed list."""
    tokens, at, closer = change.new, part.old[0], change.old.closers[opener]
    commas = _commas(change.old, opener, at)
    _, new = change.bytes_changed(part)
    words = change.new_texts(part)
    inside = tokens.texts[start + 1 : end]
    named = [word for word, follower in zip(words, words[1:], strict=False) if is_word(word) and follower == b"="]
    if any(word in inside for word in named):
        return None
    if at == closer:
        index = end
    elif at == opener + 1:
        index = start + 1
    else:
        others = _commas(tokens, start, end)
        if len(others) < len(commas):
            return None
        if change.old.texts[at] == b",":
            index = others[len(commas)] if len(others) > len(commas) else end
        elif commas and commas[-1] == at - 1:
            index = others[len(commas) - 1] + 1
        else:
            return None
    before, after = tokens.texts[index - 1], tokens.texts[index]
    if new.lstrip().startswith(b",") and before in (b",", *OPENERS):
        if before == b",":
            return None
        new = new.lstrip()[1:].lstrip()
    elif at == closer and opener + 1 == closer and before not in OPENERS:
        new = b", " + new.strip()
    if new.rstrip().endswith(b",") and after in CLOSERS and change.old.texts[at] not in CLOSERS:
        new = new.rstrip()[:-1]
    place = tokens.spans[index - 1].end
    if not new.lstrip().startswith(b",") and before == b",":
        place = tokens.gap(index)[1]
    is_exact = tokens.texts[start + 1 : index] == change.old.texts[opener + 1 : at]
    names = (opener - 1, opener - 1), (start - 1, start - 1)
    return EditPlace((place, place), new, (index, index), *names, (opener, start), "list", is_exact)


def _insert_between(change: Change, part: ChangedTokens) -> Iterator[EditPlace]:
    old, tokens, at = change.old, change.new, part.old[0]
    if not 0 < at < len(old):
        return
    before, after = old.texts[at - 1], old.texts[at]
    for number in tokens.places.get(after, ()):
        if number and tokens.texts[number - 1] == before and tokens.same_line(number) == old.same_line(at):
            if edit := _edit(change, part, tokens, number, number):
                here = number, number
                yield EditPlace(*edit, here, change.old_span, here, (at - 1, number - 1), "between")


def _follow(change: Change, number: int) -> Iterator[EditPlace]:
    """Matches all parts in sequence from token `number` on, with any tokens between them."""
    tokens = change.new
    at, is_exact = number, True
    pieces: list[bytes] = []
    mapping: dict[bytes, bytes] = {}
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
            here = tokens.texts[at:found]
            there = change.old.texts[slice(*kept)]
            is_exact &= here == there
            if len(here) == len(there):
                mapping |= {old: new for old, new in zip(there, here, strict=True) if is_word(old)}
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
        text = tokens.texts[number]
        if number > at and not depth and tokens.texts[number : number + len(wanted)] == wanted:
            return number
        depth += (text in OPENERS) - (text in CLOSERS)
        if depth < 0:
            return None
    return None
