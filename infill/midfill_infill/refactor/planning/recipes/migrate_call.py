"""Write calls of a function anew; which function is given as a pattern, as `migrate-call=old.api.*`."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache

import tree_sitter

from midfill_infill.languages import get_language
from midfill_infill.refactor.planning.recipes.recipe import Example, Recipe
from midfill_infill.syntax.holes import hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_LANGUAGES = ("python", "javascript", "typescript", "tsx", "go", "rust", "c", "cpp")


@cache
def _query(language: str) -> tree_sitter.Query:
    kind = "call" if language == "python" else "call_expression"
    return get_language(language).compile(f"({kind} function: (_) @function) @call")


def find(document: Document, word: str) -> Iterator[Hole]:
    """The whole call, from its function's name to the closing bracket; of nested ones the outer."""
    if document.syntax is None or document.language is None:
        return
    root = document.syntax.parse(document.source).root_node
    for _, match in tree_sitter.QueryCursor(_query(document.language)).matches(root):
        name = "".join((match["function"][0].text or b"").decode("utf-8", "replace").split())
        call = match["call"][0]
        if fnmatchcase(name.replace("::", "."), word) and not call.has_error:
            yield hole_at_range(document, document.to_raw(call.start_byte), document.to_raw(call.end_byte))


RECIPE = Recipe(
    name="migrate-call",
    title="write the calls of a function anew",
    languages=_LANGUAGES,
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
