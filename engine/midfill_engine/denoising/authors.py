"""Translates `quality: "authors"` into the settings a model's authors use. Knows requests, no tokens."""

from midfill_engine.errors import RequestError
from midfill_engine.models.family import AuthorsSetting, Family
from midfill_engine.wire import ErrorCode, HoleSegment, InfillRequest, Segment


def take_authors(family: Family, request: InfillRequest) -> InfillRequest:
    """`request` with the authors' settings wherever it leaves the default. Raises RequestError if none are known."""
    if request.quality != "authors":
        return request
    setting = family.authors
    if setting is None:
        message = f"no setting of the authors of {family.name!r} models is known"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "give quality as a number from 0 to 1")
    return request.model_copy(
        update={
            "quality": setting.quality,
            "sampler": request.sampler or setting.sampler,
            "steps": request.steps or setting.steps,
            "temperature": request.temperature or setting.temperature,
            "top_p": request.top_p if request.top_p < 1 else setting.top_p,
            "segments": [_limited(segment, setting) for segment in request.segments],
        }
    )


def dial(family: Family, request: InfillRequest) -> float:
    """The value of `quality` as a number."""
    return request.quality if isinstance(request.quality, (int, float)) else family.quality


def _limited(segment: Segment, setting: AuthorsSetting) -> Segment:
    if not isinstance(segment, HoleSegment) or segment.hole.max_tokens is not None or setting.max_tokens is None:
        return segment
    limit = max(setting.max_tokens, segment.hole.min_tokens)
    return HoleSegment(hole=segment.hole.model_copy(update={"max_tokens": limit}))
