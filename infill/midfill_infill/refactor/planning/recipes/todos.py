"""Finds holes at TODO comments: the code that a TODO asks for goes below it, in place of a placeholder there."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.refactor.planning.queries import find_comments
from midfill_infill.refactor.planning.recipes.recipe import Recipe
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.holes import hole_at_range
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_MARK: Final = re.compile(r"\b(?:TODO|FIXME)\b(?:\([^)]*\))?:?\s*")
_COMMENT_MARKERS: Final = re.compile(r"^[ \t]*(?:#+|//+!?|/\*+|\*+(?!/))?[ \t]*|[ \t]*(?:\*+/)?\s*$", re.MULTILINE)


def find(document: Document, word: str) -> Iterator[Hole]:
    """Yields a hole for each comment in a function that begins with TODO and has its lines to itself. The hole includes
    the comment lines that continue it, and a placeholder below. The comment stays above the fill, without the TODO.
    """
    language = document.syntax
    if language is None or not re.search(rb"TODO|FIXME", document.source):
        return
    bodies = [body_hole(document, function) for function in outline(document).functions]
    root = language.parse_once(document.source).root_node
    stubs = tree_sitter.QueryCursor(language.query).captures(root).get("stub", [])
    nodes = sorted([*find_comments(root), *stubs], key=lambda node: node.start_byte)
    for index, node in enumerate(nodes):
        start = document.to_data(node.start_byte)
        around = [body for body in bodies if body.start_byte <= start <= body.end_byte]
        if around and _is_todo(document, node) and _is_alone(document, node):
            hole = _hole(document, language, _gather(document, nodes[index:]))
            yield replace(hole, name=around[-1].name)


def _gather(document: Document, nodes: list[tree_sitter.Node]) -> list[tree_sitter.Node]:
    """The first of `nodes`, the comment lines that continue it, and a placeholder after them."""
    group = nodes[:1]
    for below in nodes[1:]:
        if not _is_comment(group[-1]) or not _follows(document, group[-1], below) or _is_todo(document, below):
            break
        group.append(below)
    return group


def _hole(document: Document, language: Language, group: list[tree_sitter.Node]) -> Hole:
    start = document.to_data(group[0].start_byte)
    end = document.to_data(group[-1].end_byte)
    hole = hole_at_range(document, start, end)
    text = "\n".join(_comment_text(document, node) for node in group if _is_comment(node))
    comments: list[str] = []
    for line in _MARK.sub("", text, count=1).splitlines():
        comment = f"{language.comment} {line}".rstrip()
        comments.append(f"{comment}\n{hole.indent}")
    return replace(hole, lead="".join(comments))


def _is_todo(document: Document, node: tree_sitter.Node) -> bool:
    return _is_comment(node) and _MARK.match(_comment_text(document, node)) is not None


def _is_comment(node: tree_sitter.Node) -> bool:
    return "comment" in node.type


def _comment_text(document: Document, node: tree_sitter.Node) -> str:
    """The text of a comment without the characters that make it a comment."""
    text = document.source[node.start_byte : node.end_byte].decode("utf-8", "replace")
    return _COMMENT_MARKERS.sub("", text.replace("\r", "")).strip()


def _is_alone(document: Document, node: tree_sitter.Node) -> bool:
    """True if nothing else stands on the lines of a node."""
    lines = document.source_lines
    if lines.first_char(lines.at(node.start_byte)) != node.start_byte:
        return False
    last = lines.at(max(node.start_byte, node.end_byte - 1))
    return not document.source[node.end_byte : lines.end(last)].strip()


def _follows(document: Document, above: tree_sitter.Node, below: tree_sitter.Node) -> bool:
    """True if `below` is alone on the line after `above`, with the same indentation."""
    lines = document.source_lines
    last = lines.at(max(above.start_byte, above.end_byte - 1))
    if lines.at(below.start_byte) != last + 1:
        return False
    return above.start_point.column == below.start_point.column and _is_alone(document, below)


RECIPE = Recipe(name="fill-todos", title="write the part of a body that a TODO asks for", languages=(), find=find)
