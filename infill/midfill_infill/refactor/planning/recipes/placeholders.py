"""Fills what is only a placeholder: bodies of functions, arms of a `match`."""

from collections.abc import Iterable

from midfill_infill.refactor.planning.queries import find_holes
from midfill_infill.refactor.planning.recipes.recipe import Recipe
from midfill_infill.syntax.holes import find_stubs as find_bodies
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_ARM = """
(case_clause consequence: (block . [(pass_statement) (expression_statement (ellipsis))] @fill .))
(case_clause consequence: (block . (raise_statement) @fill .) (#match? @fill "^raise\\\\s+NotImplemented"))
"""


def find_stubs(document: Document, word: str) -> Iterable[Hole]:
    return find_bodies(document)


def find_arms(document: Document, word: str) -> Iterable[Hole]:
    return find_holes(document, _ARM)


STUBS = Recipe("fill-stubs", "write the bodies of functions that are only a placeholder", (), find_stubs)
MATCH_ARMS = Recipe("fill-match-arms", "write the arms of a match that are only a placeholder", ("python",), find_arms)
