"""Write calls of a function anew; which function is given as a pattern, as `migrate-call=old.api.*`."""

from collections.abc import Iterator

from midfill_infill.refactor.planning.calls import LANGUAGES, find_calls
from midfill_infill.refactor.planning.recipes.recipe import Example, Recipe
from midfill_infill.syntax.holes import hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole


def find(document: Document, word: str) -> Iterator[Hole]:
    """The whole call, from its function's name to the closing bracket; of nested ones the outer.

    Imports say what a name stands for: `old.api.load` takes `load(x)` behind `from old.api import load` too.
    """
    for call in find_calls(document):
        if call.calls(word) and not call.is_broken:
            yield hole_at_range(document, document.to_raw(call.start), document.to_raw(call.end))


RECIPE = Recipe(
    name="migrate-call",
    title="write the calls of a function anew",
    languages=LANGUAGES,
    find=find,
    word="the function's name, with * and ?",
    examples=(
        Example(
            "python",
            "data = old.read(path, 'r')\nprint(data)\n",
            ("new.load(path)",),
            "data = new.load(path)\nprint(data)\n",
            word="old.*",
        ),
        Example(
            "javascript", "const a = fetchIt(x);\n", ("await get(x)",), "const a = await get(x);\n", word="fetchIt"
        ),
    ),
)
