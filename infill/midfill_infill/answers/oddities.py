"""Counts lines whose indentation contradicts the syntax tree. Knows nodes and columns, no language."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import tree_sitter

from midfill_infill.text.lines import Lines

_CLOSERS: Final = {")": "(", "]": "[", "}": "{"}
_OPENERS: Final = ("(", "[", "{", "#{", "${", ":", "->", "=>")
# Tokens that open a line at the column of the statement that they continue, or deeper.
_CONTINUING: Final = frozenset(
    "{ else elif except finally catch case default while until where in and or implements extends throws from".split()
)
_MODIFIERS: Final = ("modifiers", "annotation", "marker_annotation", "decorator")
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


@dataclass(frozen=True)
class Oddities:
    """The number of lines that do not begin where their tree wants it, and of those that go on at the column of the
    line that they continue, which few files do.
    """

    wrong: int = 0
    flat: int = 0

    def __add__(self, other: "Oddities") -> "Oddities":
        return Oddities(self.wrong + other.wrong, self.flat + other.flat)


_NONE: Final = Oddities()
_WRONG: Final = Oddities(wrong=1)
_FLAT: Final = Oddities(flat=1)


def count_oddities(tree: tree_sitter.Tree, lines: Lines, span: tuple[int, int], frozen: frozenset[int]) -> Oddities:
    """Lines that begin in `span` and not where their tree wants it: beside the sibling before them, deeper than what
    they continue, and a closing bracket where its opening line begins. `frozen` lines count from the span's first.
    """
    first = lines.at(span[0])
    odd = _NONE
    for number in range(first, lines.at(max(span[0], span[1] - 1)) + 1):
        start = lines.first_char(number)
        if span[0] <= start < span[1] and number - first not in frozen and not lines.is_blank(number):
            odd += _judge_line(tree.root_node, lines, start)
    return odd


def _judge_line(root: tree_sitter.Node, lines: Lines, start: int) -> Oddities:
    leaf = root.descendant_for_byte_range(start, start + 1)
    if leaf is None or leaf.start_byte != start or leaf.is_extra or leaf.is_error:
        return _NONE
    column = _column(lines, start)
    if (opener := _CLOSERS.get(leaf.type)) is not None:
        return _NONE if column in _closing_columns(leaf, opener, lines, column) else _WRONG
    top = leaf
    while top.parent is not None and top.parent.parent is not None and top.parent.start_byte == start:
        top = top.parent
        if top.is_extra or top.type in ("labeled_statement", "case_statement", "access_specifier"):
            return _NONE
    parent = top.parent
    if parent is None or parent.is_error or top.type.startswith(("preproc", "#")):
        return _NONE
    if leaf.type in _CONTINUING and not _is_in_brackets(top):
        return _WRONG if column < _column(lines, parent.start_byte) else _NONE
    for sibling in _siblings_before(top):
        is_listed = sibling.start_byte > parent.start_byte or parent.type in _LISTS or sibling.type in _MODIFIERS
        if is_listed and lines.first_char(lines.at(sibling.start_byte)) == sibling.start_byte:
            return _NONE if column == _column(lines, sibling.start_byte) else _WRONG
    following = top.next_named_sibling
    if (
        following is not None
        and parent.type in _LISTS
        and lines.first_char(lines.at(following.start_byte)) == following.start_byte
    ):
        return _NONE if following.is_extra or column == _column(lines, following.start_byte) else _WRONG
    if parent.parent is None:
        return _NONE
    if parent.type == "declaration_list" and parent.parent.type.startswith(("namespace", "linkage")):
        return _NONE
    before = top.prev_sibling
    is_opened = _is_in_brackets(top)
    outer = _column(lines, parent.start_byte)
    if is_opened and lines.first_char(lines.at(parent.start_byte)) != parent.start_byte:
        # behind a header of some lines
        outer = min(outer, _column(lines, parent.parent.start_byte))
    is_deeper = is_opened or (before is not None and before.type in _OPENERS) or top.type in _LISTS
    is_deeper = is_deeper or any(part in parent.type for part in _INNER)
    if column > outer:
        return _NONE
    return _WRONG if is_deeper or column < outer else _FLAT


def _is_in_brackets(node: tree_sitter.Node) -> bool:
    return node.parent is not None and node.parent.children[0].type in _CLOSERS.values()


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
