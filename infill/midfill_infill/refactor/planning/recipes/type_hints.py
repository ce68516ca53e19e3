"""Adds type hints to signatures without any; names, defaults and commas stay."""

from collections.abc import Iterator, Sequence

import tree_sitter

from midfill_infill.refactor.planning.queries import find_matches
from midfill_infill.refactor.planning.recipes.recipe import Recipe
from midfill_infill.syntax.captures import text_of
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Anchor, Hole

_SIGNATURE = "(function_definition name: (identifier) @name parameters: (parameters) @parameters) @function"
_BARE = ("identifier", "default_parameter", "list_splat_pattern", "dictionary_splat_pattern")
# Typed parameters, `/` and `*` stay as they are.
_KEPT = ("typed_parameter", "typed_default_parameter", "keyword_separator", "positional_separator")
_OWN = (b"self", b"cls")
_NO_TYPE = ("=", "#", "(", ")", ":", "/", "*", "\n")


def find(document: Document, word: str) -> Iterator[Hole]:
    """Yields signatures from the opening bracket to the colon, where all but the missing types is known."""
    for match in find_matches(document, _SIGNATURE):
        function = match["function"][0]
        parameters = match["parameters"][0]
        result = function.child_by_field_name("return_type")
        colon = next((child for child in function.children if child.type == ":"), None)
        given = [child for child in parameters.named_children if child.type != "comment"]
        if colon is None or function.has_error or any(child.type not in (*_BARE, *_KEPT) for child in given):
            continue
        if given and given[0].text in _OWN:
            del given[0]
        bare = [child for child in given if child.type in _BARE]
        if result is not None and not bare:
            continue
        bracket = parameters.end_byte if result is None else None
        anchors: list[Anchor] = []
        for start, end, lead, tail in _split(parameters.start_byte + 1, bare, bracket, colon.end_byte):
            anchors.append(Anchor(document.to_raw(start), document.to_raw(end), lead, tail))
        yield Hole(
            anchors[0].start_byte,
            anchors[-1].end_byte,
            anchors=tuple(anchors),
            name=text_of(match["name"][0]),
            forbid=_NO_TYPE,
        )


def _split(
    start: int, bare: Sequence[tree_sitter.Node], bracket: int | None, end: int
) -> Iterator[tuple[int, int, str, str]]:
    """Yields the text between the places of missing types, with what comes before and after it: after the name of each
    parameter and the closing bracket, which ends at `bracket`, if there is no type of the result.
    """
    lead = ""
    for parameter in bare:
        name = parameter.child_by_field_name("name") or parameter
        yield start, name.end_byte, lead, ": "
        start, lead = parameter.end_byte, ""
        value = parameter.child_by_field_name("value")
        if value is not None:
            start, lead = value.start_byte, " = "
    if bracket is not None:
        yield start, bracket, lead, " -> "
        start, lead = bracket, ""
    yield start, end, lead, ""


RECIPE = Recipe(
    name="add-type-hints",
    title="annotate signatures that lack type hints; those there are stay",
    languages=("python",),
    find=find,
)
