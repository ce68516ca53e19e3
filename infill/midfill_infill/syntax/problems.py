"""Finds syntax errors and free names in a source by its tree. Knows captures and columns, no language and no hole."""

import re
from collections.abc import Iterator, Sequence

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.languages.language import list_errors
from midfill_infill.text.lines import Lines

Span = tuple[int, int]


def parse_again(
    language: Language, source: bytes, tree: tree_sitter.Tree, old: bytes, changes: Sequence[tuple[Span, Span]]
) -> tree_sitter.Tree:
    """The tree of `source`, parsed incrementally from `old` and its `tree`; `changes` are pairs of old and new spans.
    Parses from scratch if the result has errors: error recovery differs between an incremental and a full parse.
    """
    mended = tree.copy()
    for before, after in reversed(changes):
        start, old_end, new_end = before[0], before[1], before[0] + after[1] - after[0]
        first = _point(old, start)
        rows = source.count(b"\n", *after)
        column = after[1] - source.rfind(b"\n", *after) - 1 if rows else first[1] + after[1] - after[0]
        mended.edit(start, old_end, new_end, first, _point(old, old_end), (first[0] + rows, column))
    mended = language.parse(source, mended)
    return language.parse(source) if mended.root_node.has_error else mended


def _point(source: bytes, offset: int) -> tuple[int, int]:
    return source.count(b"\n", 0, offset), offset - source.rfind(b"\n", 0, offset) - 1


def find_problems(
    language: Language, source: bytes, around: tuple[Span, ...], tree: tree_sitter.Tree | None = None
) -> tuple[list[Span], tree_sitter.Tree]:
    """Spans of all syntax errors of `source`, and its tree; parses `source` unless `tree` is given. A grammar that
    reads indentation accepts some errors (tree-sitter-python 0.25 takes an empty `if x:`, a line that is too deep and a
    lone `try:`); near the spans of `around` these count as well.
    """
    tree = tree or language.parse(source)
    problems = [node.byte_range for node in list_errors(tree)]
    if language.has_indented_blocks:
        lines = Lines(source)
        found: dict[str, dict[Span, tree_sitter.Node]] = {"block": {}, "unfinished": {}, "finished": {}}
        for start, end in around:
            touched = _captured(language, tree, (_code_end(language, source, start), end))
            for name, nodes in found.items():
                nodes |= {node.byte_range: node for node in touched.get(name, [])}
        problems += [problem for node in found["block"].values() for problem in _misplaced(node, lines)]
        problems += found["unfinished"].keys() - found["finished"].keys()
    return problems, tree


def captures(language: Language, tree: tree_sitter.Tree, span: Span, *names: str) -> list[tree_sitter.Node]:
    """The nodes of the named captures that touch `span`."""
    found = _captured(language, tree, span)
    return [node for name in names for node in found.get(name, [])]


def _captured(language: Language, tree: tree_sitter.Tree, span: Span) -> dict[str, list[tree_sitter.Node]]:
    cursor = tree_sitter.QueryCursor(language.query)
    cursor.set_byte_range(max(0, span[0] - 1), span[1] + 1)
    return cursor.captures(tree.root_node)


def _code_end(language: Language, source: bytes, offset: int) -> int:
    """End of the code before `offset`, without comments: an empty block starts right after its header's colon."""
    comment = language.comment.encode("ascii")
    while True:
        while offset and source[offset - 1 : offset].isspace():
            offset -= 1
        note = source.find(comment, source.rfind(b"\n", 0, offset) + 1, offset)
        if note < 0:
            return offset
        offset = note


def _misplaced(block: tree_sitter.Node, lines: Lines) -> Iterator[Span]:
    """The span of an empty block, and of each statement whose column differs from that of the first."""
    if block.start_byte == block.end_byte and block.parent is not None:
        yield block.byte_range
    expected: int | None = None
    for child in block.named_children:
        if child.is_extra or child.is_error:
            continue
        columns = 0
        if child.start_point.column:  # a shortcut: modules have many statements, and every fill checks them all
            line = lines.at(child.start_byte)
            if lines.first_char(line) != child.start_byte:
                continue
            columns = lines.columns(line)
        expected = columns if expected is None else expected
        if columns != expected:
            yield child.byte_range


def function_end(language: Language, tree: tree_sitter.Tree, start: int) -> int | None:
    """The end of the function that starts at `start`; None if there is no function any more."""
    nodes = captures(language, tree, (start, start), "function")
    return max((node.end_byte for node in nodes if node.start_byte == start), default=None)


# Fields of the grammars that bind a name, or that hold a keyword argument or label.
_BINDING_FIELDS = frozenset(("left", "name", "alias", "parameter", "parameters", "declarator", "key", "label"))
_NAME_NODE = re.compile("identifier(_pattern)?$")
_BINDING_NODES = re.compile("parameter|pattern|import")


def list_names(tree: tree_sitter.Tree, span: Span) -> Iterator[tuple[tree_sitter.Node, bool]]:
    """The identifiers within `span` in text order, each with True if it is bound there."""
    start = tree.root_node.descendant_for_byte_range(*span) if span[0] < span[1] else None
    pending = [(start, False)] if start else []
    while pending:
        node, binds = pending.pop()
        if _NAME_NODE.search(node.type) and span[0] <= node.start_byte and node.end_byte <= span[1]:
            yield node, binds
        for number, child in reversed(list(enumerate(node.children))):
            if child.start_byte < span[1] and span[0] < child.end_byte:
                field = "" if node.type.startswith("binary_") else node.field_name_for_child(number)
                binding = bool(_BINDING_NODES.search(node.type)) or field in _BINDING_FIELDS
                pending.append((child, binds or binding))
