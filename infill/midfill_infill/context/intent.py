"""Puts what a user wants into the text around holes, as a comment above each. No fill has it. Knows no document."""

from dataclasses import replace

from midfill_engine.wire import Segment, TextSegment
from midfill_infill.context.segments import Segments


def with_intent(segments: Segments, mark: str, intent: str) -> Segments:
    """The segments with a line comment above the line of each hole; `mark` is what a comment begins with."""
    if not intent:
        return segments
    shown: list[Segment] = []
    for segment in segments.segments:
        if not isinstance(segment, TextSegment):
            before = shown.pop().text if shown and isinstance(shown[-1], TextSegment) else ""  # type: ignore[union-attr]
            shown.append(TextSegment(text=_above_last_line(before, f"{mark} {intent}")))
        shown.append(segment)
    return replace(segments, segments=tuple(shown))


def _above_last_line(text: str, comment: str) -> str:
    head, newline, line = text.rpartition("\n")
    indent = line[: len(line) - len(line.lstrip())]
    return f"{head}{newline}{indent}{comment}\n{line}"
