"""Fill stubs: functions that wait to be written."""

from collections.abc import Iterable

from midfill_infill.refactor.planning.recipes.recipe import Recipe
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole


def find(document: Document, word: str) -> Iterable[Hole]:
    return find_stubs(document)


RECIPE = Recipe(
    name="fill-stubs", title="write the bodies of functions that are only a placeholder", languages=(), find=find
)
