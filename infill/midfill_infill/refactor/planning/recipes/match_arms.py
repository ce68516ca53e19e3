"""Fill the arms of a `match` that hold only a placeholder."""

from collections.abc import Iterator
from functools import cache

import tree_sitter

from midfill_infill.languages import get_language
from midfill_infill.refactor.planning.recipes.recipe import Example, Recipe
from midfill_infill.syntax.holes import hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_ARM = """
(case_clause consequence: (block . [(pass_statement) (expression_statement (ellipsis))] @fill .))
(case_clause consequence: (block . (raise_statement) @raise .) (#match? @raise "^raise\\\\s+NotImplemented"))
"""


@cache
def _query() -> tree_sitter.Query:
    return get_language("python").compile(_ARM)


def find(document: Document, word: str) -> Iterator[Hole]:
    if document.syntax is None:
        return
    root = document.syntax.parse(document.source).root_node
    for _, match in tree_sitter.QueryCursor(_query()).matches(root):
        for node in (*match.get("fill", []), *match.get("raise", [])):
            yield hole_at_range(document, document.to_raw(node.start_byte), document.to_raw(node.end_byte))


RECIPE = Recipe(
    name="fill-match-arms",
    title="write the arms of a match that are only a placeholder",
    languages=("python",),
    find=find,
    examples=(
        Example(
            "python",
            "def name(n):\n    match n:\n        case 1:\n            return 'one'\n        case 2:\n            ...\n",
            ("return 'two'",),
            "def name(n):\n    match n:\n        case 1:\n            return 'one'\n"
            "        case 2:\n            return 'two'\n",
        ),
    ),
)
