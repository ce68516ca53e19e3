"""Midfill's own messages and the arguments of its commands, as PROTOCOL.md shows them. Knows JSON, no document.

Positions and offsets into texts count units of the negotiated position encoding.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from lsprotocol import types
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pygls.exceptions import JsonRpcInvalidParams

Token = int | str
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Tokens = Annotated[int, Field(ge=1, le=1024)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Message(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Position(Message):
    line: Annotated[int, Field(ge=0, lt=2**31)]
    character: Annotated[int, Field(ge=0, lt=2**31)]

    def to_lsp(self) -> types.Position:
        return types.Position(self.line, self.character)


class Range(Message):
    start: Position
    end: Position

    @classmethod
    def of(cls, range: types.Range) -> "Range":
        ends = (Position(line=end.line, character=end.character) for end in (range.start, range.end))
        return cls(start=next(ends), end=next(ends))

    def to_lsp(self) -> types.Range:
        return types.Range(self.start.to_lsp(), self.end.to_lsp())


class What(StrEnum):
    """Which holes are meant: the body at the first range's start, the ranges, all stubs, or the range's start."""

    BODY = "body"
    SELECTION = "selection"
    STUBS = "stubs"
    HOLE = "hole"


class Draft(Message):
    """A text that a hole starts from, by default what stands there, and the ranges of it that stay: its anchors."""

    text: Annotated[str, Field(max_length=65536)] | None = None
    keep: tuple[tuple[Whole, Whole], ...] = ()


class FillParams(Message):
    """Asks for a fill. `ranges` belong to `version`; without one they belong to the document as it is.

    `drafts`, if any, answer to `ranges` one by one; stubs take none. `apply` says whether the server edits the
    document; otherwise the answer's edits are the client's to apply. `confirm` lets the user tick each hole, where the
    client can do that. Before a body of many lines goes the user is asked by `window/showMessageRequest`, unless
    `large`.
    """

    uri: str
    what: What
    version: int | None = None
    ranges: Annotated[tuple[Range, ...], Field(max_length=256)] = ()
    drafts: tuple[Draft, ...] = ()
    min_tokens: Tokens | None = None
    max_tokens: Tokens | None = None
    seed: Whole | None = None
    alternatives: Annotated[int, Field(ge=1, le=8)] = 1
    apply: bool | None = None
    confirm: bool = False
    large: bool = False
    preview_token: Token | None = None
    work_done_token: Token | None = None


class HoleFill(Message):
    """`text` goes to `range` of the document of the answer's `version`. `confidence[i]` belongs to `tokens[i]`.

    `certainty` is the probability that the whole text is right, where the engine says it. `isGuess`: it is below 0.5.
    """

    range: Range
    text: str
    name: str | None = None
    tokens: tuple[tuple[int, int], ...] = ()
    confidence: tuple[float, ...] = ()
    certainty: float | None = None
    is_guess: bool = False


class Stats(Message):
    steps: int
    forwards: int
    tokens: int
    ms: float
    cached_context: bool = False


class FillResult(Message):
    """A fill. Where `applied`, `range` of each hole is where its text stands now, and `id` names the pending fill.

    `alternatives` holds the texts of the other fills, one row each, best first. `new_errors` counts syntax errors that
    the fill adds to the document.
    """

    id: int | None = None
    version: int | None = None
    applied: bool
    holes: tuple[HoleFill, ...]
    alternatives: tuple[tuple[str, ...], ...] = ()
    new_errors: int
    model: str
    stats: Stats


class PreviewHole(Message):
    """How a hole looks now: `settled` are ranges of `text`, the rest are guesses; `masked` counts open positions.

    `confidence[i]` belongs to `tokens[i]`, settled or guessed; both are empty where the engine does not say.
    """

    range: Range
    text: str
    settled: tuple[tuple[int, int], ...]
    masked: int
    tokens: tuple[tuple[int, int], ...] = ()
    confidence: tuple[float, ...] = ()


class PreviewParams(Message):
    """The whole text of every hole after a step. `seq` rises by one. None comes after the answer.

    `id` names the running fill, and the pending one that it becomes.
    """

    token: Token
    id: int
    seq: int
    step: int
    num_steps: int
    holes: tuple[PreviewHole, ...]


class OldText(Message):
    """Lines that differ from what stood there before the first fill: `range` has them now, `text` is the old ones."""

    range: Range
    text: str


class PendingText(Message):
    """One hole of a pending fill: where its text stands now, what stood there before, and where the two differ."""

    range: Range
    original: str
    hunks: tuple[OldText, ...]
    is_guess: bool = False


class PendingFill(Message):
    """A pending fill. `weak` are its weakest tokens and `errors` what is no syntax, where nobody has typed since."""

    id: int
    holes: tuple[PendingText, ...]
    weak: tuple[Range, ...]
    errors: tuple[Range, ...]
    new_errors: int
    alternatives: int
    stats: Stats


class PendingFills(Message):
    """All pending fills of a document, the oldest first, whenever they or their places changed; the last one counts."""

    uri: str
    fills: tuple[PendingFill, ...]


class PendingParams(Message):
    """Names a fill: by `id`, else the one at `position` of `uri`, else the latest of `uri`, else the latest of all.

    A fill that still runs is ended with its guesses by finish and accept, and cancelled by discard. `part` has accept
    and discard decide of the hole or the hunk at `position` alone; the others stay pending. The rest is for a reroll.
    `keep` is the share of tokens to keep, the most confident first; what was typed into the fill always stays.
    """

    id: int | None = None
    uri: str | None = None
    position: Position | None = None
    part: Literal["all", "hole", "hunk"] = "all"
    keep: Share | None = None
    length: Literal["same", "shorter", "longer"] = "same"
    preview_token: Token | None = None
    work_done_token: Token | None = None


class Done(Message):
    """`uri` is the document, `id` the fill that is no longer pending, or no longer runs, as a whole or in a part."""

    id: int
    uri: str


class HolesParams(Message):
    """Asks what may be filled around a range, which belongs to `version`."""

    uri: str
    range: Range
    version: int | None = None


class Holes(Message):
    """From the innermost statement out to the outermost body; each holds the ones before it."""

    ranges: tuple[Range, ...]


class RepeatParams(Message):
    """Makes the last change of a document again where `position` is, if it fits a line there, and shows the next place.

    `all` makes it everywhere, `dismiss` nowhere: the change is forgotten.
    """

    uri: str
    position: Position | None = None
    action: Literal["next", "all", "dismiss"] = "next"


class Repeated(Message):
    """In how many places the change was made and how many are left; `range` is the one that is shown now."""

    applied: int
    left: int
    range: Range | None = None


class RepeatPlace(Message):
    """Where the last change may be made again: `text` would go to `range`."""

    range: Range
    text: str


class Repeats(Message):
    """All places of a document, in order, whenever they change: what was asked for or, with `nextEdits`, made twice."""

    uri: str
    places: tuple[RepeatPlace, ...]


class SnoozeParams(Message):
    """For how long no ghost text is made while somebody types; 0 ends it."""

    minutes: Annotated[float, Field(ge=0, le=1440, allow_inf_nan=False)] = 5


class StatusParams(Message):
    """With `uri`, the status also says why that document is left out, if it is."""

    uri: str | None = None


class Status(Message):
    """`kind` is Error after a failure until a fill works, Inactive for a document that is left out."""

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


REQUESTS: dict[str, tuple[type[Message], type[Message]]] = {
    "midfill/fill": (FillParams, FillResult),
    "midfill/holes": (HolesParams, Holes),
    "midfill/status": (StatusParams, Status),
}
NOTIFICATIONS = {
    "midfill/preview": PreviewParams,
    "midfill/didChangePending": PendingFills,
    "midfill/didChangeRepeats": Repeats,
    "midfill/didChangeStatus": Status,
}
COMMANDS: dict[str, tuple[type[Message], type[Message]]] = {
    "midfill.fill": (FillParams, FillResult),
    "midfill.finish": (PendingParams, Done),
    "midfill.accept": (PendingParams, Done),
    "midfill.reroll": (PendingParams, FillResult),
    "midfill.next": (PendingParams, FillResult),
    "midfill.discard": (PendingParams, Done),
    "midfill.repeat": (RepeatParams, Repeated),
    "midfill.snooze": (SnoozeParams, Status),
}

M = TypeVar("M", bound=Message)


def parse(kind: type[M], value: object, name: str) -> M:
    """Raises JsonRpcInvalidParams that names the first thing that does not fit."""
    try:
        return kind.model_validate({} if value is None else value, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the parameters"
        raise JsonRpcInvalidParams(f"{name} takes one object, {kind.__name__}: {where}: {first['msg']}.") from error


def parse_arguments(kind: type[M], arguments: object, name: str) -> M:
    """The one object that a command takes; none is an empty one."""
    if arguments is not None and (not isinstance(arguments, list | tuple) or len(arguments) > 1):
        raise JsonRpcInvalidParams(f"{name} takes one object.")
    return parse(kind, arguments[0] if arguments else None, name)
