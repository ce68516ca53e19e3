"""The door `/v1/completions` with `suffix`, as OpenAI's clients speak it. Knows no model."""

import time
import uuid
from typing import Literal

from pydantic import BaseModel

from midfill_engine.fim import Usage, cut_at_stop, to_line_feeds
from midfill_engine.wire import (
    MAX_HOLE_TOKENS,
    CompletionRequest,
    HoleSegment,
    HoleSpec,
    InfillRequest,
    InfillResponse,
    TextSegment,
)


class Choice(BaseModel):
    index: int
    text: str
    logprobs: None = None
    finish_reason: Literal["stop"] = "stop"


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


def to_infill(request: CompletionRequest) -> InfillRequest:
    """Prompt, one hole, suffix; every line ending as a line feed."""
    limit = None if request.max_tokens is None else min(request.max_tokens, MAX_HOLE_TOKENS)
    return InfillRequest(
        segments=[
            TextSegment(text=to_line_feeds(request.prompt)),
            HoleSegment(hole=HoleSpec(max_tokens=limit)),
            TextSegment(text=to_line_feeds(request.suffix or "")),
        ],
        model=request.model or None,
        seed=request.seed or 0,
        temperature=request.temperature or 0.0,
        top_p=request.top_p or 1.0,
        n=request.n,
    )


def from_infill(request: CompletionRequest, response: InfillResponse, num_prompt_tokens: int) -> Completion:
    texts = [fills[0].text for fills in (response.holes, *response.alternatives)]
    num_tokens = response.stats.tokens
    return Completion(
        id=f"cmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=response.model,
        choices=[Choice(index=index, text=cut_at_stop(text, request.stop)) for index, text in enumerate(texts)],
        usage=Usage(
            prompt_tokens=num_prompt_tokens,
            completion_tokens=num_tokens,
            total_tokens=num_prompt_tokens + num_tokens,
        ),
    )
