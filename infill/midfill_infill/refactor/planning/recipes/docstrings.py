"""Adds docstrings to public functions without one: those that ruff's D102 and D103 report, except stubs."""

import re
from collections.abc import Iterator
from typing import Final

from midfill_infill.refactor.planning.recipes.recipe import Recipe
from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.outline import find_header_end, outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_PUBLIC_MARKS: Final = ("__new__", "__call__")
_COMMENT: Final = re.compile(rb"#[^\n]*")
_WORD: Final = re.compile(rb"""['"]([A-Za-z_]\w*)['"]""")


def find(document: Document, word: str) -> Iterator[Hole]:
    """Yields an empty hole between quotes for each public function without a docstring, below its header, or before a
    body on the header's line.

    Stubs and broken functions are skipped. Names with a leading underscore and everything inside them, names missing in
    `__all__`, and nested functions are private.
    """
    if document.syntax is None or (document.path is not None and _is_private_module(document.path.parts)):
        return
    exported = _read_exports(document)
    last_end = 0  # of the functions so far
    for function in outline(document).functions:
        is_nested = function.head < last_end
        last_end = max(last_end, function.end)
        is_exported = exported is None or function.path[0].encode() in exported
        is_left_out = is_nested or not is_exported or function.is_broken or function.is_placeholder
        if not (is_left_out or _is_private(document, function) or _is_described(document, function)):
            yield _hole(document, function)


def _is_private_module(parts: tuple[str, ...]) -> bool:
    """True if a folder or the file has a leading underscore, `__init__.py` excepted."""
    names = (part.partition(".")[0] for part in parts)
    return any(name.startswith("_") and not (name.startswith("__") and name.endswith("__")) for name in names)


def _read_exports(document: Document) -> frozenset[bytes] | None:
    """The names in `__all__`; None without one."""
    if document.syntax is None or b"__all__" not in document.source:
        return None
    statements = [node.text or b"" for node in document.syntax.parse_once(document.source).root_node.children]
    exports = b"\n".join(text for text in statements if text.startswith(b"__all__"))
    return frozenset(_WORD.findall(_COMMENT.sub(b"", exports))) if exports else None


def _is_private(document: Document, function: Function) -> bool:
    """True for private names, and for what another docstring describes: overrides, overloads, setters and deleters."""
    *owners, name = function.path
    is_hidden = name.startswith("_") and not (owners and name in _PUBLIC_MARKS)
    decorators = document.source[function.start : function.head].decode("utf-8", "replace")
    is_variant = re.search(rf"@\s*(?:[\w.]+\.)?(?:override|overload|{name}\.(?:setter|deleter))\s*$", decorators, re.M)
    return is_hidden or is_variant is not None or any(owner.startswith("_") for owner in owners)


def _is_described(document: Document, function: Function) -> bool:
    """True if the function has a docstring. Bytes and f-strings are not docstrings."""
    start, end = function.docstring or (0, 0)
    return start < end and not document.source[start:end].lower().startswith((b"b", b"f"))


def _hole(document: Document, function: Function) -> Hole:
    lines = document.source_lines
    colon = find_header_end(lines, function)
    body_line = lines.at(function.body[0])
    if body_line != lines.at(colon):
        start = end = lines.end(lines.at(colon))
        indent = lines.indent(body_line).replace(b"\f", b"").decode("ascii")
        before_body = ""
    else:
        start, end = colon, function.body[0]
        indent = lines.indent(lines.at(function.head)).replace(b"\f", b"").decode("ascii") + document.indent_unit
        before_body = f"\n{indent}"
    data_start, data_end = document.to_data(start), document.to_data(end)
    return Hole(
        data_start,
        data_end,
        kind="cursor" if data_start == data_end else "range",
        name=function.name,
        lead=f'\n{indent}"""',
        tail=f'"""{before_body}',
        indent=indent,
    )


RECIPE = Recipe(
    name="add-docstrings", title="describe public functions that have no docstring", languages=("python",), find=find
)
