"""What a fill is asked for: the command's arguments, the holes they mean and the code actions that offer them."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from cattrs.errors import BaseValidationError
from lsprotocol import types
from lsprotocol.converters import get_converter
from pygls.exceptions import JsonRpcInvalidParams
from pygls.uris import to_fs_path

from midfill_infill import holes
from midfill_infill.document import Document
from midfill_infill.errors import MidfillError
from midfill_infill.languages import REGISTRY
from midfill_infill.spans import Hole
from midfill_lsp.text import Text

FILL_COMMAND = "midfill.fill"

# LSP's language ids that are not the registry's.
_LANGUAGE_IDS = {"javascriptreact": "javascript", "typescriptreact": "tsx", "c++": "cpp"}


class What(StrEnum):
    """Which holes are meant: the body at the first range's start, the ranges, or all stubs of the document."""

    BODY = "body"
    SELECTION = "selection"
    STUBS = "stubs"


TITLES = {
    What.BODY: "Fill function body",
    What.SELECTION: "Fill selection",
    What.STUBS: "Fill all stubs in this file",
}
KINDS = {what: f"refactor.rewrite.fill.{what}" for what in What}


@dataclass(frozen=True)
class FillArguments:
    """The one argument of `midfill.fill`. `ranges` belong to `version`; None means whatever is current."""

    uri: str
    what: What
    ranges: tuple[types.Range, ...] = ()
    version: int | None = None


def parse_arguments(arguments: object) -> FillArguments:
    """Raises JsonRpcInvalidParams that shows what is expected."""
    expected = "midfill.fill takes one object {uri, version?, what: body | selection | stubs, ranges?: Range[]}"
    if not isinstance(arguments, list | tuple) or len(arguments) != 1:
        raise JsonRpcInvalidParams(f"{expected}.")
    try:
        parsed: FillArguments = get_converter().structure(arguments[0], FillArguments)
    except (BaseValidationError, ValueError, TypeError, KeyError) as error:
        raise JsonRpcInvalidParams(f"{expected}; this one does not fit.") from error
    if parsed.what is not What.STUBS and not parsed.ranges:
        raise JsonRpcInvalidParams(f"{expected}; {parsed.what} needs a range.")
    return parsed


def read_document(uri: str, language_id: str | None, source: str) -> Document:
    """The document as `infill` knows it. Raises MidfillError for what is no source text or too large."""
    language = _LANGUAGE_IDS.get(language_id or "", language_id)
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return Document.from_text(source, language if language in REGISTRY else None, Path(path) if path else None)


def find_holes(document: Document, text: Text, what: What, ranges: tuple[types.Range, ...]) -> tuple[Hole, ...]:
    """The holes in document order. Raises MidfillError where there is nothing to fill."""
    if what is What.STUBS:
        stubs = holes.find_stubs(document)
        if not stubs:
            raise MidfillError("no_stubs", "this file has no stubs", next_step="put the cursor into a function")
        return tuple(stubs)
    places = [tuple(text.start_byte(offset) for offset in text.span(range)) for range in ranges]
    if what is What.BODY:
        return (holes.body_at(document, places[0][0]),)
    return tuple(holes.sort_holes(document, [holes.hole_at_range(document, start, end) for start, end in places]))


def offer_actions(
    document: Document, text: Text, version: int | None, params: types.CodeActionParams
) -> list[types.CodeAction]:
    """The fills that make sense at a range, each carrying the command that runs it. Parses; for a worker thread."""
    uri = params.text_document.uri
    wanted = [what for what in What if _is_wanted(KINDS[what], params.context.only)]
    offered = [what for what in wanted if _applies(document, text, what, params.range)]
    return [_action(uri, version, what, params.range) for what in offered]


def _is_wanted(kind: str, only: Any) -> bool:
    return not only or any(kind == wanted or kind.startswith(f"{wanted}.") for wanted in map(_name_kind, only))


def _name_kind(kind: types.CodeActionKind | str) -> str:
    return kind.value if isinstance(kind, types.CodeActionKind) else kind


def _applies(document: Document, text: Text, what: What, range: types.Range) -> bool:
    if what is What.SELECTION and range.start == range.end:
        return False
    try:
        return all(hole.is_body or what is What.SELECTION for hole in find_holes(document, text, what, (range,)))
    except MidfillError:
        return False


def _action(uri: str, version: int | None, what: What, range: types.Range) -> types.CodeAction:
    arguments = FillArguments(uri, what, () if what is What.STUBS else (range,), version)
    command = types.Command(TITLES[what], FILL_COMMAND, arguments=[get_converter().unstructure(arguments)])
    return types.CodeAction(TITLES[what], kind=KINDS[what], command=command)
