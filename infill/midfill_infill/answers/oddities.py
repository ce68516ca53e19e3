"""Counts lines whose indentation contradicts the syntax tree: of several ways to indent a model's text, the one with
the fewest is taken. One table of node types serves all languages.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

import tree_sitter

from midfill_infill.text.lines import Lines

_OPENER_OF: Final = {")": "(", "]": "[", "}": "{"}
# Behind these tokens a line is indented deeper.
_BEFORE_DEEPER: Final = ("(", "[", "{", "#{", "${", ":", "->", "=>")
# Tokens that open a line at the column of the statement that they continue, or deeper.
_CONTINUING: Final = frozenset(
    "{ else elif except finally catch case default while until where in and or implements extends throws from".split()
)
_MODIFIERS: Final = ("modifiers", "annotation", "marker_annotation", "decorator")
_LISTS: Final = ("block", "module", "program", "source_file", "translation_unit", "statement_block", "statement_list")
# A part of a node whose type contains one of these is indented deeper if it begins a line.
_PARENT_TYPE_PARTS: Final = (
    "expression",
    "operator",
    "call",
    "invocation",
    "member",
    "assignment",
    "attribute",
    "return",
    "selector",
    "else_clause",
    "if_statement",
    "for_statement",
    "while_statement",
    "for_in_statement",
    "for_range_loop",
)


Verdict = Literal["right", "wrong", "flat"]
"""How a line is indented: as the tree allows; as it forbids; not deeper than the line that it continues, or as the last
element before a closing bracket, which is allowed, but rare.
"""


def count_oddities(
    tree: tree_sitter.Tree, lines: Lines, span: tuple[int, int], frozen: frozenset[int]
) -> Counter[Verdict]:
    """Counts the verdicts on the lines that begin in `span`, bytes of the source.

    A line must be indented as the sibling before it; without one, deeper than the line that it continues. A closing
    bracket must be indented as the line that opens it, or as its last element. `frozen` are lines that are not judged,
    because their indentation must stay; they are numbered from 0, the line in which the span begins.
    """
    start, end = span
    first = lines.at(start)
    last = lines.at(max(start, end - 1))
    verdicts = Counter[Verdict]()
    for number in range(first, last + 1):
        if number - first in frozen or lines.is_blank(number):
            continue
        line_start = lines.first_char(number)
        if start <= line_start < end:
            verdicts[_judge_line(tree.root_node, lines, line_start, end)] += 1
    return verdicts


def _judge_line(root: tree_sitter.Node, lines: Lines, start: int, end: int) -> Verdict:
    """Judges the line whose first character is the byte `start`. Lines that no rule covers are right. Later lines tell
    nothing of it up to `end`: they are judged themselves.
    """
    leaf = root.descendant_for_byte_range(start, start + 1)
    if leaf is None or leaf.start_byte != start or leaf.is_extra or leaf.is_error:
        return "right"
    indent = _line_indent(lines, leaf)
    opener = _OPENER_OF.get(leaf.type)
    if opener is not None:
        return _judge_closing(leaf, opener, lines)
    outermost = leaf  # the largest node that begins with this line, below the root
    while outermost.parent is not None and outermost.parent.parent is not None and outermost.parent.start_byte == start:
        outermost = outermost.parent
        if outermost.type == "case_statement":
            return _judge_case(outermost, lines)
        if outermost.is_extra or outermost.type in ("labeled_statement", "access_specifier"):
            return "right"
    parent = outermost.parent
    if parent is None or parent.is_error or outermost.type.startswith(("preproc", "#")):
        return "right"
    if leaf.type in _CONTINUING and not _is_in_brackets(outermost):
        return _wrong_unless(indent >= _line_indent(lines, parent))
    for sibling in _siblings_before(outermost):
        # The head of an expression, `a` in `a` and `.b` below it, is no sibling to line up with.
        is_listed = sibling.start_byte > parent.start_byte or parent.type in _LISTS or sibling.type in _MODIFIERS
        if is_listed and _begins_line(lines, sibling):
            return _wrong_unless(indent == _line_indent(lines, sibling))
    following = _sibling_behind(outermost, end)
    if following is not None and parent.type in _LISTS and _begins_line(lines, following):
        return _wrong_unless(following.is_extra or indent == _line_indent(lines, following))
    if parent.parent is None:
        return "right"
    if parent.type == "declaration_list" and parent.parent.type.startswith(("namespace", "linkage")):
        return "right"
    parent_indent = _line_indent(lines, parent)
    if _is_in_brackets(outermost) and not _begins_line(lines, parent):
        # The bracket may end a header of several lines, such as a list of parameters: its first line counts.
        parent_indent = min(parent_indent, _line_indent(lines, parent.parent))
    if indent > parent_indent:
        return "right"
    if indent < parent_indent or _must_be_deeper(outermost, parent, lines):
        return "wrong"
    return "flat"


def _sibling_behind(node: tree_sitter.Node, end: int) -> tree_sitter.Node | None:
    """The named sibling behind a node, unless it begins before `end`."""
    sibling = node.next_named_sibling
    return sibling if sibling is not None and sibling.start_byte >= end else None


def _judge_closing(leaf: tree_sitter.Node, opener: str, lines: Lines) -> Verdict:
    """Judges the line that a closing bracket begins. Lines of a tree without its `opener` are right."""
    siblings = leaf.parent.children if leaf.parent else []
    opening = next((sibling for sibling in siblings if sibling.type == opener), None)
    indent = _line_indent(lines, leaf)
    if opening is None or indent == _line_indent(lines, opening):
        return "right"
    element = next((sibling for sibling in _siblings_before(leaf) if _begins_line(lines, sibling)), None)
    return "flat" if element is not None and indent == _line_indent(lines, element) else "wrong"


def _judge_case(case: tree_sitter.Node, lines: Lines) -> Verdict:
    """Judges the line of a case by the cases beside it."""
    beside = [sibling for sibling in (case.prev_named_sibling, case.next_named_sibling) if sibling is not None]
    indents = {_line_indent(lines, sibling) for sibling in beside if sibling.type == case.type}
    return _wrong_unless(not indents or _line_indent(lines, case) in indents)


def _wrong_unless(is_right: bool) -> Verdict:
    return "right" if is_right else "wrong"


def _must_be_deeper(node: tree_sitter.Node, parent: tree_sitter.Node, lines: Lines) -> bool:
    """True if a node on a line of its own has to be indented deeper than its parent."""
    before = node.prev_sibling
    if _is_in_brackets(node) or (before is not None and before.type in _BEFORE_DEEPER):
        return True
    if node.type in _LISTS:
        return True
    return any(part in parent.type for part in _PARENT_TYPE_PARTS) and not _is_on_first_line(parent, lines)


def _is_on_first_line(node: tree_sitter.Node, lines: Lines) -> bool:
    """True if a node begins on the first line of what stands in parentheses or square brackets. Further lines may
    stand right below this one, as formatters write chains of calls and operators.
    """
    element, container = node, node.parent
    while container is not None and container.children[0].type not in _OPENER_OF.values():
        element, container = container, container.parent
    if container is None or container.children[0].type == "{":
        return False
    return _begins_line(lines, element) and _line_of(lines, element) == _line_of(lines, node)


def _is_in_brackets(node: tree_sitter.Node) -> bool:
    """True if the parent of a node begins with an opening bracket."""
    return node.parent is not None and node.parent.children[0].type in _OPENER_OF.values()


def _siblings_before(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The named siblings before a node, the nearest first, without comments and labels."""
    sibling = node.prev_named_sibling
    while sibling is not None:
        if not sibling.is_extra and not sibling.type.startswith(("preproc", "case", "label", "access")):
            yield sibling
        sibling = sibling.prev_named_sibling


def _begins_line(lines: Lines, node: tree_sitter.Node) -> bool:
    """True if nothing but white space stands before a node in its line."""
    return lines.first_char(_line_of(lines, node)) == node.start_byte


def _line_indent(lines: Lines, node: tree_sitter.Node) -> int:
    """The indentation, in columns, of the line that a node begins on."""
    return lines.columns(_line_of(lines, node))


def _line_of(lines: Lines, node: tree_sitter.Node) -> int:
    """The number of the line that a node begins on."""
    return lines.at(node.start_byte)
