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
    start, end = span
    first = lines.at(start)
    last = lines.at(max(start, end - 1))
    oddities = _NONE
    for number in range(first, last + 1):
        if number - first in frozen or lines.is_blank(number):
            continue
        line_start = lines.first_char(number)
        if start <= line_start < end:
            oddities += _judge_line(tree.root_node, lines, line_start)
    return oddities


def _judge_line(root: tree_sitter.Node, lines: Lines, start: int) -> Oddities:
    """Whether the line that begins at a byte is where its tree wants it."""
    leaf = root.descendant_for_byte_range(start, start + 1)
    if leaf is None or leaf.start_byte != start or leaf.is_extra or leaf.is_error:
        return _NONE
    column = _column(lines, leaf)
    opener = _CLOSERS.get(leaf.type)
    if opener is not None:
        return _wrong_unless(column in _closing_columns(leaf, opener, lines, column))
    top = leaf
    while top.parent is not None and top.parent.parent is not None and top.parent.start_byte == start:
        top = top.parent
        if top.is_extra or top.type in ("labeled_statement", "case_statement", "access_specifier"):
            return _NONE
    parent = top.parent
    if parent is None or parent.is_error or top.type.startswith(("preproc", "#")):
        return _NONE
    if leaf.type in _CONTINUING and not _is_in_brackets(top):
        return _wrong_unless(column >= _column(lines, parent))
    for sibling in _siblings_before(top):
        is_listed = sibling.start_byte > parent.start_byte or parent.type in _LISTS or sibling.type in _MODIFIERS
        if is_listed and _begins_line(lines, sibling):
            return _wrong_unless(column == _column(lines, sibling))
    following = top.next_named_sibling
    if following is not None and parent.type in _LISTS and _begins_line(lines, following):
        return _wrong_unless(following.is_extra or column == _column(lines, following))
    if parent.parent is None:
        return _NONE
    if parent.type == "declaration_list" and parent.parent.type.startswith(("namespace", "linkage")):
        return _NONE
    outer = _column(lines, parent)
    if _is_in_brackets(top) and not _begins_line(lines, parent):
        # behind a header of some lines
        outer = min(outer, _column(lines, parent.parent))
    if column > outer:
        return _NONE
    if column < outer or _is_deeper(top, parent):
        return _WRONG
    return _FLAT


def _wrong_unless(is_right: bool) -> Oddities:
    """What a line counts as that is right or wrong."""
    return _NONE if is_right else _WRONG


def _is_deeper(node: tree_sitter.Node, parent: tree_sitter.Node) -> bool:
    """True if a node on a line of its own begins deeper than its parent."""
    before = node.prev_sibling
    if _is_in_brackets(node) or (before is not None and before.type in _OPENERS):
        return True
    return node.type in _LISTS or any(part in parent.type for part in _INNER)


def _is_in_brackets(node: tree_sitter.Node) -> bool:
    """True if the siblings of a node begin with an open bracket."""
    return node.parent is not None and node.parent.children[0].type in _CLOSERS.values()


def _siblings_before(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The named siblings before a node, the nearest first, without comments and labels."""
    sibling = node.prev_named_sibling
    while sibling is not None:
        if not sibling.is_extra and not sibling.type.startswith(("preproc", "case", "label", "access")):
            yield sibling
        sibling = sibling.prev_named_sibling


def _closing_columns(leaf: tree_sitter.Node, opener: str, lines: Lines, column: int) -> set[int]:
    """Where a closing bracket may stand: where its opening line begins, or where its last element does."""
    siblings = leaf.parent.children if leaf.parent else []
    opening = next((sibling for sibling in siblings if sibling.type == opener), None)
    if opening is None:
        return {column}
    columns = {_column(lines, opening)}
    for element in _siblings_before(leaf):
        if _begins_line(lines, element):
            columns.add(_column(lines, element))
            break
    return columns


def _begins_line(lines: Lines, node: tree_sitter.Node) -> bool:
    """True if nothing but white space stands before a node in its line."""
    return lines.first_char(lines.at(node.start_byte)) == node.start_byte


def _column(lines: Lines, node: tree_sitter.Node) -> int:
    """Width of the indentation of the line that a node begins on."""
    return lines.columns(lines.at(node.start_byte))
