"""Runs tree-sitter queries over a document, and makes holes of what they capture. Knows no selection."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import tree_sitter

from midfill_infill.languages import get_language
from midfill_infill.syntax.holes import hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

Match = dict[str, list[tree_sitter.Node]]


@cache
def compile_query(query: str, language: str) -> tree_sitter.Query:
    """The compiled query. Raises tree_sitter.QueryError or ValueError if the language's grammar rejects it."""
    return get_language(language).compile(query)


def find_matches(document: Document, query: str) -> Iterator[Match]:
    """The captures of each match, by name, in tree order; none without a language. Raises QueryError."""
    if document.language is None or document.syntax is None:
        return
    root = document.syntax.parse_once(document.source).root_node
    for _, match in tree_sitter.QueryCursor(compile_query(query, document.language)).matches(root):
        yield match


def find_comments(root: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """Yields all comments in a node, in no particular order."""
    pending = [root]
    while pending:
        node = pending.pop()
        if "comment" in node.type:
            yield node
        else:
            pending += node.children


def find_holes(document: Document, query: str) -> Iterator[Hole]:
    """A hole for each capture `@fill`. What `@context` captures in the same match is shown to the model."""
    for match in find_matches(document, query):
        seen = tuple(raw_range(document, node) for node in match.get("context", []))
        for node in match.get("fill", []):
            yield replace(hole_at_range(document, *raw_range(document, node)), context=seen)


def raw_range(document: Document, node: tree_sitter.Node) -> tuple[int, int]:
    """A node's range in the document's own bytes."""
    return document.to_data(node.start_byte), document.to_data(node.end_byte)
