"""Counts lines whose indentation contradicts the syntax tree. Knows nodes and columns, no language."""

from collections.abc import Iterator
from typing import Final

import tree_sitter

from midfill_infill.text.lines import Lines

_CLOSERS: Final = {")": "(", "]": "[", "}": "{"}
_OPENERS: Final = ("(", "[", "{", "#{", "${", ":", "->", "=>")
# Tokens that open a line at the column of the statement that they continue, or at any.
_CONTINUING: Final = frozenset(
    (
        "{",
        "else",
        "elif",
        "except",
        "finally",
        "catch",
        "case",
        "default",
        "while",
        "until",
        "where",
        "public",
        "private",
    )
    + ("protected", "in", "and", "or", "implements", "extends", "throws", "from")
)
_LISTS: Final = ("block", "module", "program", "source_file", "translation_unit", "statement_block", "statement_list")
_INNER: Final = (
    "expression",
    "operator",
    "call",
    "member",
    "assignment",
    "attribute",
    "return",
    "selector",
    "else_clause",
) + ("if_statement", "for_statement", "while_statement", "for_in_statement", "for_range_loop")


def count_oddities(tree: tree_sitter.Tree, lines: Lines, span: tuple[int, int], frozen: frozenset[int]) -> int:
    """Lines that begin in `span` and not where their tree wants it: beside the sibling before them, deeper than what
    they continue, and a closing bracket where its opening line begins. `frozen` lines count from the span's first.
    """
    first = lines.at(span[0])
    odd = 0
    for number in range(first, lines.at(max(span[0], span[1] - 1)) + 1):
        start = lines.first_char(number)
        if span[0] <= start < span[1] and number - first not in frozen and not lines.is_blank(number):
            odd += _is_odd(tree.root_node, lines, start)
    return odd


def _is_odd(root: tree_sitter.Node, lines: Lines, start: int) -> bool:
    leaf = root.descendant_for_byte_range(start, start + 1)
    if (
        leaf is None
        or leaf.start_byte != start
        or leaf.is_extra
        or leaf.is_error
        or leaf.type in _CONTINUING
        or leaf.type == "{"
    ):
        return False
    column = _column(lines, start)
    if (opener := _CLOSERS.get(leaf.type)) is not None:
        return column not in _closing_columns(leaf, opener, lines, column)
    top = leaf
    while top.parent is not None and top.parent.parent is not None and top.parent.start_byte == start:
        top = top.parent
        if top.is_extra or top.type in ("labeled_statement", "case_statement", "access_specifier"):
            return False
    parent = top.parent
    if parent is None or parent.is_error or top.type.startswith(("preproc", "#")):
        return False
    for sibling in _siblings_before(top):
        is_listed = sibling.start_byte > parent.start_byte or parent.type in _LISTS
        if is_listed and lines.first_char(lines.at(sibling.start_byte)) == sibling.start_byte:
            return column != _column(lines, sibling.start_byte)
    following = top.next_named_sibling
    if (
        following is not None
        and parent.type in _LISTS
        and lines.first_char(lines.at(following.start_byte)) == following.start_byte
    ):
        return not following.is_extra and column != _column(lines, following.start_byte)
    if parent.parent is None:
        return False
    if parent.type == "declaration_list" and parent.parent.type.startswith(("namespace", "linkage")):
        return False
    before = top.prev_sibling
    is_opened = parent.children[0].type in _CLOSERS.values()
    outer = _column(lines, parent.start_byte)
    if (
        is_opened and lines.first_char(lines.at(parent.start_byte)) != parent.start_byte
    ):  # behind a header of some lines
        outer = min(outer, _column(lines, parent.parent.start_byte))
    is_deeper = is_opened or (before is not None and before.type in _OPENERS) or top.type in _LISTS
    is_deeper = is_deeper or any(part in parent.type for part in _INNER)
    return column <= outer if is_deeper else column < outer


def _siblings_before(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    sibling = node.prev_named_sibling
    while sibling is not None:
        if not sibling.is_extra and not sibling.type.startswith(("preproc", "case", "label", "access")):
            yield sibling
        sibling = sibling.prev_named_sibling


def _closing_columns(leaf: tree_sitter.Node, opener: str, lines: Lines, column: int) -> set[int]:
    """Where a closing bracket may stand: where its opening line begins, or where its last element does."""
    parent = leaf.parent
    opening = next((child for child in parent.children if child.type == opener), None) if parent else None
    if opening is None or parent is None:
        return {column}
    elements = (
        each for each in _siblings_before(leaf) if lines.first_char(lines.at(each.start_byte)) == each.start_byte
    )
    last = next(elements, None)
    return {_column(lines, opening.start_byte)} | ({_column(lines, last.start_byte)} if last else set())


def _column(lines: Lines, offset: int) -> int:
    """Width of the indentation of the line at `offset`."""
    return lines.columns(lines.at(offset))
