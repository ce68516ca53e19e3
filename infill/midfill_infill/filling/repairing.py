"""Chooses what a repair of a faulty fill masks, and restores the confidence of what it keeps. Asks no engine."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from midfill_engine import wire
from midfill_infill.context.requests import build_hole
from midfill_infill.context.segments import Segments
from midfill_infill.filling.candidates import Combination
from midfill_infill.text.spans import find_gaps, merge_spans


def mask_errors(segments: Segments, combination: Combination) -> Segments:
    """The segments with the texts of `combination` as drafts: their lines with errors are masked, all other text is
    kept. Returns `segments` themselves if there is no such line outside of anchors.
    """
    specs: list[wire.HoleSpec] = []
    any_masked = False
    for spec, filled, spliced in zip(segments.specs, combination.holes, combination.spliced.fills, strict=True):
        without_errors = find_gaps(_whole_lines(filled.text, spliced.error_ranges), len(filled.text))
        masked = find_gaps(merge_spans([*without_errors, *filled.anchors]), len(filled.text))
        any_masked = any_masked or bool(masked)
        keep = find_gaps(masked, len(filled.text))
        specs.append(build_hole(spec, draft=filled.text, keep=keep))
    if not any_masked:
        return segments
    return replace(segments, specs=tuple(specs))


def recall(spec: wire.HoleSpec, first: wire.FilledHole, repaired: wire.FilledHole) -> wire.FilledHole:
    """The repaired hole with the confidence of its kept text in the `first` round; the engine reports this text as
    anchors, whose confidence is 1. Unchanged if the first text was no draft of `spec`, which was sent for the repair.
    """
    if spec.draft != first.text:
        return repaired
    kept_positions = chain.from_iterable(range(start, end) for start, end in spec.keep)
    anchor_positions = chain.from_iterable(range(start, end) for start, end in repaired.anchors)
    # Anchors are the kept text in order. Without reported anchors the confidences of the repair stay.
    draft_position_of = dict(zip(anchor_positions, kept_positions, strict=False))
    first_confidence: dict[int, float] = {}
    for (start, end), value in zip(first.tokens, first.confidence, strict=False):
        first_confidence |= dict.fromkeys(range(start, end), value)
    confidence = list(repaired.confidence)
    for index, (start, _) in enumerate(repaired.tokens):
        draft_position = draft_position_of.get(start)
        if draft_position in first_confidence:
            confidence[index] = first_confidence[draft_position]
    return repaired.model_copy(update={"confidence": confidence})


def _whole_lines(text: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges of `text` that cover the lines which `ranges` touch, without their first indentation and last line
    end. Ranges of lines that follow each other are merged.
    """
    covers: list[tuple[int, int]] = []
    for start, end in ranges:
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", max(end - 1, line_start))
        if line_end < 0:
            line_end = len(text)
        code_start = line_end - len(text[line_start:line_end].lstrip())
        if code_start < line_end:
            covers.append((code_start, line_end))
    return merge_spans(covers, apart=1)
