"""Translates the routes `/v1/fim/completions` (Mistral's, Mercury's) and `/v1/completions` (OpenAI's). Knows no model.

Mistral's clients read `message.content` (`delta.content` in a stream), Mercury's read `text`, so a choice has both.
"""

import secrets
import time
import uuid
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SerializeAsAny, model_validator

from midfill_engine import wire
from midfill_engine.serving.marked import split_prompt

Stops = Annotated[list[str], Field(max_length=256)]


class Tolerant(BaseModel):
    """A message of other projects' clients. Unknown keys are ignored, and a key with null counts as left out."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        return {key: value for key, value in values.items() if value is not None}


class ForeignRequest(Tolerant):
    """The common keys of requests by other projects' clients."""

    model: str | None = Field(default=None, max_length=512)
    stream: bool = False


class TextRequest(ForeignRequest):
    """The common keys of requests for the text between a prompt and a suffix."""

    suffix: wire.Text | None = None
    max_tokens: int | None = Field(default=None, ge=1, description="at most what the model can fill at once")
    t_max_predict_ms: wire.Milliseconds | None = None
    temperature: wire.FiniteFloat = Field(default=0.0, ge=0, le=2)
    top_p: wire.FiniteFloat = Field(default=1.0, ge=0, le=1)
    seed: int | None = Field(default=None, ge=0, le=wire.MAX_SEED, validation_alias=AliasChoices("seed", "random_seed"))
    stop: Stops | str | None = None


class FimRequest(TextRequest):
    """`POST /v1/fim/completions` as Mistral's and Mercury's clients send it."""

    prompt: wire.Text


class CompletionRequest(TextRequest):
    """`POST /v1/completions` with `suffix` as OpenAI's clients send it."""

    prompt: wire.Text | Annotated[list[wire.Text], Field(min_length=1, max_length=16)]
    n: int = Field(default=1, ge=1, le=8)
    echo: bool = False
    logprobs: int | bool | None = None
    best_of: int | None = None

    @model_validator(mode="after")
    def _refuse_what_is_not_done(self) -> Self:
        if self.echo:
            raise ValueError("echo is not supported: put the prompt before the answer")
        if self.logprobs is not None and self.logprobs is not False:
            raise ValueError("logprobs are not supported: /v1/infill tells every token's confidence")
        if self.best_of is not None and self.best_of != self.n:
            raise ValueError("best_of is not supported: ask for n, and the surest comes first")
        return self


class ChatMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class Usage(BaseModel):
    """Tokens that the model saw: of a prompt beyond its window only the part near the hole."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


FinishReason = Literal["stop", "length"]


class TextChoice(BaseModel):
    index: int = 0
    text: str
    finish_reason: FinishReason


class FimChoice(TextChoice):
    message: ChatMessage


class StreamedChoice(TextChoice):
    delta: ChatMessage


class CompletionChoice(TextChoice):
    logprobs: None = None


CompletionKind = Literal["fim.completion", "fim.completion.chunk", "text_completion"]


class Completion(BaseModel):
    id: str
    object: CompletionKind
    created: int
    model: str
    choices: list[SerializeAsAny[TextChoice]]
    usage: Usage
    seed: int | None = None


def to_infill(request: FimRequest | CompletionRequest) -> list[wire.InfillRequest]:
    """One request per prompt, all with one seed."""
    prompts = list_prompts(request)
    seed = request.seed
    temperature, top_p = choose_sampling(request.temperature, request.top_p)
    if seed is None and temperature and len(prompts) > 1:
        seed = secrets.randbelow(2**31)
    requests = []
    for prompt in prompts:
        before, behind = find_sides(prompt, request.suffix)
        requests.append(
            wire.InfillRequest(
                segments=around_hole(before, behind, request.max_tokens),
                max_ms=max(request.t_max_predict_ms or 0, 0) or None,
                model=request.model or None,
                seed=seed,
                temperature=temperature,
                top_p=top_p,
                n=request.n if isinstance(request, CompletionRequest) else 1,
            )
        )
    return requests


def from_infill(request: FimRequest | CompletionRequest, responses: list[wire.InfillResponse]) -> Completion:
    """The answer with the choices of every prompt in turn, the best of each prompt first."""
    choices: list[TextChoice] = []
    for prompt, response in zip(list_prompts(request), responses, strict=True):
        for holes in (response.holes, *response.alternatives):
            choices.append(make_choice(request, len(choices), prompt, holes[0]))
    num_context = sum(response.stats.context_tokens for response in responses)
    num_filled = sum(response.stats.tokens for response in responses)
    kind: CompletionKind
    if isinstance(request, CompletionRequest):
        kind, prefix = "text_completion", "cmpl"
    else:
        kind, prefix = "fim.completion.chunk" if request.stream else "fim.completion", "fim"
    return Completion(
        id=f"{prefix}-{uuid.uuid4().hex}",
        object=kind,
        created=int(time.time()),
        model=responses[0].model,
        choices=choices,
        usage=Usage(prompt_tokens=num_context, completion_tokens=num_filled, total_tokens=num_context + num_filled),
        seed=responses[0].seed,
    )


def make_choice(request: FimRequest | CompletionRequest, index: int, prompt: str, fill: wire.FilledHole) -> TextChoice:
    """A choice with the text of a fill up to its first stop string."""
    kept = cut_at_stop(fill.text, request.stop)
    reason: FinishReason = "length" if fill.cut and kept == fill.text else "stop"
    text = with_line_endings_of(kept, prompt, request.suffix)
    if isinstance(request, CompletionRequest):
        return CompletionChoice(index=index, text=text, finish_reason=reason)
    message = ChatMessage(content=text)
    if request.stream:
        return StreamedChoice(index=index, text=text, finish_reason=reason, delta=message)
    return FimChoice(index=index, text=text, finish_reason=reason, message=message)


def list_prompts(request: FimRequest | CompletionRequest) -> list[str]:
    return [request.prompt] if isinstance(request.prompt, str) else request.prompt


def find_sides(prompt: str, suffix: str | None) -> tuple[str, str]:
    """The text before and behind the hole. Without a suffix, markers in the prompt tell what is behind it, if any."""
    if suffix:
        return prompt, suffix
    return split_prompt(prompt) or (prompt, "")


def choose_sampling(temperature: float, top_p: float) -> tuple[float, float]:
    """Temperature and `top_p` within the engine's ranges. A `top_p` of 0 means the likeliest token: temperature 0."""
    if top_p <= 0:
        return 0.0, 1.0
    return min(max(temperature, 0.0), 2.0), min(top_p, 1.0)


def around_hole(prompt: str, suffix: str, max_tokens: int | None) -> list[wire.Segment]:
    """The segments of a request: prompt, one hole, suffix, with line feeds as line endings."""
    limit = None if max_tokens is None else min(max_tokens, wire.MAX_HOLE_TOKENS)
    return [
        wire.TextSegment(text=to_line_feeds(prompt)),
        wire.HoleSegment(hole=wire.HoleSpec(max_tokens=limit, indent="")),
        wire.TextSegment(text=to_line_feeds(suffix)),
    ]


def cut_at_stop(text: str, stop: str | list[str] | None) -> str:
    """`text` up to the first of the stop strings, whose line endings become line feeds as those of `text` are."""
    strings = [to_line_feeds(string) for string in ([stop] if isinstance(stop, str) else stop or [])]
    positions = [text.find(string) for string in strings if string and string in text]
    return text[: min(positions, default=len(text))]


def with_line_endings_of(text: str, *around: str | None) -> str:
    """`text` with CRLF if one of the texts around the hole has it."""
    if not any("\r\n" in part for part in around if part):
        return text
    return text.replace("\n", "\r\n")


def to_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
