"""The door `/v1/completions` with `suffix`, as OpenAI's clients speak it. Knows no model."""

import time
import uuid
from typing import Literal

from pydantic import BaseModel

from midfill_engine.serving.fim import FinishReason, Usage, around_hole, budget_ms, clamp, finish, with_line_endings_of
from midfill_engine.wire import CompletionRequest, InfillRequest, InfillResponse


class Choice(BaseModel):
    index: int
    text: str
    logprobs: None = None
    finish_reason: FinishReason


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    seed: int | None = None


def to_infill(request: CompletionRequest) -> InfillRequest:
    return InfillRequest(
        segments=around_hole(request.prompt, request.suffix or "", clamp(request.max_tokens)),
        max_ms=budget_ms(request.t_max_predict_ms),
        model=request.model or None,
        seed=request.seed,
        temperature=request.temperature or 0.0,
        top_p=request.top_p or 1.0,
        n=request.n,
    )


def from_infill(request: CompletionRequest, response: InfillResponse) -> Completion:
    ends = [finish(fills[0], request.stop) for fills in (response.holes, *response.alternatives)]
    sides = (request.prompt, request.suffix)
    choices = [
        Choice(index=index, text=with_line_endings_of(text, *sides), finish_reason=reason)
        for index, (text, reason) in enumerate(ends)
    ]
    return Completion(
        id=f"cmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=response.model,
        choices=choices,
        usage=Usage.of(response.stats),
        seed=response.seed,
    )
