"""The engine's interface: every message between `infill` and `engine`. Knows JSON, nothing behind it.

Offsets into `draft`, `text` and `settled` count Unicode code points of that string. Line endings are line feeds.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_TEXT_CHARACTERS = 4 * 1024 * 1024
MAX_SEGMENTS = 1024
MAX_HOLE_TOKENS = 1024
MAX_DRAFT_CHARACTERS = 65536
MAX_ANCHORS = 1024
MAX_INDENT_CHARACTERS = 256
MAX_CANDIDATES = 64
MAX_CANDIDATE_CHARACTERS = 16384
MAX_NAMES = 4
MAX_UNUSED = 8
MAX_EXCERPTS = 16
MAX_EXCERPT_CHARACTERS = 16384
MAX_NAME_CHARACTERS = 128
MAX_MODEL_CHARACTERS = 512
MAX_SEED = 2**63 - 1
MAX_MS = 2**53  # exact in floating point
ALTERNATIVE_TEMPERATURE = 0.8  # to get different fills: the likeliest one is always the same

Range = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
Milliseconds = Annotated[int, Field(le=MAX_MS)]
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
ShortText = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Excerpt = Annotated[str, Field(max_length=MAX_EXCERPT_CHARACTERS)]
Share = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1)]
Keeps = Literal["tokens", "lines", "nothing"]
Wish = Literal["min_tokens", "lines", "steps", "quality", "max_ms", "seconds"]
"""What a request can ask for that not every model heeds. A wish has the name of a field of the request or its holes;
`lines` stands for both bounds of lines, `seconds` for `line_ms` and `body_ms`.
"""
WISHES: Final[tuple[Wish, ...]] = get_args(Wish)


class Message(BaseModel):
    """Base of all messages: unknown keys are errors, values never change after parsing. Errors do not quote values,
    because these may be code.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, hide_input_in_errors=True)


class GivenText(Message):
    """A text that the client proposes for a whole hole, and the probability that it is right."""

    text: str = Field(max_length=MAX_CANDIDATE_CHARACTERS)
    certainty: Share = 0.0


class HoleSpec(Message):
    """One hole of a request.

    Every part of `draft` outside `keep` is masked; kept characters are anchors and come back unchanged. Ranges of
    `keep` that touch have an empty masked part between them. A causal model also keeps the line breaks beside anchors,
    and leaves as many brackets open as the draft does. If a masked part is empty or white space, the length policy
    chooses its length; otherwise the hint is the number of its tokens. All masked parts together get at most
    `max_tokens`, each at least one; of more parts than that, the last stay empty. The bounds of lines count lines with
    text, also in anchors. No token of the fill contains a string of `forbid`.

    Every line of the fill after the first that has text begins with `indent`: a causal model ends the hole before a
    line that does not. Without `indent` it writes a single line. A causal model compares `candidates` with its own
    drafts. It prefers texts with `names`, which are words that the text behind the hole needs, and texts with `unused`
    words, which the text before binds and nothing uses. Other models ignore these three.
    """

    min_tokens: int = Field(default=0, ge=0, le=MAX_HOLE_TOKENS)
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_HOLE_TOKENS)
    min_lines: int = Field(default=0, ge=0, le=MAX_HOLE_TOKENS)
    max_lines: int | None = Field(default=None, ge=1, le=MAX_HOLE_TOKENS)
    draft: str = Field(default="", max_length=MAX_DRAFT_CHARACTERS)
    keep: list[Range] = Field(default_factory=list, max_length=MAX_ANCHORS)
    forbid: list[Annotated[str, Field(min_length=1, max_length=16)]] = Field(default_factory=list, max_length=8)
    indent: str | None = Field(default=None, max_length=MAX_INDENT_CHARACTERS)
    candidates: list[GivenText] = Field(default_factory=list, max_length=MAX_CANDIDATES)
    names: list[ShortText] = Field(default_factory=list, max_length=MAX_NAMES)
    unused: list[ShortText] = Field(default_factory=list, max_length=MAX_UNUSED)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError("min_tokens is larger than max_tokens")
        if self.max_lines is not None and self.min_lines > self.max_lines:
            raise ValueError("min_lines is larger than max_lines")
        if self.candidates and self.keep:
            raise ValueError("candidates are whole texts, so a hole with candidates keeps nothing")
        end_before = 0
        for start, end in self.keep:
            if not end_before <= start < end <= len(self.draft):
                raise ValueError("keep must be ascending, disjoint, non-empty ranges inside the draft")
            end_before = end
        return self


class TextSegment(Message):
    text: str = Field(max_length=MAX_TEXT_CHARACTERS)


class HoleSegment(Message):
    hole: HoleSpec


Segment = TextSegment | HoleSegment


class FittedWeights(Message):
    """What decides among the candidates of a line, fitted on a user's code: the weight `share` of a text's proposer
    beside the model; `follows`, that of the likelihood of the text behind; `named`, that of each name in the candidate
    that the text behind needs; and `used`, that of each unused name in it.
    """

    share: FiniteFloat = Field(ge=0, le=100)
    follows: FiniteFloat = Field(ge=0, le=10)
    named: FiniteFloat = Field(ge=0, le=100)
    used: FiniteFloat = Field(ge=0, le=100)


class InfillRequest(Message):
    """`POST /v1/infill`: text and holes in document order; all holes are filled jointly.

    `tag` says what kind of text this is; a model may ignore it. The same `seed` gives the same bytes; without one, the
    engine draws one if it matters. `max_ms` bounds the work from the moment when its turn comes. At the end of this
    time all that is still masked is settled at once, and a search returns the best that it has, at least a first line.
    A hole of one line should take `line_ms`, another hole `body_ms`, once the context is read; a search is narrower if
    a model's passes cost too much here for that. Only the likeliest tokens whose probabilities add up to `top_p` take
    part. `steps` bounds the denoise steps. With `quality` 0 a step settles most tokens, with 1 fewest; `authors` means
    the settings of the model's authors. A model refuses wishes that it does not heed. `document` is any name for where
    the request comes from; of a client's requests with the same name the newest goes first. `excerpts` are texts from
    elsewhere that are like the text around the holes; a model reads them as context if it has room. Without `drafts`
    only the candidates of each hole are judged. A causal model judges lines by the weights `judge` instead of its own.
    """

    segments: list[Segment] = Field(min_length=1, max_length=MAX_SEGMENTS)
    model: str | None = Field(default=None, max_length=MAX_MODEL_CHARACTERS)
    tag: str | None = Field(default=None, max_length=32)
    seed: int | None = Field(default=None, ge=0, le=MAX_SEED)
    temperature: FiniteFloat = Field(default=0.0, ge=0, le=2)
    max_ms: Milliseconds | None = Field(default=None, ge=1)
    line_ms: Milliseconds | None = Field(default=None, ge=1)
    body_ms: Milliseconds | None = Field(default=None, ge=1)
    top_p: FiniteFloat = Field(default=1.0, gt=0, le=1)
    steps: int | None = Field(default=None, ge=1, le=1024)
    quality: Share | Literal["authors"] | None = None
    sampler: str | None = Field(default=None, max_length=64)
    n: int = Field(default=1, ge=1, le=8)
    stream: bool = False
    document: str | None = Field(default=None, max_length=128)
    excerpts: list[Excerpt] = Field(default=[], max_length=MAX_EXCERPTS)
    drafts: bool = True
    judge: FittedWeights | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        holes = [segment.hole for segment in self.segments if isinstance(segment, HoleSegment)]
        if not holes:
            raise ValueError("segments hold no hole")
        if not self.drafts and not all(hole.candidates for hole in holes):
            raise ValueError("without drafts every hole needs candidates")
        return self

    @property
    def wishes(self) -> list[Wish]:
        """The wishes of this request."""
        holes = [segment.hole for segment in self.segments if isinstance(segment, HoleSegment)]
        asked: dict[Wish, bool] = {
            "min_tokens": any(hole.min_tokens for hole in holes),
            "lines": any(hole.min_lines or hole.max_lines for hole in holes),
            "steps": self.steps is not None,
            "quality": self.quality is not None,
            "max_ms": self.max_ms is not None,
            "seconds": not (self.line_ms is None and self.body_ms is None),
        }
        return [wish for wish, is_asked in asked.items() if is_asked]


class HoleState(Message):
    """The state of one hole after a step. `text` shows settled tokens, and current guesses for masked ones.

    `confidence[i]` in [0, 1], rounded to thousandths, belongs to the characters `tokens[i]` of `text`. An engine
    without confidences leaves both out.
    """

    text: str
    settled: list[Range]
    masked: int = Field(ge=0, description="positions still masked")
    tokens: list[Range] = Field(default_factory=list)
    confidence: list[FiniteFloat] = Field(default_factory=list)


class StepEvent(Message):
    """SSE event `step`. `step` 0 comes before the first forward pass, when only anchors are settled."""

    step: int = Field(ge=0)
    num_steps: int = Field(ge=1, description="the bound; a fill may end earlier")
    holes: list[HoleState]


class FilledHole(Message):
    """A text for a hole: a fill, or a candidate that was compared. `confidence[i]` in [0, 1] belongs to the characters
    `tokens[i]` of `text`.

    `anchors` are the ranges of `text` that `keep` asked for, ascending, neighbors joined; their confidence is 1. `cut`
    is true if the hole used all tokens or all time that it may use, so that the text may be incomplete; `cut_at` is
    that number of tokens, if another project's engine has met it. `certainty` is the calibrated probability that the
    whole text is right. A causal model tells what it judged by: `log_likelihood` is ln P(text and its end | text
    before), `following` is ln P(next lines | text before, text), both in nats; `names` and `unused` say how many of the
    hole's words of these kinds the text has; `proposed` is the certainty that the client gave it. What is unknown is
    null.
    """

    text: str
    tokens: list[Range] = Field(default_factory=list)
    confidence: list[FiniteFloat] = Field(default_factory=list)
    anchors: list[Range] = Field(default_factory=list)
    cut: bool = False
    cut_at: int | None = None
    certainty: FiniteFloat | None = Field(default=None, ge=0, le=1)
    log_likelihood: FiniteFloat | None = None
    following: FiniteFloat | None = None
    names: int = 0
    unused: int = 0
    proposed: Share = 0.0


class Stats(Message):
    steps: int
    forwards: int
    tokens: int
    ms: FiniteFloat
    cached_context: bool = False
    context_tokens: int = Field(default=0, description="of the context that the model saw, its special tokens included")


class InfillResponse(Message):
    """The whole answer, also as the SSE event `done`. `alternatives` are the other `n - 1` fills, best first.

    `candidates[i]` are all texts that were compared for hole i, best first; empty if the model compares none.
    """

    model: str
    holes: list[FilledHole]
    alternatives: list[list[FilledHole]] = Field(default_factory=list)
    candidates: list[list[FilledHole]] = Field(default_factory=list)
    stats: Stats
    seed: int | None = Field(default=None, description="which was used")


class ErrorCode(StrEnum):
    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    UNKNOWN_MODEL = "unknown_model"
    TOO_LARGE = "too_large"
    BUSY = "busy"
    CANCELLED = "cancelled"
    OUT_OF_MEMORY = "out_of_memory"
    FETCH_FAILED = "fetch_failed"
    INTERNAL = "internal"


class ErrorBody(Message):
    """An error, in an ErrorResponse or as the SSE event `error`: one sentence, and what to do next."""

    code: ErrorCode
    message: str
    next_step: str = ""


BASE: Final = "smollm2"  # the default model once it is downloaded


class FetchProgress(Message):
    """A line of `python -m midfill_engine fetch`. `note` says what it waits for; the last line has the `folder`."""

    model: str
    done_bytes: int = Field(ge=0)
    total_bytes: int = Field(ge=0)
    bytes_per_s: FiniteFloat = 0.0
    left_s: FiniteFloat | None = None
    note: str = ""
    folder: str | None = None


class StoredModel(Message):
    """A checkpoint on this machine, for `midfill models list`."""

    model: str
    num_bytes: int
    is_whole: bool
    folder: str


class StoredModels(Message):
    data: list[StoredModel]


class ErrorResponse(Message):
    error: ErrorBody


class ModelIds(Message):
    """A model's special token ids: `before` and `behind` a request's text, and the `ends` of a hole.

    `mask` is None for models without a mask token, `expand` if no token lengthens a hole.
    """

    before: list[int] = []
    behind: list[int] = []
    mask: int | None = None
    ends: list[int] = []
    expand: int | None = None


class ModelInfo(Message):
    """One row of `GET /v1/models`, a superset of OpenAI's. `created` is when the engine started, in seconds since 1970.

    `weights` is a hash that tells different weights of the same name apart. `cache` names the cache that its steps use,
    unless a request asks for the authors' settings. Both may be empty. `keeps` is the smallest part of a draft that the
    model fills around. It heeds the wishes `heeds` and refuses the others.
    """

    id: str
    object: Literal["model"] = "model"
    owned_by: str = "midfill"
    created: int = 0
    family: str
    parameters: int
    device: str
    dtype: str
    max_context_tokens: int
    max_hole_tokens: int
    sees_suffix: bool = True
    keeps: Keeps = "tokens"
    heeds: tuple[Wish, ...] = WISHES
    weights: str = ""
    ids: ModelIds = Field(default_factory=ModelIds)
    cache: str = ""
    description: str = ""


class ModelList(Message):
    object: Literal["list"] = "list"
    data: list[ModelInfo]
