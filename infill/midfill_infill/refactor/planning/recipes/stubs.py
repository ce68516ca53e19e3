"""Fill stubs: functions that wait to be written."""

from collections.abc import Iterable

from midfill_infill.refactor.planning.recipes.recipe import Recipe, RecipeExample
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole


def find(document: Document, word: str) -> Iterable[Hole]:
    return find_stubs(document)


RECIPE = Recipe(
    name="fill-stubs",
    title="write the bodies of functions that are only a placeholder",
    languages=(),
    find=find,
    examples=(
        RecipeExample(
            "python",
            "def add(a, b):\n    ...\n\n\ndef sub(a, b):\n    return a - b\n",
            ("return a + b",),
            "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n",
        ),
        RecipeExample("go", "func one() int {\n}\n", ("return 1",), "func one() int {\n\treturn 1\n}\n"),
    ),
)
