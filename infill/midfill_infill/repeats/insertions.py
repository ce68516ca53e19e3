"""Inserts tokens at another place with fitting white space, and tells if they are there. Knows tokens, no tree."""

from collections.abc import Sequence

from midfill_infill.repeats.change import CLOSERS, OPENERS, Change, ChangedTokens, Span, Tokens


def is_inserted(change: Change, number: int, added: Sequence[bytes]) -> bool:
    """True if the tokens `added` stand beside token `number` of the new text, and did not at the change before it."""
    if not _stand_beside(change.new, number, added):
        return False
    part = change.parts[0]
    return not _stand_beside(change.old, part.old.start, change.new_texts(part))


def _stand_beside(tokens: Tokens, number: int, added: Sequence[bytes]) -> bool:
    """True if the tokens `added` end before token `number` or begin at it; an item also with its other comma."""
    texts = tokens.texts
    size = len(added)
    before = texts[max(0, number - size) : number]
    behind = texts[number : number + size]
    if list(added) in (before, behind):
        return True
    item = list(added)
    if item[-1:] == [b","]:
        item.pop()
    if item[:1] == [b","]:
        item.pop(0)
    if not 0 < len(item) < size:
        return False
    first = number - len(item)
    last = number + len(item)
    if first < 1 or last >= len(texts):
        return False
    if texts[first:number] == item and texts[first - 1] in (b",", *OPENERS):
        return True
    return texts[number:last] == item and texts[last] in (b",", *CLOSERS)


def indent_as(text: bytes, old: bytes, new: bytes) -> bytes:
    """The text with its lines, but for the first, moved from indentation `old` to `new`."""
    return text.replace(b"\n" + old, b"\n" + new)


def insert(change: Change, part: ChangedTokens, tokens: Tokens, number: int) -> tuple[Span, bytes] | None:
    """The edit that inserts the new tokens of a part before token `number` of `tokens`: at the start or the end of the
    white space there, as at the change. None if a neighbor is in a comment at only one of the two places.
    """
    old, new = change.old, change.new
    changed = part.old.start
    for side in (-1, 0):
        if (changed + side in old.comments) != (number + side in tokens.comments):
            return None
    start, end = tokens.gap(number)
    white_here = tokens.white(number)
    old_white = old.white(changed)
    text = new.source_of(part.new)
    white_before = new.white(part.new.start)
    white_after = new.white(part.new.end)
    was_broken = b"\n" in old_white
    is_broken_before = b"\n" in white_before
    is_broken_after = b"\n" in white_after
    if not old_white:  # the neighbors stood together at the change
        if not white_here:
            text += white_after
        return Span(start, start), white_before + text
    if white_after and is_broken_after == was_broken and not is_broken_before:  # on the line of the token before
        return Span(start, start), white_before + text
    if is_broken_before == was_broken and not is_broken_after:  # on the line of the token behind
        return Span(end, end), text + white_after
    if not (was_broken and is_broken_before and is_broken_after):  # the change added or removed line breaks
        return Span(start, end), white_before + text + white_after
    indent = _last_line(white_before)
    old_indent = _last_line(old_white)
    if indent == old_indent:  # on lines of its own, as deep as the token behind
        text = indent_as(text, indent, _last_line(white_here))
        deeper = _last_line(white_after).removeprefix(old_indent)
        return Span(end, end), text + _line_break(white_here) + deeper
    indent_here = tokens.indent(start)
    line_break = _line_break(white_before).removesuffix(indent)
    text = indent_as(text, indent, indent_here)
    return Span(start, start), line_break + indent_here + text


def _last_line(white: bytes) -> bytes:
    """The white space behind the last line break."""
    return white[white.rfind(b"\n") + 1 :]


def _line_break(white: bytes) -> bytes:
    """The last line break of white space and the indentation behind it."""
    start = white.rfind(b"\n")
    if white[start - 1 : start] == b"\r":
        start -= 1
    return white[start:]
