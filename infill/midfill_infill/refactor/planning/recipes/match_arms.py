"""Fill the arms of a `match` that hold only a placeholder."""

from collections.abc import Iterator

from midfill_infill.refactor.planning.queries import find_holes
from midfill_infill.refactor.planning.recipes.recipe import Recipe
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_ARM = """
(case_clause consequence: (block . [(pass_statement) (expression_statement (ellipsis))] @fill .))
(case_clause consequence: (block . (raise_statement) @fill .) (#match? @fill "^raise\\\\s+NotImplemented"))
"""


def find(document: Document, word: str) -> Iterator[Hole]:
    return find_holes(document, _ARM)


RECIPE = Recipe(
    name="fill-match-arms",
    title="write the arms of a match that are only a placeholder",
    languages=("python",),
    find=find,
)
