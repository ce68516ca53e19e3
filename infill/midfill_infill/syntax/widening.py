"""The holes around a place, from the innermost statement out to the outermost body. Knows captures, no language."""

from collections.abc import Iterator

import tree_sitter

from midfill_infill.errors import MidfillError
from midfill_infill.syntax.holes import body_at
from midfill_infill.syntax.problems import captures
from midfill_infill.text.document import Document

Span = tuple[int, int]


def list_holes(document: Document, start_byte: int, end_byte: int) -> list[Span]:
    """Byte ranges that hold the given one, each in the next: statements, blocks of them, bodies of functions.

    A line's start stands for its first character. Empty in a document without syntax, and where nothing is around.
    """
    if document.syntax is None:
        return []
    lines, first = document.lines, document.snap(start_byte)
    line = lines.at(first)
    first = first if lines.is_blank(line) else max(first, min(lines.first_char(line), lines.end(line)))
    last = max(first, document.snap(end_byte))
    found = {*_blocks(document, document.to_source(first), document.to_source(last)), *_bodies(document, first)}
    held = sorted((span for span in found if span[0] <= first and last <= span[1]), key=lambda span: span[1] - span[0])
    nested: list[Span] = []
    for start, end in held:
        if start < end and (not nested or (start <= nested[-1][0] and nested[-1][1] <= end)):
            nested.append((start, end))
    return nested


def _blocks(document: Document, first: int, last: int) -> Iterator[Span]:
    """The statements and the blocks that hold a range of the source, and those around them."""
    assert document.syntax is not None
    tree = document.syntax.parse(document.source)
    blocks = {node.id for node in captures(document.syntax, tree, (first, last), "block")}
    node: tree_sitter.Node | None = tree.root_node.descendant_for_byte_range(first, last)
    while node is not None and node.parent is not None:
        children = node.named_children if node.id in blocks else []
        if children:
            yield document.to_raw(children[0].start_byte), document.to_raw(children[-1].end_byte)
        if node.parent.parent is None or node.parent.id in blocks:
            yield document.to_raw(node.start_byte), document.to_raw(node.end_byte)
        node = node.parent


def _bodies(document: Document, byte: int) -> Iterator[Span]:
    for outer in range(len(document.data)):
        try:
            hole = body_at(document, byte, outer)
        except MidfillError:
            return
        if hole.is_body:
            yield hole.start_byte, hole.end_byte
        else:
            return
