"""Finds holes where only a placeholder stands: bodies of functions, and arms of a `match` statement."""

from midfill_infill.refactor.planning.queries import find_holes
from midfill_infill.refactor.planning.recipes.recipe import Recipe
from midfill_infill.syntax.holes import find_stubs

_ARM = """
(case_clause consequence: (block . [(pass_statement) (expression_statement (ellipsis))] @fill .))
(case_clause consequence: (block . (raise_statement) @fill .) (#match? @fill "^raise\\\\s+NotImplemented"))
"""

STUBS = Recipe(
    "fill-stubs",
    "write the bodies of functions that are only a placeholder",
    (),
    lambda document, _: find_stubs(document),
)
MATCH_ARMS = Recipe(
    "fill-match-arms",
    "write the arms of a match that are only a placeholder",
    ("python",),
    lambda document, _: find_holes(document, _ARM),
)
