"""Add type hints to signatures that have none; the names of the parameters stay."""

from collections.abc import Iterator
from functools import cache

import tree_sitter

from midfill_infill.languages import get_language
from midfill_infill.refactor.planning.recipes.recipe import Example, Recipe
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Anchor, Hole

_SIGNATURE = (
    "(function_definition name: (identifier) @name parameters: (parameters) @parameters !return_type) @function"
)
_PLAIN = ("identifier", "default_parameter", "list_splat_pattern", "dictionary_splat_pattern")


@cache
def _query() -> tree_sitter.Query:
    return get_language("python").compile(_SIGNATURE)


def find(document: Document, word: str) -> Iterator[Hole]:
    """From behind the opening bracket up to the colon, with every parameter's name as an anchor."""
    if document.syntax is None:
        return
    root = document.syntax.parse(document.source).root_node
    for _, match in tree_sitter.QueryCursor(_query()).matches(root):
        name, parameters = match["name"][0], match["parameters"][0]
        given = parameters.named_children
        colon = next((child for child in match["function"][0].children if child.type == ":"), None)
        if colon is None or match["function"][0].has_error or any(child.type not in _PLAIN for child in given):
            continue
        start, end = document.to_raw(parameters.start_byte + 1), document.to_raw(colon.start_byte)
        anchors = [Anchor(document.to_raw(child.start_byte), document.to_raw(_name_end(child))) for child in given]
        yield Hole(start, end, anchors=tuple(anchors), name=(name.text or b"").decode("utf-8", "replace"))


def _name_end(parameter: tree_sitter.Node) -> int:
    name = parameter.child_by_field_name("name")
    return parameter.end_byte if name is None else name.end_byte


RECIPE = Recipe(
    name="add-type-hints",
    title="annotate signatures that have no type hints",
    languages=("python",),
    find=find,
    examples=(
        Example(
            "python",
            "def repeat(text, times=2):\n    return text * times\n\n\ndef done() -> None:\n    return\n",
            ("text: str, times: int = 2) -> str",),
            "def repeat(text: str, times: int = 2) -> str:\n    return text * times\n\n\n"
            "def done() -> None:\n    return\n",
        ),
    ),
)
