"""Builds requests that fit the engine's schema: leaves out what only helps, refuses the rest. Knows no engine."""

from collections.abc import Iterable, Sequence
from typing import Any

from midfill_engine import wire
from midfill_infill.errors import MidfillError
from midfill_infill.text.encoding import is_decoded, to_visible


def build_hole(
    spec: wire.HoleSpec | None = None, *, candidates: Iterable[tuple[str, float]] = (), **wanted: Any
) -> wire.HoleSpec:
    """`spec` with the `wanted` values and at most so many candidates (text and certainty) and names as a hole takes,
    without those that are too long or not text. The indentation ends where the schema does: lines begin with that
    too. Raises MidfillError `hole_too_large` for the draft and its anchors.
    """
    values = dict(spec or ()) | wanted
    for field, most in (("names", wire.MAX_NAMES), ("unused", wire.MAX_UNUSED)):
        values[field] = _fitting(values.get(field, ()), wire.MAX_NAME_CHARACTERS)[:most]
    certainties: dict[str, float] = {}
    for text, certainty in candidates:
        certainties.setdefault(text, certainty)
    texts = _fitting(certainties, wire.MAX_CANDIDATE_CHARACTERS)[: wire.MAX_CANDIDATES]
    keep = values.get("keep", ())
    if keep:
        texts = []
    values["candidates"] = [wire.GivenText(text=text, certainty=certainties[text]) for text in texts]
    indent = values.get("indent")
    if indent is not None:
        values["indent"] = indent[: wire.MAX_INDENT_CHARACTERS]
    if len(keep) > wire.MAX_ANCHORS:
        raise MidfillError("hole_too_large", f"a hole has {len(keep)} anchors, {wire.MAX_ANCHORS} are the most")
    size = len(values.get("draft", ""))
    if size > wire.MAX_DRAFT_CHARACTERS:
        message = f"a hole with anchors has {size} characters, {wire.MAX_DRAFT_CHARACTERS} are the most"
        raise MidfillError("hole_too_large", message)
    return wire.HoleSpec(**values)


def build_request(
    segments: Sequence[wire.Segment], *, model: str | None, seed: int, excerpts: Iterable[str], **options: Any
) -> wire.InfillRequest:
    """The request for `segments`, whose holes `build_hole` has built, with the `excerpts` that it takes. Raises
    MidfillError `hole_too_large`, and `unknown_model` for what names no model.
    """
    if len(segments) > wire.MAX_SEGMENTS:
        holes = sum(isinstance(segment, wire.HoleSegment) for segment in segments)
        message = f"{holes} holes and the text between them are {len(segments)} stretches"
        most = f"{wire.MAX_SEGMENTS} are the most that are filled jointly"
        raise MidfillError("hole_too_large", f"{message}, {most}", "fill fewer holes at once")
    if model is not None and not (is_decoded(model) and len(model) <= wire.MAX_MODEL_CHARACTERS):
        raise MidfillError(
            "unknown_model", f"a model's name has at most {wire.MAX_MODEL_CHARACTERS} characters of text"
        )
    request = wire.InfillRequest(
        segments=list(segments),
        model=model,
        seed=seed % (wire.MAX_SEED + 1),
        excerpts=_fitting(excerpts, wire.MAX_EXCERPT_CHARACTERS)[: wire.MAX_EXCERPTS],
        stream=True,
        **options,
    )
    num_bytes = len(request.model_dump_json(exclude_defaults=True).encode())
    if num_bytes > wire.MAX_BODY_BYTES:
        message = f"the holes and their context have {num_bytes} bytes, {wire.MAX_BODY_BYTES} are the most"
        raise MidfillError("hole_too_large", message, "fill fewer holes at once")
    return request


def clean_text(text: str) -> str:
    """A text for a segment. Raises MidfillError `hole_too_large`."""
    if len(text) > wire.MAX_TEXT_CHARACTERS:
        message = f"a stretch of text has {len(text)} characters, {wire.MAX_TEXT_CHARACTERS} are the most"
        raise MidfillError("hole_too_large", message, "fill fewer holes at once")
    return to_visible(text)


def _fitting(texts: Iterable[str], most: int) -> list[str]:
    """The texts that are neither empty nor too long, and are text."""
    return [text for text in texts if 0 < len(text) <= most and is_decoded(text)]
