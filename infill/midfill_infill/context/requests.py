"""Builds requests within the limits of the engine's schema: cuts what only helps, and refuses a request whose necessary
parts are too large. Knows no engine.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from midfill_engine import wire
from midfill_infill.errors import MidfillError
from midfill_infill.text.encoding import is_decoded, to_visible


def build_hole(
    spec: wire.HoleSpec | None = None, *, candidates: Iterable[tuple[str, float]] = (), **changes: Any
) -> wire.HoleSpec:
    """`spec` with `changes` of its fields, and with `candidates` (text and certainty) in place of its own.

    Leaves out names and candidates beyond the schema's limits, and those that are too long or not text. Raises
    MidfillError `hole_too_large` for a draft that is too long or has too many anchors.
    """
    values = dict(spec or ()) | changes
    for field, max_count in (("names", wire.MAX_NAMES), ("unused", wire.MAX_UNUSED)):
        values[field] = _fitting(values.get(field, ()), wire.MAX_NAME_CHARACTERS)[:max_count]
    certainty_of: dict[str, float] = {}
    for text, certainty in candidates:
        certainty_of.setdefault(text, certainty)
    texts = _fitting(certainty_of.keys(), wire.MAX_CANDIDATE_CHARACTERS)[: wire.MAX_CANDIDATES]
    keep = values.get("keep", ())
    if keep:  # candidates are whole texts, without the text that is kept
        texts = []
    values["candidates"] = [wire.GivenText(text=text, certainty=certainty_of[text]) for text in texts]
    indent = values.get("indent")
    if indent is not None:  # every line begins with a shorter indentation too
        values["indent"] = indent[: wire.MAX_INDENT_CHARACTERS]
    if len(keep) > wire.MAX_ANCHORS:
        raise MidfillError("hole_too_large", f"a hole has {len(keep)} anchors, at most {wire.MAX_ANCHORS} are allowed")
    size = len(values.get("draft", ""))
    if size > wire.MAX_DRAFT_CHARACTERS:
        message = f"the draft of a hole has {size} characters, at most {wire.MAX_DRAFT_CHARACTERS} are allowed"
        raise MidfillError("hole_too_large", message)
    return wire.HoleSpec(**values)


def build_request(
    segments: Sequence[wire.Segment], *, model: str | None, seed: int, excerpts: Iterable[str], **options: Any
) -> wire.InfillRequest:
    """The request for `segments`, whose holes `build_hole` has built, with as many `excerpts` as fit. Raises
    MidfillError `hole_too_large`, and `unknown_model` if `model` is too long or not text.
    """
    if len(segments) > wire.MAX_SEGMENTS:
        holes = sum(isinstance(segment, wire.HoleSegment) for segment in segments)
        message = f"{holes} holes and the text between them are {len(segments)} stretches"
        limit = f"at most {wire.MAX_SEGMENTS} are filled jointly"
        raise MidfillError("hole_too_large", f"{message}, {limit}", "fill fewer holes at once")
    if model is not None and not (is_decoded(model) and len(model) <= wire.MAX_MODEL_CHARACTERS):
        raise MidfillError(
            "unknown_model", f"a model's name has at most {wire.MAX_MODEL_CHARACTERS} characters of text"
        )
    request = wire.InfillRequest(
        segments=list(segments),
        model=model,
        seed=seed % (wire.MAX_SEED + 1),  # any integer is a seed
        excerpts=_fitting(excerpts, wire.MAX_EXCERPT_CHARACTERS)[: wire.MAX_EXCERPTS],
        stream=True,
        **options,
    )
    num_bytes = len(request.model_dump_json(exclude_defaults=True).encode())  # as `engines/client.py` sends it
    if num_bytes > wire.MAX_BODY_BYTES:
        message = f"the holes and their context have {num_bytes} bytes, at most {wire.MAX_BODY_BYTES} are allowed"
        raise MidfillError("hole_too_large", message, "fill fewer holes at once")
    return request


def clean_text(text: str) -> str:
    """`text` for a segment, with marks in place of bytes that are no text. Raises MidfillError `hole_too_large`."""
    if len(text) > wire.MAX_TEXT_CHARACTERS:
        message = f"a stretch of text has {len(text)} characters, at most {wire.MAX_TEXT_CHARACTERS} are allowed"
        raise MidfillError("hole_too_large", message, "fill fewer holes at once")
    return to_visible(text)


def _fitting(texts: Iterable[str], max_characters: int) -> list[str]:
    """Those of `texts` that are neither empty nor too long, and have no bytes that could not be decoded."""
    return [text for text in texts if 0 < len(text) <= max_characters and is_decoded(text)]
