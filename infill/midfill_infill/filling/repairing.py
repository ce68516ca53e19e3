"""What a repair masks of a faulty fill, and the confidence of what it keeps. Asks no engine."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from midfill_engine import wire
from midfill_infill.context.requests import build_hole
from midfill_infill.context.segments import Segments
from midfill_infill.filling.candidates import Row
from midfill_infill.text.spans import find_gaps, merge_spans


def mask_errors(segments: Segments, row: Row) -> Segments:
    """The segments with the engine's text as draft, its lines with errors masked; unchanged if there are none."""
    specs: list[wire.HoleSpec] = []
    any_masked = False
    for spec, filled, spliced in zip(segments.specs, row.holes, row.spliced.fills, strict=True):
        free = find_gaps(filled.anchors, len(filled.text))
        masked = _intersect(_whole_lines(filled.text, spliced.error_ranges), free)
        any_masked = any_masked or bool(masked)
        keep = find_gaps(masked, len(filled.text))
        specs.append(build_hole(spec, draft=filled.text, keep=keep))
    if not any_masked:
        return segments
    return replace(segments, specs=tuple(specs))


def recall(draft: Segments, row: Row, answer: Sequence[wire.FilledHole]) -> tuple[wire.FilledHole, ...]:
    """Restores the confidence with which text was first settled; a repair reports kept text as anchors."""
    return tuple(map(_recall_hole, draft.specs, row.holes, answer))


def _recall_hole(spec: wire.HoleSpec, first: wire.FilledHole, filled: wire.FilledHole) -> wire.FilledHole:
    if spec.draft != first.text:
        return filled
    kept = chain.from_iterable(range(start, end) for start, end in spec.keep)
    anchored = chain.from_iterable(range(start, end) for start, end in filled.anchors)
    draft_of = dict(zip(anchored, kept, strict=False))  # without reported anchors the answer's confidences stay
    known: dict[int, float] = {}
    for (start, end), value in zip(first.tokens, first.confidence, strict=False):
        known |= dict.fromkeys(range(start, end), value)
    confidence = list(filled.confidence)
    for index, (start, _) in enumerate(filled.tokens):
        char = draft_of.get(start)
        if char in known:
            confidence[index] = known[char]
    return filled.model_copy(update={"confidence": confidence})


def _intersect(spans: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The intersection of two sorted lists of disjoint ranges."""
    common: list[tuple[int, int]] = []
    for span_start, span_end in spans:
        for other_start, other_end in others:
            start = max(span_start, other_start)
            end = min(span_end, other_end)
            if start < end:
                common.append((start, end))
    return common


def _whole_lines(text: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The lines of `text` that `ranges` touch, merged, without the first indentation and the last line end."""
    lines: list[tuple[int, int]] = []
    for start, end in ranges:
        start = text.rfind("\n", 0, start) + 1
        end = text.find("\n", max(end - 1, start))
        if end < 0:
            end = len(text)
        start = end - len(text[start:end].lstrip())
        if start < end:
            lines.append((start, end))
    return merge_spans(lines, apart=1)
