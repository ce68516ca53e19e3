"""The route `/v1/completions` with `suffix`, for OpenAI's clients. Knows no model."""

import secrets
import time
import uuid
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, Field, model_validator

from midfill_engine.serving import fim
from midfill_engine.serving.fim import FinishReason, ForeignRequest, Usage
from midfill_engine.wire import MAX_TEXT_CHARACTERS, FiniteFloat, InfillRequest, InfillResponse, Text

MAX_PROMPTS: Final = 16


class CompletionRequest(ForeignRequest):
    """`POST /v1/completions` with `suffix` as OpenAI's clients send it."""

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_PROMPTS)]
    suffix: str | None = Field(default=None, max_length=MAX_TEXT_CHARACTERS)
    max_tokens: int | None = Field(default=None, ge=1)
    t_max_predict_ms: int | None = None
    temperature: FiniteFloat | None = Field(default=None, ge=0, le=2)
    top_p: FiniteFloat | None = Field(default=None, gt=0, le=1)
    n: int = Field(default=1, ge=1, le=8)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: str | list[str] | None = None
    echo: bool = False
    logprobs: int | bool | None = None
    best_of: int | None = None

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    @model_validator(mode="after")
    def _refuse_what_is_not_done(self) -> Self:
        if self.echo:
            raise ValueError("echo is not supported: put the prompt before the answer")
        if self.logprobs is not None and self.logprobs is not False:
            raise ValueError("logprobs are not supported: /v1/infill tells every token's confidence")
        if self.best_of is not None and self.best_of != self.n:
            raise ValueError("best_of is not supported: ask for n, and the surest comes first")
        return self


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: None = None
    finish_reason: FinishReason


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    seed: int | None = None


def to_infill(request: CompletionRequest) -> list[InfillRequest]:
    """One request per prompt, all with one seed."""
    seed = request.seed
    if seed is None and request.temperature and len(request.prompts) > 1:
        seed = secrets.randbelow(2**31)
    return [
        InfillRequest(
            segments=fim.around_hole(prompt, request.suffix or "", fim.clamp(request.max_tokens)),
            max_ms=fim.budget_ms(request.t_max_predict_ms),
            model=request.model or None,
            seed=seed,
            temperature=request.temperature or 0.0,
            top_p=request.top_p or 1.0,
            n=request.n,
        )
        for prompt in request.prompts
    ]


def from_infill(request: CompletionRequest, responses: list[InfillResponse]) -> Completion:
    """The choices of every prompt in turn, best first."""
    ends = [
        (fim.with_line_endings_of(text, prompt, request.suffix), reason)
        for prompt, response in zip(request.prompts, responses, strict=True)
        for fills in (response.holes, *response.alternatives)
        for text, reason in (fim.finish(fills[0], request.stop),)
    ]
    return Completion(
        id=f"cmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=responses[0].model,
        choices=[
            CompletionChoice(index=index, text=text, finish_reason=reason) for index, (text, reason) in enumerate(ends)
        ],
        usage=Usage.of(*(response.stats for response in responses)),
        seed=responses[0].seed,
    )
