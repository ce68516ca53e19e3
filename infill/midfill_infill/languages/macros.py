"""Blanks macros of C and C++ that confuse the grammar, guessed by naming conventions. Knows spellings, no tree."""

import re
from typing import Final, NamedTuple

_MACRO: Final = rb"\b[A-Z][A-Z0-9_]{2,}\b"
_ARGUMENTS: Final = rb"\((?:[^()\n]|\([^()\n]*\))*\)"
_GUESSES: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # NAMESPACE_BEGIN or SUPPRESS("-Wx") on a line of its own, unless a body follows.
        rb"^[ \t]*(?P<blank>%s(?:%s)?)(?=[ \t]*(?://[^\n]*)?\r?\n(?!\s*\{))" % (_MACRO, _ARGUMENTS),
        # class API Name {
        rb"\b(?:class|struct|union|enum|namespace)[ \t]+(?P<blank>%s(?:%s)?)"
        rb"(?=\s+\w[\w:]*(?:<[^<>{};]*>)?\s*(?:final\s*)?[:{])" % (_MACRO, _ARGUMENTS),
        # API void f(), static INLINE auto g()
        rb"(?:^|[;{}>]|\b(?:static|inline|extern|constexpr|virtual|explicit|friend))[ \t]*"
        rb"(?P<blank>%s(?:%s)?)(?=[ \t]+[A-Za-z_~:])" % (_MACRO, _ARGUMENTS),
        # void f() const NOEXCEPT {
        rb"\)(?:\s*(?:const|override|final|noexcept))*\s*(?P<blank>%s(?:%s)?)(?=\s*(?:\{|;|->|:))"
        % (_MACRO, _ARGUMENTS),
        # TEST_CASE("what it says") {
        rb"^%s\((?P<blank>(?:[^()\n]|\([^()\n]*\))*)(?=\)\s*\{)" % _MACRO,
    )
)
_DIRECTIVE: Final = re.compile(rb"^[ \t]*#[ \t]*(?P<word>\w*)(?:[^\n\\]|\\\r?\n|\\.)*", re.MULTILINE)
_NEVER: Final = re.compile(rb"\s*#\s*if\s+0\s*(?:/[/*]|$)")


def blank_macros(source: bytes) -> bytes:
    """`source` with spaces in place of likely macros. Directives stay."""
    directives = [match.span() for match in _DIRECTIVE.finditer(source)]
    code = _blank(source, directives)
    blanked = source
    for guess in _GUESSES:
        for _ in range(3):  # up to three macros in a row
            spans = [match.span("blank") for match in guess.finditer(code)]
            if not spans:
                break
            code = _blank(code, spans)
            blanked = _blank(blanked, spans)
    return blanked


def blank_alternatives(source: bytes) -> bytes:
    """`source` with spaces for directives and all but a condition's first branch, as each may open the same brace. The
    branch of `#if 0` does not count as one.
    """
    spans: list[tuple[int, int]] = []
    conditions: list[_Condition] = []  # that are open, the innermost last
    for match in _DIRECTIVE.finditer(source):
        kind = match["word"]
        if kind in (b"if", b"ifdef", b"ifndef"):
            is_never = _NEVER.match(match.group()) is not None
            conditions.append(_Condition(match.start() if is_never else None, has_branch=not is_never))
        elif kind in (b"elif", b"else", b"endif") and conditions:
            condition = conditions.pop()
            if condition.dropped_from is not None:
                spans.append((condition.dropped_from, match.start()))
            if kind != b"endif":
                conditions.append(_Condition(match.start() if condition.has_branch else None, has_branch=True))
        spans.append(match.span())
    return _blank(source, spans)


class _Condition(NamedTuple):
    """Where the branch begins that is to be dropped, if it is; and whether this branch or an earlier one is kept."""

    dropped_from: int | None
    has_branch: bool


def _blank(source: bytes, spans: list[tuple[int, int]]) -> bytes:
    """`source` with spaces in place of the bytes of `spans`; line feeds stay."""
    blanked = bytearray(source)
    for start, end in spans:
        blanked[start:end] = re.sub(rb"[^\n]", b" ", source[start:end])
    return bytes(blanked)
