"""Gives inserted tokens their white space at another place, and tells if they are there. Knows tokens, no tree."""

from collections.abc import Sequence

from midfill_infill.repeats.change import CLOSERS, OPENERS, Change, ChangedTokens, Span, Tokens


def is_made(change: Change, number: int, added: Sequence[bytes]) -> bool:
    """True if the tokens to insert before a token of the new text are there already, and were not before the change."""
    part = change.parts[0]
    return _stand_beside(change.new, number, added) and not _stand_beside(
        change.old, part.old[0], change.new_texts(part)
    )


def _stand_beside(tokens: Tokens, number: int, added: Sequence[bytes]) -> bool:
    texts, size = tokens.texts, len(added)
    if list(added) in (texts[max(0, number - size) : number], texts[number : number + size]):
        return True
    item = [text for place, text in enumerate(added) if text != b"," or 0 < place < size - 1]
    first, last = number - len(item), number + len(item)
    if not 0 < len(item) < size or first < 1 or last >= len(texts):
        return False
    is_before = texts[first:number] == item and texts[first - 1] in (b",", *OPENERS)
    return is_before or (texts[number:last] == item and texts[last] in (b",", *CLOSERS))


def indent_as(text: bytes, old: bytes, new: bytes) -> bytes:
    """The later lines of `text`, moved from one indentation to another."""
    return text.replace(b"\n" + old, b"\n" + new)


def insert(change: Change, part: ChangedTokens, tokens: Tokens, number: int) -> tuple[Span, bytes] | None:
    """The edit that inserts the new tokens of a part before a token: at its end of the white space there, as at the
    change. None if only one of the two places is within a comment.
    """
    old, at = change.old, part.old[0]
    if any((at + side in old.comments) != (number + side in tokens.comments) for side in (-1, 0)):
        return None
    (start, end), first, last = tokens.gap(number), *part.new
    gap, was = tokens.white(number), old.white(at)
    before, after = change.new.white(first), change.new.white(last)
    text = change.new.source[change.new.spans[first].start : change.new.spans[last - 1].end]
    was_broken, is_broken_before, is_broken_after = (b"\n" in white for white in (was, before, after))
    if not was:
        return (start, start), before + text + (b"" if gap else after)
    if after and is_broken_after == was_broken and not is_broken_before:
        return (start, start), before + text
    if is_broken_before == was_broken and not is_broken_after:
        return (end, end), text + after
    if not (was_broken and is_broken_before and is_broken_after):
        return (start, end), before + text + after
    deep, deeper, was_deep = (white[white.rindex(b"\n") + 1 :] for white in (before, after, was))
    if deep == was_deep:
        line_break, here = _line_break(gap), gap[gap.rfind(b"\n") + 1 :]
        return (end, end), indent_as(text, deep, here) + line_break + deeper.removeprefix(was_deep)
    here = tokens.indent(start)
    return (start, start), _line_break(before).removesuffix(deep) + here + indent_as(text, deep, here)


def _line_break(white: bytes) -> bytes:
    """The last line break of white space and the indentation behind it."""
    at = white.rfind(b"\n")
    return white[at - (white[at - 1 : at] == b"\r") :]
