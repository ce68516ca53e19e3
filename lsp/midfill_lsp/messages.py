"""Defines Midfill's own LSP messages and command arguments, documented in PROTOCOL.md. Knows JSON, no document.

Positions and offsets into texts count units of the negotiated position encoding.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from lsprotocol import types
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pygls.exceptions import JsonRpcInvalidParams

from midfill_infill.filling.wishes import Length

Token = int | str
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Tokens = Annotated[int, Field(ge=1, le=1024)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Payload(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True,
        hide_input_in_errors=True,
    )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Position(Payload):
    line: Annotated[int, Field(ge=0, lt=2**31)]
    character: Annotated[int, Field(ge=0, lt=2**31)]

    def to_lsp(self) -> types.Position:
        return types.Position(self.line, self.character)


class Range(Payload):
    start: Position
    end: Position

    @classmethod
    def of(cls, range: types.Range) -> "Range":
        return cls.model_validate(range, from_attributes=True)

    def to_lsp(self) -> types.Range:
        return types.Range(self.start.to_lsp(), self.end.to_lsp())


class What(StrEnum):
    """Which holes to fill: the body at the first range's start, the ranges, all stubs, or a hole at that start."""

    BODY = "body"
    SELECTION = "selection"
    STUBS = "stubs"
    HOLE = "hole"


class DraftParams(Payload):
    """A text that a hole starts from (default: the current text), and the ranges of it that stay as anchors."""

    text: Annotated[str, Field(max_length=65536)] | None = None
    keep: tuple[tuple[Whole, Whole], ...] = ()


class FillParams(Payload):
    """Requests a fill. `ranges` belong to `version`; without one they belong to the current document.

    `drafts`, if any, correspond to `ranges` one by one; stubs take none. `apply`: the server edits the document;
    otherwise the client applies the answer's edits. `confirm`: the user ticks each hole, if the client supports that.
    `length` compares with the text that stands in each range: more or fewer lines with text or, within a line, tokens.
    Before a large body is replaced the user is asked with `window/showMessageRequest`, unless `large` is set.
    `until` is a command that the fill must pass. It runs in a sandbox on a copy of the workspace folder; `{tests}`
    in it stands for the tests that import the document. At most `tries` candidates are run. A client sends it only
    for a workspace that the user trusts. `midfill.until` asks the user for the command if there is none.
    """

    uri: str
    what: What
    version: int | None = None
    ranges: Annotated[tuple[Range, ...], Field(max_length=256)] = ()
    drafts: tuple[DraftParams, ...] = ()
    min_tokens: Tokens | None = None
    max_tokens: Tokens | None = None
    length: Length = "same"
    seed: Whole | None = None
    alternatives: Annotated[int, Field(ge=1, le=8)] = 1
    apply: bool | None = None
    confirm: bool = False
    large: bool = False
    until: Annotated[str, Field(max_length=4096)] | None = None
    tries: Annotated[int, Field(ge=1, le=1000)] = 20
    preview_token: Token | None = None
    work_done_token: Token | None = None


class HoleFill(Payload):
    """`text` goes to `range` in the document of the answer's `version`. `confidence[i]` belongs to `tokens[i]`.

    `certainty` is the probability that the whole text is right, if the engine knows it. `isSuggestion`: the
    `midfill` command writes it only on request. `origin` says where the text comes from, such as "drafted" or
    "like `total`".
    """

    range: Range
    text: str
    name: str | None = None
    tokens: tuple[tuple[int, int], ...] = ()
    confidence: tuple[float, ...] = ()
    certainty: float | None = None
    is_suggestion: bool = False
    origin: str = ""


class FillStats(Payload):
    steps: int
    forwards: int
    tokens: int
    ms: float
    cached_context: bool = False


class FillResult(Payload):
    """A fill. If `applied`, each hole's `range` is where its text stands now, and `id` names the pending fill.

    `alternatives` holds the texts of the other fills, one row each, best first. `new_errors` counts syntax errors that
    the fill adds to the document. `passes` is the command that the fill passes, if `until` was given.
    """

    id: int | None = None
    version: int | None = None
    applied: bool
    holes: tuple[HoleFill, ...]
    alternatives: tuple[tuple[str, ...], ...] = ()
    new_errors: int
    passes: str | None = None
    model: str
    stats: FillStats


class PreviewHole(Payload):
    """Current state of a hole: `settled` are ranges of `text`, the rest are guesses; `masked` counts open positions.

    `confidence[i]` belongs to `tokens[i]`, settled or guessed; both are empty if the engine does not know.
    """

    range: Range
    text: str
    settled: tuple[tuple[int, int], ...]
    masked: int
    tokens: tuple[tuple[int, int], ...] = ()
    confidence: tuple[float, ...] = ()


class PreviewParams(Payload):
    """The text of every hole after a step; none is sent after the answer. `seq` increases by one. `id` names the
    running fill, and later the pending one.
    """

    token: Token
    id: int
    seq: int
    step: int
    num_steps: int
    holes: tuple[PreviewHole, ...]


class OldText(Payload):
    """Lines that differ from the text before the first fill: `range` is where they are now, `text` the old lines."""

    range: Range
    text: str


class PendingText(Payload):
    """One hole of a pending fill: its current place, its old text, and the differences. `origin` says where the fill
    comes from; it is empty if the model drafted it.
    """

    range: Range
    original: str
    hunks: tuple[OldText, ...]
    is_suggestion: bool = False
    origin: str = ""


class PendingFill(Payload):
    """A pending fill, its least confident tokens (`weak`) and its syntax `errors`, where nobody has typed since.
    `lengths` are those that a reroll may ask for: offer no other.
    """

    id: int
    holes: tuple[PendingText, ...]
    weak: tuple[Range, ...]
    errors: tuple[Range, ...]
    new_errors: int
    passes: str | None = None
    alternatives: int
    lengths: tuple[Length, ...] = ()
    stats: FillStats


class PendingFills(Payload):
    """All pending fills of a document, oldest first; sent when they or their places change. Replaces older ones."""

    uri: str
    fills: tuple[PendingFill, ...]


class PendingParams(Payload):
    """Names a fill: by `id`, otherwise at `position` of `uri`, otherwise the latest of `uri`, otherwise the latest of
    all. If it is pending and its reroll runs, this reroll is cancelled.

    finish and accept end a running fill with its guesses; discard cancels it. `part` limits accept and discard to the
    hole or hunk at `position`. The rest is for a reroll: `keep` is the share of tokens to keep, most confident first;
    text that the user typed always stays.
    """

    id: int | None = None
    uri: str | None = None
    position: Position | None = None
    part: Literal["all", "hole", "hunk"] = "all"
    keep: Share | None = None
    length: Length = "same"
    preview_token: Token | None = None
    work_done_token: Token | None = None


class Done(Payload):
    """`uri` is the document, `id` the fill that is no longer pending or running, as a whole or in part."""

    id: int
    uri: str


class HolesParams(Payload):
    """Asks for possible holes around a range, which belongs to `version`."""

    uri: str
    range: Range
    version: int | None = None


class Holes(Payload):
    """From the innermost statement to the outermost body; each contains the ones before it."""

    ranges: tuple[Range, ...]


class TestsParams(Payload):
    """Requests the commands that probably test a document."""

    uri: str


class Tests(Payload):
    """Commands for `until`, the likeliest first."""

    commands: tuple[str, ...]


class RepeatParams(Payload):
    """Repeats the document's last change at `position`, if it fits that line, and shows the next place. `all` repeats
    it everywhere; `dismiss` forgets it.
    """

    uri: str
    position: Position | None = None
    action: Literal["next", "all", "dismiss"] = "next"


class Repeated(Payload):
    """Number of changed and remaining places; `range` is the place that is shown now."""

    applied: int
    left: int
    range: Range | None = None


class RepeatPlace(Payload):
    """A place for the last change: `text` would go to `range`."""

    range: Range
    text: str


class Repeats(Payload):
    """All places of a document, in order, sent whenever they change: after a request or, with `nextEdits`, after two
    equal changes.
    """

    uri: str
    places: tuple[RepeatPlace, ...]


class StaleGhostText(Payload):
    """The engine prefers other ghost text, or none, to the proposal of the file that was shown: ask again."""

    uri: str
    position: Position


class SnoozeParams(Payload):
    """How long to make no ghost text; 0 ends it."""

    minutes: Annotated[float, Field(ge=0, le=1440, allow_inf_nan=False)] = 5


class StatusParams(Payload):
    """With `uri` the status also says why that document is excluded or cannot be filled, such as one of over 1 MiB."""

    uri: str | None = None


class Status(Payload):
    """`kind` is Error after a failure until a fill works, Inactive for a document that is not filled."""

    kind: Literal["Normal", "Warning", "Error", "Inactive"]
    busy: bool
    message: str
    version: str
    model: str | None = None
    device: str | None = None
    dtype: str | None = None
    parameters: int | None = None
    pending: int = 0
    snoozing: bool = False


REQUESTS: dict[str, tuple[type[Payload], type[Payload]]] = {
    "midfill/fill": (FillParams, FillResult),
    "midfill/holes": (HolesParams, Holes),
    "midfill/tests": (TestsParams, Tests),
    "midfill/status": (StatusParams, Status),
}
NOTIFICATIONS = {
    "midfill/preview": PreviewParams,
    "midfill/didChangePending": PendingFills,
    "midfill/didChangeRepeats": Repeats,
    "midfill/didChangeStatus": Status,
    "midfill/didJudge": StaleGhostText,
}
COMMANDS: dict[str, tuple[type[Payload], type[Payload]]] = {
    "midfill.fill": (FillParams, FillResult),
    "midfill.until": (FillParams, FillResult),
    "midfill.finish": (PendingParams, Done),
    "midfill.accept": (PendingParams, Done),
    "midfill.reroll": (PendingParams, FillResult),
    "midfill.next": (PendingParams, FillResult),
    "midfill.discard": (PendingParams, Done),
    "midfill.repeat": (RepeatParams, Repeated),
    "midfill.snooze": (SnoozeParams, Status),
}

M = TypeVar("M", bound=Payload)


def parse(kind: type[M], value: object, name: str) -> M:
    """The message from JSON; None counts as {}. Raises JsonRpcInvalidParams, which names the first invalid value."""
    try:
        return kind.model_validate({} if value is None else value, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the parameters"
        raise JsonRpcInvalidParams(f"{name} takes one object, {kind.__name__}: {where}: {first['msg']}.") from error


def parse_arguments(kind: type[M], arguments: object, name: str) -> M:
    """The single argument object of a command; without arguments, an empty one. Raises JsonRpcInvalidParams."""
    if arguments is not None and (not isinstance(arguments, list | tuple) or len(arguments) > 1):
        raise JsonRpcInvalidParams(f"{name} takes one object.")
    return parse(kind, arguments[0] if arguments else None, name)
