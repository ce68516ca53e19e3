"""Adds type hints to signatures without any; parameter names stay."""

from collections.abc import Iterator

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


def find(document: Document, word: str) -> Iterator[Hole]:
    """Yields signatures from the opening bracket to the colon; parameter names and existing types are anchors."""
    for match in find_matches(document, _SIGNATURE):
        function, name, parameters = match["function"][0], match["name"][0], match["parameters"][0]
        given, result = parameters.named_children, function.child_by_field_name("return_type")
        colon = next((child for child in function.children if child.type == ":"), None)
        if colon is None or function.has_error or any(child.type not in (*_BARE, *_KEPT) for child in given):
            continue
        rest = given[1:] if given and given[0].text in _OWN else given
        if result is not None and not any(child.type in _BARE for child in rest):
            continue
        spans = [(child.start_byte, _kept_end(child)) for child in given]
        if result is not None:
            arrow = next(child for child in function.children if child.type == "->")
            spans.append((arrow.start_byte, result.end_byte))
        anchors = tuple(Anchor(document.to_raw(start), document.to_raw(end)) for start, end in spans)
        start, end = document.to_raw(parameters.start_byte + 1), document.to_raw(colon.start_byte)
        yield Hole(start, end, anchors=anchors, name=text_of(name))


def _kept_end(parameter: tree_sitter.Node) -> int:
    """A typed parameter keeps its default."""
    name = parameter.child_by_field_name("name") if parameter.type == "default_parameter" else None
    return parameter.end_byte if name is None else name.end_byte


RECIPE = Recipe(
    name="add-type-hints",
    title="annotate signatures that lack type hints; those there are stay",
    languages=("python",),
    find=find,
)
