"""Finds holes for the type hints that signatures lack. Names, defaults, commas and hints that are there stay."""

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
_UNTYPED = (b"self", b"cls")  # type checkers know their types
_FORBIDDEN = ("=", "#", "(", ")", ":", "/", "*", "\n")


def find(document: Document, word: str) -> Iterator[Hole]:
    """Yields a hole for each signature that lacks types, from the opening bracket to the colon; anchors keep the rest.
    Skips signatures with syntax errors or with parameters of other kinds than `_BARE` and `_KEPT`.
    """
    for match in find_matches(document, _SIGNATURE):
        function = match["function"][0]
        parameters = match["parameters"][0]
        result = function.child_by_field_name("return_type")
        colon = next((child for child in function.children if child.type == ":"), None)
        given = [child for child in parameters.named_children if child.type != "comment"]
        if colon is None or function.has_error or any(child.type not in (*_BARE, *_KEPT) for child in given):
            continue
        if given and given[0].text in _UNTYPED:
            del given[0]
        bare = [child for child in given if child.type in _BARE]
        if result is not None and not bare:
            continue
        bracket_end = parameters.end_byte if result is None else None
        anchors: list[Anchor] = []
        for start, end, lead, tail in _split(parameters.start_byte + 1, bare, bracket_end, colon.end_byte):
            anchors.append(Anchor(document.to_data(start), document.to_data(end), lead, tail))
        yield Hole(
            anchors[0].start_byte,
            anchors[-1].end_byte,
            anchors=tuple(anchors),
            name=text_of(match["name"][0]),
            forbid=_FORBIDDEN,
        )


def _split(
    start: int, bare: Sequence[tree_sitter.Node], bracket_end: int | None, end: int
) -> Iterator[tuple[int, int, str, str]]:
    """Splits the signature from `start` to `end` where types are missing: after the name of each parameter in `bare`,
    and at `bracket_end` if the result has no type. Yields each part's start and end, and text to put before and after.
    """
    part_start, lead = start, ""
    for parameter in bare:
        name = parameter.child_by_field_name("name") or parameter
        yield part_start, name.end_byte, lead, ": "
        part_start, lead = parameter.end_byte, ""
        value = parameter.child_by_field_name("value")
        if value is not None:
            part_start, lead = value.start_byte, " = "
    if bracket_end is not None:
        yield part_start, bracket_end, lead, " -> "
        part_start, lead = bracket_end, ""
    yield part_start, end, lead, ""


RECIPE = Recipe(
    name="add-type-hints",
    title="annotate signatures that lack type hints; those there are stay",
    languages=("python",),
    find=find,
)
