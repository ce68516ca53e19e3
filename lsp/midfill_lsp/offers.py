"""Lists what an editor may offer: code actions at a range, code lenses on a pending fill. Starts nothing."""

from collections.abc import Sequence
from typing import Any

from lsprotocol import types

from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import DRAFTED
from midfill_infill.text.document import Document
from midfill_lsp.messages import FillParams, Payload, Position, Range, RepeatParams, What
from midfill_lsp.pending import Pending
from midfill_lsp.text import Span, SyncedDocument
from midfill_lsp.views import DocumentView, find_holes

TITLES = {
    What.BODY: "Fill function body",
    What.SELECTION: "Fill selection",
    What.STUBS: "Fill all stubs in this file",
    What.HOLE: "Fill at the cursor",
}
KINDS = {what: f"refactor.rewrite.fill.{what}" for what in What}
UNTIL, UNTIL_KIND = "Fill until tests pass", "refactor.rewrite.fill.until"
REPEAT = "refactor.rewrite.repeat"
MAX_ORIGIN_CHARS = 40
LENSES = {"midfill.accept": "Accept", "midfill.reroll": "Reroll", "midfill.discard": "Discard"}


def offer_actions(view: DocumentView, version: int | None, params: types.CodeActionParams) -> list[types.CodeAction]:
    """Code actions for possible fills at a range. Parses the document, so run it in a worker thread."""
    requested = [what for what in What if is_wanted(KINDS[what], params.context.only)]
    try:
        document = view.read()
    except MidfillError:  # there is nothing to fill
        return []
    offered = [what for what in requested if _applies(view, document, what, params.range)]
    actions = [_action(view.uri, version, what, params.range) for what in offered]
    if What.BODY in offered and is_wanted(UNTIL_KIND, params.context.only):
        actions.append(_action(view.uri, version, What.BODY, params.range, until=True))
    return actions


def is_wanted(kind: str, only: Sequence[str] | None) -> bool:
    """True if `only`, the kinds that the client asks for, is empty or has the kind or a parent of it."""
    return not only or any(kind == asked or kind.startswith(asked + ".") for asked in only)


def _applies(view: DocumentView, document: Document, what: What, range: types.Range) -> bool:
    """True if this fill is possible at a range. A selection is filled, or a hole at the cursor on a blank line."""
    is_cursor = range.start == range.end
    if (what is What.SELECTION and is_cursor) or (what is What.HOLE and not is_cursor):
        return False
    if what is What.HOLE:
        line = min(range.start.line, len(view.text.line_starts) - 1)
        return not view.text.lines[line].strip()
    try:
        holes = find_holes(view, document, what, [range])
        for hole in holes:
            view.span(hole)  # raises for a hole in another cell
    except MidfillError:
        return False
    return bool(holes) and (what is What.SELECTION or all(hole.is_body for hole in holes))


def _action(uri: str, version: int | None, what: What, range: types.Range, *, until: bool = False) -> types.CodeAction:
    ranges = () if what is What.STUBS else (Range.of(range),)
    arguments = FillParams(uri=uri, what=what, version=version, ranges=ranges)
    title, name, kind = TITLES[what], "midfill.fill", KINDS[what]
    if until:
        title, name, kind = UNTIL, "midfill.until", UNTIL_KIND
    command = types.Command(title, name, arguments=[_to_json(arguments)])
    return types.CodeAction(title, kind=kind, command=command)


def offer_repeats(document: SyncedDocument, cursor: types.Position, spans: Sequence[Span]) -> list[types.CodeAction]:
    """Code actions that repeat the last change at a place on the cursor's line, else go to the next place; or repeat it
    everywhere. `spans` are all places, in order.
    """
    if not spans:
        return []
    position = Position(line=cursor.line, character=cursor.character)
    here = RepeatParams(uri=document.uri, position=position)
    offset = document.text.offset(cursor)
    line_start, _ = document.text.whole_lines((offset, offset))
    next_span = next((span for span in spans if span[1] >= line_start), spans[0])
    line = document.text.position(next_span[0]).line + 1
    actions = [_offer_repeat(f"Make the last change again, or go there: line {line}", here)]
    if len(spans) > 1:
        everywhere = here.model_copy(update={"action": "all"})
        actions.append(_offer_repeat(f"Make the last change in {len(spans)} more places", everywhere))
    return actions


def _offer_repeat(title: str, params: RepeatParams) -> types.CodeAction:
    command = types.Command(title, "midfill.repeat", arguments=[_to_json(params)])
    return types.CodeAction(title, kind=REPEAT, command=command)


def _to_json(params: Payload) -> dict[str, Any]:
    return params.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def offer_lenses(pending: Pending) -> list[types.CodeLens]:
    """Accept, Reroll and Discard above a pending fill. A last lens, which does nothing, says which command the fill
    passes or that it is a suggestion, and where it comes from.
    """
    range = pending.text.range(pending.holes[0].outer)
    fills = [hole.fill for hole in pending.holes]
    commands = [types.Command(title, name, arguments=[{"id": pending.id}]) for name, title in LENSES.items()]
    notes: list[str] = []
    if pending.filled.passed_command:
        notes.append(f"passes `{pending.filled.passed_command}`")
    elif any(fill.is_suggestion for fill in fills):
        notes.append("a suggestion")
    notes += dict.fromkeys(_shorten(fill.origin) for fill in fills if fill.origin != DRAFTED)
    if notes:
        commands.append(types.Command(", ".join(notes), ""))
    return [types.CodeLens(range, command=command) for command in commands]


def _shorten(text: str) -> str:
    """Leaves out the middle of a long text, because names begin and end with what tells them apart."""
    if len(text) <= MAX_ORIGIN_CHARS:
        return text
    return f"{text[:22]}…{text[-17:]}"
