"""Vue's single-file components: TypeScript, a superset of JavaScript, between `<script>` and `</script>`."""

import re
from dataclasses import replace
from typing import Final

from midfill_infill.languages import typescript

_ATTRIBUTES: Final = rb"""(?:\s+[^\s"'<>=/]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'<>]+))?)*+"""
_BLOCK: Final = re.compile(
    rb"<!--.*?(?:-->|\Z)"
    rb"|<style\b(?:%s)\s*>.*?(?:</style\b|\Z)"
    rb"|<script\b(?P<attributes>%s)\s*(?:/>|>(?P<script>.*?)(?:(?=</script\b)|\Z))" % (_ATTRIBUTES, _ATTRIBUTES),
    re.DOTALL | re.IGNORECASE,
)
_TYPE: Final = re.compile(rb"""(?<![\w-])type\s*=\s*["']?(?P<type>[^\s"'>]*)""")
_SCRIPTS: Final = re.compile(rb"|module|(?:text|application)/(?:java|ecma|type)script")
_TEXT: Final = re.compile(rb"[^\r\n]")


def blank_markup(source: bytes) -> bytes:
    """`source` with spaces in place of everything outside of scripts; line ends stay."""
    pieces: list[bytes] = []
    position = 0
    for block in _BLOCK.finditer(source):
        if block["script"] is not None and _is_script(block["attributes"]):
            pieces += [_TEXT.sub(b" ", source[position : block.start("script")]), block["script"]]
            position = block.end("script")
    return b"".join([*pieces, _TEXT.sub(b" ", source[position:])])


def _is_script(attributes: bytes) -> bool:
    """True if the element contains a program, not JSON or a template."""
    named = _TYPE.search(attributes)
    return named is None or _SCRIPTS.fullmatch(named["type"].lower()) is not None


LANGUAGE = replace(
    typescript.LANGUAGE,
    id="vue",
    title="Vue",
    extensions=(".vue",),
    interfaces=(),
    header=None,  # a function alone is not within a script
    scope_header=None,
    read_within=blank_markup,
)
