"""Inception's Mercury instead of our engine: `/v1/fim/completions` as its service takes and answers it. Does no I/O.

It fills one gap a request, so holes are filled one after the other, each with the earlier ones in place. It says
nothing of single tokens, so fills have no confidences.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from midfill_engine.wire import (
    FilledHole,
    HoleSegment,
    HoleSpec,
    InfillRequest,
    InfillResponse,
    Stats,
)
from midfill_infill.errors import MidfillError

MODEL: Final = "mercury-edit-2"
PATH: Final = "/v1/fim/completions"
KEY_VARIABLE: Final = "INCEPTION_API_KEY"
MAX_TOKENS: Final = 8192
DEFAULT_TOKENS: Final = 256
# What it is shown of a document. It says nothing of its limits, and all that is sent is paid for.
CONTEXT_TOKENS: Final = 8192


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


class FimBody(_Message):
    """What is sent for one gap."""

    model: str
    prompt: str
    suffix: str
    max_tokens: int
    temperature: float | None = None
    stream: bool = False


class _Choice(_Message):
    text: str


class _Usage(_Message):
    completion_tokens: int = 0


class FimReply(_Message):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage = Field(default_factory=_Usage)


@dataclass(frozen=True)
class _Gap:
    """What of a hole is to be filled: `head` and `tail` are kept text at its edges."""

    head: str
    tail: str
    max_tokens: int


def exchange(request: InfillRequest) -> Generator[FimBody, FimReply, InfillResponse]:
    """Yields what to send for each hole, is sent what came back, returns the whole. Raises MidfillError."""
    started_s = time.perf_counter()
    gaps = [_gap_of(segment.hole) for segment in request.segments if isinstance(segment, HoleSegment)]
    rows: list[list[FilledHole]] = []
    tokens = 0
    for _ in range(request.n):
        middles: list[str] = []
        for gap in gaps:
            before, behind = _around(request, gaps, middles)
            body = FimBody(
                model=request.model or MODEL,
                prompt=before,
                suffix=behind,
                max_tokens=gap.max_tokens,
                temperature=request.temperature or None,
            )
            reply = yield body
            middles.append(reply.choices[0].text.replace("\r\n", "\n"))
            tokens += reply.usage.completion_tokens
        rows.append([_filled(gap, middle) for gap, middle in zip(gaps, middles, strict=True)])
    num_forwards = len(gaps) * request.n
    ms = (time.perf_counter() - started_s) * 1000
    stats = Stats(steps=num_forwards, forwards=num_forwards, tokens=tokens, ms=ms)
    return InfillResponse(model=request.model or MODEL, holes=rows[0], alternatives=rows[1:], stats=stats)


def read_reply(content: bytes) -> FimReply:
    """Raises MidfillError for what is no such answer."""
    try:
        return FimReply.model_validate_json(content)
    except ValidationError:
        raise MidfillError("engine_error", "the service answers in a form that is not known") from None


def _gap_of(spec: HoleSpec) -> _Gap:
    """Kept text at the edges goes to the text around; within a hole this service can keep nothing."""
    keep = list(spec.keep)
    head = spec.draft[: keep.pop(0)[1]] if keep and keep[0][0] == 0 else ""
    tail = spec.draft[keep.pop()[0] :] if keep and keep[-1][1] == len(spec.draft) else ""
    if keep:
        message = "this service cannot keep text in the middle of a hole"
        raise MidfillError("bad_request", message, next_step="fill the parts one by one")
    return _Gap(head, tail, min(spec.max_tokens or DEFAULT_TOKENS, MAX_TOKENS))


def _around(request: InfillRequest, gaps: list[_Gap], middles: list[str]) -> tuple[str, str]:
    """The text before and behind the first hole that has no middle yet; later ones show what they keep."""
    before, behind, index = "", "", 0
    for segment in request.segments:
        if not isinstance(segment, HoleSegment):
            piece = segment.text
        elif index < len(middles):
            piece = gaps[index].head + middles[index] + gaps[index].tail
        else:
            piece = gaps[index].head + gaps[index].tail
        if isinstance(segment, HoleSegment) and index == len(middles):
            before, behind, index = before + gaps[index].head, gaps[index].tail, index + 1
            continue
        if isinstance(segment, HoleSegment):
            index += 1
        if index > len(middles):
            behind += piece
        else:
            before += piece
    return before, behind


def _filled(gap: _Gap, middle: str) -> FilledHole:
    text = gap.head + middle + gap.tail
    anchors = [(0, len(gap.head)), (len(text) - len(gap.tail), len(text))]
    return FilledHole(text=text, tokens=[], confidence=[], anchors=[span for span in anchors if span[0] < span[1]])
