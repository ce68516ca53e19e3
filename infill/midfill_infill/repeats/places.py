"""Finds candidate places for an edit by text alone. Knows tokens, no tree and no probability."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from midfill_infill.repeats.change import CLOSERS, OPENERS, Change, ChangedTokens, Span, Tokens, is_word
from midfill_infill.repeats.insertions import insert, is_inserted
from midfill_infill.repeats.lists import ListChange

MAX_PLACES: Final = 200  # if there are more, none is returned
MAX_FOUND: Final = 2000  # candidates that are looked at
MAX_KEPT_TOKENS: Final = 60  # tokens of another place between two parts of a change


@dataclass(frozen=True)
class EditPlace:
    """A place where bytes `span` of the new text would become `text`; `tokens` are the new text's tokens there.

    The tokens `old` of the old text, at the change, correspond to the tokens `new` of the new text, at the place: their
    neighbors are compared. `anchors` are a token of each text, whose syntax nodes describe the change and the place.
    """

    span: Span
    text: bytes
    tokens: Span
    old: Span
    new: Span
    anchors: tuple[int, int]
    way: str
    """How it was found: by the "same" tokens, in a "list" of that name, "between" equal neighbors, or by "parts"."""
    is_exact: bool = True
    """True if the tokens that the change kept are the same here."""
    unmatched: tuple[Span, ...] = ()
    """Spans of words in `text` that come from the change's own line and have no counterpart here."""

    def line_texts(self, change: Change) -> tuple[list[bytes], list[bytes]]:
        """The tokens of the lines that correspond: of the change and of the place, each from a list's name on."""
        old = _join(change.old_span, self.old)
        new = _join(self.tokens, self.new)
        return change.old.texts_of(change.old.line(old)), change.new.texts_of(change.new.line(new))


def _join(span: Span, other: Span) -> Span:
    """The smallest span that contains two spans."""
    return Span(min(span.start, other.start), max(span.end, other.end))


def find_places(change: Change) -> list[EditPlace]:
    """Candidate places in text order; none on a line of the edit or at its edges, and none that touches another."""
    candidates = list(islice(_find_candidates(change), MAX_FOUND))
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
        if _is_same_kind(change, place):
            places.append(place)
    if len(places) > MAX_PLACES:
        return []
    return places


def _is_behind(span: Span, last: Span) -> bool:
    """True if a span begins at or behind the end of the span `last`. False if both are the same empty span."""
    return span.start >= last.end and span != last


def _is_same_kind(change: Change, place: EditPlace) -> bool:
    """True if change and place are both in code, in comments or in strings; a change of words may cross these, unless
    it is in a comment. A change that empties brackets must empty brackets here too.
    """
    old, new = change.old, change.new
    first, end = change.parts[0].old
    is_comment = first in old.comments
    is_same_kind = is_comment == (place.tokens.start in new.comments)
    if (first in old.inert) != (place.tokens.start in new.inert):
        is_same_kind = False
    if not is_same_kind and (is_comment or not change.is_of_words):
        return False
    is_removal = change.parts[0].new.is_empty and first < end
    if not is_removal or first == 0 or end >= len(old):
        return True
    opener = old.texts[first - 1]
    closer = old.texts[end]
    if opener not in OPENERS or closer not in CLOSERS:
        return True
    if new.texts[place.tokens.start - 1] != opener:
        return False
    return place.tokens.end < len(new) and new.texts[place.tokens.end] == closer


def _find_candidates(change: Change) -> Iterator[EditPlace]:
    """Candidate places in no order; some may overlap."""
    first = change.parts[0]
    if first.old.is_empty:
        if change.is_uniform or len(change.parts) == 1:
            yield from _find_insertions(change, first)
        return
    for number in _find_occurrences(change, first):
        if not change.is_uniform:
            yield from _match_parts(change, number)
            continue
        here = Span(number, number + first.old.size)
        edit = _replace_part(change, first, change.new, here)
        if edit is not None:
            yield _place_at(edit, first.old, here, "same")


def _place_at(edit: tuple[Span, bytes], old: Span, here: Span, way: str, *, is_exact: bool = True) -> EditPlace:
    """The place of an edit of the tokens `here`, which correspond to the `old` ones."""
    span, text = edit
    anchors = (old.start, here.start)
    return EditPlace(span=span, text=text, tokens=here, old=old, new=here, anchors=anchors, way=way, is_exact=is_exact)


def _find_occurrences(change: Change, part: ChangedTokens) -> list[int]:
    """The numbers of the tokens of the new text at which the tokens that a part replaced stand again."""
    tokens = change.new
    replaced = change.old_texts(part)
    positions = [tokens.positions.get(text, []) for text in replaced]
    rarest = min(range(len(replaced)), key=lambda index: len(positions[index]))
    starts: list[int] = []
    for number in positions[rarest]:
        start = number - rarest
        if start >= 0 and tokens.texts[start : start + len(replaced)] == replaced:
            starts.append(start)
    return starts


def _replace_part(change: Change, part: ChangedTokens, tokens: Tokens, here: Span) -> tuple[Span, bytes] | None:
    """The edit, as span and text, that repeats a part at the tokens `here`; None if the white space differs there."""
    if part.old.is_empty:
        return insert(change, part, tokens, here.start)
    old, new = change.bytes_changed(part)
    start = tokens.around(here).start
    source = tokens.source_around(here)
    offset = source.find(old)
    if offset < 0:
        if old.strip() != source.strip() or b"\n" in source:
            return None
        old = old.strip()
        new = new.strip()
        offset = source.find(old)
    start += offset
    return Span(start, start + len(old)), new


def _find_insertions(change: Change, part: ChangedTokens) -> Iterator[EditPlace]:
    """Places to insert a part's new tokens: in other lists of the same name, and between the same neighbors."""
    changed_list = ListChange.around(change)
    if changed_list is not None:
        yield from _find_insertions_in_lists(changed_list)
    old, tokens = change.old, change.new
    changed = part.old.start
    if not 0 < changed < len(old):
        return
    before = old.texts[changed - 1]
    after = old.texts[changed]
    is_same_line = old.same_line(changed)
    for number in tokens.positions.get(after, ()):
        if number == 0 or tokens.texts[number - 1] != before:
            continue
        if tokens.same_line(number) != is_same_line:
            continue
        if is_inserted(change, number, change.new_texts(part)):
            continue
        if changed_list is not None and changed_list.is_done_around(number):
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
                anchors=(changed - 1, number - 1),
                way="between",
            )


def _find_insertions_in_lists(changed_list: ListChange) -> Iterator[EditPlace]:
    """Places to make the change of a list in other lists of the same name."""
    for edit in changed_list.edits():
        yield EditPlace(
            span=edit.span,
            text=edit.text,
            tokens=Span(edit.next_token, edit.next_token),
            old=Span(changed_list.opener - 1, changed_list.opener - 1),
            new=Span(edit.opener - 1, edit.opener - 1),
            anchors=(changed_list.opener, edit.opener),
            way="list",
            is_exact=edit.is_exact,
        )


def _match_parts(change: Change, number: int) -> Iterator[EditPlace]:
    """The place, if any, with the old tokens of all parts in turn from token `number` on, with any tokens between."""
    tokens = change.new
    position = number
    is_exact = True
    edits: list[tuple[Span, bytes]] = []
    for part, kept in zip(change.parts, [*change.kept, None], strict=True):
        here = Span(position, position + part.old.size)
        if tokens.texts_of(here) != change.old_texts(part):
            return
        edit = _replace_part(change, part, tokens, here)
        if edit is None:
            return
        edits.append(edit)
        position = here.end
        if kept is not None:
            end = _match_kept(change, kept, position)
            if end is None:
                return
            is_exact &= tokens.texts[position:end] == change.old.texts_of(kept)
            position = end
    joined = _join_edits(tokens, edits)
    yield _place_at(joined, change.old_span, Span(number, position), "parts", is_exact=is_exact)


def _join_edits(tokens: Tokens, edits: list[tuple[Span, bytes]]) -> tuple[Span, bytes]:
    """Edits in text order as one edit of all bytes from the first to the last."""
    start = position = edits[0][0].start
    pieces: list[bytes] = []
    for span, text in edits:
        pieces += [tokens.source[position : span.start], text]
        position = span.end
    return Span(start, position), b"".join(pieces)


def _match_kept(change: Change, kept: Span, start: int) -> int | None:
    """The end of the tokens from `start` on that correspond to the kept ones, or None. These are the same tokens, else
    the shortest run with balanced brackets up to the next part; nothing else corresponds to kept signs alone.
    """
    tokens = change.new
    texts = change.old.texts_of(kept)
    end = start + len(texts)
    if tokens.texts[start:end] == texts:
        return end
    next_part = next(part for part in change.parts if part.old.start == kept.end)
    next_texts = change.old_texts(next_part)
    if not next_texts or not any(map(is_word, texts)):
        return None
    depth = 0
    for number in range(start, min(start + MAX_KEPT_TOKENS, len(tokens))):
        is_next_part = tokens.texts[number : number + len(next_texts)] == next_texts
        if is_next_part and number > start and depth == 0:
            return number
        mark = tokens.marks[number]
        if mark in OPENERS:
            depth += 1
        elif mark in CLOSERS:
            depth -= 1
        if depth < 0:
            return None
    return None
