"""Finds syntax errors and names in a source by its tree. Knows captures and columns, no language and no hole."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.languages.language import list_errors
from midfill_infill.text.document import Document
from midfill_infill.text.lines import Lines
from midfill_infill.text.spans import merge_spans

Span = tuple[int, int]
# A query for one span takes a thirtieth of the time of one for a whole large file.
_MAX_QUERIES: Final = 30


def parse_again(
    language: Language, source: bytes, tree: tree_sitter.Tree, old: bytes, changes: Sequence[tuple[Span, Span]]
) -> tree_sitter.Tree:
    """The tree of `source`, parsed incrementally from the source `old` and its `tree`. `changes` are pairs of a span in
    `old` and the span that replaces it in `source`, in text order. Parses from scratch if the result has errors,
    because error recovery differs between an incremental and a full parse.
    """
    edited = tree.copy()
    for (start, old_end), (new_start, new_end) in reversed(changes):
        size = new_end - new_start
        row, column = _point(old, start)
        last_row, last_column = row, column + size
        num_rows = source.count(b"\n", new_start, new_end)
        if num_rows:
            last_row += num_rows
            last_column = new_end - source.rfind(b"\n", new_start, new_end) - 1
        old_end_point = _point(old, old_end)
        edited.edit(start, old_end, start + size, (row, column), old_end_point, (last_row, last_column))
    parsed = language.parse(source, edited)
    if parsed.root_node.has_error:
        return language.parse(source)
    return parsed


def _point(source: bytes, offset: int) -> tuple[int, int]:
    """Row and column of a byte, both from 0, as tree-sitter counts them."""
    row = source.count(b"\n", 0, offset)
    line_start = source.rfind(b"\n", 0, offset) + 1
    return row, offset - line_start


def count_errors(document: Document, around: Iterable[Span] = ()) -> int:
    """The number of syntax errors in a document, with those that only the spans `around`, in bytes of the document,
    tell (see `find_problems`); 0 without a language.
    """
    if document.syntax is None:
        return 0
    spans = tuple((document.to_source(start), document.to_source(end)) for start, end in around)
    problems, _ = find_problems(document.syntax, document.source, spans)
    return len(problems)


def find_problems(
    language: Language, source: bytes, around: tuple[Span, ...], tree: tree_sitter.Tree | None = None
) -> tuple[list[Span], tree_sitter.Tree]:
    """Spans of all syntax errors of `source`, and its tree; parses `source` unless `tree` is given. A grammar that
    reads indentation accepts some errors (tree-sitter-python 0.25 takes an empty `if x:`, a line that is too deep and a
    lone `try:`); these count too where they touch a span of `around`.
    """
    parsed = tree or language.parse(source)
    problems = [node.byte_range for node in list_errors(parsed)]
    if not language.has_indented_blocks:
        return problems, parsed
    spans = merge_spans((_code_end(language, source, start), end) for start, end in around)
    ends = [end for _, end in spans]
    touched: dict[str, dict[Span, tree_sitter.Node]] = {"block": {}, "unfinished": {}, "finished": {}}
    for span in spans if len(spans) <= _MAX_QUERIES else [(spans[0][0], ends[-1])]:
        found = _find_captures(language, parsed, span)
        for name, nodes in touched.items():
            for node in found.get(name, []):
                index = bisect_left(ends, node.start_byte)
                if index < len(spans) and spans[index][0] <= node.end_byte:
                    nodes[node.byte_range] = node
    lines = Lines(source)
    for block in touched["block"].values():
        problems += _find_misplaced(block, lines)
    problems += touched["unfinished"].keys() - touched["finished"].keys()
    return problems, parsed


def captures(language: Language, tree: tree_sitter.Tree, span: Span, *names: str) -> list[tree_sitter.Node]:
    """The nodes of the named captures that touch `span`."""
    captured = _find_captures(language, tree, span)
    nodes: list[tree_sitter.Node] = []
    for name in names:
        nodes += captured.get(name, [])
    return nodes


def _find_captures(language: Language, tree: tree_sitter.Tree, span: Span) -> dict[str, list[tree_sitter.Node]]:
    """The nodes of all captures of the language's query that touch a span, by capture name."""
    start, end = span
    cursor = tree_sitter.QueryCursor(language.query)
    cursor.set_byte_range(max(0, start - 1), end + 1)
    return cursor.captures(tree.root_node)


def _code_end(language: Language, source: bytes, offset: int) -> int:
    """The end of the code before `offset`, comments left out. An empty block starts there, at its header's colon."""
    comment = language.comment.encode("ascii")
    end = offset
    while True:
        while end and source[end - 1 : end].isspace():
            end -= 1
        line_start = source.rfind(b"\n", 0, end) + 1
        comment_start = source.find(comment, line_start, end)
        if comment_start < 0:
            return end
        end = comment_start


def _find_misplaced(block: tree_sitter.Node, lines: Lines) -> Iterator[Span]:
    """The span of an empty block, or of each statement whose column differs from that of the block's first."""
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
        if expected is None:
            expected = columns
        if columns != expected:
            yield child.byte_range


def function_end(language: Language, tree: tree_sitter.Tree, start: int) -> int | None:
    """The end of the function that starts at `start`; None if no function starts there."""
    nodes = captures(language, tree, (start, start), "function")
    return max((node.end_byte for node in nodes if node.start_byte == start), default=None)


# Fields of the grammars that bind a name, or that hold a keyword argument or label.
_BINDING_FIELDS = frozenset(("left", "name", "alias", "parameter", "parameters", "declarator", "key", "label"))
_NAME_NODE = re.compile("identifier(_pattern)?$")
_BINDING_NODES = re.compile("parameter|pattern|import")


def list_names(tree: tree_sitter.Tree, span: Span) -> Iterator[tuple[tree_sitter.Node, bool]]:
    """The identifiers within `span` in text order, each with True if it is bound there and False if it is used."""
    start, end = span
    if start >= end:
        return
    root = tree.root_node.descendant_for_byte_range(start, end)
    if root is None:
        return
    pending = [(root, False)]
    while pending:
        node, is_bound = pending.pop()
        if _NAME_NODE.search(node.type) and start <= node.start_byte and node.end_byte <= end:
            yield node, is_bound
        binds_all = is_bound or bool(_BINDING_NODES.search(node.type))
        has_fields = not node.type.startswith("binary_")
        for number, child in reversed(list(enumerate(node.children))):
            if child.start_byte >= end or child.end_byte <= start:
                continue
            binds = binds_all
            if has_fields and node.field_name_for_child(number) in _BINDING_FIELDS:
                binds = True
            pending.append((child, binds))
