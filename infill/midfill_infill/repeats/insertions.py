"""Gives inserted tokens their white space at another place, and tells if they are there. Knows tokens, no tree."""

from collections.abc import Sequence

from midfill_infill.repeats.change import CLOSERS, OPENERS, Change, ChangedTokens, Span, Tokens


def is_made(change: Change, number: int, added: Sequence[bytes]) -> bool:
    """True if the tokens to insert before a token of the new text are there already, and were not before the change."""
    if not _stand_beside(change.new, number, added):
        return False
    part = change.parts[0]
    return not _stand_beside(change.old, part.old.start, change.new_texts(part))


def _stand_beside(tokens: Tokens, number: int, added: Sequence[bytes]) -> bool:
    """True if tokens stand before or behind token `number`; an item also with another of its two commas."""
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
    """The later lines of `text`, moved from one indentation to another."""
    return text.replace(b"\n" + old, b"\n" + new)


def insert(change: Change, part: ChangedTokens, tokens: Tokens, number: int) -> tuple[Span, bytes] | None:
    """The edit that inserts the new tokens of a part before a token: at its end of the white space there, as at the
    change. None if only one of the two places is within a comment.
    """
    old, new = change.old, change.new
    at = part.old.start
    for side in (-1, 0):
        if (at + side in old.comments) != (number + side in tokens.comments):
            return None
    start, end = tokens.gap(number)
    gap = tokens.white(number)
    was = old.white(at)
    text = new.source_of(part.new)
    before = new.white(part.new.start)
    after = new.white(part.new.end)
    was_broken = b"\n" in was
    is_broken_before = b"\n" in before
    is_broken_after = b"\n" in after
    if not was:
        if not gap:
            text += after
        return Span(start, start), before + text
    if after and is_broken_after == was_broken and not is_broken_before:
        return Span(start, start), before + text
    if is_broken_before == was_broken and not is_broken_after:
        return Span(end, end), text + after
    if not (was_broken and is_broken_before and is_broken_after):
        return Span(start, end), before + text + after
    indent = _last_line(before)
    was_indent = _last_line(was)
    if indent == was_indent:
        text = indent_as(text, indent, _last_line(gap))
        deeper = _last_line(after).removeprefix(was_indent)
        return Span(end, end), text + _line_break(gap) + deeper
    here = tokens.indent(start)
    line_break = _line_break(before).removesuffix(indent)
    text = indent_as(text, indent, here)
    return Span(start, start), line_break + here + text


def _last_line(white: bytes) -> bytes:
    """The white space behind the last line break."""
    return white[white.rfind(b"\n") + 1 :]


def _line_break(white: bytes) -> bytes:
    """The last line break of white space and the indentation behind it."""
    start = white.rfind(b"\n")
    if white[start - 1 : start] == b"\r":
        start -= 1
    return white[start:]
