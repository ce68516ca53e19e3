"""Tells whether an answer for a part of a line may or must have several lines, by brackets and quotes. Knows no
language, so `answers.reading` tries its first line too.
"""

import re
from typing import Final

_PAIRS: Final = {"(": ")", "[": "]", "{": "}"}
# Texts that may have several lines: the closing by the opening. Prose in documentation has the others.
_PROSE: Final = {'"""': '"""', "'''": "'''", "/*": "*/", "<!--": "-->"}
_TEXTS: Final = {**_PROSE, "`": "`"}
_TOKEN: Final = re.compile(
    r'"""|\'\'\'|`|/\*|<!--'  # opens a text that may have several lines
    r'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\''  # a string in one line
    r"|[()\[\]{}]"
)
_LINE_PAIRS: Final = frozenset((*_PAIRS.items(), ("<", ">")))
_LINE_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|[=-]>|["()\[\]{}<>]')


def leaves_open(text: str, before: str, behind: str) -> bool:
    """True if a text for a part of a line leaves a bracket or a string open that nothing behind the hole closes. A
    block that is indented below the line, or a bracket below it, belongs to what the text opens.
    """
    rest, _, below = behind.partition("\n")
    if not _has_open(text) or not _has_open(text + rest):
        return False
    following = next((line for line in below.split("\n") if line.strip()), "")
    own_width = indent_width(before.rpartition("\n")[2])
    width = indent_width(following)
    return not (width > own_width or (width == own_width and following.strip()[:1] in _PAIRS.values()))


def begins_block(text: str, before: str, behind: str) -> bool:
    """True if a text between an opening and a closing bracket begins on a line below, deeper than their line."""
    white = text[: len(text) - len(text.lstrip())]
    own_line = before.rpartition("\n")[2]
    opened, closing = own_line.rstrip()[-1:], behind.lstrip(" \t")[:1]
    if "\n" not in white or _PAIRS.get(opened) != closing:
        return False
    return len(white.rpartition("\n")[2]) > indent_width(own_line)


def closes_more(text: str) -> bool:
    """True if a text closes a bracket that it has not opened."""
    return any(token in _PAIRS.values() for token in _list_unmatched(text, has_angles=False))


def unbalances(text: str, before: str, behind: str) -> bool:
    """True if a text between the parts of a line has closing or opening brackets or quotes too many. False if the line
    lacks a bracket, unless this is a brace, which may be in another line.
    """
    has_angles = behind.lstrip().startswith((">", "/>"))
    unmatched = _list_unmatched(before + behind, has_angles=has_angles)
    if any(token not in "{}" for token in unmatched):
        return False
    return len(_list_unmatched(before + text + behind, has_angles=has_angles)) > len(unmatched)


def _list_unmatched(text: str, *, has_angles: bool) -> list[str]:
    """The brackets and quotes of a text that have no counterparts in it. Angles count as brackets if `has_angles`."""
    unmatched: list[str] = []
    for match in _LINE_TOKEN.finditer(text):
        token = match[0]
        if len(token) > 1 or (token in "<>" and not has_angles):
            continue
        if unmatched and (unmatched[-1], token) in _LINE_PAIRS:
            unmatched.pop()
        else:
            unmatched.append(token)
    return unmatched


def find_closing(before: str, behind: str) -> str:
    """What closes the comment or string that a hole stands in, if it opens and closes in the hole's line and may have
    several lines; empty otherwise.
    """
    line = before.rpartition("\n")[2]
    rest, _, _ = behind.partition("\n")
    for opening, closing in _PROSE.items():
        is_open = line.count(opening) % 2 == 1 if opening == closing else line.rfind(opening) > line.rfind(closing)
        if is_open and closing in rest:
            return closing
    return ""


def find_text_end(text: str, start: int, closing: str) -> int | None:
    """The end of the whole line that holds the `closing` of a comment or string whose text begins at `start`; None
    without one.
    """
    opening_end = start + len(text[start:]) - len(text[start:].lstrip())
    if text.startswith(closing, opening_end):  # the answer repeats the opening
        opening_end += len(closing)
    position = text.find(closing, opening_end)
    line_end = text.find("\n", position)
    return line_end if position >= 0 and line_end >= 0 else None


def _has_open(text: str) -> bool:
    """True if a text opens a bracket or a string that it does not close."""
    open_brackets: list[str] = []
    position = 0
    while (match := _TOKEN.search(text, position)) is not None:
        token = match[0]
        position = match.end()
        closing = _TEXTS.get(token)
        if closing:
            end = text.find(closing, position)
            if end < 0:
                return True
            position = end + len(closing)
        elif token in _PAIRS:
            open_brackets.append(_PAIRS[token])
        elif open_brackets and token == open_brackets[-1]:
            open_brackets.pop()
    return bool(open_brackets)


def indent_width(line: str) -> int:
    """The number of white characters that a line begins with."""
    return len(line) - len(line.lstrip())
