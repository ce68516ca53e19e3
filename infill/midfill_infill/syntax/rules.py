"""Counts the nodes that a grammar accepts and a compiler refuses, and lists text that is no code. Knows captures."""

from typing import Final

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.syntax.problems import Span

_AROUND: Final = ("function", "async", "generator", "loop", "breakable")


def count_misplaced(language: Language, tree: tree_sitter.Tree) -> int:
    """The number of misplaced nodes, such as `await` in a function that is not `async`, and of names bound twice."""
    if not language.rules:
        return 0
    captured = tree_sitter.QueryCursor(language.misplaced).captures(tree.root_node)
    functions = {node.id for node in captured.get("function", [])}
    num_misplaced = len(captured.get("misplaced", []))
    for name in _AROUND:
        around = {node.id for node in captured.get(name, [])}
        for node in captured.get(f"in.{name}", []):
            num_misplaced += not _is_inside(node, around, functions, name)
    regions = functions | {node.id for node in captured.get("region", [])}
    bindings = captured.get("once", [])
    different = {(_find_region(node, regions, functions), node.text) for node in bindings}
    return num_misplaced + len(bindings) - len(different)


def _find_region(node: tree_sitter.Node, regions: set[int], functions: set[int]) -> int:
    """The id of the innermost region around a name, or 0. A function's block and parameters are one region, which the
    function's own name is outside of.
    """
    above = node.parent
    if above is not None and above.id in functions and above.child_by_field_name("name") == node:
        above = above.parent
    while above is not None and above.id not in regions:
        above = above.parent
    if above is None:
        return 0
    is_body = above.parent is not None and above.parent.id in functions
    if is_body and above.id not in functions and above.parent is not None:
        return above.parent.id
    return above.id


def _is_inside(node: tree_sitter.Node, around: set[int], functions: set[int], name: str) -> bool:
    """True if a node is inside of one of the nodes `around`, captures of `name`, with no function between."""
    above = node.parent
    while above is not None and above.id not in around:
        if above.id in functions:
            return False
        above = above.parent
    return above is not None or name == "async"  # a module may use `await`


def list_inert(language: Language, tree: tree_sitter.Tree) -> tuple[list[Span], list[Span]]:
    """The spans of comments, and those of the insides of strings, types and the like."""
    captured = tree_sitter.QueryCursor(language.inert).captures(tree.root_node)
    comments = [node.byte_range for node in captured.get("comment", [])]
    others = [node.byte_range for node in captured.get("inert", [])]
    return comments, others
