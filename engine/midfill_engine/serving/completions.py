"""The route `/v1/completions` with `suffix`, for OpenAI's clients. Knows no model."""

import secrets
import time
import uuid
from typing import Literal

from pydantic import BaseModel

from midfill_engine.serving.fim import FinishReason, Usage, around_hole, budget_ms, clamp, finish, with_line_endings_of
from midfill_engine.serving.requests import CompletionRequest
from midfill_engine.wire import InfillRequest, InfillResponse


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
            segments=around_hole(prompt, request.suffix or "", clamp(request.max_tokens)),
            max_ms=budget_ms(request.t_max_predict_ms),
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
        (with_line_endings_of(text, prompt, request.suffix), reason)
        for prompt, response in zip(request.prompts, responses, strict=True)
        for fills in (response.holes, *response.alternatives)
        for text, reason in (finish(fills[0], request.stop),)
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
