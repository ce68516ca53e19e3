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

    def line_texts(self, change: Change) -> tuple[list[bytes], list[bytes]]:
        """What corresponds in the old and the new text: the lines from a list's name to the change or the place."""
        old = _join(change.old_span, self.old)
        new = _join(self.tokens, self.new)
        return change.old.line_texts(old), change.new.line_texts(new)


def _join(span: Span, other: Span) -> Span:
    """The span from the start of the first to the end of the last of two spans."""
    return Span(min(span.start, other.start), max(span.end, other.end))


def find_places(change: Change) -> list[EditPlace]:
    """Candidate places in text order; none on a line of the edit or at its edges, and none that touches another."""
    candidates = list(islice(_find(change), MAX_FOUND))
    candidates.sort(key=lambda place: (place.tokens, place.way == "between", not place.is_exact))
    places: list[EditPlace] = []
    changed_lines = change.new.line(change.new_span)
    for place in candidates:
        if place.tokens.end > changed_lines.start and place.tokens.start < changed_lines.end:
            continue
        if place.tokens.is_empty and place.tokens.start in change.new_span:
            continue
        if places and not _is_behind(place.span, places[-1].span):
            continue
        if _is_alike(change, place):
            places.append(place)
    if len(places) > MAX_PLACES:
        return []
    return places


def _is_behind(span: Span, last: Span) -> bool:
    """True if a span begins at or behind the end of the last one; not if both are the same empty one."""
    return span.start >= last.end and span != last


def _is_alike(change: Change, place: EditPlace) -> bool:
    """False if one is code and the other is none, for more than words, or if the change empties brackets only there."""
    old, new = change.old, change.new
    first, last = change.parts[0].old
    is_comment = first in old.comments
    is_same_kind = is_comment == (place.tokens.start in new.comments)
    if (first in old.inert) != (place.tokens.start in new.inert):
        is_same_kind = False
    if not is_same_kind and (is_comment or not change.is_of_words):
        return False
    is_removal = change.parts[0].new.is_empty and first < last
    if not is_removal or first == 0 or last >= len(old):
        return True
    opener = old.texts[first - 1]
    closer = old.texts[last]
    if opener not in OPENERS or closer not in CLOSERS:
        return True
    if new.texts[place.tokens.start - 1] != opener:
        return False
    return place.tokens.end < len(new) and new.texts[place.tokens.end] == closer


def _find(change: Change) -> Iterator[EditPlace]:
    """Candidate places in no order; some may overlap."""
    first = change.parts[0]
    if first.old.is_empty:
        if change.is_uniform or len(change.parts) == 1:
            yield from _insert(change, first)
        return
    for number in _occurrences(change, first):
        if not change.is_uniform:
            yield from _follow(change, number)
            continue
        here = Span(number, number + first.old.size)
        edit = _edit(change, first, change.new, here)
        if edit is not None:
            yield _put(edit, first.old, here, "same")


def _put(edit: tuple[Span, bytes], old: Span, here: Span, way: str, *, is_exact: bool = True) -> EditPlace:
    """The place of an edit of the tokens `here`, which correspond to the `old` ones."""
    span, text = edit
    anchors = (old.start, here.start)
    return EditPlace(span=span, text=text, tokens=here, old=old, new=here, anchors=anchors, way=way, is_exact=is_exact)


def _occurrences(change: Change, part: ChangedTokens) -> list[int]:
    """Positions in the new text of the tokens that a part replaced."""
    tokens = change.new
    wanted = change.old_texts(part)
    positions = [tokens.positions.get(text, []) for text in wanted]
    rarest = min(range(len(wanted)), key=lambda index: len(positions[index]))
    starts: list[int] = []
    for number in positions[rarest]:
        start = number - rarest
        if start >= 0 and tokens.texts[start : start + len(wanted)] == wanted:
            starts.append(start)
    return starts


def _edit(change: Change, part: ChangedTokens, tokens: Tokens, here: Span) -> tuple[Span, bytes] | None:
    """The replacement for the part's old tokens at `here`; None if the white space differs."""
    if part.old.is_empty:
        return insert(change, part, tokens, here.start)
    old, new = change.bytes_changed(part)
    start = tokens.around(here).start
    chunk = tokens.source_around(here)
    offset = chunk.find(old)
    if offset < 0:
        if old.strip() != chunk.strip() or b"\n" in chunk:
            return None
        old = old.strip()
        new = new.strip()
        offset = chunk.find(old)
    start += offset
    return Span(start, start + len(old)), new


def _insert(change: Change, part: ChangedTokens) -> Iterator[EditPlace]:
    """Inserts tokens into another list of the same name, otherwise between the same neighbors."""
    around = ListChange.around(change)
    if around is not None:
        yield from _insert_into_lists(around)
    old, tokens = change.old, change.new
    at = part.old.start
    if not 0 < at < len(old):
        return
    before, after = old.texts[at - 1], old.texts[at]
    is_same_line = old.same_line(at)
    for number in tokens.positions.get(after, ()):
        if number == 0 or tokens.texts[number - 1] != before:
            continue
        if tokens.same_line(number) != is_same_line:
            continue
        if is_made(change, number, change.new_texts(part)):
            continue
        if around is not None and around.is_made_around(number):
            continue
        insertion = insert(change, part, tokens, number)
        if insertion is not None:
            span, text = insertion
            here = Span(number, number)
            yield EditPlace(
                span=span,
                text=text,
                tokens=here,
                old=change.old_span,
                new=here,
                anchors=(at - 1, number - 1),
                way="between",
            )


def _insert_into_lists(around: ListChange) -> Iterator[EditPlace]:
    """Inserts items into other lists of the same name."""
    for edit in around.edits():
        yield EditPlace(
            span=edit.span,
            text=edit.text,
            tokens=Span(edit.number, edit.number),
            old=Span(around.opener - 1, around.opener - 1),
            new=Span(edit.opener - 1, edit.opener - 1),
            anchors=(around.opener, edit.opener),
            way="list",
            is_exact=edit.is_exact,
        )


def _follow(change: Change, number: int) -> Iterator[EditPlace]:
    """Matches all parts in sequence from token `number` on, with any tokens between them."""
    tokens = change.new
    at, is_exact = number, True
    edits: list[tuple[Span, bytes]] = []
    for part, kept in zip(change.parts, [*change.kept, None], strict=True):
        here = Span(at, at + part.old.size)
        if tokens.texts_of(here) != change.old_texts(part):
            return
        edit = _edit(change, part, tokens, here)
        if edit is None:
            return
        edits.append(edit)
        at = here.end
        if kept is not None:
            end = _match_kept(change, kept, at)
            if end is None:
                return
            is_exact &= tokens.texts[at:end] == change.old.texts_of(kept)
            at = end
    yield _put(_join_edits(tokens, edits), change.old_span, Span(number, at), "parts", is_exact=is_exact)


def _join_edits(tokens: Tokens, edits: list[tuple[Span, bytes]]) -> tuple[Span, bytes]:
    """The edits of some bytes, in order, as one of all bytes from the first to the last."""
    start = position = edits[0][0].start
    pieces: list[bytes] = []
    for span, text in edits:
        pieces += [tokens.source[position : span.start], text]
        position = span.end
    return Span(start, position), b"".join(pieces)


def _match_kept(change: Change, kept: Span, at: int) -> int | None:
    """End of the text that corresponds to the kept tokens: the same tokens, otherwise the shortest balanced run."""
    tokens = change.new
    texts = change.old.texts_of(kept)
    end = at + len(texts)
    if tokens.texts[at:end] == texts:
        return end
    follower = next(part for part in change.parts if part.old.start == kept.end)
    wanted = change.old_texts(follower)
    if not wanted or not any(map(is_word, texts)):
        return None
    depth = 0
    for number in range(at, min(at + MAX_KEPT_TOKENS, len(tokens))):
        is_follower = tokens.texts[number : number + len(wanted)] == wanted
        if is_follower and number > at and depth == 0:
            return number
        mark = tokens.marks[number]
        if mark in OPENERS:
            depth += 1
        elif mark in CLOSERS:
            depth -= 1
        if depth < 0:
            return None
    return None
